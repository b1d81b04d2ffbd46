//! Nodes whose time of day is wrong.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use ratchet::{
    clock::{BootClock, Clock, Instant},
    node::Seams,
};

use super::cluster::Cluster;

/// A clock whose time of day is wrong by as many milliseconds as the test says.
struct WrongClock(Arc<AtomicI64>);

impl Clock for WrongClock {
    fn now(&self) -> Instant {
        BootClock.now()
    }

    fn wall_ms(&self) -> u64 {
        BootClock.wall_ms().saturating_add_signed(self.0.load(Ordering::SeqCst))
    }
}

/// How far a time lies from the time between `since` and now, in milliseconds.
pub fn off_ms(time_ms: u64, since_ms: u64) -> u64 {
    since_ms.saturating_sub(time_ms).max(time_ms.saturating_sub(BootClock.wall_ms()))
}

/// Restarts a node with a clock that is `off` by so many milliseconds.
pub async fn restart_with_clock(cluster: &mut Cluster, node: u64, off: &Arc<AtomicI64>) {
    cluster.crash(node).await;
    let seams = Seams { clock: Arc::new(WrongClock(off.clone())), ..cluster.seams(node) };
    cluster.start_node_with(node, seams).await;
}
