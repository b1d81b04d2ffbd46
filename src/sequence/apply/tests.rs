//! What commands do to a table.

use super::*;
use crate::sequence::{
    Bequest, Chunk, LedgerRefused, MemoryDigest, NUMBER_MAX, NamespaceChange, NamespaceConfig,
    NamespaceId, NamespaceRefused, Raise, RequestId, SectionKey,
    memory_table::{MemoryTable as Memory, run},
};

fn bump(id: u64, numbers: u64) -> Bump {
    Bump {
        section: section(id),
        raise: Raise {
            numbers,
            unused_max: numbers,
            step: numbers,
            up_to: 0,
        },
    }
}

fn section(id: u64) -> SectionId {
    SectionId {
        namespace: NamespaceId(1),
        key: SectionKey::Id(id),
    }
}

/// A table with the namespace "book", in which term 1 has lifted.
fn with_book() -> Memory {
    let mut table = Memory::default();
    let create = Command::create_namespace(NamespaceConfig::new("book"));
    run(&mut table, 1, create);
    assert_eq!(run(&mut table, 1, Command::Lift), Outcome::Holds(1));
    table
}

#[test]
fn an_entry_that_bumps_a_section_twice_gives_it_two_adjacent_chunks() {
    let mut table = with_book();
    let outcome = run(
        &mut table,
        1,
        Command::Bump(vec![bump(7, 10), bump(8, 5), bump(7, 10)]),
    );
    assert_eq!(
        outcome,
        Outcome::Bumped(vec![
            Bumped::Chunk(Chunk {
                old: 0,
                new: 10,
                left: 0
            }),
            Bumped::Chunk(Chunk {
                old: 0,
                new: 5,
                left: 0
            }),
            Bumped::Chunk(Chunk {
                old: 10,
                new: 20,
                left: 0
            }),
        ])
    );
}

#[test]
fn a_refused_command_has_an_outcome_and_changes_nothing() {
    let mut table = Memory::default();
    run(&mut table, 1, Command::Lift);
    assert_eq!(
        run(&mut table, 1, Command::Bump(vec![bump(7, 10)])),
        Outcome::Bumped(vec![Bumped::NoNamespace])
    );
    run(
        &mut table,
        1,
        Command::create_namespace(NamespaceConfig::new("book")),
    );
    assert_eq!(
        run(
            &mut table,
            1,
            Command::create_namespace(NamespaceConfig::new("book"))
        ),
        Outcome::Namespace(Err(NamespaceRefused::Exists("book".into())))
    );
    let update = |name: &str, step| Command::UpdateNamespace {
        name: name.into(),
        change: NamespaceChange {
            step,
            ..NamespaceChange::default()
        },
    };
    assert!(matches!(
        run(&mut table, 1, update("film", None)),
        Outcome::Namespace(Err(NamespaceRefused::NotFound(_)))
    ));
    assert!(matches!(
        run(&mut table, 1, update("book", Some(0))),
        Outcome::Namespace(Err(NamespaceRefused::Invalid(_)))
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
    let is_created = |outcome| matches!(outcome, Outcome::Namespace(Ok(_)));
    assert!(is_created(run(&mut table, 1, create("a", 2))));
    assert!(is_created(run(&mut table, 1, create("b", 2))));
    let refused = Outcome::Namespace(Err(NamespaceRefused::TooMany(2)));
    assert_eq!(run(&mut table, 1, create("c", 2)), refused);
    let exists = Outcome::Namespace(Err(NamespaceRefused::Exists("a".into())));
    assert_eq!(run(&mut table, 1, create("a", 2)), exists);
    assert!(is_created(run(&mut table, 1, create("c", 3))));
}

fn trim(id: u64, used: u64) -> Command {
    Command::Trim(vec![Trim {
        section: section(id),
        used,
    }])
}

#[test]
fn a_term_that_has_not_lifted_or_is_over_writes_nothing() {
    let mut table = with_book();
    run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let settle = Command::Settle(vec![section(7)]);
    let before = table.sections.clone();
    let not_holder = |term| Outcome::Refused(LedgerRefused::NotHolder { term, holder: 1 });
    for command in [Command::Bump(vec![bump(7, 10)]), trim(7, 3), settle.clone()] {
        assert_eq!(run(&mut table, 2, command), not_holder(2));
    }
    assert_eq!(run(&mut table, 2, Command::Lift), Outcome::Holds(2));
    let over = Outcome::Refused(LedgerRefused::NotHolder { term: 1, holder: 2 });
    for command in [Command::Bump(vec![bump(7, 10)]), trim(7, 3), settle.clone()] {
        assert_eq!(run(&mut table, 1, command), over);
    }
    assert_eq!(table.sections, before);
    assert_eq!(run(&mut table, 2, settle), Outcome::Settled(1));
    assert_eq!(table.sections[&section(7)].max_seq, 20);
    assert_eq!(run(&mut table, 2, trim(7, 13)), Outcome::Trimmed(1));
    assert_eq!(table.sections[&section(7)].max_seq, 13);
}

#[test]
fn a_term_that_released_a_section_gets_its_next_chunk_right_above() {
    let mut table = with_book();
    run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let release = |used| {
        Command::Release(vec![Trim {
            section: section(7),
            used,
        }])
    };
    assert_eq!(run(&mut table, 1, release(4)), Outcome::Released(1));
    assert_eq!(run(&mut table, 1, release(3)), Outcome::Released(1));
    assert_eq!(
        table.sections[&section(7)].max_seq,
        4,
        "it never goes below what was used"
    );
    let bumped = run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let chunk = Chunk {
        old: 4,
        new: 14,
        left: 0,
    };
    assert_eq!(bumped, Outcome::Bumped(vec![Bumped::Chunk(chunk)]));
    run(&mut table, 2, Command::Lift);
    let over = Outcome::Refused(LedgerRefused::NotHolder { term: 1, holder: 2 });
    assert_eq!(run(&mut table, 1, release(14)), over);
}

#[test]
fn what_a_term_left_is_written_by_the_heir_alone() {
    let mut table = with_book();
    run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let digest = MemoryDigest {
        parts: 1,
        checksum: 2,
    };
    let bequest = Bequest::Memory { heir: 2, digest };
    let bequeath = Command::Bequeath(bequest);
    assert_eq!(run(&mut table, 1, bequeath), Outcome::Bequeathed);
    let left = Outcome::Refused(LedgerRefused::Left(1));
    assert_eq!(run(&mut table, 1, Command::Bump(vec![bump(7, 10)])), left);
    let inherit = |heir| Command::Inherit { heir, digest };
    let refused = Outcome::Refused(LedgerRefused::NotHeir(3));
    assert_eq!(run(&mut table, 2, inherit(3)), refused);
    assert_eq!(run(&mut table, 2, inherit(2)), Outcome::Holds(1));
    let bumped = run(&mut table, 2, Command::Bump(vec![bump(7, 10)]));
    let chunk = Chunk {
        old: 10,
        new: 20,
        left: 0,
    };
    assert_eq!(bumped, Outcome::Bumped(vec![Bumped::Chunk(chunk)]));
}

#[test]
fn a_namespace_remembers_the_greatest_max_that_it_had() {
    let mut table = with_book();
    for (max, max_ever) in [(50, NUMBER_MAX), (90, NUMBER_MAX)] {
        let update = Command::UpdateNamespace {
            name: "book".into(),
            change: NamespaceChange {
                max: Some(max),
                ..NamespaceChange::default()
            },
        };
        run(&mut table, 1, update);
        let book = table.namespace_named("book").unwrap();
        assert_eq!((book.config.max, book.max_ever), (max, max_ever));
    }
}

/// A table with the gapless namespace "invoice", in which term 1 has lifted.
fn with_invoices() -> Memory {
    let mut table = Memory::default();
    let config = NamespaceConfig {
        gapless: true,
        max: 10,
        ..NamespaceConfig::new("invoice")
    };
    run(&mut table, 1, Command::create_namespace(config));
    assert_eq!(run(&mut table, 1, Command::Lift), Outcome::Holds(1));
    table
}

fn take(key: u64, count: u64, request: Option<&str>) -> Take {
    Take {
        section: section(key),
        count,
        request: request.map(|id| RequestId::new(id.as_bytes()).unwrap()),
    }
}

/// Takes in `term`, when `elapsed_ms` have passed. Ids are remembered for 1 000 ms, two at most.
fn took(table: &mut Memory, term: u64, elapsed_ms: u64, takes: Vec<Take>) -> Vec<Taken> {
    let remembering = Remembering {
        elapsed_ms,
        keep_ms: 1_000,
        ids_max: 2,
        forget_max: 8,
    };
    match run(table, term, Command::Take { remembering, takes }) {
        Outcome::Took(taken) => taken,
        other => panic!("{other:?}"),
    }
}

fn range(first: u64, last: u64) -> crate::sequence::Range {
    crate::sequence::Range {
        first,
        last,
        increment: 1,
    }
}

#[test]
fn takes_are_answered_in_the_order_of_the_entry_and_leave_no_gap_over_lifts() {
    let mut table = with_invoices();
    let takes = vec![take(7, 2, None), take(8, 1, None), take(7, 1, None)];
    let expected = [range(1, 2), range(1, 1), range(3, 3)].map(Taken::Range);
    assert_eq!(took(&mut table, 1, 0, takes), expected);
    assert_eq!(run(&mut table, 2, Command::Lift), Outcome::Holds(2));
    assert_eq!(run(&mut table, 3, Command::Lift), Outcome::Holds(3));
    let taken = took(
        &mut table,
        3,
        0,
        vec![take(7, 7, None), take(7, 8, None), take(7, 1, None)],
    );
    let left = |left| Taken::Exhausted { left };
    assert_eq!(taken, [Taken::Range(range(4, 10)), left(0), left(0)]);
}

#[test]
fn a_take_of_a_deposed_term_and_one_in_a_namespace_with_gaps_take_nothing() {
    let mut table = with_invoices();
    run(
        &mut table,
        1,
        Command::create_namespace(NamespaceConfig::new("book")),
    );
    let mut of_book = take(7, 1, None);
    of_book.section.namespace = NamespaceId(2);
    assert_eq!(took(&mut table, 1, 0, vec![of_book]), [Taken::NoNamespace]);
    run(&mut table, 2, Command::Lift);
    let remembering = Remembering {
        elapsed_ms: 0,
        keep_ms: 1,
        ids_max: 1,
        forget_max: 1,
    };
    let takes = vec![take(7, 1, None)];
    let refused = run(&mut table, 1, Command::Take { remembering, takes });
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    assert!(table.sections.is_empty());
}

#[test]
fn a_request_id_is_answered_once_over_terms_and_refused_for_another_request() {
    let mut table = with_invoices();
    let first = || take(7, 2, Some("a"));
    let taken = took(&mut table, 1, 0, vec![first(), first()]);
    assert_eq!(
        taken,
        [Taken::Range(range(1, 2)), Taken::Repeated(range(1, 2))]
    );
    run(&mut table, 2, Command::Lift);
    let again = vec![first(), take(7, 1, Some("a")), take(8, 2, Some("a"))];
    let used = Remembered {
        key: SectionKey::Id(7),
        count: 2,
        range: range(1, 2),
    };
    assert_eq!(
        took(&mut table, 2, 999, again),
        [
            Taken::Repeated(range(1, 2)),
            Taken::Reused(used.clone()),
            Taken::Reused(used)
        ]
    );
}

#[test]
fn a_request_id_is_forgotten_after_its_time_and_never_to_make_room() {
    let mut table = with_invoices();
    let ids = |ids: &[&str]| {
        ids.iter()
            .map(|id| take(7, 1, Some(id)))
            .collect::<Vec<_>>()
    };
    let full = Taken::IdsFull { ids_max: 2 };
    assert_eq!(
        took(&mut table, 1, 5, ids(&["a", "b", "c"])),
        [
            Taken::Range(range(1, 1)),
            Taken::Range(range(2, 2)),
            full.clone()
        ]
    );
    assert_eq!(
        took(&mut table, 1, 999, ids(&["a", "c"])),
        [Taken::Repeated(range(1, 1)), full]
    );
    assert_eq!(
        took(&mut table, 1, 1, ids(&["c", "a"])),
        [Taken::Range(range(3, 3)), Taken::Range(range(4, 4))]
    );
    assert_eq!((table.ids.len(), table.places.len()), (2, 2));
}

#[test]
fn a_key_beyond_the_quota_gets_no_chunk_and_keys_that_exist_go_on() {
    let mut table = with_book();
    let quota = |keys_max| Command::UpdateNamespace {
        name: "book".into(),
        change: NamespaceChange {
            keys_max: Some(keys_max),
            ..NamespaceChange::default()
        },
    };
    run(&mut table, 1, quota(2));
    let over = Bumped::OverQuota { keys_max: 2 };
    let chunk = |old, new| Bumped::Chunk(Chunk { old, new, left: 0 });
    let bumps = vec![bump(7, 10), bump(8, 10), bump(9, 10), bump(7, 10)];
    let outcome = run(&mut table, 1, Command::Bump(bumps));
    let expected = vec![chunk(0, 10), chunk(0, 10), over, chunk(10, 20)];
    assert_eq!(outcome, Outcome::Bumped(expected));
    run(&mut table, 1, quota(3));
    let outcome = run(&mut table, 1, Command::Bump(vec![bump(9, 10)]));
    assert_eq!(outcome, Outcome::Bumped(vec![chunk(0, 10)]));
    // A lower quota takes nothing away.
    run(&mut table, 1, quota(1));
    let outcome = run(&mut table, 1, Command::Bump(vec![bump(8, 10), bump(6, 10)]));
    let over = Bumped::OverQuota { keys_max: 1 };
    assert_eq!(outcome, Outcome::Bumped(vec![chunk(10, 20), over]));
    run(&mut table, 1, quota(0));
    let outcome = run(&mut table, 1, Command::Bump(vec![bump(6, 10)]));
    assert_eq!(outcome, Outcome::Bumped(vec![chunk(0, 10)]));
}
