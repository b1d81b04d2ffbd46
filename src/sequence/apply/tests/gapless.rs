//! What an entry with takes of gapless keys does to a table.

use super::*;

/// A table with the gapless namespace "invoice", in which term 1 has lifted.
fn with_invoices() -> Memory {
    let mut table = Memory::default();
    let config = NamespaceConfig { gapless: true, max: 10, ..NamespaceConfig::new("invoice") };
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
    let remembering = Remembering { elapsed_ms, keep_ms: 1_000, ids_max: 2, forget_max: 8 };
    match run(table, term, Command::Take { remembering, takes, now_ms: 0 }) {
        Outcome::Took(taken) => taken,
        other => panic!("{other:?}"),
    }
}

fn range(first: u64, last: u64) -> crate::sequence::Range {
    crate::sequence::Range { first, last, increment: 1 }
}

#[test]
fn takes_are_answered_in_the_order_of_the_entry_and_leave_no_gap_over_lifts() {
    let mut table = with_invoices();
    let takes = vec![take(7, 2, None), take(8, 1, None), take(7, 1, None)];
    let expected = [range(1, 2), range(1, 1), range(3, 3)].map(Taken::Range);
    assert_eq!(took(&mut table, 1, 0, takes), expected);
    assert_eq!(run(&mut table, 2, Command::Lift), Outcome::Holds(2));
    assert_eq!(run(&mut table, 3, Command::Lift), Outcome::Holds(3));
    let taken = took(&mut table, 3, 0, vec![take(7, 7, None), take(7, 8, None), take(7, 1, None)]);
    let left = |left| Taken::Exhausted { left };
    assert_eq!(taken, [Taken::Range(range(4, 10)), left(0), left(0)]);
}

#[test]
fn a_take_of_a_deposed_term_and_one_in_a_namespace_with_gaps_take_nothing() {
    let mut table = with_invoices();
    run(&mut table, 1, Command::create_namespace(NamespaceConfig::new("book")));
    let mut of_book = take(7, 1, None);
    of_book.section.namespace = NamespaceId(2);
    assert_eq!(took(&mut table, 1, 0, vec![of_book]), [Taken::NoNamespace]);
    run(&mut table, 2, Command::Lift);
    let remembering = Remembering { elapsed_ms: 0, keep_ms: 1, ids_max: 1, forget_max: 1 };
    let takes = vec![take(7, 1, None)];
    let refused = run(&mut table, 1, Command::Take { remembering, takes, now_ms: 0 });
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    assert!(table.sections.is_empty());
}

#[test]
fn a_request_id_is_answered_once_over_terms_and_refused_for_another_request() {
    let mut table = with_invoices();
    let first = || take(7, 2, Some("a"));
    let taken = took(&mut table, 1, 0, vec![first(), first()]);
    assert_eq!(taken, [Taken::Range(range(1, 2)), Taken::Repeated(range(1, 2))]);
    run(&mut table, 2, Command::Lift);
    let again = vec![first(), take(7, 1, Some("a")), take(8, 2, Some("a"))];
    let used = Remembered { key: SectionKey::Id(7), count: 2, range: range(1, 2) };
    assert_eq!(
        took(&mut table, 2, 999, again),
        [Taken::Repeated(range(1, 2)), Taken::Reused(used.clone()), Taken::Reused(used)]
    );
}

#[test]
fn a_request_id_is_forgotten_after_its_time_and_never_to_make_room() {
    let mut table = with_invoices();
    let ids = |ids: &[&str]| ids.iter().map(|id| take(7, 1, Some(id))).collect::<Vec<_>>();
    let full = Taken::IdsFull { ids_max: 2 };
    assert_eq!(
        took(&mut table, 1, 5, ids(&["a", "b", "c"])),
        [Taken::Range(range(1, 1)), Taken::Range(range(2, 2)), full.clone()]
    );
    assert_eq!(took(&mut table, 1, 999, ids(&["a", "c"])), [Taken::Repeated(range(1, 1)), full]);
    assert_eq!(
        took(&mut table, 1, 1, ids(&["c", "a"])),
        [Taken::Range(range(3, 3)), Taken::Range(range(4, 4))]
    );
    assert_eq!((table.ids.len(), table.places.len()), (2, 2));
}
