//! Namespaces are founded, changed, deleted and created again.

use proptest::prelude::*;

use crate::sequence::{
    Bump, Bumped, CeilingRaise, Chunk, ClusterId, Command, EntryOutcome, KeyKind, Namespace,
    NamespaceChange, NamespaceConfig, NamespaceId, NamespaceRefused, SectionId, SectionKey,
    SectionUse, WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord,
    tests::memory_table::{MemoryTable, bumps, checkpoints, run, trims},
};

fn founded() -> MemoryTable {
    let mut table = MemoryTable::default();
    let book = NamespaceConfig { step: 10, ..NamespaceConfig::new("book") };
    run(&mut table, 1, Command::FoundNamespaces(vec![book]));
    assert_eq!(run(&mut table, 1, Command::BeginEpoch), EntryOutcome::InEpoch(1));
    table
}

fn section(namespace: NamespaceId, id: u64) -> SectionId {
    let key = SectionKey::Id(id);
    SectionId { namespace, key }
}

fn bump(table: &mut MemoryTable, term: u64, namespace: NamespaceId, numbers: u64) -> Bumped {
    let raise = CeilingRaise { numbers, unused_max: numbers, step: numbers, up_to: 0 };
    let section = section(namespace, 7);
    match run(table, term, bumps(vec![Bump { section, raise }])) {
        EntryOutcome::Bumped(answers) => answers[0],
        other => panic!("{other:?}"),
    }
}

fn chunk(old: u64, new: u64) -> Bumped {
    Bumped::Chunk(Chunk { old, new })
}

fn create(table: &mut MemoryTable, config: NamespaceConfig) -> Result<Namespace, NamespaceRefused> {
    match run(table, 1, Command::create_namespace(config)) {
        EntryOutcome::Namespace(created) => created,
        other => panic!("{other:?}"),
    }
}

fn update(table: &mut MemoryTable, change: NamespaceChange) -> Result<Namespace, NamespaceRefused> {
    let name = "book".to_owned();
    match run(table, 1, Command::UpdateNamespace { name, change }) {
        EntryOutcome::Namespace(updated) => updated,
        other => panic!("{other:?}"),
    }
}

fn delete(table: &mut MemoryTable, forget: bool) -> Result<Option<u64>, NamespaceRefused> {
    let name = "book".to_owned();
    match run(table, 1, Command::DeleteNamespace { name, forget }) {
        EntryOutcome::NamespaceDeleted(deleted) => {
            deleted.map(|tombstone| tombstone.map(|tombstone| tombstone.floor))
        }
        other => panic!("{other:?}"),
    }
}

/// Leases worker id 3 for ten seconds.
fn lease(table: &mut MemoryTable, namespace: NamespaceId, now_ms: u64) -> Option<WorkerRecord> {
    let act = WorkerAct::Lease { holder: "a".to_owned(), up_to_ms: now_ms + 10_000 };
    let ask = WorkerAsk { namespace, worker: 3, act };
    let asks = vec![ask];
    match run(table, 1, Command::Workers { asks, now_ms }) {
        EntryOutcome::Workers(answers) => match &answers[..] {
            [WorkerAnswer::Leased(lease)] => Some(lease.clone()),
            [WorkerAnswer::NoNamespace] => None,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn id_of_book(table: &MemoryTable) -> NamespaceId {
    let book = (table.namespaces.values()).find(|one| one.config.name == "book");
    book.expect("there is a namespace").id
}

#[test]
fn a_cluster_is_founded_once_and_what_was_deleted_since_does_not_come_back() {
    let mut table = founded();
    delete(&mut table, false).unwrap();
    let again = Command::FoundNamespaces(vec![NamespaceConfig::new("book")]);
    assert_eq!(run(&mut table, 2, again), EntryOutcome::None);
    assert!(table.namespaces.is_empty());
    let none = Command::FoundNamespaces(Vec::new());
    let mut empty = MemoryTable::default();
    run(&mut empty, 1, none);
    let late = Command::FoundNamespaces(vec![NamespaceConfig::new("book")]);
    run(&mut empty, 2, late);
    assert!(empty.namespaces.is_empty(), "founded without any before");
}

#[test]
fn a_cluster_gets_its_id_once() {
    let mut table = founded();
    let [first, second] = [1, 2].map(|byte| ClusterId::from_random([byte; 16]));
    for id in [first, second] {
        assert_eq!(run(&mut table, 1, Command::NameCluster(id)), EntryOutcome::None);
        assert_eq!(table.cluster_id, Some(first));
    }
}

#[test]
fn a_namespace_that_is_created_again_begins_above_all_that_epochs_may_have_given() {
    let mut table = founded();
    let old = id_of_book(&table);
    assert_eq!(bump(&mut table, 1, old, 10), chunk(0, 10));
    // Two terms took what their epochs gave, and logged nothing of it.
    run(&mut table, 2, Command::BeginEpoch);
    run(&mut table, 3, Command::BeginEpoch);
    assert_eq!(delete(&mut table, false), Ok(Some(90)));
    assert!(table.sections.is_empty());
    assert_eq!(bump(&mut table, 3, old, 10), Bumped::NoNamespace);
    let again = create(&mut table, NamespaceConfig::new("book")).unwrap();
    assert_eq!((again.config.start, again.floor), (91, 90));
    assert!(again.id > old, "ids are not used again");
    assert!(table.tombstones.is_empty());
    assert_eq!(bump(&mut table, 3, again.id, 10), chunk(0, 100));
}

#[test]
fn a_namespace_that_is_created_again_keeps_to_its_own_progression() {
    let mut table = founded();
    let old = id_of_book(&table);
    bump(&mut table, 1, old, 1_000);
    assert_eq!(delete(&mut table, false), Ok(Some(9_000)));
    let chapters = NamespaceConfig { start: 70, increment: 100, ..NamespaceConfig::new("book") };
    let again = create(&mut table, chapters).unwrap();
    assert_eq!(again.config.start, 9_070);
    // Never used, and deleted again: the floor stays.
    assert_eq!(delete(&mut table, false), Ok(Some(9_000)));
    // A change before the first number may not go below it either.
    create(&mut table, NamespaceConfig::new("book")).unwrap();
    let change = NamespaceChange { start: Some(5), ..NamespaceChange::default() };
    assert_eq!(update(&mut table, change).unwrap().config.start, 9_001);
}

#[test]
fn a_namespace_with_too_low_a_max_is_not_created_again_unless_the_old_one_is_forgotten() {
    let mut table = founded();
    let old = id_of_book(&table);
    bump(&mut table, 1, old, 1_000);
    delete(&mut table, false).unwrap();
    let small = NamespaceConfig { max: 2_000, ..NamespaceConfig::new("book") };
    let refused = create(&mut table, small.clone()).unwrap_err().to_string();
    for told in ["up to 9000", "max is 2000", "--forget"] {
        assert!(refused.contains(told), "{refused}");
    }
    let refused = delete(&mut table, false).unwrap_err().to_string();
    assert!(refused.contains("up to 9000") && refused.contains("--forget"), "{refused}");
    assert_eq!(delete(&mut table, true), Ok(None));
    assert_eq!(create(&mut table, small).unwrap().config.start, 1);
    assert_eq!(delete(&mut table, true), Ok(None));
    assert!(table.tombstones.is_empty());
    assert_eq!(delete(&mut table, true), Err(NamespaceRefused::NotFound("book".into())));
}

#[test]
fn a_namespace_that_never_handed_out_a_number_leaves_nothing() {
    let mut table = founded();
    assert_eq!(delete(&mut table, false), Ok(None));
    assert!(table.tombstones.is_empty());
    let again = create(&mut table, NamespaceConfig::new("book")).unwrap();
    assert_eq!((again.config.start, again.id), (1, NamespaceId(2)));
}

#[test]
fn what_orders_numbers_changes_until_the_first_one_and_then_each_field_says_why_not() {
    let mut table = founded();
    let old = id_of_book(&table);
    let change = NamespaceChange {
        increment: Some(100),
        start: Some(5),
        key_kind: Some(KeyKind::Name),
        description: Some("chapters".into()),
        ..NamespaceChange::default()
    };
    let changed = update(&mut table, change).unwrap();
    assert!(changed.id > old, "the old layout's bumps find no namespace");
    assert_eq!(bump(&mut table, 1, old, 10), Bumped::NoNamespace);
    assert_eq!((changed.config.increment, changed.config.start), (100, 5));
    bump(&mut table, 1, changed.id, 10);
    let change = NamespaceChange {
        increment: Some(1),
        start: Some(1),
        key_kind: Some(KeyKind::Id),
        section_size: Some(2),
        ..NamespaceChange::default()
    };
    let refused = update(&mut table, change).unwrap_err().to_string();
    for field in ["increment (", "start (", "section_size (", "key_kind ("] {
        assert!(refused.contains(field), "{field}: {refused}");
    }
    let change = NamespaceChange {
        // As it is: no change.
        increment: Some(100),
        description: Some("chapters of books".into()),
        count_max: Some(5),
        keys_max: Some(9),
        ..NamespaceChange::default()
    };
    let changed = update(&mut table, change).unwrap().config;
    assert_eq!((changed.count_max, changed.keys_max), (Some(5), Some(9)));
    assert_eq!(changed.description, "chapters of books");
    let change =
        NamespaceChange { count_max: Some(0), keys_max: Some(0), ..NamespaceChange::default() };
    let changed = update(&mut table, change).unwrap().config;
    assert_eq!((changed.count_max, changed.keys_max), (None, None));
}

#[test]
fn steps_fit_how_many_numbers_a_key_has_and_the_answer_tells_those_in_force() {
    let mut table = founded();
    let steps = |config: &NamespaceConfig| (config.step, config.step_min, config.step_max);
    let seats = NamespaceConfig { max: 9_999, ..NamespaceConfig::new("seat") };
    assert_eq!(steps(&create(&mut table, seats).unwrap().config), (9, None, None));
    let few =
        NamespaceConfig { start: 100, increment: 100, max: 1_000, ..NamespaceConfig::new("few") };
    assert_eq!(steps(&create(&mut table, few).unwrap().config), (1, None, None));
    let change = |max, step| NamespaceChange { max, step, ..NamespaceChange::default() };
    // A lower max lowers them, a greater one does not raise them again, and a step that fits stays.
    let lowered = update(&mut table, change(Some(10_240), Some(5_000))).unwrap().config;
    assert_eq!(steps(&lowered), (9, None, None));
    let raised = update(&mut table, change(Some(1 << 40), None)).unwrap().config;
    assert_eq!(steps(&raised), (9, None, None));
    let given = NamespaceChange {
        step: Some(20_000),
        step_min: Some(10),
        step_max: Some(1 << 35),
        ..NamespaceChange::default()
    };
    let given = update(&mut table, given).unwrap().config;
    assert_eq!(steps(&given), (20_000, Some(10), Some((1 << 30) - 1)));
    // So does a first number that lies further up.
    let book = id_of_book(&table);
    bump(&mut table, 1, book, 10);
    let floor = delete(&mut table, false).unwrap().unwrap();
    let again = NamespaceConfig { max: floor + 3 * 1_024, ..NamespaceConfig::new("book") };
    assert_eq!(create(&mut table, again).unwrap().config.step, 2);
}

/// One number after each of a hundred crashes, and nobody gives anything back.
#[test]
fn a_key_of_ten_thousand_numbers_has_half_of_them_left_after_a_hundred_crashes() {
    let mut table = founded();
    let seats = NamespaceConfig { max: 9_999, ..NamespaceConfig::new("seat") };
    let seats = create(&mut table, seats).unwrap();
    let (step, progression) = (seats.config.step, seats.config.progression());
    let seat = section(seats.id, 7);
    for term in 2..102 {
        run(&mut table, term, Command::BeginEpoch);
        // As a leader does: a bump, unless the epoch has given a chunk.
        let epoch = table.ledger.epoch;
        let epoch_chunk =
            table.sections.get(&seat).and_then(|record| record.epoch_chunk(progression, epoch));
        let first = match epoch_chunk {
            Some(chunk) => progression.first_above(chunk.old),
            None => {
                let raise = CeilingRaise { numbers: step, unused_max: step, step, up_to: 0 };
                let asked = bumps(vec![Bump { section: seat.clone(), raise }]);
                match run(&mut table, term, asked) {
                    EntryOutcome::Bumped(answers) => match answers[0] {
                        Bumped::Chunk(chunk) => progression.first_above(chunk.old),
                        other => panic!("{other:?} in term {term}"),
                    },
                    other => panic!("{other:?}"),
                }
            }
        };
        assert!(first.is_some_and(|first| first < 5_000), "{first:?} in term {term}");
    }
}

#[test]
fn a_namespace_that_finds_no_id_left_changes_nothing() {
    let mut table = founded();
    table.next_id = Some(NamespaceId(u32::MAX));
    let change = NamespaceChange { increment: Some(100), ..NamespaceChange::default() };
    assert_eq!(update(&mut table, change), Err(NamespaceRefused::IdsUsedUp));
    let old = id_of_book(&table);
    bump(&mut table, 1, old, 10);
    assert!(delete(&mut table, false).unwrap().is_some());
    let refused = create(&mut table, NamespaceConfig::new("book"));
    assert_eq!(refused, Err(NamespaceRefused::IdsUsedUp));
    assert!(table.tombstones.contains_key("book"));
}

#[test]
fn a_leader_that_returns_a_deleted_namespaces_sections_writes_nothing() {
    let mut table = founded();
    let old = id_of_book(&table);
    bump(&mut table, 1, old, 10);
    delete(&mut table, false).unwrap();
    let used = SectionUse { section: section(old, 7), used: 3, skipped: 0 };
    assert_eq!(run(&mut table, 1, trims(vec![used])), EntryOutcome::Written(1));
    let checkpoint = checkpoints(vec![section(old, 7)]);
    assert_eq!(run(&mut table, 1, checkpoint), EntryOutcome::Written(0));
    assert!(table.sections.is_empty() && table.totals.is_empty());
}

#[test]
fn what_leased_a_worker_id_and_no_number_is_in_use_and_leaves_a_tombstone() {
    let mut table = founded();
    let ids = NamespaceConfig { format: Some("snowflake".into()), ..NamespaceConfig::new("book") };
    delete(&mut table, true).unwrap();
    let old = create(&mut table, ids.clone()).unwrap();
    assert_eq!(lease(&mut table, old.id, 1_000).unwrap().token, 1_000);
    let increment = NamespaceChange { start: Some(5), ..NamespaceChange::default() };
    let refused = update(&mut table, increment).unwrap_err().to_string();
    assert!(refused.contains("or worker ids") && refused.contains("start ("), "{refused}");
    // No number was handed out, so the floor of numbers is 0, but the tombstone is there.
    assert_eq!(delete(&mut table, false), Ok(Some(0)));
    assert!(table.workers.is_empty() && table.totals.is_empty());
    assert_eq!(lease(&mut table, old.id, 2_000), None);
    let refused = delete(&mut table, false).unwrap_err().to_string();
    assert!(refused.contains("ids with times up to 11000 ms"), "{refused}");
    // Created again, without a format between, and unused: the times stay behind.
    create(&mut table, NamespaceConfig::new("book")).unwrap();
    let unused = NamespaceChange { start: Some(5), ..NamespaceChange::default() };
    update(&mut table, unused).unwrap();
    assert_eq!(delete(&mut table, false), Ok(Some(0)));
    let again = create(&mut table, ids).unwrap();
    let lease = lease(&mut table, again.id, 2_000).unwrap();
    assert_eq!((lease.token, lease.from_ms), (2_000, 11_000));
}

#[test]
fn keys_of_ids_with_a_format_stay_of_their_kind() {
    let mut table = founded();
    delete(&mut table, false).unwrap();
    let ids = NamespaceConfig { format: Some("snowflake".into()), ..NamespaceConfig::new("book") };
    create(&mut table, ids).unwrap();
    let names = NamespaceChange { key_kind: Some(KeyKind::Name), ..NamespaceChange::default() };
    let refused = update(&mut table, names).unwrap_err().to_string();
    assert!(refused.starts_with("key_kind is name"), "{refused}");
}

/// An event in a namespace's life.
#[derive(Debug, Clone)]
enum Step {
    Bump(u64, u64),
    BeginEpoch,
    Checkpoint(u64),
    Trim(u64),
    Recreate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3u64, 1..40u64).prop_map(|(id, numbers)| Step::Bump(id, numbers)),
        3 => Just(Step::BeginEpoch),
        1 => (0..3u64).prop_map(Step::Checkpoint),
        1 => (0..3u64).prop_map(Step::Trim),
        1 => Just(Step::Recreate),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// All numbers that any term was given of a key, by bumps or by epochs, lie below those of the namespace that is
    /// created again.
    #[test]
    fn the_numbers_of_a_name_and_key_never_go_down_through_deletions(steps in steps()) {
        let mut table = founded();
        let mut term = 1;
        let mut greatest = 0;
        let mut begins_above = 0;
        for step in steps {
            let id = id_of_book(&table);
            let progression = table.namespaces[&id].config.progression();
            match step {
                Step::Bump(key, numbers) => {
                    let raise = CeilingRaise { numbers, unused_max: numbers, step: numbers, up_to: 0 };
                    let asked = vec![Bump { section: section(id, key), raise }];
                    let EntryOutcome::Bumped(answers) = run(&mut table, term, bumps(asked)) else {
                        panic!("not bumped");
                    };
                    let Bumped::Chunk(chunk) = answers[0] else { panic!("{answers:?}") };
                    let first = progression.first_above(chunk.old).unwrap();
                    prop_assert!(first > begins_above, "{first} after {begins_above}");
                    greatest = chunk.new.max(greatest);
                }
                Step::BeginEpoch => {
                    term += 1;
                    let begun = run(&mut table, term, Command::BeginEpoch);
                    let EntryOutcome::InEpoch(epoch) = begun else {
                        panic!("no epoch");
                    };
                    let given = table.sections.values().filter_map(|record| record.epoch_chunk(progression, epoch));
                    greatest = given.map(|chunk| chunk.new).max().unwrap_or(0).max(greatest);
                }
                Step::Checkpoint(key) => {
                    run(&mut table, term, checkpoints(vec![section(id, key)]));
                }
                Step::Trim(key) => {
                    // All was used.
                    let used = table.sections.get(&section(id, key)).map(|record| record.max_seq);
                    let (section, used) = (section(id, key), used.unwrap_or(0));
                    run(&mut table, term, trims(vec![SectionUse { section, used, skipped: 0 }]));
                }
                Step::Recreate => {
                    delete(&mut table, false).unwrap();
                    create(&mut table, NamespaceConfig::new("book")).unwrap();
                    begins_above = greatest;
                }
            }
        }
    }
}
