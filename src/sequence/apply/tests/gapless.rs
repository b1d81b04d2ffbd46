//! The effects on a table of an entry with takes of gapless keys.

use super::*;

/// A table with the gapless namespace "invoice", in which term 1 has begun an epoch.
fn with_invoices() -> Memory {
    let mut table = Memory::default();
    let config = NamespaceConfig { gapless: true, max: 10, ..NamespaceConfig::new("invoice") };
    run(&mut table, 1, Command::create_namespace(config));
    assert_eq!(run(&mut table, 1, Command::BeginEpoch), EntryOutcome::InEpoch(1));
    table
}

fn take(key: u64, count: u64) -> Take {
    Take { section: SectionKey::Id(key), count }
}

/// A message of one part, with an id whose lifetime is the configured one.
fn message(id: Option<&str>, takes: Vec<Take>) -> MessagePart {
    let lifetime = Lifetime::CONFIGURED;
    let id =
        id.map(|id| PartId { request: RequestId::new(id.as_bytes()).unwrap(), part: 0, lifetime });
    MessagePart { namespace: NamespaceId(1), id, made_ms: None, whole: None, caller: None, takes }
}

/// A bound of which a namespace may hold as many bytes as two messages of one key count, and no third one.
const BYTES_MAX: u64 = 500;
/// How many bytes a message of one key counts, whose id has one byte.
const MESSAGE_BYTES: u64 = 130;

/// The most numbers of a key in one call, by the settings of the leader.
const COUNT_MAX: u64 = 1_000;

/// Takes in `term`, when `elapsed_ms` have passed. Ids are remembered for 1 000 ms.
fn took(table: &mut Memory, term: u64, elapsed_ms: u64, parts: Vec<MessagePart>) -> Vec<PartTaken> {
    let remembering =
        Remembering { elapsed_ms, keep_ms: 1_000, bytes_max: BYTES_MAX, forget_max: 8 };
    took_with(table, term, remembering, parts)
}

/// Takes in `term`.
fn took_with(
    table: &mut Memory, term: u64, remembering: Remembering, parts: Vec<MessagePart>,
) -> Vec<PartTaken> {
    let command =
        Command::Take { remembering, parts, no_room: None, count_max: COUNT_MAX, now_ms: 0 };
    match run(table, term, command) {
        EntryOutcome::Took(taken) => taken,
        other => panic!("{other:?}"),
    }
}

fn range(first: u64, last: u64) -> Taken {
    Taken::Range(crate::sequence::Range { first, last, increment: 1 })
}

fn taken(first: u64, last: u64) -> PartTaken {
    PartTaken::Taken(vec![range(first, last)])
}

fn repeated(first: u64, last: u64) -> PartTaken {
    PartTaken::Repeated(vec![range(first, last)])
}

#[test]
fn takes_are_answered_in_the_order_of_the_entry_and_leave_no_gap_over_epochs() {
    let mut table = with_invoices();
    let parts = vec![message(None, vec![take(7, 2), take(8, 1)]), message(None, vec![take(7, 1)])];
    let expected = [PartTaken::Taken(vec![range(1, 2), range(1, 1)]), taken(3, 3)];
    assert_eq!(took(&mut table, 1, 0, parts), expected);
    assert_eq!(run(&mut table, 2, Command::BeginEpoch), EntryOutcome::InEpoch(2));
    assert_eq!(run(&mut table, 3, Command::BeginEpoch), EntryOutcome::InEpoch(3));
    let parts = vec![message(None, vec![take(7, 7), take(7, 8), take(7, 1)])];
    let left = Taken::Exhausted { left: 0 };
    let expected = PartTaken::Taken(vec![range(4, 10), left.clone(), left]);
    assert_eq!(took(&mut table, 3, 0, parts), [expected]);
}

#[test]
fn a_take_of_a_deposed_term_and_one_in_a_namespace_with_gaps_take_nothing() {
    let mut table = with_invoices();
    run(&mut table, 1, Command::create_namespace(NamespaceConfig::new("book")));
    let mut of_book = message(None, vec![take(7, 1)]);
    of_book.namespace = NamespaceId(2);
    assert_eq!(took(&mut table, 1, 0, vec![of_book]), [PartTaken::NoNamespace]);
    run(&mut table, 2, Command::BeginEpoch);
    let remembering = Remembering { elapsed_ms: 0, keep_ms: 1, bytes_max: 1, forget_max: 1 };
    let parts = vec![message(None, vec![take(7, 1)])];
    let command = Command::Take { remembering, parts, no_room: None, count_max: 1, now_ms: 0 };
    let refused = run(&mut table, 1, command);
    assert!(matches!(refused, EntryOutcome::Refused(_)), "{refused:?}");
    assert!(table.sections.is_empty());
}

#[test]
fn a_message_is_answered_once_over_terms_and_its_id_refused_for_another_message() {
    let mut table = with_invoices();
    let first = || message(Some("a"), vec![take(7, 2)]);
    assert_eq!(took(&mut table, 1, 0, vec![first(), first()]), [taken(1, 2), repeated(1, 2)]);
    run(&mut table, 2, Command::BeginEpoch);
    let others = [vec![take(7, 1)], vec![take(8, 2)], vec![take(7, 2), take(8, 1)]];
    let others = others.map(|takes| message(Some("a"), takes));
    let used = PartTaken::Reused(Some(FirstUse { keys: 1, first: take(7, 2) }));
    let again = took(&mut table, 2, 999, std::iter::once(first()).chain(others).collect());
    assert_eq!(again, [repeated(1, 2), used.clone(), used.clone(), used]);
    let mut other_part = first();
    other_part.id.as_mut().unwrap().part = 1;
    assert_eq!(took(&mut table, 2, 0, vec![other_part]), [taken(3, 4)]);
}

/// From now on a call may take `count_max` numbers of an invoice's key.
fn limit_invoices(table: &mut Memory, count_max: u64) {
    let change = NamespaceChange { count_max: Some(count_max), ..NamespaceChange::default() };
    let limit = Command::UpdateNamespace { name: "invoice".to_owned(), change };
    assert!(matches!(run(table, 1, limit), EntryOutcome::Namespace(Ok(_))));
}

#[test]
fn a_count_that_is_too_large_is_refused_and_the_message_is_remembered_as_it_was_asked() {
    let mut table = with_invoices();
    let ask = |counts: &[(u64, u64)]| {
        let takes = counts.iter().map(|(key, count)| take(*key, *count)).collect();
        vec![message(Some("a"), takes)]
    };
    limit_invoices(&mut table, 3);
    let first = vec![range(1, 1), Taken::TooLarge { count_max: 3 }, range(1, 3)];
    let whole = || ask(&[(7, 1), (8, 4), (9, 3)]);
    assert_eq!(took(&mut table, 1, 0, whole()), [PartTaken::Taken(first.clone())]);
    for count_max in [3, 1, 9] {
        limit_invoices(&mut table, count_max);
        assert_eq!(took(&mut table, 1, 0, whole()), [PartTaken::Repeated(first.clone())]);
        let used = PartTaken::Reused(Some(FirstUse { keys: 3, first: take(7, 1) }));
        let others = [
            &[(7, 1), (9, 3)][..],
            &[(7, 1), (8, 5), (9, 3)],
            &[(7, 1), (8, 4), (9, 3), (10, 5)],
            &[(7, 1)],
            &[(8, 4)],
        ];
        for other in others {
            let reused = took(&mut table, 1, 0, ask(other));
            assert_eq!(reused, std::slice::from_ref(&used), "{other:?}");
        }
    }
}

#[test]
fn the_lower_limit_of_the_namespaces_and_the_leaders_counts_and_who_got_nothing_may_ask_again() {
    let mut table = with_invoices();
    let ask = |count| vec![message(Some("a"), vec![take(7, count)])];
    let too_large = |count_max| [PartTaken::Taken(vec![Taken::TooLarge { count_max }])];
    assert_eq!(took(&mut table, 1, 0, ask(COUNT_MAX + 1)), too_large(COUNT_MAX));
    limit_invoices(&mut table, COUNT_MAX + 1);
    assert_eq!(took(&mut table, 1, 0, ask(COUNT_MAX + 1)), too_large(COUNT_MAX));
    limit_invoices(&mut table, 1);
    assert_eq!(took(&mut table, 1, 0, ask(2)), too_large(1));
    limit_invoices(&mut table, 2);
    assert_eq!(took(&mut table, 1, 0, ask(2)), [taken(1, 2)]);
}

#[test]
fn a_message_of_several_parts_is_remembered_though_one_took_nothing_and_its_first_part_tells_another_one()
 {
    let mut table = with_invoices();
    let part = |whole, number, takes| {
        let mut part = message(Some("a"), takes);
        part.id.as_mut().unwrap().part = number;
        vec![MessagePart { whole: Some(whole), ..part }]
    };
    limit_invoices(&mut table, 1);
    let nothing = vec![Taken::TooLarge { count_max: 1 }];
    let first = || part(1, 0, vec![take(7, 2)]);
    assert_eq!(took(&mut table, 1, 0, first()), [PartTaken::Taken(nothing.clone())]);
    assert_eq!(took(&mut table, 1, 0, part(1, 1, vec![take(8, 1)])), [taken(1, 1)]);
    // It says why, as long as that is so.
    assert_eq!(took(&mut table, 1, 0, first()), [PartTaken::Repeated(nothing)]);
    limit_invoices(&mut table, 2);
    assert_eq!(took(&mut table, 1, 0, first()), [PartTaken::Repeated(vec![Taken::LeftOut])]);
    let used = [PartTaken::Reused(None)];
    assert_eq!(took(&mut table, 1, 0, part(2, 0, vec![take(7, 2)])), used);
    assert_eq!(took(&mut table, 1, 0, vec![message(Some("a"), vec![take(7, 2)])]), used);
}

/// A caller would fill the disks with keys that get nothing.
#[test]
fn a_message_of_many_parts_that_took_nothing_is_remembered_in_a_few_bytes() {
    let mut table = with_invoices();
    let remembering =
        Remembering { elapsed_ms: 0, keep_ms: 1_000, bytes_max: 1 << 24, forget_max: 8 };
    let ask = |table: &mut Memory, elapsed_ms| {
        let part = |number| {
            let takes = (0..1_024).map(|key| take(1_024 * u64::from(number) + key, 2));
            let mut part = message(Some("a"), takes.collect());
            part.id.as_mut().unwrap().part = number;
            MessagePart { whole: Some(7), ..part }
        };
        let remembering = Remembering { elapsed_ms, ..remembering };
        took_with(table, 1, remembering, (0..64).map(part).collect())
    };
    limit_invoices(&mut table, 1);
    let nothing = vec![Taken::TooLarge { count_max: 1 }; 1_024];
    assert_eq!(ask(&mut table, 0), vec![PartTaken::Taken(nothing.clone()); 64]);
    let held = table.id_bytes[&IdShare::Namespace(NamespaceId(1))];
    assert!(held < 2 * MESSAGE_BYTES, "{held} bytes");
    assert_eq!(table.ids.len(), 2);
    assert_eq!(ask(&mut table, 0), vec![PartTaken::Repeated(nothing); 64]);
    limit_invoices(&mut table, 2);
    let left_out = vec![Taken::LeftOut; 1_024];
    assert_eq!(ask(&mut table, 999), vec![PartTaken::Repeated(left_out); 64]);
    assert!(table.sections.is_empty(), "a late copy took numbers");
    // Once it is forgotten, it is a new message.
    assert_eq!(ask(&mut table, 1)[63], PartTaken::Taken(vec![range(1, 2); 1_024]));
}

#[test]
fn neither_an_address_nor_a_namespace_can_hold_so_many_ids_that_none_are_left_for_others() {
    let mut table = with_invoices();
    let config = NamespaceConfig { gapless: true, ..NamespaceConfig::new("other") };
    run(&mut table, 1, Command::create_namespace(config));
    let bytes_max = 60 * MESSAGE_BYTES;
    let remembering = Remembering { elapsed_ms: 0, keep_ms: 1_000, bytes_max, forget_max: 99 };
    // Asks with one id after the other until it is refused. Answers how many were remembered, and for whom it was too much.
    let mut asked = 0_u8;
    let mut fill = |table: &mut Memory, namespace, caller| {
        for remembered in 0.. {
            asked += 1;
            let mut part = message(None, vec![take(u64::from(asked), 1)]);
            (part.namespace, part.caller) = (NamespaceId(namespace), caller);
            let request = RequestId::new(&[asked]).unwrap();
            part.id = Some(PartId { request, part: 0, lifetime: Lifetime::CONFIGURED });
            match took_with(table, 1, remembering, vec![part]).pop() {
                Some(PartTaken::Taken(_)) => {}
                Some(PartTaken::IdsFull(full)) => return (remembered, full.of_caller),
                other => panic!("{other:?}"),
            }
        }
        unreachable!("it is never full");
    };
    // One address gets half of all, the next one half of what it left, and a namespace two thirds.
    assert_eq!(fill(&mut table, 1, Some(1)), (30, true));
    assert_eq!(fill(&mut table, 2, Some(1)), (0, true));
    assert_eq!(fill(&mut table, 1, Some(2)), (10, false));
    assert_eq!(fill(&mut table, 2, Some(2)), (5, true));
    assert_eq!(fill(&mut table, 2, Some(3)), (7, true));
    assert_eq!(fill(&mut table, 2, None), (1, false));
    let forgetting = Remembering { elapsed_ms: 1_000, ..remembering };
    took_with(&mut table, 1, forgetting, vec![message(None, vec![take(1, 1)])]);
    assert!(table.id_bytes.is_empty() && table.ids.is_empty(), "{:?}", table.id_bytes);
}

#[test]
fn a_message_that_took_something_is_answered_alike_and_one_that_took_nothing_may_try_again() {
    let mut table = with_invoices();
    let some = || message(Some("a"), vec![take(7, 10), take(7, 1)]);
    let first = vec![range(1, 10), Taken::Exhausted { left: 0 }];
    assert_eq!(took(&mut table, 1, 0, vec![some()]), [PartTaken::Taken(first.clone())]);
    let none = || message(Some("b"), vec![take(7, 1)]);
    let left = PartTaken::Taken(vec![Taken::Exhausted { left: 0 }]);
    assert_eq!(took(&mut table, 1, 0, vec![none()]), [left]);
    let change = NamespaceChange { max: Some(20), ..NamespaceChange::default() };
    let raise = Command::UpdateNamespace { name: "invoice".to_owned(), change };
    assert!(matches!(run(&mut table, 1, raise), EntryOutcome::Namespace(Ok(_))));
    let again = took(&mut table, 1, 0, vec![some(), none()]);
    assert_eq!(again, [PartTaken::Repeated(first), taken(11, 11)]);
}

#[test]
fn a_request_id_is_forgotten_after_its_time_and_never_to_make_room() {
    let mut table = with_invoices();
    let ids =
        |ids: &[&str]| ids.iter().map(|id| message(Some(id), vec![take(7, 1)])).collect::<Vec<_>>();
    let (held, bytes_max) = (2 * MESSAGE_BYTES, BYTES_MAX);
    let full = PartTaken::IdsFull(IdsFull { of_caller: false, held, bytes_max });
    assert_eq!(
        took(&mut table, 1, 5, ids(&["a", "b", "c"])),
        [taken(1, 1), taken(2, 2), full.clone()]
    );
    assert_eq!(took(&mut table, 1, 999, ids(&["a", "c"])), [repeated(1, 1), full]);
    assert_eq!(took(&mut table, 1, 1, ids(&["c", "a"])), [taken(3, 3), taken(4, 4)]);
    assert_eq!((table.ids.len(), table.places.len()), (2, 2));
}

#[test]
fn each_lifetime_is_kept_however_long_the_ids_before_it_live() {
    let mut table = with_invoices();
    let with = |id: &str, window_ms| {
        let mut part = message(Some(id), vec![take(7, 1)]);
        part.id.as_mut().unwrap().lifetime = Lifetime::of_window_ms(window_ms);
        part
    };
    assert_eq!(took(&mut table, 1, 0, vec![with("long", 2_000)]), [taken(1, 1)]);
    assert_eq!(took(&mut table, 1, 0, vec![with("short", 1_000)]), [taken(2, 2)]);
    let again = vec![with("long", 2_000), with("short", 1_000)];
    assert_eq!(took(&mut table, 1, 1_000, again), [repeated(1, 1), taken(3, 3)]);
    assert_eq!(took(&mut table, 1, 999, vec![with("long", 2_000)]), [repeated(1, 1)]);
    assert_eq!(took(&mut table, 1, 1, vec![with("long", 2_000)]), [taken(4, 4)]);
}

#[test]
fn a_copy_that_comes_after_its_id_was_forgotten_takes_nothing() {
    let mut table = with_invoices();
    // Ids of the first are forgotten after 1 000 ms, of the second after 2 000.
    let copy = |id: &str, window_ms: Option<u64>, made_ms| {
        let mut part = message(Some(id), vec![take(7, 1)]);
        if let (Some(window_ms), Some(id)) = (window_ms, &mut part.id) {
            id.lifetime = Lifetime::of_window_ms(window_ms);
        }
        MessagePart { made_ms: Some(made_ms), ..part }
    };
    let expired = |made_ms, clock_ms| PartTaken::Expired { made_ms, clock_ms };
    let copies = || vec![copy("a", None, 50), copy("b", Some(2_000), 50)];
    assert_eq!(took(&mut table, 1, 50, copies()), [taken(1, 1), taken(2, 2)]);
    assert_eq!(took(&mut table, 1, 999, copies()), [repeated(1, 1), repeated(2, 2)]);
    assert_eq!(took(&mut table, 1, 1, copies()), [expired(50, 1_050), repeated(2, 2)]);
    run(&mut table, 2, Command::BeginEpoch);
    assert_eq!(took(&mut table, 2, 1_000, copies()), [expired(50, 2_050), expired(50, 2_050)]);
    // A message that was made later than now would be forgotten too early.
    let early = took(&mut table, 2, 0, vec![copy("c", None, 2_051), copy("d", None, 2_050)]);
    assert_eq!(early, [expired(2_051, 2_050), taken(3, 3)]);
    // A first copy may come late, too, as long as all copies find its id.
    assert_eq!(took(&mut table, 2, 999, vec![copy("e", None, 2_050)]), [taken(4, 4)]);
    assert_eq!(took(&mut table, 2, 1, vec![copy("e", None, 2_050)]), [repeated(4, 4)]);
    assert_eq!(took(&mut table, 2, 999, vec![copy("e", None, 2_050)]), [expired(2_050, 4_049)]);
}

/// The setting was raised, or another leader has another one.
#[test]
fn a_copy_takes_nothing_once_its_id_was_forgotten_however_long_ids_are_kept_by_then() {
    let mut table = with_invoices();
    let copy = |id, made_ms| {
        let part = message(Some(id), vec![take(7, 1)]);
        vec![MessagePart { made_ms: Some(made_ms), ..part }]
    };
    let mut ask = |elapsed_ms, keep_ms, part| {
        let remembering = Remembering { elapsed_ms, keep_ms, bytes_max: 1 << 20, forget_max: 8 };
        took_with(&mut table, 1, remembering, part)
    };
    let expired = |made_ms, clock_ms| [PartTaken::Expired { made_ms, clock_ms }];
    assert_eq!(ask(50, 1_000, copy("a", 50)), [taken(1, 1)]);
    assert_eq!(ask(950, 1_000, copy("b", 900)), [taken(2, 2)]);
    assert_eq!(ask(50, 1_000, copy("c", 1_050)), [taken(3, 3)], "the first id is forgotten");
    assert_eq!(ask(0, 60_000, copy("a", 50)), expired(50, 1_050));
    assert_eq!(ask(0, 60_000, copy("b", 900)), [repeated(2, 2)]);
    // A request that is younger than all forgotten ones was never taken if it is not known.
    assert_eq!(ask(0, 60_000, copy("d", 51)), [taken(4, 4)]);
    assert_eq!(ask(0, 1_000, copy("e", 51)), [taken(5, 5)]);
}

#[test]
fn without_room_keys_with_a_record_go_on_and_a_retry_is_answered_as_the_first_try() {
    let mut table = with_invoices();
    assert_eq!(took(&mut table, 1, 0, vec![message(None, vec![take(7, 1)])]), [taken(1, 1)]);
    let no_room = NoRoom { free_mb: 1, reserve_mb: 2 };
    let both = || message(Some("a"), vec![take(7, 1), take(8, 1)]);
    let remembering =
        Remembering { elapsed_ms: 0, keep_ms: 1_000, bytes_max: BYTES_MAX, forget_max: 8 };
    let parts = vec![both(), message(Some("b"), vec![take(8, 1)])];
    let first = vec![range(2, 2), Taken::NoRoom(no_room)];
    let nothing = PartTaken::Taken(vec![Taken::NoRoom(no_room)]);
    let (no_room, count_max) = (Some(no_room), COUNT_MAX);
    let command = Command::Take { remembering, parts, no_room, count_max, now_ms: 0 };
    let took_some = EntryOutcome::Took(vec![PartTaken::Taken(first.clone()), nothing]);
    assert_eq!(run(&mut table, 1, command), took_some);
    // Once there is room, what took nothing may try again.
    let again = took(&mut table, 1, 0, vec![both(), message(Some("b"), vec![take(8, 1)])]);
    assert_eq!(again, [PartTaken::Repeated(first), taken(1, 1)]);
}
