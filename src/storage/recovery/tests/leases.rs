//! Leases of worker ids, some of which are lost.

use super::*;
use crate::{
    sequence::{AHEAD_MAX_MS, WorkerAct, WorkerAsk, WorkerRecord},
    storage::layout::worker_key,
};

/// Creates a namespace whose ids have a format, under the id 3.
fn create_orders() -> Command {
    Command::create_namespace(NamespaceConfig {
        format: Some("snowflake".to_owned()),
        ..NamespaceConfig::new("orders")
    })
}

fn lease(worker: u32, up_to_ms: u64) -> Command {
    let act = WorkerAct::Lease { holder: "a".to_owned(), up_to_ms };
    let ask = WorkerAsk { namespace: NamespaceId(3), worker, act };
    Command::Workers { asks: vec![ask], now_ms: 1 }
}

/// The lost nodes may have leased any worker id again: no lease goes on, and the next ones lie above all of them.
#[test]
fn a_recovery_ends_all_leases_of_worker_ids_and_later_ones_lie_above_those_that_are_lost() {
    let far = BootClock.wall_ms() * 2;
    for (up_to_ms, least) in [(9_000, BootClock.wall_ms() + AHEAD_MAX_MS), (far, far)] {
        let dir = directory(1, vec![create_orders(), lease(5, up_to_ms), lease(6, 8_000)]);
        let done = recover(dir.path(), SET, &steps(50), false).unwrap();
        let told = done.namespaces.iter().map(|one| one.ids_after_ms);
        let told: Vec<Option<u64>> = told.collect();
        let store = open(dir.path()).unwrap();
        let prefix = generation_prefix(SET, 1);
        let key = namespace_key(&prefix, NamespaceId(3));
        let orders: Namespace = store.db.get(Family::Applied, &key).unwrap().unwrap();
        let floor = orders.lease_floor;
        assert!(floor.ceiling_ms >= least, "{floor:?} below {least}");
        assert!(floor.token > 1 << 32, "{floor:?}");
        assert_eq!(told, [None, None, Some(floor.ceiling_ms)]);
        let key = worker_key(&prefix, NamespaceId(3), 5);
        let record: Option<WorkerRecord> = store.db.get(Family::Applied, &key).unwrap();
        assert_eq!(record, None);
    }
}

#[test]
fn a_tombstone_is_raised_above_lost_leases_as_well() {
    let delete = Command::DeleteNamespace { name: "orders".to_owned(), forget: false };
    let dir = directory(1, vec![create_orders(), lease(5, 9_000), delete]);
    let began = BootClock.wall_ms();
    recover(dir.path(), SET, &steps(50), false).unwrap();
    let store = open(dir.path()).unwrap();
    let key = tombstone_key(&generation_prefix(SET, 1), "orders");
    let tombstone: Tombstone = store.db.get(Family::Applied, &key).unwrap().unwrap();
    assert_eq!(tombstone.leased.token, (1 << 32) + 1);
    assert!(tombstone.leased.ceiling_ms >= began + AHEAD_MAX_MS, "{tombstone:?}");
}
