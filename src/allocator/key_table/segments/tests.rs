//! A list keeps its slots where they are, and takes little more than they do.

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
