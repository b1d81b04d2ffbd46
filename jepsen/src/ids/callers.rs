//! Starts all callers of ids.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use tokio::{sync::watch, task::JoinSet};

use super::{application, caller::Caller, seen::SeenIds};
use crate::{callers::CallersAtWork, record::Flow};

/// Starts callers that ask nodes, half of which stay at one node, and applications that make ids themselves.
pub fn start_id_callers(
    seen: &Arc<SeenIds>, callers: usize, applications: usize, seed: u64,
) -> CallersAtWork<()> {
    seen.recorder.begin(Flow::Ids);
    let stop = watch::Sender::new(false);
    let mut tasks = JoinSet::new();
    for place in 0..callers {
        let mut caller = Caller::new(seen.clone(), place, seed);
        let stopped = stop.subscribe();
        tasks.spawn(async move {
            while !*stopped.borrow() {
                caller.call().await;
            }
        });
    }
    for place in 0..applications {
        let (seen, stopped) = (seen.clone(), stop.subscribe());
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(3_000 + place as u64));
        tasks.spawn_blocking(move || {
            while !*stopped.borrow() {
                application::live(&seen, &mut rng, &stopped);
            }
        });
    }
    CallersAtWork { tasks, stop }
}
