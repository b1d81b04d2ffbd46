//! Returns what a closed term has not used, when no successor takes its memory: the rest of its chunks, and its epoch.
//!
//! Invariant: the epoch is returned only if every section that the term touched is trimmed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Handovers;
use crate::{
    allocator::{ENTRY_SECTIONS_MAX, Term},
    metrics::SkipCause,
    node::Config,
    sequence::{Command, EntryOutcome, SectionUse, TermEnd},
};

/// With more sections per millisecond it does not try: two cores trim 200, and a failed attempt costs some fifty bytes a
/// section.
const SECTIONS_PER_MS_MAX: usize = 300;

/// How many entries show how long the others will take.
const PACE_KNOWN_AFTER: u32 = 8;
/// A sole voter, which keeps nobody waiting, breaks off after this part of its time at the earliest: a machine that is busy
/// now may have time soon.
const SOLE_VOTER_TRIES_FOR: u32 = 2;

/// How long returning may take, in milliseconds, and the setting that says so. Where this is the only voter, nobody
/// waits for a successor meanwhile.
fn limit(config: &Config, is_sole_voter: bool) -> (&'static str, u64) {
    match is_sole_voter && config.handover_timeout_ms > config.shutdown_timeout_ms {
        true => ("handover_timeout_ms", config.handover_timeout_ms),
        false => ("shutdown_timeout_ms", config.shutdown_timeout_ms),
    }
}

impl Handovers {
    /// Lowers each ceiling of a closed term to the highest number used, and returns the term's epoch. Takes at most
    /// `shutdown_timeout_ms`, or `handover_timeout_ms` where that is longer and this is the only voter, once it is
    /// known what was used. False if not all was returned: the rest is skipped, as after a crash.
    pub(super) async fn return_numbers(&self, term: &Arc<Term>) -> bool {
        let term_number = term.term();
        let (setting, limit_ms) = limit(&self.config, self.group.is_sole_voter());
        let sections = term.footprint().sections;
        if sections as u64 > limit_ms.saturating_mul(SECTIONS_PER_MS_MAX as u64) {
            tracing::warn!(
                term = term_number,
                sections,
                setting,
                limit_ms,
                "so many ceilings cannot be returned within this time; each of these sections may skip a step"
            );
            return false;
        }
        let Some(used) = term.list_used().await else {
            return false;
        };
        let time = Duration::from_millis(limit_ms);
        let logging = self.log_trims(term, &used, Instant::now() + time);
        let returned = tokio::time::timeout(time, logging).await;
        // There may be millions, each with a name.
        let work = self.group.this_node.store.blocking();
        work.run_detached(move || drop(used));
        returned.unwrap_or_else(|_| {
            tracing::warn!(
                term = term_number,
                setting,
                limit_ms,
                "not all ceilings could be returned in time; each of the other sections may skip a step"
            );
            false
        })
    }

    /// Logs the trims, and that the epoch is returned. Breaks off if it would not be done by `until`: half of it saves
    /// no number.
    async fn log_trims(&self, term: &Arc<Term>, used: &[SectionUse], until: Instant) -> bool {
        let (began, entries) = (Instant::now(), used.chunks(ENTRY_SECTIONS_MAX));
        let all_entries = entries.len() as u32;
        let tries_until = match self.group.is_sole_voter() {
            true => began + (until - began) / SOLE_VOTER_TRIES_FOR,
            false => began,
        };
        for (done, entry) in (0..).zip(entries) {
            let needed = began.elapsed() * all_entries / done.max(1);
            if done >= PACE_KNOWN_AFTER && Instant::now() > tries_until && began + needed > until {
                tracing::warn!(
                    sections = used.len(),
                    needed_ms = needed.as_millis(),
                    allowed_ms = (until - began).as_millis(),
                    "returning the unused numbers would take longer than is allowed; each of these sections may skip a step"
                );
                return false;
            }
            let trim = Command::Trim { sections: entry.to_vec(), now_ms: self.clock.wall_ms() };
            let all = EntryOutcome::Written(entry.len() as u64);
            if let Err(why) = self.group.propose_for(term.term(), trim, &all).await {
                tracing::warn!(why, "some ceilings could not be returned");
                return false;
            }
            let namespaces = self.group.view.namespaces();
            for SectionUse { section, skipped, .. } in entry {
                let counts = namespaces.counts_of(section.namespace, &self.metrics);
                counts.skip(SkipCause::shared_section, *skipped);
            }
        }
        // Every section that this term touched is trimmed. Its epoch's chunks of the others were not touched, or their records
        // say that they were released. If one were not trimmed, the next epoch would give its chunk a second time.
        if term.lease().is_void() {
            tracing::info!(term = term.term(), "the term is lost; its epoch is not returned");
            return false;
        }
        let returned = term.log_last_entry(TermEnd::Return).await;
        if let Err(why) = &returned {
            tracing::warn!(why, "the epoch could not be returned; sections may skip a step");
        }
        returned.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sole_voter_has_the_longer_of_two_times_and_another_one_does_not_keep_its_successor_waiting()
     {
        let mut config = Config::default();
        assert_eq!(limit(&config, true), ("handover_timeout_ms", 30_000));
        assert_eq!(limit(&config, false), ("shutdown_timeout_ms", 5_000));
        config.handover_timeout_ms = 0;
        assert_eq!(limit(&config, true), ("shutdown_timeout_ms", 5_000));
    }
}
