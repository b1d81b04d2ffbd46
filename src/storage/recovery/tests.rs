//! The contents of a recovered directory, and entries that were not applied.

use openraft::{EntryPayload, entry::RaftEntry};
use tempfile::TempDir;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    sequence::{
        Bump, CeilingRaise, Command, DayAccounts, Ledger, MemoryDigest, Namespace, NamespaceChange,
        NamespaceConfig, NamespaceId, NamespaceTotals, SectionId, SectionKey, SectionRecord,
        SectionUse, TermEnd, Tombstone,
    },
    storage::{
        Entry, LogId, LogReader, Member, Membership, Store, StoredMembership, Vote, codec,
        layout::{
            day_key, generation_prefix, ledger_key, log_key, meta_key, namespace_key,
            next_namespace_key, section_key, tombstone_key, totals_key, vote_key,
        },
        table::{AppliedMeta, Generation},
    },
};

mod cut_short;
mod leases;
mod margins;
mod times;

const SET: SetId = 1;
/// The term of all entries up to the first epoch.
const LOG_TERM: u64 = 3;

/// The report of a recovery.
fn recover(dir: &Path, set: SetId, margin: &Margin, dry_run: bool) -> Result<Recovery, StoreError> {
    super::recover(dir, set, margin, dry_run).map(|(done, _)| done)
}

fn open(dir: &Path) -> Result<Arc<Store>, StoreError> {
    Store::open(dir, "test", 1, StoreOptions::new(Arc::new(BootClock)))
}

fn id(at: u64) -> LogId {
    LogId::new(LOG_TERM.into(), at)
}

fn section(id: u64) -> SectionId {
    SectionId { namespace: NamespaceId(1), key: SectionKey::Id(id) }
}

/// The directory of node 1 of three. Its table holds `sections` sections at 100 and all entries up to 5.
/// The log holds the entries from 6 on, not applied.
fn directory(sections: u64, unapplied: Vec<Command>) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let (db, seal) = (&store.db, codec::encode_record::<SectionRecord>);
    let mut batch = WriteBatch::default();
    let applied = db.family(Family::Applied).unwrap();
    let prefix = generation_prefix(SET, 0);
    let book = Namespace::new(
        NamespaceId(1),
        NamespaceConfig { step: 10, max: 100_000, ..NamespaceConfig::new("book") },
    );
    let uid = Namespace::new(NamespaceId(2), NamespaceConfig::new("uid"));
    let ledger = Ledger { epoch: 3, writer: LOG_TERM, end: None };
    let sealed = codec::encode_record(&ledger).unwrap();
    batch.put_cf(applied, ledger_key(&prefix), sealed);
    for namespace in [book, uid] {
        let key = namespace_key(&prefix, namespace.id);
        batch.put_cf(applied, key, codec::encode_record(&namespace).unwrap());
    }
    let next = codec::encode_record(&NamespaceId(3)).unwrap();
    batch.put_cf(applied, next_namespace_key(&prefix), next);
    for number in 0..sections {
        let record = SectionRecord {
            max_seq: 100,
            floor: 90,
            epoch: 3,
            step: 10,
            unused_max: 10,
            ..SectionRecord::default()
        };
        let key = section_key(&prefix, &section(number));
        batch.put_cf(applied, key, seal(&record).unwrap());
    }
    let members = BTreeMap::from([1, 2, 3].map(|id| (id, Member::default())));
    let membership = Membership::new(vec![BTreeSet::from([1, 2, 3])], members).unwrap();
    let meta = AppliedMeta {
        generation: 0,
        last_applied: Some(id(5)),
        membership: StoredMembership::new(Some(id(1)), membership),
    };
    batch.put_cf(applied, meta_key(SET), codec::encode_record(&meta).unwrap());
    let mut term = LOG_TERM;
    for (at, command) in (6..).zip(unapplied) {
        term += u64::from(command == Command::BeginEpoch);
        let log_id = LogId::new(term.into(), at);
        let entry = Entry::new(log_id, EntryPayload::Normal(command));
        let log = db.family(Family::Log).unwrap();
        batch.put_cf(log, log_key(SET, at), codec::encode_record(&entry).unwrap());
    }
    let hard_state = db.family(Family::HardState).unwrap();
    let vote = codec::encode_record(&Vote::new_committed(4, 2)).unwrap();
    batch.put_cf(hard_state, vote_key(SET), vote);
    db.write(batch, true).unwrap();
    drop(store);
    dir
}

fn steps(steps: u64) -> Margin {
    Margin { default_steps: steps, steps_by_namespace: BTreeMap::new() }
}

/// The ceiling of a section in the table in use; 0 if the section has none.
fn ceiling(store: &Arc<Store>, of: u64) -> u64 {
    let meta: AppliedMeta = store.db.get(Family::Applied, &meta_key(SET)).unwrap().unwrap();
    let key = section_key(&generation_prefix(SET, meta.generation), &section(of));
    let record: Option<SectionRecord> = store.db.get(Family::Applied, &key).unwrap();
    record.map_or(0, |record| record.max_seq)
}

#[test]
fn a_recovered_directory_has_raised_ceilings_and_one_member() {
    let dir = directory(3, Vec::new());
    let done = recover(dir.path(), SET, &steps(50), false).unwrap();
    let book = &done.namespaces[0];
    assert_eq!((book.sections, book.raised_by, book.start), (3, 500, 501));
    assert_eq!((done.last_log_index, done.left_behind), (5, vec![2, 3]));
    let store = open(dir.path()).unwrap();
    assert_eq!(ceiling(&store, 1), 680);
    let vote: Vote = store.db.get(Family::HardState, &vote_key(SET)).unwrap().unwrap();
    assert_eq!(vote, Vote::new(5, 1));
    let generation = Generation::new(&store.db, SET, 1);
    let namespaces = generation.read_namespaces().unwrap();
    assert_eq!(namespaces.by_name("book").unwrap().config.start, 501);
    assert_eq!(generation.read_former_members().unwrap(), BTreeSet::from([2, 3]));
    assert!(LogReader::of(&store.db, SET).last().unwrap().is_none());
}

/// The entries may have been committed. Numbers of the bumps may have been handed out. Numbers that the
/// trim returned may have been handed out by the other nodes.
#[test]
fn unapplied_bumps_raise_ceilings_and_unapplied_trims_do_not_lower_them() {
    let bump = |of, numbers| Bump {
        section: section(of),
        raise: CeilingRaise { numbers, unused_max: numbers, step: 10, up_to: 0 },
    };
    let used = SectionUse { section: section(0), used: 95, skipped: 0 };
    let dir = directory(
        2,
        vec![
            Command::create_namespace(NamespaceConfig::new("late")),
            Command::Bump { bumps: vec![bump(1, 1_000), bump(7, 20)], skipped: vec![], now_ms: 0 },
            Command::Trim { sections: vec![used], now_ms: 0 },
        ],
    );
    let margin =
        Margin { default_steps: 50, steps_by_namespace: BTreeMap::from([("late".to_owned(), 1)]) };
    let done = recover(dir.path(), SET, &margin, false).unwrap();
    assert_eq!((done.unapplied_entries, done.last_log_index), (3, 8));
    assert_eq!(done.namespaces[2].start, 10_001);
    let store = open(dir.path()).unwrap();
    assert_eq!(ceiling(&store, 0), 680);
    assert_eq!(ceiling(&store, 1), 1_680);
    assert_eq!(ceiling(&store, 7), 520, "a section that only the log knows");
}

/// The lost nodes applied the bumps before the limit was lowered, and it may be raised again.
#[test]
fn an_unapplied_bump_counts_whatever_limit_a_later_entry_sets() {
    let raise = CeilingRaise { numbers: 20, unused_max: 20, step: 10, up_to: 90_000 };
    let bumps = [0, 7].map(|of| Bump { section: section(of), raise });
    for change in [
        NamespaceChange { max: Some(2_000), ..NamespaceChange::default() },
        NamespaceChange { keys_max: Some(1), ..NamespaceChange::default() },
    ] {
        let unapplied = vec![
            Command::Bump { bumps: bumps.to_vec(), skipped: vec![], now_ms: 0 },
            Command::UpdateNamespace { name: "book".to_owned(), change: change.clone() },
        ];
        let dir = directory(1, unapplied);
        recover(dir.path(), SET, &steps(50), false).unwrap();
        let store = open(dir.path()).unwrap();
        assert_eq!((ceiling(&store, 0), ceiling(&store, 7)), (90_000, 90_000), "{change:?}");
        let book = Generation::new(&store.db, SET, 1).read_namespaces().unwrap();
        let config = &book.by_name("book").unwrap().config;
        let limits = (config.max, config.keys_max);
        assert_eq!(limits, (change.max.unwrap_or(100_000), change.keys_max), "they stay");
    }
}

fn bump_by_20(of: u64) -> Command {
    let raise = CeilingRaise { numbers: 20, unused_max: 20, step: 10, up_to: 0 };
    let section = section(of);
    Command::Bump { bumps: vec![Bump { section, raise }], skipped: vec![], now_ms: 0 }
}

/// The ledger of the recovered table.
fn raised_ledger(store: &Store) -> Ledger {
    let key = ledger_key(&generation_prefix(SET, 1));
    store.db.get(Family::Applied, &key).unwrap().unwrap()
}

/// The epoch may have been committed, and its numbers handed out.
#[test]
fn an_unapplied_epoch_counts() {
    let dir = directory(2, vec![Command::BeginEpoch, bump_by_20(0)]);
    recover(dir.path(), SET, &steps(50), false).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!((ceiling(&store, 0), ceiling(&store, 1)), (710, 680));
    assert_eq!(raised_ledger(&store).epoch, 4);
}

/// The other nodes may have gone on with it.
#[test]
fn what_the_last_term_left_is_not_taken_over_after_a_recovery() {
    let digest = MemoryDigest { parts: 1, checksum: 1 };
    let end = TermEnd::HandOff { successor: 2, digest };
    let unapplied = vec![
        bump_by_20(0),
        Command::EndTerm(end),
        Command::TakeOver { successor: 2, digest },
        Command::Checkpoint { sections: vec![section(1)], now_ms: 0 },
        Command::EndTerm(end),
    ];
    let dir = directory(2, unapplied);
    recover(dir.path(), SET, &steps(50), false).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!((ceiling(&store, 0), ceiling(&store, 1)), (700, 680));
    let ledger = raised_ledger(&store);
    assert_eq!((ledger.epoch, ledger.end), (3, None));
}

/// A leader would found the cluster again, and its namespaces begin at 1.
#[test]
fn a_copy_that_ends_before_the_cluster_was_founded_is_refused() {
    let dir = directory(0, Vec::new());
    let store = open(dir.path()).unwrap();
    let mut batch = WriteBatch::default();
    let key = next_namespace_key(&generation_prefix(SET, 0));
    batch.delete_cf(store.db.family(Family::Applied).unwrap(), key);
    store.db.write(batch, true).unwrap();
    drop(store);
    let refused = recover(dir.path(), SET, &steps(50), false).unwrap_err();
    assert!(refused.to_string().contains("was founded"), "{refused}");
    assert!(open(dir.path()).is_ok(), "nothing was changed");
}

/// A power cut lost the purge that followed the install of a snapshot.
#[test]
fn a_log_that_ends_before_the_table_does_not_set_the_recovered_one_back() {
    let dir = directory(1, Vec::new());
    let store = open(dir.path()).unwrap();
    let stale = Entry::new(LogId::new((LOG_TERM + 1).into(), 4), EntryPayload::Blank);
    let mut batch = WriteBatch::default();
    let log = store.db.family(Family::Log).unwrap();
    batch.put_cf(log, log_key(SET, 4), codec::encode_record(&stale).unwrap());
    store.db.write(batch, true).unwrap();
    drop(store);
    let done = recover(dir.path(), SET, &steps(50), false).unwrap();
    assert_eq!((done.last_log_term, done.last_log_index), (LOG_TERM, 5));
    let store = open(dir.path()).unwrap();
    let meta = AppliedMeta::read(&store.db, SET).unwrap().unwrap();
    assert_eq!(meta.last_applied.unwrap().index, 6);
}

/// The other nodes may have created the namespace again, and gone on.
#[test]
fn a_namespace_that_an_unapplied_entry_deletes_stays_deleted_and_its_tombstone_is_raised() {
    let delete = Command::DeleteNamespace { name: "book".to_owned(), forget: false };
    let dir = directory(2, vec![bump_by_20(1), bump_by_20(7), delete]);
    let store = open(dir.path()).unwrap();
    let mut batch = WriteBatch::default();
    for id in [1, 2] {
        let key = day_key(&generation_prefix(SET, 0), NamespaceId(id), 3);
        let accounts = codec::encode_record(&DayAccounts::default()).unwrap();
        batch.put_cf(store.db.family(Family::Applied).unwrap(), key, accounts);
    }
    store.db.write(batch, true).unwrap();
    drop(store);
    let done = recover(dir.path(), SET, &steps(50), false).unwrap();
    let names: Vec<&str> = done.namespaces.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["uid"]);
    let store = open(dir.path()).unwrap();
    assert_eq!((ceiling(&store, 0), ceiling(&store, 7)), (0, 0));
    let prefix = generation_prefix(SET, 1);
    let read = |key: Vec<u8>| store.db.get(Family::Applied, &key).unwrap();
    let tombstone: Option<Tombstone> = read(tombstone_key(&prefix, "book"));
    // The ceiling 120, eight epochs and 50 steps of 10.
    assert_eq!(tombstone.unwrap().floor, 120 + 80 + 500);
    let accounts = [1, 2].map(|id| {
        let key = day_key(&prefix, NamespaceId(id), 3);
        store.db.get::<DayAccounts>(Family::Applied, &key).unwrap().is_some()
    });
    assert_eq!(accounts, [false, true]);
    let next: Option<NamespaceId> =
        store.db.get(Family::Applied, &next_namespace_key(&prefix)).unwrap();
    assert_eq!(next, Some(NamespaceId(3)));
}

/// Keys with few numbers leave no room for the margin of the others, and their namespace could not be created again.
#[test]
fn a_deleted_namespace_may_have_a_margin_of_its_own() {
    let delete = Command::DeleteNamespace { name: "book".to_owned(), forget: false };
    let dir = directory(2, vec![bump_by_20(1), bump_by_20(7), delete]);
    let margin =
        Margin { default_steps: 50, steps_by_namespace: BTreeMap::from([("book".to_owned(), 1)]) };
    recover(dir.path(), SET, &margin, false).unwrap();
    let store = open(dir.path()).unwrap();
    let key = tombstone_key(&generation_prefix(SET, 1), "book");
    let tombstone: Option<Tombstone> = store.db.get(Family::Applied, &key).unwrap();
    // The ceiling 120, eight epochs and a step of 10.
    assert_eq!(tombstone.unwrap().floor, 120 + 80 + 10);
}

#[test]
fn a_recovered_table_knows_the_totals_of_its_namespaces() {
    let dir = directory(3, vec![bump_by_20(1), bump_by_20(7)]);
    recover(dir.path(), SET, &steps(50), false).unwrap();
    let store = open(dir.path()).unwrap();
    let key = totals_key(&generation_prefix(SET, 1), NamespaceId(1));
    let totals: NamespaceTotals = store.db.get(Family::Applied, &key).unwrap().unwrap();
    assert_eq!(totals.sections, 4);
    assert_eq!(totals.ceiling_max, ceiling(&store, 1));
}
