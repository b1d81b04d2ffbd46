//! A table of names, whose slots hold nothing else.

use super::*;

#[derive(Debug)]
struct Name(Box<[u8]>, NamespaceId);

impl Slot for Name {
    type Key = Box<[u8]>;

    fn vacant() -> Self {
        Name(Box::default(), NOBODY)
    }

    fn key(&self) -> &[u8] {
        &self.0
    }

    fn namespace(&self) -> NamespaceId {
        self.1
    }
}

#[test]
fn a_key_is_found_by_its_bytes_and_its_namespace() {
    let hasher = Hasher::new(1);
    let mut table = KeyTable::default();
    let all: Vec<(String, NamespaceId)> =
        (0..5_000).map(|n: u32| ((n / 2).to_string(), NamespaceId(1 + n % 2))).collect();
    for (number, (name, namespace)) in (0..).zip(&all) {
        let hash = hasher.key(*namespace, Key::Name(name.as_bytes()));
        assert_eq!(table.find(hash, *namespace, name.as_bytes()), None);
        let slot = Name(name.as_bytes().into(), *namespace);
        assert_eq!(table.add(&hasher, hash, slot), number);
    }
    for (number, (name, namespace)) in (0..).zip(&all) {
        let hash = hasher.key(*namespace, Key::Name(name.as_bytes()));
        let found = table.find(hash, *namespace, name.as_bytes());
        assert_eq!(found, Some(number));
        assert_eq!(*table.get(number).unwrap().0, *name.as_bytes());
    }
    assert_eq!(table.len(), 5_000);
}

#[test]
fn a_key_that_was_removed_is_not_found_and_its_slot_goes_to_the_next_key_unless_changes_are_tracked()
 {
    let hasher = Hasher::new(1);
    let mut table = KeyTable::default();
    let namespace = NamespaceId(1);
    let hash = |name: &str| hasher.key(namespace, Key::Name(name.as_bytes()));
    let add = |table: &mut KeyTable<Name>, name: &str| {
        let slot = Name(name.as_bytes().into(), namespace);
        table.add(&hasher, hash(name), slot)
    };
    let find =
        |table: &KeyTable<Name>, name: &str| table.find(hash(name), namespace, name.as_bytes());
    let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    for name in &names {
        add(&mut table, name);
    }
    for number in (0..1_000).step_by(2) {
        let removed = table.remove(&hasher, number).expect("a key");
        assert_eq!(*removed.0, *names[number as usize].as_bytes());
        assert!(table.get(number).is_none() && table.remove(&hasher, number).is_none());
    }
    assert_eq!((table.len(), table.slots(), table.iter().count()), (500, 1_000, 500));
    for (number, name) in (0..).zip(&names) {
        assert_eq!(find(&table, name), (number % 2 == 1).then_some(number));
    }
    assert_eq!(add(&mut table, "another"), 998);
    assert_eq!(find(&table, "another"), Some(998));
    table.track_changes(true);
    assert_eq!(add(&mut table, "behind"), 1_000);
    table.track_changes(false);
    // As many as make the index grow.
    let more: Vec<String> = (2_000..9_000).map(|n| n.to_string()).collect();
    for name in &more {
        add(&mut table, name);
    }
    assert_eq!(table.slots(), 1_001 + 7_000 - 499);
    for name in more.iter().chain(names.iter().skip(1).step_by(2)) {
        let number = find(&table, name).expect("a key");
        assert_eq!(*table.get(number).unwrap().0, *name.as_bytes());
    }
}

#[test]
fn a_key_behind_many_vacant_slots_is_found() {
    let hasher = Hasher::new(1);
    let namespace = NamespaceId(1);
    for vacant in [1, 6, 7, 8, 64, 1_000] {
        let mut table = KeyTable::default();
        (0..vacant).for_each(|_| table.add_vacant());
        for name in [b"one".as_slice(), b"two"] {
            let hash = hasher.key(namespace, Key::Name(name));
            let number = table.append(&hasher, hash, Name(name.into(), namespace));
            assert_eq!(table.find(hash, namespace, name), Some(number), "{vacant}");
        }
        assert_eq!((table.len(), table.slots()), (2, vacant + 2));
    }
}

#[test]
fn a_table_that_most_keys_have_left_gives_memory_back_and_knows_the_others() {
    let hasher = Hasher::new(1);
    let mut table = KeyTable::default();
    let namespace = NamespaceId(1);
    let hash = |name: &str| hasher.key(namespace, Key::Name(name.as_bytes()));
    let names: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    for name in &names {
        table.add(&hasher, hash(name), Name(name.as_bytes().into(), namespace));
    }
    let bytes = table.bytes();
    for number in 0..10_000 {
        if number % 5 > 0 {
            table.remove(&hasher, number).expect("a key");
        }
    }
    table.track_changes(true);
    assert!(!table.shrink(&hasher), "a reader knows the numbers");
    table.track_changes(false);
    assert!(table.shrink(&hasher) && !table.shrink(&hasher));
    assert!(table.bytes() < bytes / 3, "{} of {bytes}", table.bytes());
    for (number, name) in (0..).zip(&names) {
        let found = table.find(hash(name), namespace, name.as_bytes());
        assert_eq!(found.is_some(), number % 5 == 0, "{name}");
    }
}
