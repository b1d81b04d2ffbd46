//! Things keep their numbers, and are found by their names.

use super::*;

#[derive(Debug, PartialEq)]
struct Thing(String);

impl Named for Thing {
    type Name = String;

    fn name(&self) -> &String {
        &self.0
    }
}

fn thing(number: u32) -> Thing {
    Thing(number.to_string())
}

#[test]
fn a_thing_is_found_by_its_name_under_the_number_that_it_got() {
    let mut things = Numbered::default();
    for number in 0..5_000 {
        assert_eq!(things.find(&number.to_string()), None);
        assert_eq!(things.add(thing(number)), number);
    }
    for number in 0..5_000 {
        assert_eq!(things.find(&number.to_string()), Some(number));
        assert_eq!(things.get(number), Some(&thing(number)));
    }
    assert_eq!(things.len(), 5_000);
    assert!(things.bytes() > 5_000 * size_of::<Thing>());
    let all: Vec<(u32, Thing)> = things.into_numbered().collect();
    assert_eq!(all[4_999], (4_999, thing(4_999)));
}

#[test]
fn the_number_of_what_was_removed_goes_to_the_next_thing() {
    let mut things = Numbered::default();
    for number in 0..100 {
        things.add(thing(number));
    }
    assert_eq!(things.remove(7), Some(thing(7)));
    assert_eq!(things.remove(7), None);
    assert_eq!((things.find(&"7".to_owned()), things.get(7)), (None, None));
    assert_eq!((things.len(), things.slots()), (99, 100));
    assert_eq!(things.vacant_bytes(), size_of::<Thing>());
    assert_eq!(things.append(thing(100)), 100);
    assert_eq!(things.add(thing(101)), 7);
    assert_eq!(things.find(&"101".to_owned()), Some(7));
    for number in (0..7).chain(8..101) {
        assert_eq!(things.find(&number.to_string()), Some(number));
    }
}

#[test]
fn what_was_changed_is_taken_once_in_each_delta() {
    let mut things = Numbered::default();
    for number in 0..3 {
        things.add(thing(number));
    }
    things.add_vacant();
    things.track_changes(true);
    let delta = |things: &mut Numbered<Thing>| {
        things.rewind_changes();
        let changes = std::iter::from_fn(|| {
            let (changed, one) = things.take_changed()?;
            Some((changed.number, changed.is_new, one.map(|one| one.0.clone())))
        });
        changes.collect::<Vec<_>>()
    };
    let new = |number: u32| (number, true, (number < 3).then(|| number.to_string()));
    assert_eq!(delta(&mut things), [new(0), new(1), new(2), new(3)]);
    assert!(things.get_mut(1).is_some() && things.get_mut(3).is_none());
    // Behind the vacant one: the receiver counts as the sender does.
    assert_eq!(things.add(thing(4)), 4);
    let changed = [(1, false, Some("1".to_owned())), (4, true, Some("4".to_owned()))];
    assert_eq!(delta(&mut things), changed);
    assert!(delta(&mut things).is_empty());
}
