//! Which worker id a new lease gets: of those that are free, the one that its holder had last, or else one that was never
//! leased, or whose last lease ended first.

use std::collections::{BTreeMap, BTreeSet};

use crate::sequence::WorkerRecord;

/// The ceiling of the last lease of a worker id, if there was one, and the worker id.
type FreeWorker = (Option<u64>, u32);

/// The worker ids of a namespace that are free, as one log entry gives them away.
pub struct FreeWorkers {
    /// How many worker ids the namespace has.
    workers: u32,
    /// In the order in which they are given away.
    free: BTreeSet<FreeWorker>,
    /// Those that were leased before, by their last holder.
    by_holder: BTreeMap<String, BTreeSet<FreeWorker>>,
    /// The least ceiling of the others.
    held_until_ms: Option<u64>,
}

impl FreeWorkers {
    /// Those of the worker ids from 0 up to `workers` that are free at `now_ms`, but for the `busy` ones. `last` has the last
    /// lease of each.
    pub fn new(
        workers: u32, last: &BTreeMap<u32, WorkerRecord>, busy: &BTreeSet<u32>, now_ms: u64,
    ) -> Self {
        let mut found = FreeWorkers {
            workers,
            free: BTreeSet::new(),
            by_holder: BTreeMap::new(),
            held_until_ms: None,
        };
        for worker in (0..workers).filter(|worker| !busy.contains(worker)) {
            match last.get(&worker) {
                None => drop(found.free.insert((None, worker))),
                Some(lease) if lease.is_free(now_ms) => {
                    let free = (Some(lease.ceiling_ms), worker);
                    found.free.insert(free);
                    let of_holder = found.by_holder.entry(lease.holder.clone());
                    of_holder.or_default().insert(free);
                }
                Some(lease) => {
                    let until_ms = found.held_until_ms.unwrap_or(u64::MAX);
                    found.held_until_ms = Some(until_ms.min(lease.ceiling_ms));
                }
            }
        }
        found
    }

    /// Whether a holder that has a worker id may have a further one: half of them stay free, for holders that have none.
    pub fn has_to_spare(&self) -> bool {
        2 * self.free.len() > self.workers as usize
    }

    /// Gives a worker id away: the one that this holder had last, or one that was never leased, or whose last lease ended
    /// first.
    ///
    /// # Errors
    /// The least ceiling of those that are held, if none is free and it is known.
    pub fn choose(&mut self, holder: &str) -> Result<u32, Option<u64>> {
        let own = self.by_holder.get_mut(holder).and_then(|own| {
            // Others may have got them meanwhile.
            while let Some(free) = own.pop_last() {
                if self.free.remove(&free) {
                    return Some(free);
                }
            }
            None
        });
        let chosen = own.or_else(|| self.free.pop_first());
        chosen.map(|(_, worker)| worker).ok_or(self.held_until_ms)
    }
}

#[cfg(test)]
mod tests;
