//! Which changed slots each delta brings.

use super::*;

fn rest(changed: &mut ChangedSlots) -> Vec<u32> {
    let slots = std::iter::from_fn(|| changed.take_next());
    slots.map(|slot| slot.number).collect()
}

fn delta(changed: &mut ChangedSlots) -> Vec<u32> {
    changed.rewind();
    rest(changed)
}

#[test]
fn each_slot_is_taken_once_and_again_if_it_changes_again() {
    for len in [0, 1, 63, 64, 65, 200] {
        let mut changed = ChangedSlots::all(len);
        assert_eq!(delta(&mut changed), (0..len as u32).collect::<Vec<_>>());
        assert!(delta(&mut changed).is_empty());
        [3, 700, 64, 3].iter().for_each(|&number| changed.note(number));
        assert_eq!(delta(&mut changed), [3, 64, 700]);
        assert!(delta(&mut changed).is_empty());
    }
}

#[test]
fn what_changes_behind_a_delta_comes_in_the_next_one_and_what_changes_before_it_in_this_one() {
    let mut changed = ChangedSlots::all(100);
    for number in 0..10 {
        let is_new = true;
        assert_eq!(changed.take_next(), Some(ChangedSlot { number, is_new }));
    }
    [5, 9, 50, 100].iter().for_each(|&number| changed.note(number));
    assert_eq!(rest(&mut changed), (10..=100).collect::<Vec<_>>());
    // New slots follow the last one, also where the delta was at its end.
    changed.note(101);
    assert_eq!(rest(&mut changed), [101]);
    changed.rewind();
    for number in [5, 9] {
        let is_new = false;
        assert_eq!(changed.take_next(), Some(ChangedSlot { number, is_new }));
    }
    assert_eq!(changed.take_next(), None);
}
