//! A table of names, whose slots hold nothing else.

use super::*;

#[derive(Debug)]
struct Name(Box<[u8]>, NamespaceId);

impl Slot for Name {
    type Key = Box<[u8]>;

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
    let all: Vec<(String, NamespaceId)> = (0..5_000)
        .map(|n: u32| ((n / 2).to_string(), NamespaceId(n % 2)))
        .collect();
    for (number, (name, namespace)) in (0..).zip(&all) {
        let hash = hasher.key(*namespace, Key::Name(name.as_bytes()));
        assert_eq!(table.find(hash, *namespace, name.as_bytes()), None);
        let slot = Name(name.as_bytes().into(), *namespace);
        assert_eq!(table.push(&hasher, hash, slot), number);
    }
    for (number, (name, namespace)) in (0..).zip(&all) {
        let hash = hasher.key(*namespace, Key::Name(name.as_bytes()));
        let found = table.find(hash, *namespace, name.as_bytes());
        assert_eq!(found, Some(number));
        assert_eq!(*table.get(number).unwrap().0, *name.as_bytes());
    }
    assert_eq!(table.len(), 5_000);
}
