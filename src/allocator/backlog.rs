//! The sections that wait for their bumps.
//!
//! After a change of the leader there may be a million of them, and an entry takes some thousands. If disks are slow it takes
//! a second to write one. Then those for which most calls wait come first: few keys have most of the calls, as a rule.
//! Counting the calls costs time, too, so it is done again only after a multiple of what it took.

use std::collections::VecDeque;

use tokio::time::Instant;

/// How many calls are counted before other tasks get their turn.
const AT_ONCE: usize = 4_096;
/// The pause before they are counted again, as a multiple of what it took.
const PAUSE_TIMES: u32 = 20;
/// Sections are ordered by the binary logarithm of their calls, up to this.
const LEVEL_MAX: usize = 15;

/// The places `P` that wait.
#[derive(Debug)]
pub struct Backlog<P> {
    waiting: VecDeque<P>,
    /// When they may be ordered again.
    ordered_until: Option<Instant>,
}

impl<P: Copy> Backlog<P> {
    /// Nothing waits.
    pub fn new() -> Self {
        Backlog { waiting: VecDeque::new(), ordered_until: None }
    }

    /// Adds what asked last.
    pub fn push(&mut self, place: P) {
        self.waiting.push_back(place);
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes at most `limit`. If more wait, those come first for which most calls wait, as `calls` counts them; of equals,
    /// those that have waited longest.
    pub async fn take(&mut self, limit: usize, calls: impl Fn(P) -> usize) -> Vec<P> {
        let now = Instant::now();
        if self.waiting.len() > limit && self.ordered_until.is_none_or(|until| until <= now) {
            self.order(calls).await;
            self.ordered_until = Some(Instant::now() + PAUSE_TIMES * now.elapsed());
        }
        self.waiting.drain(..limit.min(self.waiting.len())).collect()
    }

    async fn order(&mut self, calls: impl Fn(P) -> usize) {
        let mut levels = vec![Vec::new(); LEVEL_MAX + 1];
        for places in self.waiting.make_contiguous().chunks(AT_ONCE) {
            for &place in places {
                let level = calls(place).max(1).ilog2() as usize;
                levels[level.min(LEVEL_MAX)].push(place);
            }
            tokio::task::yield_now().await;
        }
        self.waiting = levels.into_iter().rev().flatten().collect();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(places: impl IntoIterator<Item = usize>) -> Backlog<usize> {
        let mut backlog = Backlog::new();
        places.into_iter().for_each(|place| backlog.push(place));
        backlog
    }

    #[tokio::test(start_paused = true)]
    async fn what_fits_in_an_entry_is_taken_as_it_came() {
        let mut backlog = of([3, 1, 2]);
        assert_eq!(backlog.take(3, |_| unreachable!("nobody counts")).await, [3, 1, 2]);
        assert!(backlog.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_more_the_busiest_come_first_and_equals_in_their_order() {
        let calls = [1, 9, 0, 70_000, 2, 8, 1];
        let mut backlog = of(0..calls.len());
        assert_eq!(backlog.take(3, |place| calls[place]).await, [3, 1, 5]);
        assert_eq!(backlog.take(2, |place| calls[place]).await, [4, 0]);
        assert_eq!(backlog.take(9, |place| calls[place]).await, [2, 6], "none is forgotten");
        assert!(backlog.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_again_only_after_a_multiple_of_the_time_that_it_took() {
        let mut backlog = of(0..100);
        let counted = std::cell::Cell::new(0);
        let count = |_| {
            counted.set(counted.get() + 1);
            1
        };
        backlog.ordered_until = Some(Instant::now() + Duration::from_secs(1));
        backlog.take(10, count).await;
        assert_eq!(counted.get(), 0);
        tokio::time::advance(Duration::from_secs(1)).await;
        backlog.take(10, count).await;
        assert_eq!(counted.get(), 90);
    }
}
