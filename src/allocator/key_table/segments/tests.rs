use super::*;

#[test]
fn slots_keep_their_numbers_while_segments_are_added() {
    let mut segments = Segments::default();
    assert_eq!((segments.len(), segments.get(0)), (0, None));
    let all = 3 * SEGMENT_SLOTS as u32 + 1;
    for number in 0..all {
        segments.push(number);
        assert_eq!(segments.len() as u32, number + 1);
    }
    assert!((0..all).all(|number| segments.get(number) == Some(&number)));
    assert!(segments.get(all).is_none() && segments.get_mut(all).is_none());
    *segments.get_mut(600).unwrap() += 1;
    segments.iter_mut_unnoted().for_each(|slot| *slot += 1);
    assert_eq!(segments.get(600), Some(&602));
    assert_eq!(segments.iter().count() as u32, all);
}

#[test]
fn a_short_list_takes_little_and_a_long_one_hardly_more_than_its_slots() {
    let mut segments = Segments::default();
    segments.push(0u64);
    assert!(segments.bytes() < 256, "{}", segments.bytes());
    for number in 1..100_000 {
        segments.push(number);
    }
    let slots = 100_000 * size_of::<u64>();
    assert!((slots..slots * 103 / 100).contains(&segments.bytes()));
}

fn rest(changed: &mut ChangedSlots) -> Vec<u32> {
    let slots = std::iter::from_fn(|| changed.take_next());
    slots.map(|slot| slot.number).collect()
}

fn pass(changed: &mut ChangedSlots) -> Vec<u32> {
    changed.rewind();
    rest(changed)
}

#[test]
fn each_slot_is_taken_once_and_again_if_it_changes_again() {
    for len in [0, 1, 63, 64, 65, 200] {
        let mut changed = ChangedSlots::all(len);
        assert_eq!(pass(&mut changed), (0..len as u32).collect::<Vec<_>>());
        assert!(pass(&mut changed).is_empty());
        [3, 700, 64, 3].iter().for_each(|&number| changed.note(number));
        assert_eq!(pass(&mut changed), [3, 64, 700]);
        assert!(pass(&mut changed).is_empty());
    }
}

#[test]
fn what_changes_behind_a_pass_comes_in_the_next_one_and_what_changes_before_it_in_this_one() {
    let mut changed = ChangedSlots::all(100);
    for number in 0..10 {
        let is_new = true;
        assert_eq!(changed.take_next(), Some(ChangedSlot { number, is_new }));
    }
    [5, 9, 50, 100].iter().for_each(|&number| changed.note(number));
    assert_eq!(rest(&mut changed), (10..=100).collect::<Vec<_>>());
    // New slots follow the last one, also where the pass was at its end.
    changed.note(101);
    assert_eq!(rest(&mut changed), [101]);
    changed.rewind();
    for number in [5, 9] {
        let is_new = false;
        assert_eq!(changed.take_next(), Some(ChangedSlot { number, is_new }));
    }
    assert_eq!(changed.take_next(), None);
}

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
fn what_was_changed_is_taken_once_in_each_pass() {
    let mut things = Numbered::default();
    for number in 0..3 {
        things.add(thing(number));
    }
    things.add_vacant();
    things.track_changes(true);
    let pass = |things: &mut Numbered<Thing>| {
        things.rewind_changes();
        let changes = std::iter::from_fn(|| {
            let (changed, one) = things.take_changed()?;
            Some((changed.number, changed.is_new, one.map(|one| one.0.clone())))
        });
        changes.collect::<Vec<_>>()
    };
    let new = |number: u32| (number, true, (number < 3).then(|| number.to_string()));
    assert_eq!(pass(&mut things), [new(0), new(1), new(2), new(3)]);
    assert!(things.get_mut(1).is_some() && things.get_mut(3).is_none());
    // Behind the vacant one: the receiver counts as the sender does.
    assert_eq!(things.add(thing(4)), 4);
    let changed = [(1, false, Some("1".to_owned())), (4, true, Some("4".to_owned()))];
    assert_eq!(pass(&mut things), changed);
    assert!(pass(&mut things).is_empty());
}
