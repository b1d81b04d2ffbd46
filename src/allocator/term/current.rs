//! The last numbers of keys: an allocation of nothing.
//!
//! Such a call takes nothing, so it leaves as soon as the term is closed, whatever it waits for: a handover waits for
//! all who are inside, and reading the records of many keys may take long.

use tokio::time::Instant;

use super::{Term, Why};
use crate::{
    allocator::memory::KEYS_AT_ONCE,
    laps::{self, Phase},
    sequence::{Key, Namespace, SectionId},
};

impl Term {
    /// Answers the last number handed out for a key; `None` if none was. Fenced as [`Term::next`] is.
    ///
    /// # Errors
    /// [`Why::AskLeader`] if the term is over, or the fence fails; [`Why::DeadlineExceeded`] if reading the table took too
    /// long; [`Why::Unreadable`] if it cannot be read.
    pub async fn current(
        &self, namespace: &Namespace, key: Key<'_>, deadline: Instant,
    ) -> Result<Option<u64>, Why> {
        let last = self.current_many(namespace, 1, |_| key, deadline).await?;
        Ok(last.into_iter().next().filter(|last| *last > 0))
    }

    /// Answers the last numbers handed out for many keys, in their order, 0 where none was, with one check of the
    /// fence. `key` says which key is at a place.
    ///
    /// # Errors
    /// [`Why::AskLeader`] if the term is over, also meanwhile, or the fence fails, [`Why::DeadlineExceeded`] if reading the
    /// table took too long, [`Why::Unreadable`] if it cannot be read.
    pub async fn current_many<'k>(
        &self, namespace: &Namespace, keys: usize, key: impl Fn(usize) -> Key<'k>,
        deadline: Instant,
    ) -> Result<Vec<u64>, Why> {
        let _inside = self.enter()?;
        let gate = self.memory.gate();
        let mut last = Vec::with_capacity(keys);
        let mut unknown = Vec::new();
        for place in 0..keys {
            let remembered = self.memory.current(namespace, key(place));
            if remembered.is_none() {
                unknown.push(place);
            }
            last.push(remembered.unwrap_or(0));
            if place % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
                laps::lap(Phase::Queue);
                if gate.is_closed() {
                    return Err(Why::AskLeader);
                }
            }
        }
        // This term has handed out nothing of these sections. A chunk that it is just getting does not count: a later
        // call may still get those numbers.
        for places in unknown.chunks(KEYS_AT_ONCE) {
            let sections = places.iter().map(|place| namespace.section_of(key(*place)));
            let floors = tokio::select! {
                biased;
                () = gate.closed() => return Err(Why::AskLeader),
                floors = self.floors_in_table(namespace, sections.collect(), deadline) => floors?,
            };
            for (place, floor) in places.iter().zip(floors) {
                last[*place] = floor;
            }
        }
        // An abandoned term closes its gate before it forgets. If it is closed now, this very term may have handed out
        // numbers that it no longer remembered. If a record read above is of a later term, the fence fails below.
        // A record that is missing because the namespace was deleted meanwhile tells nothing either: namespaces go
        // before their records do.
        let is_gone = || (self.group.view.namespaces().by_id(namespace.id)).is_none();
        if !unknown.is_empty() && (gate.is_closed() || is_gone()) {
            return Err(Why::AskLeader);
        }
        self.pass_fence_with_nothing(namespace, deadline).await?;
        // A ceiling may lie above all numbers that could be handed out.
        let greatest = namespace.greatest_number();
        last.iter_mut().for_each(|last| *last = (*last).min(greatest));
        Ok(last)
    }

    /// Up to where earlier terms may have handed out numbers of sections, as the table says.
    async fn floors_in_table(
        &self, namespace: &Namespace, sections: Vec<SectionId>, deadline: Instant,
    ) -> Result<Vec<u64>, Why> {
        let (epoch, increment) = (self.memory.epoch(), namespace.config.increment);
        let read = self.group.view.read_sections(sections);
        let records = tokio::time::timeout_at(deadline, read).await;
        laps::lap(Phase::Read);
        let records = records.map_err(|_| Why::DeadlineExceeded)??;
        Ok((records.iter()).map(|record| record.floor_at(epoch, increment)).collect())
    }
}
