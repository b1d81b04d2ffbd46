//! The releaser: evicts keys that nobody asked for lately, so that the memory stays within its bound, and so that what a
//! handover sends, and what a crash can skip, is what is in use.
//!
//! The end of the numbers that were used of a section is logged when it is evicted: its next chunk begins right above. Keys are
//! evicted
//!
//! - when the memory is nearly full (`memory/room.rs` says when): as many as there must be room for;
//! - when nobody asked for them for one to two idle times: the CLOCK hand passes every slot once in an idle time.
//!
//! A section that keys share is evicted with all of them, if none was asked for (`shard/shared_keys/eviction.rs`). They rise
//! to the highest number of the section, and what they skip is counted.
//!
//! Invariant: a section is touched again only after the log says what was used of it (`shard/eviction.rs`).

use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{
    bumper::{ENTRY_SECTIONS_MAX, Request},
    memory::{BACKGROUND_SECTIONS_MAX, Memory, Room},
};
use crate::{
    consensus::{Group, TermLease},
    metrics::EvictionCause,
    planted_bugs::{Bug, is_planted},
    sequence::{Command, EntryOutcome, SectionUse},
};

/// How many slots the hand passes before others get the thread.
const SLOTS: usize = 64 * 1_024;
/// The pause between two parts of a round of the hand, unless keys wait for room.
const PACE: Duration = Duration::from_millis(10);

/// How much a term's memory may hold, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// How many bytes.
    pub bytes_max: usize,
    /// After how long a key that nobody asks for is evicted. `None`: never.
    pub idle: Option<Duration>,
}

/// No bound, and no key is evicted.
impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits { bytes_max: usize::MAX, idle: None }
    }
}

/// Evicts keys of a term until the term is dropped, closed or lost.
pub async fn run(releaser: Releaser, memory: Weak<Memory>, room: Arc<Room>) {
    let idle = releaser.idle;
    let mut next_round = idle.map(|idle| Instant::now() + idle);
    loop {
        let due = async {
            match next_round {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = room.to_release() => {}
            () = due => {}
        }
        // The call that closes the gate notifies as well.
        let Some(memory) = memory.upgrade().filter(|memory| !memory.gate().is_closed()) else {
            break;
        };
        if releaser.make_room(&memory).await.is_break() {
            break;
        }
        if let (Some(at), Some(idle)) = (next_round, idle)
            && Instant::now() >= at
        {
            let part =
                releaser.release(&memory, BACKGROUND_SECTIONS_MAX, EvictionCause::idle).await;
            let ControlFlow::Continue(part) = part else {
                break;
            };
            next_round = Some(match part.is_around {
                true => at.max(Instant::now() - idle) + idle,
                false => Instant::now() + PACE,
            });
        }
    }
    room.give_up();
}

/// The task that evicts keys of one term.
pub struct Releaser {
    /// Where it logs what was used.
    pub group: Arc<Group>,
    /// The lease of the term.
    pub lease: Arc<TermLease>,
    /// After how long a key that nobody asks for is evicted. `None`: never.
    pub idle: Option<Duration>,
    /// Where it asks for bumps.
    pub bumper: mpsc::UnboundedSender<Request>,
}

/// The result of one stretch of the clock hand.
struct Stretch {
    /// How many keys were evicted.
    keys: usize,
    /// True if the hand has come around.
    is_around: bool,
}

impl Releaser {
    /// Evicts keys while the memory is nearly full.
    async fn make_room(&self, memory: &Arc<Memory>) -> ControlFlow<()> {
        let mut used = measure(memory);
        if !memory.room().is_nearly_full(used) {
            return ControlFlow::Continue(());
        }
        let mut rounds_in_vain = 0;
        // The first round clears the reference bits.
        while !memory.room().is_enough(used) && rounds_in_vain < 3 {
            let part = self.release(memory, ENTRY_SECTIONS_MAX, EvictionCause::room).await?;
            rounds_in_vain = match part.keys {
                0 => rounds_in_vain + usize::from(part.is_around),
                _ => 0,
            };
            used = measure(memory);
        }
        memory.room().attempt_over();
        ControlFlow::Continue(())
    }

    /// Moves the hand on, and logs what was used of the sections that are evicted. Breaks off if the term is closed or
    /// lost.
    async fn release(
        &self, memory: &Arc<Memory>, sections_max: usize, cause: EvictionCause,
    ) -> ControlFlow<(), Stretch> {
        // Until the entry is applied, the term cannot end in good order: a successor would not know what was used.
        let Some(_under_way) = memory.begin_background_entry().await else {
            return ControlFlow::Break(());
        };
        let sweeping = memory.clone();
        let work = self.group.this_node.store.blocking();
        let swept = work.run(move || sweeping.evict(SLOTS, sections_max)).await;
        let logged = match swept {
            Ok((swept, is_around)) => {
                let released = self.log(memory, &swept.evicted).await;
                released.map(|()| (swept, is_around))
            }
            Err(error) => Err(error.to_string()),
        };
        match logged {
            Ok((swept, is_around)) => {
                for place in memory.end_eviction(&swept.evicted) {
                    // The bumper ends once the gate is closed and nobody is inside: then nobody waits for this bump.
                    let _ = self.bumper.send(Request::Bump(place));
                }
                let (keys, metrics) = (swept.keys, memory.set_metrics());
                metrics.evicted_keys.add(cause, keys as u64);
                (metrics.evicted_shared_sections).inc_by(swept.shared_sections as u64);
                ControlFlow::Continue(Stretch { keys, is_around })
            }
            Err(why) => {
                tracing::info!(
                    term = memory.term(),
                    why,
                    "no keys are evicted any more in this term"
                );
                // The log does not know of these numbers, and nobody may take them a second time: the term must end.
                self.lease.void();
                memory.abandon(&self.lease);
                ControlFlow::Break(())
            }
        }
    }

    /// Logs what was used of the sections.
    async fn log(&self, memory: &Memory, released: &[SectionUse]) -> Result<(), String> {
        if released.is_empty() || is_planted(Bug::ReleaseNotLogged) {
            return Ok(());
        }
        let release = Command::Release { sections: released.to_vec(), now_ms: memory.wall_ms() };
        let all = EntryOutcome::Written(released.len() as u64);
        self.group.propose_for(memory.term(), release, &all).await
    }
}

/// How many bytes the memory uses. Notes whether it has room for more keys.
fn measure(memory: &Memory) -> usize {
    let footprint = memory.shards().footprint();
    let used = footprint.bytes - footprint.vacant_bytes;
    memory.room().note_used(used);
    used
}
