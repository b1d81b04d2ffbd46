//! The effects of commands on a table.

mod accounts;
mod gapless;

use super::*;
use crate::sequence::{
    CeilingRaise, Chunk, IdsFull, LedgerRefused, Lifetime, MemoryDigest, NUMBER_MAX,
    NamespaceChange, NamespaceConfig, NamespaceId, NamespaceRefused, NoRoom, PartId, RequestId,
    SectionKey, Skipped, SkippedBy, Take, TermEnd,
    tests::memory_table::{MemoryTable as Memory, bumps, checkpoints, releases, run, trims},
};

fn bump(id: u64, numbers: u64) -> Bump {
    Bump {
        section: section(id),
        raise: CeilingRaise { numbers, unused_max: numbers, step: numbers, up_to: 0 },
    }
}

fn section(id: u64) -> SectionId {
    SectionId { namespace: NamespaceId(1), key: SectionKey::Id(id) }
}

/// A table with the namespace "book", in which term 1 has begun an epoch.
fn with_book() -> Memory {
    let mut table = Memory::default();
    let create = Command::create_namespace(NamespaceConfig::new("book"));
    run(&mut table, 1, create);
    assert_eq!(run(&mut table, 1, Command::BeginEpoch), EntryOutcome::InEpoch(1));
    table
}

#[test]
fn an_entry_that_bumps_a_section_twice_gives_it_two_adjacent_chunks() {
    let mut table = with_book();
    let outcome = run(&mut table, 1, bumps(vec![bump(7, 10), bump(8, 5), bump(7, 10)]));
    assert_eq!(
        outcome,
        EntryOutcome::Bumped(vec![
            Bumped::Chunk(Chunk { old: 0, new: 10 }),
            Bumped::Chunk(Chunk { old: 0, new: 5 }),
            Bumped::Chunk(Chunk { old: 10, new: 20 }),
        ])
    );
}

#[test]
fn a_refused_command_has_an_outcome_and_changes_nothing() {
    let mut table = Memory::default();
    run(&mut table, 1, Command::BeginEpoch);
    assert_eq!(
        run(&mut table, 1, bumps(vec![bump(7, 10)])),
        EntryOutcome::Bumped(vec![Bumped::NoNamespace])
    );
    run(&mut table, 1, Command::create_namespace(NamespaceConfig::new("book")));
    assert_eq!(
        run(&mut table, 1, Command::create_namespace(NamespaceConfig::new("book"))),
        EntryOutcome::Namespace(Err(NamespaceRefused::Exists("book".into())))
    );
    let update = |name: &str, step| Command::UpdateNamespace {
        name: name.into(),
        change: NamespaceChange { step, ..NamespaceChange::default() },
    };
    assert!(matches!(
        run(&mut table, 1, update("film", None)),
        EntryOutcome::Namespace(Err(NamespaceRefused::NotFound(_)))
    ));
    assert!(matches!(
        run(&mut table, 1, update("book", Some(0))),
        EntryOutcome::Namespace(Err(NamespaceRefused::Invalid(_)))
    ));
    assert_eq!(table.namespace_named("book").unwrap().config.step, 10_000);
}

#[test]
fn the_entry_that_creates_a_namespace_brings_the_limit_on_their_number() {
    let mut table = Memory::default();
    let create = |name: &str, namespaces_max| Command::CreateNamespace {
        config: NamespaceConfig::new(name),
        namespaces_max,
    };
    let is_created = |outcome| matches!(outcome, EntryOutcome::Namespace(Ok(_)));
    assert!(is_created(run(&mut table, 1, create("a", 2))));
    assert!(is_created(run(&mut table, 1, create("b", 2))));
    let refused = EntryOutcome::Namespace(Err(NamespaceRefused::TooMany(2)));
    assert_eq!(run(&mut table, 1, create("c", 2)), refused);
    let exists = EntryOutcome::Namespace(Err(NamespaceRefused::Exists("a".into())));
    assert_eq!(run(&mut table, 1, create("a", 2)), exists);
    assert!(is_created(run(&mut table, 1, create("c", 3))));
}

fn trim(id: u64, used: u64) -> Command {
    trims(vec![SectionUse { section: section(id), used, skipped: 0 }])
}

#[test]
fn a_term_that_began_no_epoch_or_is_over_writes_nothing() {
    let mut table = with_book();
    run(&mut table, 1, bumps(vec![bump(7, 10)]));
    let checkpoint = checkpoints(vec![section(7)]);
    let before = table.sections.clone();
    let not_writer = |term| EntryOutcome::Refused(LedgerRefused::NotWriter { term, writer: 1 });
    for command in [bumps(vec![bump(7, 10)]), trim(7, 3), checkpoint.clone()] {
        assert_eq!(run(&mut table, 2, command), not_writer(2));
    }
    assert_eq!(run(&mut table, 2, Command::BeginEpoch), EntryOutcome::InEpoch(2));
    let over = EntryOutcome::Refused(LedgerRefused::NotWriter { term: 1, writer: 2 });
    for command in [bumps(vec![bump(7, 10)]), trim(7, 3), checkpoint.clone()] {
        assert_eq!(run(&mut table, 1, command), over);
    }
    assert_eq!(table.sections, before);
    assert_eq!(run(&mut table, 2, checkpoint), EntryOutcome::Written(1));
    assert_eq!(table.sections[&section(7)].max_seq, 20);
    assert_eq!(run(&mut table, 2, trim(7, 13)), EntryOutcome::Written(1));
    assert_eq!(table.sections[&section(7)].max_seq, 13);
}

#[test]
fn a_term_that_released_a_section_gets_its_next_chunk_right_above() {
    let mut table = with_book();
    run(&mut table, 1, bumps(vec![bump(7, 10)]));
    let release = |used| releases(vec![SectionUse { section: section(7), used, skipped: 0 }]);
    assert_eq!(run(&mut table, 1, release(4)), EntryOutcome::Written(1));
    assert_eq!(run(&mut table, 1, release(3)), EntryOutcome::Written(1));
    assert_eq!(table.sections[&section(7)].max_seq, 4, "it never goes below what was used");
    let bumped = run(&mut table, 1, bumps(vec![bump(7, 10)]));
    let chunk = Chunk { old: 4, new: 14 };
    assert_eq!(bumped, EntryOutcome::Bumped(vec![Bumped::Chunk(chunk)]));
    run(&mut table, 2, Command::BeginEpoch);
    let over = EntryOutcome::Refused(LedgerRefused::NotWriter { term: 1, writer: 2 });
    assert_eq!(run(&mut table, 1, release(14)), over);
}

#[test]
fn what_a_term_left_is_written_by_the_successor_alone() {
    let mut table = with_book();
    run(&mut table, 1, bumps(vec![bump(7, 10)]));
    let digest = MemoryDigest { parts: 1, checksum: 2 };
    let hand_off = TermEnd::HandOff { successor: 2, digest };
    let hand_off = Command::EndTerm(hand_off);
    assert_eq!(run(&mut table, 1, hand_off), EntryOutcome::TermEnded);
    let ended = EntryOutcome::Refused(LedgerRefused::Ended(1));
    assert_eq!(run(&mut table, 1, bumps(vec![bump(7, 10)])), ended);
    let take_over = |successor| Command::TakeOver { successor, digest };
    let refused = EntryOutcome::Refused(LedgerRefused::NotSuccessor(3));
    assert_eq!(run(&mut table, 2, take_over(3)), refused);
    assert_eq!(run(&mut table, 2, take_over(2)), EntryOutcome::InEpoch(1));
    let bumped = run(&mut table, 2, bumps(vec![bump(7, 10)]));
    let chunk = Chunk { old: 10, new: 20 };
    assert_eq!(bumped, EntryOutcome::Bumped(vec![Bumped::Chunk(chunk)]));
}

#[test]
fn a_namespace_remembers_the_greatest_max_that_it_had() {
    let mut table = with_book();
    for (max, max_ever) in [(50, NUMBER_MAX), (90, NUMBER_MAX)] {
        let update = Command::UpdateNamespace {
            name: "book".into(),
            change: NamespaceChange { max: Some(max), ..NamespaceChange::default() },
        };
        run(&mut table, 1, update);
        let book = table.namespace_named("book").unwrap();
        assert_eq!((book.config.max, book.max_ever), (max, max_ever));
    }
}

#[test]
fn a_key_beyond_keys_max_gets_no_chunk_and_keys_that_exist_go_on() {
    let mut table = with_book();
    let keys_max_of = |keys_max| Command::UpdateNamespace {
        name: "book".into(),
        change: NamespaceChange { keys_max: Some(keys_max), ..NamespaceChange::default() },
    };
    run(&mut table, 1, keys_max_of(2));
    let over = Bumped::OverKeysMax { keys_max: 2 };
    let chunk = |old, new| Bumped::Chunk(Chunk { old, new });
    let asked = vec![bump(7, 10), bump(8, 10), bump(9, 10), bump(7, 10)];
    let outcome = run(&mut table, 1, bumps(asked));
    let expected = vec![chunk(0, 10), chunk(0, 10), over, chunk(10, 20)];
    assert_eq!(outcome, EntryOutcome::Bumped(expected));
    run(&mut table, 1, keys_max_of(3));
    let outcome = run(&mut table, 1, bumps(vec![bump(9, 10)]));
    assert_eq!(outcome, EntryOutcome::Bumped(vec![chunk(0, 10)]));
    // A lower limit takes nothing away.
    run(&mut table, 1, keys_max_of(1));
    let outcome = run(&mut table, 1, bumps(vec![bump(8, 10), bump(6, 10)]));
    let over = Bumped::OverKeysMax { keys_max: 1 };
    assert_eq!(outcome, EntryOutcome::Bumped(vec![chunk(10, 20), over]));
    run(&mut table, 1, keys_max_of(0));
    let outcome = run(&mut table, 1, bumps(vec![bump(6, 10)]));
    assert_eq!(outcome, EntryOutcome::Bumped(vec![chunk(0, 10)]));
}
