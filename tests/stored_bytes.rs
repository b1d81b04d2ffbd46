//! The stored forms, byte by byte. A release reads the data that the one before it wrote, so a change of the code must
//! not change any form unnoticed.
//!
//! The file beside this one holds every kind of log entry, of record of the table and of part of a snapshot. A change
//! that is meant raises `VERSION` of the codec; then `UPDATE_EXPECT=1 cargo test stored_bytes` writes the file anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    num::{NonZeroU32, NonZeroU64},
    path::Path,
};

use crate::common::stores::{
    append_durably, apply, entry, log_id, options, parts_of, raw_database, section,
};
use expect_test::expect_file;
use openraft::{
    EntryPayload,
    entry::RaftEntry,
    storage::{RaftLogStorage, RaftStateMachine},
};
use ratchet::{
    consensus::StateMachine,
    sequence::{
        AccessChange, AddressRange, Bump, CeilingRaise, ClusterId, Command, Grant, KeyKind,
        Lifetime, MemoryDigest, MessagePart, NamespaceChange, NamespaceConfig, NamespaceId,
        NamespacePattern, NoRoom, PartId, PrincipalKey, PrincipalRecord, Quota, Remembering,
        RequestId, SectionId, SectionKey, SectionUse, Skipped, SkippedBy, Take, TermEnd, TokenHash,
        TokenRecord, Verb, WorkerAct, WorkerAsk,
    },
    storage::{BlockingExecutor, Entry, LogStore, Member, Membership, Store, StoreOptions, Vote},
};
use rocksdb::IteratorMode;
use tempfile::TempDir;

/// 1 January 2026.
const NOW_MS: u64 = 1_767_225_600_000;

const BOOK: NamespaceId = NamespaceId(1);
const USER: NamespaceId = NamespaceId(2);
const INVOICE: NamespaceId = NamespaceId(3);
const BOX: NamespaceId = NamespaceId(4);
const SNOW: NamespaceId = NamespaceId(5);

fn named(namespace: NamespaceId, name: &[u8]) -> SectionId {
    SectionId { namespace, key: SectionKey::Name(name.into()) }
}

fn configs() -> Vec<NamespaceConfig> {
    vec![
        NamespaceConfig { description: "books".to_owned(), ..NamespaceConfig::new("book") },
        NamespaceConfig {
            section_size: 100_000,
            increment: 100,
            start: 7,
            max: 1 << 40,
            step_min: Some(10),
            step_max: Some(100_000),
            count_max: Some(1_000),
            keys_max: Some(1_000_000),
            ..NamespaceConfig::new("user")
        },
        NamespaceConfig {
            gapless: true,
            request_id_optional: true,
            ..NamespaceConfig::new("invoice")
        },
        NamespaceConfig { key_kind: KeyKind::Name, ..NamespaceConfig::new("box") },
        NamespaceConfig { format: Some("snowflake".to_owned()), ..NamespaceConfig::new("snow") },
    ]
}

fn bumps() -> Command {
    let raise = CeilingRaise { numbers: 100, unused_max: 10_000, step: 10_000, up_to: 0 };
    let sections = [
        section(7),
        section(u64::MAX),
        SectionId { namespace: USER, key: SectionKey::Id(3) },
        named(BOX, b"alice \xff"),
    ];
    Command::Bump {
        bumps: sections.map(|section| Bump { section, raise }).into(),
        skipped: vec![
            Skipped { namespace: BOOK, by: SkippedBy::Fence, numbers: 3 },
            Skipped { namespace: USER, by: SkippedBy::Deadline, numbers: 1 << 33 },
            Skipped { namespace: BOX, by: SkippedBy::Floor, numbers: 251 },
        ],
        now_ms: NOW_MS,
    }
}

fn takes() -> Command {
    let take = |(key, count): &(u64, u64)| Take { section: SectionKey::Id(*key), count: *count };
    let part = |id: Option<PartId>, takes: &[(u64, u64)]| MessagePart {
        namespace: INVOICE,
        made_ms: id.as_ref().and_then(|id| id.lifetime.window_ms()).map(|_| 7),
        caller: id.as_ref().map(|_| 0xffff_0a00_0001),
        whole: id.as_ref().filter(|id| id.part > 0).map(|_| 0xC0FFEE),
        id,
        takes: takes.iter().map(take).collect(),
    };
    let id = |name: &[u8], part, lifetime| {
        Some(PartId { request: RequestId::new(name).unwrap(), part, lifetime })
    };
    Command::Take {
        remembering: Remembering {
            elapsed_ms: 40,
            keep_ms: 600_000,
            bytes_max: 1 << 30,
            forget_max: 128,
        },
        parts: vec![
            part(None, &[(1, 2)]),
            part(id(b"order-17", 0, Lifetime::CONFIGURED), &[(1, 2), (2, 2), (3, 11)]),
            part(id(b"\x00\xff", 3, Lifetime::of_window_ms(10_000)), &[(5, 2)]),
        ],
        no_room: None,
        count_max: 10,
        now_ms: NOW_MS,
    }
}

fn takes_without_room() -> Command {
    let part = MessagePart {
        namespace: INVOICE,
        id: None,
        made_ms: None,
        whole: None,
        caller: None,
        takes: vec![Take { section: SectionKey::Id(9), count: 1 }],
    };
    Command::Take {
        remembering: Remembering { elapsed_ms: 0, keep_ms: 1, bytes_max: 1, forget_max: 0 },
        parts: vec![part],
        no_room: Some(NoRoom { free_mb: 80, reserve_mb: 512 }),
        count_max: 10,
        now_ms: NOW_MS,
    }
}

fn workers() -> Command {
    let ask = |worker, act| WorkerAsk { namespace: SNOW, worker, act };
    let lease =
        |holder: &str| WorkerAct::Lease { holder: holder.to_owned(), up_to_ms: NOW_MS + 10_000 };
    Command::Workers {
        asks: vec![
            ask(0, lease("10.0.0.1")),
            ask(700, lease("node 2")),
            ask(0, WorkerAct::Renew { token: 1, up_to_ms: NOW_MS + 20_000 }),
            ask(700, WorkerAct::Release { token: 1, used_ms: NOW_MS + 5_000 }),
        ],
        now_ms: NOW_MS,
    }
}

/// Every command, in an order in which each of them does something.
fn commands() -> Vec<Command> {
    let change = NamespaceChange {
        step: Some(20_000),
        step_min: Some(5),
        step_max: Some(40_000),
        max: Some(1 << 50),
        description: Some("books and chapters".to_owned()),
        count_max: Some(10),
        keys_max: Some(5_000),
        increment: Some(2),
        start: Some(3),
        section_size: Some(1),
        key_kind: Some(KeyKind::Id),
        request_id_optional: Some(false),
        redis_strings: Some(true),
    };
    let used = |section, used| SectionUse { section, used, skipped: 2 };
    let digest = MemoryDigest { parts: 3, checksum: 0xdead_beef };
    vec![
        Command::NameCluster(ClusterId::from_random([0xa5; 16])),
        Command::FoundNamespaces(configs()),
        Command::BeginEpoch,
        bumps(),
        takes(),
        takes_without_room(),
        workers(),
        Command::create_namespace(NamespaceConfig::new("chapter")),
        Command::UpdateNamespace { name: "chapter".to_owned(), change },
        Command::Checkpoint { sections: vec![section(7)], now_ms: NOW_MS },
        Command::Release { sections: vec![used(section(7), 50)], now_ms: NOW_MS },
        Command::create_namespace(NamespaceConfig::new("doomed")),
        bump_of(NamespaceId(8)),
        Command::DeleteNamespace { name: "doomed".to_owned(), forget: false },
        Command::Trim { sections: vec![used(named(BOX, b"alice \xff"), 60)], now_ms: NOW_MS },
        Command::EndTerm(TermEnd::HandOff { successor: 1, digest }),
        Command::TakeOver { successor: 1, digest },
        Command::EndTerm(TermEnd::Return),
        Command::ChangeAccess(AccessChange::Found {
            admin: TokenHash([1; 32]),
            grants: grants(),
            now_ms: NOW_MS,
        }),
        token(2),
        token(3),
        Command::ChangeAccess(AccessChange::RemoveToken(TokenHash([3; 32]))),
        grant(PrincipalKey::Anonymous(None)),
        Command::ChangeAccess(AccessChange::SetQuotas {
            keys: vec![PrincipalKey::Anonymous(None)],
            quotas: quotas(),
            everything: grants(),
        }),
        grant(PrincipalKey::Anonymous(AddressRange::parse("10.1.0.0/16").ok())),
        grant(PrincipalKey::Certificate("ratchet://test/client/ci".to_owned())),
    ]
}

fn grants() -> Vec<Grant> {
    let namespaces = NamespacePattern::parse("order*").expect("a pattern");
    Verb::ALL.map(|verb| Grant { verb, namespaces: namespaces.clone() }).to_vec()
}

fn quotas() -> Vec<Quota> {
    let limit = NonZeroU32::new(100);
    vec![Quota {
        namespaces: NamespacePattern::parse("order*").expect("a pattern"),
        calls_per_second: limit,
        numbers_per_second: limit,
        burnt_per_day: NonZeroU64::new(7),
    }]
}

fn token(hash: u8) -> Command {
    let token = TokenRecord {
        name: "ci".to_owned(),
        expires_ms: Some(NOW_MS + 1),
        made_by: "admin".to_owned(),
        made_ms: NOW_MS,
    };
    let record = PrincipalRecord { grants: grants(), token: Some(token), quotas: quotas() };
    let hash = TokenHash([hash; 32]);
    Command::ChangeAccess(AccessChange::AddToken { hash, record, principals_max: 1_000 })
}

fn grant(key: PrincipalKey) -> Command {
    let grants = grants();
    Command::ChangeAccess(AccessChange::Grant { key, grants, principals_max: 1_000 })
}

fn bump_of(namespace: NamespaceId) -> Command {
    let raise = CeilingRaise { numbers: 1, unused_max: 1, step: 1, up_to: 77 };
    let section = SectionId { namespace, key: SectionKey::Id(0) };
    Command::Bump { bumps: vec![Bump { section, raise }], skipped: vec![], now_ms: NOW_MS }
}

/// An entry with this membership, in which the nodes up to `last` are known.
fn membership(index: u64, voters: Vec<BTreeSet<u64>>, last: u64) -> Entry {
    let member = |id: u64| Member {
        peer_address: format!("10.0.0.{id}:7000"),
        client_address: format!("10.0.0.{id}:7001"),
        incarnation: id << 40,
    };
    let members: BTreeMap<_, _> = (1..=last).map(|id| (id, member(id))).collect();
    let membership = Membership::new(voters, members).unwrap();
    Entry::new(log_id(1, index), EntryPayload::Membership(membership))
}

/// All records of a data directory: the column family, the key and the value. The node's identity is left out, which is
/// drawn at random.
fn records(dir: &Path) -> String {
    let db = raw_database(dir);
    let mut lines = String::new();
    for family in ["log", "hard_state", "applied"] {
        let records = db.iterator_cf(db.cf_handle(family).unwrap(), IteratorMode::Start);
        for record in records.map(Result::unwrap).filter(|(key, _)| **key != *b"identity") {
            let (key, value) = (hex(&record.0), hex(&record.1));
            writeln!(lines, "{family} {key}: {value}").unwrap();
        }
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_entries_records_and_snapshots_have_the_bytes_that_they_had() {
    let dir = TempDir::new().unwrap();
    let joint = vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 2, 3])];
    let mut entries = vec![Entry::new(log_id(1, 0), EntryPayload::Blank), membership(1, joint, 3)];
    entries.extend((2..).zip(commands()).map(|(index, command)| entry(index, command)));
    // Node 3 is removed.
    let last = entries.len() as u64;
    entries.push(membership(last, vec![BTreeSet::from([1, 2])], 2));
    let mut snapshot = String::new();
    {
        // The space of the deleted namespace is not freed: that would happen at some time or other.
        let options = StoreOptions { blocking: BlockingExecutor::Inline, ..options() };
        let store = Store::open(dir.path(), "test", 1, options).unwrap();
        let mut log = LogStore::open(&store, 1).unwrap();
        log.save_vote(&Vote::new_committed(4, 2)).await.unwrap();
        store.record_promise_ms(1, 300).unwrap();
        store.record_founding_token(1, Some(TokenHash([1; 32]))).unwrap();
        for entry in &entries {
            append_durably(&mut log, entry.clone()).await;
        }
        let mut machine = StateMachine::open(&store, 1).unwrap();
        apply(&mut machine, entries).await;
        let handed_over = machine.get_current_snapshot().await.unwrap().unwrap();
        for part in parts_of(handed_over).await.unwrap() {
            writeln!(snapshot, "snapshot: {}", hex(&part)).unwrap();
        }
        log.purge(log_id(1, 0)).await.unwrap();
    }
    expect_file!["stored_bytes.txt"].assert_eq(&(records(dir.path()) + &snapshot));
}
