//! Floors of whole sections, beside a table: what a bump for one writes, and what the next term does.

use super::*;
use crate::{
    allocator::{
        floor::{Floor, FloorOf},
        section::answers::{AboveAnswer, RaiseAnswer, RaiseNewAnswer, TakeAnswer},
    },
    sequence::Chunk,
};

fn raise(
    memory: &Memory, uid: &Namespace, id: u64, at_least: u64,
) -> (RaiseAnswer, Option<MemoryPlace>) {
    let (answer, need) = memory.raise(uid, (FloorOf::Section, Key::Id(id)), at_least);
    let place = need.map(|(place, need)| {
        assert_eq!(need, Need::Bump);
        place
    });
    (answer, place)
}

/// Carries out the bump that the section at `place` needs. Its ceiling was `old`.
async fn bump(
    machine: &mut StateMachine, memory: &Memory, uid: &Namespace, (place, old): (MemoryPlace, u64),
) {
    let bump = memory.next_bump(place, &memory.view().namespaces());
    let bump = bump.expect("a bump");
    let section = bump.section.clone();
    let command = Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: 0 };
    machine.apply_now(memory.term(), [command]).await;
    let record = memory.view().section(&section).expect("a record");
    let chunk = Bumped::Chunk(Chunk { old, new: record.max_seq });
    assert!(!memory.bump_answered(place, &section, chunk, uid));
}

#[tokio::test]
async fn the_next_term_goes_on_above_a_raised_section_and_its_accounts_add_up() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, uid) = in_its_second_epoch(&dir, 100).await;
    let (answer, _) = memory.take(&uid, Key::Id(7), 1);
    assert_eq!(first_of(&answer), Some(101));
    let (answer, place) = raise(&memory, &uid, 50, 150);
    assert!(matches!(answer, RaiseAnswer::Done(Ok(_))) && place.is_none());
    for id in [7, 99] {
        assert_eq!(memory.current(&uid, Key::Id(id)), Some(150));
    }
    let (answer, place) = raise(&memory, &uid, 50, 5_000);
    let RaiseAnswer::Later(mut later) = answer else {
        panic!("{answer:?}");
    };
    let place = place.expect("a bump is needed");
    bump(&mut machine, &memory, &uid, (place, 200)).await;
    let raised = later.try_recv().expect("an answer").expect("raised");
    assert_eq!((raised.floor, raised.passed), (5_000, 4_850));
    assert_eq!(memory.metrics.skipped(SkipCause::floor), 50 + 4_850);
    let section = uid.section_of(Key::Id(50));
    let record = memory.view().section(&section).expect("a record");
    let progression = uid.config.progression();
    let accounts = record.accounts_at(progression, 2);
    assert_eq!((record.max_seq, accounts.left), (5_000, 1));
    assert_eq!(accounts.handed_out + accounts.skipped + accounts.left, 5_000);
    // The term ends uncleanly.
    machine.apply_now(3, [Command::BeginEpoch]).await;
    let accounts = record.accounts_at(progression, 3);
    assert_eq!(accounts.handed_out + accounts.skipped + accounts.left, 5_100);
    let memory = memory_of(3, machine.view());
    for id in [7, 50, 99] {
        let (answer, _) = memory.take(&uid, Key::Id(id), 1);
        assert_eq!(first_of(&answer), Some(5_001));
    }
    let checkpointed = record.checkpoint(progression, 3).expect("a chunk of the epoch");
    assert_eq!(checkpointed.accounts_at(progression, 3).skipped, accounts.skipped);
}

#[tokio::test]
async fn what_a_floor_passes_over_is_counted_once_also_if_its_caller_has_left() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, book) = in_its_second_epoch(&dir, 1).await;
    let raise = |key| {
        let (answer, need) = memory.raise(&book, (FloorOf::Key, Key::Id(key)), 500);
        (answer, need.map(|(place, _)| place))
    };
    let counted = || memory.metrics.skipped(SkipCause::floor);
    let (answer, _) = memory.take(&book, Key::Id(7), 1);
    assert_eq!(first_of(&answer), Some(101));
    // It leaves before its bump is proposed, as from a closed term.
    let (answer, place) = raise(7);
    let place = place.expect("a bump is needed");
    drop(answer);
    assert!(memory.next_bump(place, &memory.view().namespaces()).is_none());
    assert_eq!(counted(), 0);
    // It leaves while its bump is under way.
    let (answer, place) = raise(7);
    let place = place.expect("a bump is needed");
    let bump = memory.next_bump(place, &memory.view().namespaces()).expect("a bump");
    drop(answer);
    let section = bump.section.clone();
    machine.apply_now(2, [Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: 0 }]).await;
    let chunk = Bumped::Chunk(Chunk { old: 200, new: 500 });
    assert!(!memory.bump_answered(place, &section, chunk, &book));
    assert_eq!(counted(), 399);
    // It asks again: this term, or the one that takes its memory over.
    let (answer, place) = raise(7);
    assert!(matches!(answer, RaiseAnswer::Done(Ok(raised)) if raised.passed == 0), "{answer:?}");
    assert_eq!((place, counted()), (None, 399));
}

#[tokio::test]
async fn a_closed_memory_says_that_a_section_was_used_up_to_its_floor_though_no_key_was_asked_for()
{
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, uid) = in_its_second_epoch(&dir, 100).await;
    let (answer, place) = raise(&memory, &uid, 50, 170);
    assert!(matches!(answer, RaiseAnswer::Done(Ok(_))) && place.is_none());
    close_gate(&memory);
    let section = uid.section_of(Key::Id(50));
    let used = SectionUse { section: section.clone(), used: 170, skipped: 0 };
    assert_eq!(memory.close(), Some(vec![used.clone()]));
    let trim = Command::Trim { sections: vec![used], now_ms: 0 };
    machine.apply_now(2, [trim]).await;
    let record = memory.view().section(&section).expect("a record");
    assert_eq!((record.max_seq, record.floor), (170, 170));
}

#[tokio::test]
async fn numbers_above_a_floor_follow_what_the_caller_was_told_of() {
    let dir = TempDir::new().expect("a directory");
    let (_machine, memory, uid) = in_its_second_epoch(&dir, 1).await;
    let take = |floor, told, count| {
        let (answer, _) = memory.take_above(&uid, Key::Id(7), Floor::from(floor), |last| {
            assert_eq!(last, told);
            count
        });
        match answer {
            AboveAnswer::Numbers { count, answer } => (first_of(&answer), count),
            AboveAnswer::None { last } => (Some(last), 0),
            other => panic!("{other:?}"),
        }
    };
    // The epoch gave the numbers from 101 to 200.
    assert_eq!(take(120, 120, 5), (Some(121), 5));
    assert_eq!(take(120, 125, 0), (Some(125), 0));
    assert_eq!(take(110, 125, 1), (Some(126), 1));
    assert_eq!(memory.metrics.skipped(SkipCause::floor), 20);
    let far = Floor { at_least: 900, reach: 1_000 };
    let (later, need) = memory.take_above(&uid, Key::Id(7), far, |_| panic!("not yet"));
    assert!(matches!(later, AboveAnswer::Later(_)), "{later:?}");
    let (place, _) = need.expect("a bump is needed");
    let bump = memory.next_bump(place, &memory.view().namespaces());
    let raise = bump.expect("a bump").raise;
    assert_eq!((raise.up_to, raise.unused_max, raise.step), (1_000, 100, 0));
    let (refused, _) = memory.take_above(&uid, Key::Id(8), u64::MAX.into(), |_| panic!("never"));
    assert!(matches!(refused, AboveAnswer::Refused(_)), "{refused:?}");
}

/// Carries out the bump that the section at `place` needs. Returns its chunk, and whether it needs another one.
async fn bumped(
    machine: &mut StateMachine, memory: &Memory, book: &Namespace, place: MemoryPlace, old: u64,
) -> (u64, bool) {
    let bump = memory.next_bump(place, &memory.view().namespaces()).expect("a bump");
    let section = bump.section.clone();
    machine.apply_now(2, [Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: 0 }]).await;
    let new = memory.view().section(&section).expect("a record").max_seq;
    let chunk = Bumped::Chunk(Chunk { old, new });
    (new, memory.bump_answered(place, &section, chunk, book))
}

#[tokio::test]
async fn a_key_is_raised_if_it_is_new_and_whoever_comes_meanwhile_stands_behind() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, book) = in_its_second_epoch(&dir, 1).await;
    let raise = |id, at_least| memory.raise_new(&book, Key::Id(id), at_least);
    let done = |(answer, _): (RaiseNewAnswer, _)| match answer {
        RaiseNewAnswer::Known(RaiseAnswer::Done(Ok(raised))) => (raised.floor, raised.is_higher),
        other => panic!("{other:?}"),
    };
    // The term before may have handed out any number up to 100.
    assert_eq!(done(raise(7, 500)), (100, false));
    let (RaiseNewAnswer::Unknown(mut first), Some((place, Need::Read))) = raise(8, 500) else {
        panic!("nothing is known of it");
    };
    let (ceiling, again) = bumped(&mut machine, &memory, &book, place, 0).await;
    assert_eq!(
        (ceiling, again),
        (1, false),
        "the ceiling is not raised for a key that may not be new"
    );
    assert_eq!(first.try_recv().expect("an answer").expect("looked at").floor, 0);
    let (RaiseNewAnswer::Known(RaiseAnswer::Later(mut raised)), Some((place, Need::Bump))) =
        raise(8, 500)
    else {
        panic!("it is new");
    };
    let (TakeAnswer::Later(mut taken), None) = memory.take(&book, Key::Id(8), 1) else {
        panic!("it stands behind");
    };
    let (RaiseNewAnswer::Unknown(_behind), None) = raise(8, 900) else {
        panic!("it stands behind");
    };
    let (ceiling, again) = bumped(&mut machine, &memory, &book, place, 1).await;
    let raised = raised.try_recv().expect("an answer").expect("raised");
    assert_eq!((ceiling, again, raised.floor, raised.is_higher), (500, true, 500, true));
    bumped(&mut machine, &memory, &book, place, 500).await;
    let taken = taken.try_recv().expect("an answer").accept().expect("a number");
    assert_eq!(taken.first, 501);
    assert_eq!(done(raise(8, 900)), (501, false));
}
