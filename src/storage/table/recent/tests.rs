//! The records that are kept, those that give way, and that no record found is older than the table's.

use std::collections::HashMap;

use super::*;

fn id(key: u64) -> SectionId {
    SectionId {
        namespace: NamespaceId(1),
        key: match key % 3 {
            0 => SectionKey::Name(key.to_string().into_bytes().into()),
            _ => SectionKey::Id(key),
        },
    }
}

fn record(max_seq: u64) -> SectionRecord {
    SectionRecord {
        max_seq,
        floor: max_seq,
        epoch: 1,
        step: 10,
        unused_max: 5,
        skipped: 3,
        written_ms: 0,
    }
}

#[test]
fn a_record_takes_as_many_bytes_as_the_settings_page_says() {
    assert_eq!(RECORD_BYTES, 68);
}

#[test]
fn the_memory_is_bounded_and_holds_the_last_record_of_each_section_or_none() {
    let recent = RecentRecords::new(PARTS * 10 * RECORD_BYTES);
    let mut table = HashMap::new();
    for step in 0..20_000u64 {
        let key = step * step % 1_777;
        table.insert(key, record(step));
        recent.written(id(key), record(step), Some(1));
    }
    assert!(recent.len() <= PARTS * 10, "{}", recent.len());
    let found = table.iter().filter(|(key, record)| {
        let found = recent.find(&id(**key), 2);
        assert!(found.is_none_or(|found| found == **record));
        found.is_some()
    });
    let found = found.count();
    assert_eq!(found, recent.len(), "every slot is found by its section");
    recent.clear();
    assert_eq!((recent.len(), recent.find(&id(1), 2)), (0, None));
}

#[test]
fn sections_that_are_looked_up_together_have_the_records_that_each_has() {
    let recent = RecentRecords::new(1 << 20);
    for key in 0..1_000 {
        let epoch = key % 4;
        let record = SectionRecord { epoch, ..record(key) };
        recent.written(id(key), record, Some(1));
    }
    // Some are not here, some come twice, some are too new.
    let ids: Vec<SectionId> = (0..3_000).map(|n| id(n * 7 % 1_500)).collect();
    let together = recent.find_many(&ids, 2);
    let alone = ids.iter().map(|id| recent.find(id, 2));
    assert!(together.into_iter().eq(alone));
}

#[test]
fn what_is_written_again_stays_and_what_is_not_gives_way() {
    let recent = RecentRecords::new(PARTS * 10 * RECORD_BYTES);
    for key in 0..100_000 {
        recent.written(id(key), record(key), Some(1));
        recent.written(id(7), record(key), Some(1));
    }
    assert_eq!(recent.find(&id(7), 2), Some(record(99_999)));
    assert_eq!(recent.find(&id(8), 2), None);
}

#[test]
fn the_leaders_own_term_adds_no_record_but_none_becomes_stale() {
    let recent = RecentRecords::new(1 << 20);
    recent.written(id(1), record(10), Some(4));
    recent.leading(5);
    recent.written(id(1), record(20), Some(5));
    recent.written(id(2), record(20), Some(5));
    assert_eq!(recent.find(&id(1), 2), Some(record(20)));
    assert_eq!(recent.find(&id(2), 2), None);
    recent.written(id(2), record(30), Some(6));
    assert_eq!(recent.find(&id(2), 2), Some(record(30)));
    assert_eq!(recent.find(&id(2), 1), None, "it lacks its floor");
}

const OWN: u64 = 5;

/// Room for many records, on a node that leads a term.
fn leading() -> RecentRecords {
    let recent = RecentRecords::new(1 << 20);
    recent.leading(OWN);
    recent
}

#[test]
fn a_record_that_was_read_before_a_newer_one_was_written_is_read_again() {
    let recent = leading();
    let before = recent.begin_fill().expect("room");
    recent.written(id(1), record(20), Some(OWN));
    assert_eq!(recent.fill(id(1), record(10), &before), Err(ReadAgain));
    assert_eq!(recent.find(&id(1), 2), None);
    let before = recent.begin_fill().expect("room");
    assert_eq!(recent.fill(id(1), record(20), &before), Ok(()));
    assert_eq!(recent.find(&id(1), 2), Some(record(20)));
    recent.written(id(1), record(30), Some(OWN));
    assert_eq!(recent.find(&id(1), 2), Some(record(30)));
}

#[test]
fn what_was_written_while_a_fill_read_the_table_stays() {
    let recent = leading();
    let before = recent.begin_fill().expect("room");
    recent.written(id(1), record(20), Some(OWN + 1));
    assert_eq!(recent.fill(id(1), record(10), &before), Ok(()));
    assert_eq!(recent.find(&id(1), 2), Some(record(20)));
}

#[test]
fn a_record_of_a_table_that_was_replaced_is_not_added() {
    let recent = leading();
    let mut cleared = recent.cleared();
    let before = recent.begin_fill().expect("room");
    recent.clear();
    assert_eq!(recent.fill(id(1), record(10), &before), Err(ReadAgain));
    assert_eq!((recent.len(), *cleared.borrow_and_update()), (0, 1));
}

#[test]
fn a_fill_takes_no_place_of_another_record_and_ends_when_there_is_none_left() {
    let recent = RecentRecords::new(PARTS * 10 * RECORD_BYTES);
    recent.written(id(7), record(7), Some(1));
    let mut keys = 0;
    while let Some(before) = recent.begin_fill() {
        assert_eq!(recent.fill(id(keys), record(1), &before), Ok(()));
        keys += 1;
    }
    assert_eq!(recent.len(), PARTS * 10);
    assert_eq!(recent.find(&id(7), 2), Some(record(7)));
    assert!(RecentRecords::new(0).begin_fill().is_none());
}

/// Another record takes its place before the fill adds the old one.
#[test]
fn a_record_that_gave_way_counts_as_missed() {
    let mut part = RecentPart::new(1);
    let rehash = |slot: &RecordSlot| match slot.id().1 {
        SectionKey::Id(id) => *id,
        SectionKey::Name(_) => 0,
    };
    part.write(1, id(1), record(10), true, rehash);
    let missed = part.missed();
    part.write(2, id(2), record(10), true, rehash);
    assert!(part.find(1, &id(1)).is_none() && part.find(2, &id(2)).is_some());
    assert_ne!(part.missed(), missed);
}

#[test]
fn the_record_of_a_gapless_key_is_found_whenever_it_was_written() {
    let recent = leading();
    let gapless =
        SectionRecord { max_seq: 7, floor: 7, epoch: 3, written_ms: 5, ..SectionRecord::default() };
    recent.written(id(1), gapless, None);
    let found = recent.find(&id(1), u64::MAX).map(|record| (record.max_seq, record.floor));
    assert_eq!(found, Some((7, 7)), "also in the own term");
    assert_eq!(recent.find(&id(1), 3), None, "a term's memory asks for older ones");
}
