//! The checkpointer: writes down, in the background, what a term's epoch gave of the sections that are in use, so that
//! they are live for the next epochs. A section that is bumped needs none of this.
//!
//! It is paced. The sections to checkpoint are spread over a round of [`ROUND`]; those that are touched meanwhile follow in
//! the rest of the round. So a section that is in use when a term begins is written within a minute, and a bump
//! never waits for a large entry. With more than a million sections in use, or a slow disk, it takes longer.

use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::memory::{BACKGROUND_SECTIONS_MAX, Memory};
use crate::{
    consensus::{Group, ProposeError},
    sequence::{Command, EntryOutcome},
};

/// How long a term goes on before it checkpoints anything: a new leader has enough to do.
const START: Duration = Duration::from_secs(2);
/// How long a round takes, if the log takes [`BACKGROUND_SECTIONS_MAX`] sections often enough: a million within 25 ms each.
const ROUND: Duration = Duration::from_secs(50);
/// The pause before an entry. With 50 ms, and larger entries, the 99th percentile of bumps is 2.6 times as long while
/// sections are checkpointed. With 10 ms it is 1.15 times as long.
const PACE: Duration = Duration::from_millis(10);
/// The fewest sections in an entry, if there are as many.
const ENTRY_SECTIONS_MIN: usize = 32;

/// Checkpoints the sections of a term until the term is dropped, closed or lost.
pub async fn run(group: Arc<Group>, memory: Weak<Memory>, to_checkpoint: Arc<Notify>) {
    tokio::time::sleep(START).await;
    // How long an entry takes, with the pause before it, as a moving average.
    let mut entry_time = PACE;
    loop {
        to_checkpoint.notified().await;
        let end = Instant::now() + ROUND;
        loop {
            let began = Instant::now();
            tokio::time::sleep(PACE).await;
            // The call that closes the gate notifies as well. Then the memory's shards may be locked for long.
            let Some(memory) = memory.upgrade().filter(|memory| !memory.gate().is_closed()) else {
                return;
            };
            let uncheckpointed = memory.uncheckpointed();
            if uncheckpointed == 0 {
                break;
            }
            // After the round's end each entry takes as many sections as it may.
            let left = end.saturating_duration_since(began);
            let entries = (left.as_micros() / entry_time.as_micros()) as usize;
            let sections = uncheckpointed.div_ceil(entries.max(1));
            let sections = sections.clamp(ENTRY_SECTIONS_MIN, BACKGROUND_SECTIONS_MAX);
            if let ControlFlow::Break(()) = checkpoint(&group, &memory, sections).await {
                return;
            }
            entry_time = (3 * entry_time + began.elapsed()) / 4;
        }
    }
}

/// Checkpoints at most `limit` sections. Breaks off if the term is closed or lost.
async fn checkpoint(group: &Group, memory: &Memory, limit: usize) -> ControlFlow<()> {
    let Some(_under_way) = memory.begin_background_entry().await else {
        return ControlFlow::Break(());
    };
    let (sections, places): (Vec<_>, Vec<_>) =
        memory.take_uncheckpointed(limit).into_iter().unzip();
    if sections.is_empty() {
        return ControlFlow::Continue(());
    }
    let now_ms = memory.wall_ms();
    let checkpointing = group.propose(memory.term(), Command::Checkpoint { sections, now_ms });
    let why = match checkpointing.await {
        Ok(EntryOutcome::Written(checkpointed)) => {
            memory.set_metrics().checkpointed_sections.inc_by(checkpointed);
            return ControlFlow::Continue(());
        }
        // Nothing was proposed. The term may go on all the same (`bumper.rs`), so they are checkpointed later.
        Err(ProposeError::NotLeader(_)) => {
            memory.put_uncheckpointed_back(places);
            return ControlFlow::Continue(());
        }
        Ok(outcome) => format!("the answer was {outcome:?}"),
        Err(error) => error.to_string(),
    };
    tracing::info!(term = memory.term(), why, "no more sections are checkpointed in this term");
    ControlFlow::Break(())
}
