//! Leases of worker ids through everything that happens to them and to their namespace.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::sequence::{
    Command, EntryOutcome, NamespaceConfig, NamespaceId, WorkerAct, WorkerAnswer, WorkerAsk,
    tests::memory_table::{MemoryTable, run},
};

const NAME: &str = "orders";

fn create(table: &mut MemoryTable, format: Option<&str>) -> NamespaceId {
    let config =
        NamespaceConfig { format: format.map(str::to_owned), ..NamespaceConfig::new(NAME) };
    match run(table, 1, Command::create_namespace(config)) {
        EntryOutcome::Namespace(Ok(namespace)) => namespace.id,
        other => panic!("{other:?}"),
    }
}

fn delete(table: &mut MemoryTable) {
    let delete = Command::DeleteNamespace { name: NAME.to_owned(), forget: false };
    let deleted = run(table, 1, delete);
    assert!(matches!(deleted, EntryOutcome::NamespaceDeleted(Ok(_))), "{deleted:?}");
}

fn lease(namespace: NamespaceId, worker: u32, holder: &str, up_to_ms: u64) -> WorkerAsk {
    let act = WorkerAct::Lease { holder: holder.to_owned(), up_to_ms };
    WorkerAsk { namespace, worker, act }
}

/// Asks in one entry of any term: nobody has to have begun an epoch.
fn ask(table: &mut MemoryTable, asks: Vec<WorkerAsk>, now_ms: u64) -> Vec<WorkerAnswer> {
    match run(table, 9, Command::Workers { asks, now_ms }) {
        EntryOutcome::Workers(answers) => answers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_entry_answers_each_ask_in_its_order_and_later_ones_see_what_earlier_ones_did() {
    let mut table = MemoryTable::default();
    let id = create(&mut table, Some("snowflake"));
    let act = WorkerAct::Release { token: 1_000, used_ms: 900 };
    let release = WorkerAsk { namespace: id, worker: 0, act };
    let asks = vec![
        lease(id, 0, "a", 1_010),
        lease(id, 0, "b", 1_010),
        lease(id, 1, "b", 1_010),
        release,
        lease(id, 0, "c", 1_010),
    ];
    let answers = ask(&mut table, asks, 1_000);
    let held = WorkerAnswer::Held { holder: "a".into(), until_ms: 1_010 };
    assert_eq!(answers[1], held);
    assert_eq!(answers[3], WorkerAnswer::Released);
    let leases: Vec<_> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            WorkerAnswer::Leased(lease) => Some((lease.holder, lease.token, lease.from_ms)),
            _ => None,
        })
        .collect();
    let expected = [("a", 1_000, 0), ("b", 1_000, 0), ("c", 1_001, 900)];
    assert_eq!(leases, expected.map(|(a, b, c)| (a.to_owned(), b, c)));
}

#[test]
fn a_namespace_without_a_format_and_one_that_is_gone_lease_nothing() {
    let mut table = MemoryTable::default();
    let plain = create(&mut table, None);
    for id in [plain, NamespaceId(7)] {
        let answers = ask(&mut table, vec![lease(id, 0, "a", 10)], 0);
        assert_eq!(answers, [WorkerAnswer::NoNamespace]);
    }
    assert!(table.workers.is_empty() && table.totals.is_empty());
}

/// An event. Tokens and times are drawn near those that are in use.
#[derive(Debug, Clone)]
enum Step {
    Lease {
        worker: u32,
        ahead_ms: u64,
    },
    Renew {
        worker: u32,
        token_back: u64,
        ahead_ms: u64,
    },
    Release {
        worker: u32,
        token_back: u64,
        used_ms: u64,
    },
    /// The clock shows this from now on, perhaps less than before.
    Clock(u64),
    Recreate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (worker, back) = (0..3u32, 0..3u64);
    let step = prop_oneof![
        4 => (worker.clone(), 0..60u64)
            .prop_map(|(worker, ahead_ms)| Step::Lease { worker, ahead_ms }),
        4 => (worker.clone(), back.clone(), 0..60u64).prop_map(|(worker, token_back, ahead_ms)| {
            Step::Renew { worker, token_back, ahead_ms }
        }),
        2 => (worker, back, 0..300u64).prop_map(|(worker, token_back, used_ms)| {
            Step::Release { worker, token_back, used_ms }
        }),
        4 => (0..300u64).prop_map(Step::Clock),
        1 => Just(Step::Recreate),
    ];
    proptest::collection::vec(step, 1..80)
}

/// The times that the holder of a lease may use: `(from, ceiling]`.
type Chunk = (u64, u64);

proptest! {
    /// The oracle knows what was answered, and nothing of the table: every chunk of a worker id lies above all earlier
    /// ones, under greater tokens, through clocks that jump, deletions and creations.
    #[test]
    fn no_time_of_a_worker_id_belongs_to_two_leases(steps in steps()) {
        let mut table = MemoryTable::default();
        let mut id = create(&mut table, Some("snowflake"));
        let mut now_ms = 100;
        // The leases of each worker id, by their tokens. A token of a deleted namespace is not used again.
        let mut leases: BTreeMap<u32, BTreeMap<u64, Chunk>> = BTreeMap::new();
        for step in steps {
            let (worker, act) = match step {
                Step::Clock(shows) => {
                    now_ms = shows;
                    continue;
                }
                Step::Recreate => {
                    delete(&mut table);
                    id = create(&mut table, Some("snowflake"));
                    continue;
                }
                Step::Lease { worker, ahead_ms } => {
                    let holder = "a".to_owned();
                    (worker, WorkerAct::Lease { holder, up_to_ms: now_ms + ahead_ms })
                }
                Step::Renew { worker, token_back, ahead_ms } => {
                    let token = last_token(&leases, worker).saturating_sub(token_back);
                    (worker, WorkerAct::Renew { token, up_to_ms: now_ms + ahead_ms })
                }
                Step::Release { worker, token_back, used_ms } => {
                    let token = last_token(&leases, worker).saturating_sub(token_back);
                    (worker, WorkerAct::Release { token, used_ms })
                }
            };
            let asked = WorkerAsk { namespace: id, worker, act: act.clone() };
            let answer = ask(&mut table, vec![asked], now_ms).pop().unwrap();
            let of_worker = leases.entry(worker).or_default();
            match (act, answer) {
                (WorkerAct::Lease { .. }, WorkerAnswer::Leased(lease)) => {
                    prop_assert!(of_worker.last_key_value().is_none_or(|(last, _)| *last < lease.token));
                    for (_, ceiling) in of_worker.values() {
                        prop_assert!(lease.from_ms >= *ceiling, "{lease:?} after {ceiling}");
                    }
                    prop_assert!(lease.ceiling_ms >= lease.from_ms);
                    of_worker.insert(lease.token, (lease.from_ms, lease.ceiling_ms));
                }
                (WorkerAct::Renew { token, .. }, WorkerAnswer::Leased(lease)) => {
                    let (last, chunk) = of_worker.last_key_value().unwrap();
                    prop_assert_eq!((token, lease.token, lease.from_ms), (*last, *last, chunk.0));
                    prop_assert!(lease.ceiling_ms >= chunk.1);
                    of_worker.insert(token, (lease.from_ms, lease.ceiling_ms));
                }
                (WorkerAct::Release { token, used_ms }, WorkerAnswer::Released) => {
                    let (last, (from, ceiling)) = of_worker.last_key_value().unwrap();
                    prop_assert_eq!(token, *last);
                    let used = (*from, used_ms.min(*ceiling).max(*from));
                    of_worker.insert(token, used);
                    let record = &table.workers[&(id, worker)];
                    prop_assert!(record.ceiling_ms >= record.from_ms);
                }
                (WorkerAct::Lease { .. }, WorkerAnswer::Held { until_ms, .. }) => {
                    prop_assert!(until_ms >= now_ms);
                }
                (WorkerAct::Renew { .. } | WorkerAct::Release { .. }, WorkerAnswer::Lost) => {}
                (act, answer) => prop_assert!(false, "{act:?}: {answer:?}"),
            }
        }
    }
}

fn last_token(leases: &BTreeMap<u32, BTreeMap<u64, Chunk>>, worker: u32) -> u64 {
    let of_worker = leases.get(&worker).and_then(BTreeMap::last_key_value);
    of_worker.map_or(1, |(token, _)| *token)
}
