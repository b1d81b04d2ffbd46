//! The settler: writes down, in the background, what a term's lift gave of the sections that are in use, so that
//! they are live for the next lifts. A section that is bumped needs none of this.
//!
//! It is paced. What is to be settled is spread over a round of [`ROUND`]; what is touched meanwhile is settled in
//! the rest of the round. So a section that is in use when a term begins is live again within a minute, and a bump
//! never waits for a large entry. With more than a million sections in use it takes longer.

use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::memory::Memory;
use crate::{
    consensus::Group,
    sequence::{Command, Outcome},
};

/// How long a term goes on before it settles anything: a new leader has enough to do.
const START: Duration = Duration::from_secs(2);
/// How long a round takes at most, for up to 1 700 000 sections.
const ROUND: Duration = Duration::from_secs(50);
/// The pause before an entry. With longer pauses and larger entries callers at full load notice less (0.78 instead of
/// 0.68 of their throughput with 50 ms), and bumps more (the 99th percentile grows 2.6-fold instead of 1.2-fold).
const PACE: Duration = Duration::from_millis(10);
/// The most sections in an entry, so that a bump behind it does not wait for long.
const ENTRY_SECTIONS_MAX: usize = 512;
/// The fewest sections in an entry, if there are as many.
const ENTRY_SECTIONS_MIN: usize = 32;

/// Settles the sections of a term until the term is dropped, closed or lost.
pub async fn run(group: Arc<Group>, memory: Weak<Memory>, to_settle: Arc<Notify>) {
    tokio::time::sleep(START).await;
    loop {
        to_settle.notified().await;
        // Whoever closes the gate notifies as well.
        let Some(memory_now) = memory.upgrade().filter(|memory| !memory.gate().is_closed()) else {
            return;
        };
        drop(memory_now);
        let mut end = Instant::now() + ROUND;
        loop {
            tokio::time::sleep(PACE).await;
            let Some(memory) = memory.upgrade() else {
                return;
            };
            let unsettled = memory.unsettled();
            if unsettled == 0 {
                break;
            }
            let entries = entries_until(end);
            if entries == 0 {
                end += ROUND;
            }
            let sections = unsettled.div_ceil(entries.max(1));
            let sections = sections.clamp(ENTRY_SECTIONS_MIN, ENTRY_SECTIONS_MAX);
            if let ControlFlow::Break(()) = settle(&group, &memory, sections).await {
                return;
            }
        }
    }
}

/// How many entries can be written until `end`, if each takes half as long as the pause before it.
fn entries_until(end: Instant) -> usize {
    let left = end.saturating_duration_since(Instant::now());
    (left.as_millis() / (PACE * 3 / 2).as_millis()) as usize
}

/// Settles at most `limit` sections. Breaks off if the term is closed or lost.
async fn settle(group: &Group, memory: &Memory, limit: usize) -> ControlFlow<()> {
    let Some(_under_way) = memory.begin_to_settle().await else {
        return ControlFlow::Break(());
    };
    let sections = memory.take_unsettled(limit);
    if sections.is_empty() {
        return ControlFlow::Continue(());
    }
    let settling = group.propose(memory.term(), Command::Settle(sections));
    let why = match settling.await {
        Ok(Outcome::Settled(settled)) => {
            memory.metrics().settled_sections.inc_by(settled);
            return ControlFlow::Continue(());
        }
        Ok(outcome) => format!("the answer was {outcome:?}"),
        Err(error) => error.to_string(),
    };
    tracing::info!(
        term = memory.term(),
        why,
        "no more sections are settled in this term"
    );
    ControlFlow::Break(())
}
