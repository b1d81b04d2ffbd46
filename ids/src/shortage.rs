//! Whether the ids of the time are used up so often that a further worker id is of use. Pure.

/// A worker id is of use if callers had to wait for one part in so many of the time.
const WAITED_SHARE: u64 = 20;
/// Callers must have waited so often, too: a single burst does not count.
const WAITS_MIN: u32 = 2;
/// How long is looked back. At least two units of time, so that a format of seconds has two waits in it.
const WINDOW_MS: u64 = 1_000;
const WINDOW_TICKS: u64 = 2;

/// How long callers lately waited because the ids of the time were used up.
#[derive(Debug, Clone)]
pub(crate) struct Shortage {
    window_ms: u64,
    /// When the window began, by the monotonic clock.
    since_ns: u64,
    /// Up to when waits are counted. Callers that wait at the same time count once.
    until_ms: u64,
    waits: u32,
    waited_ms: u64,
}

impl Shortage {
    /// No waits, in a format whose unit of time is so long.
    pub fn new(tick_ms: u64) -> Shortage {
        Shortage {
            window_ms: WINDOW_MS.max(WINDOW_TICKS.saturating_mul(tick_ms)),
            since_ns: 0,
            until_ms: 0,
            waits: 0,
            waited_ms: 0,
        }
    }

    /// A caller finds at `now_ms` that the ids up to `next_ms` are used up.
    pub fn waits(&mut self, mono_ns: u64, now_ms: u64, next_ms: u64) {
        if !self.is_in_window(mono_ns) {
            self.forget(mono_ns);
            // The time may have been set back since.
            self.until_ms = 0;
        }
        if next_ms > self.until_ms {
            self.waits = self.waits.saturating_add(1);
            let waits_ms = next_ms.saturating_sub(now_ms.max(self.until_ms));
            self.waited_ms = self.waited_ms.saturating_add(waits_ms);
            self.until_ms = next_ms;
        }
    }

    /// Whether a further worker id is of use.
    pub fn lasts(&self, mono_ns: u64) -> bool {
        self.is_in_window(mono_ns)
            && self.waits >= WAITS_MIN
            && self.waited_ms >= self.window_ms / WAITED_SHARE
    }

    /// Counts from here on.
    pub fn forget(&mut self, mono_ns: u64) {
        self.since_ns = mono_ns;
        self.waits = 0;
        self.waited_ms = 0;
    }

    fn is_in_window(&self, mono_ns: u64) -> bool {
        mono_ns.saturating_sub(self.since_ns) / 1_000_000 <= self.window_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn waits_for_a_twentieth_of_a_second_are_a_shortage_and_one_wait_is_none() {
        let mut shortage = Shortage::new(1);
        shortage.waits(0, 1_000, 1_100);
        assert!(!shortage.lasts(0), "one wait");
        shortage.waits(100 * MS, 1_100, 1_101);
        assert!(shortage.lasts(100 * MS));
        assert!(!shortage.lasts(1_001 * MS), "that was a second ago");
        let mut shortage = Shortage::new(1);
        for ms in 0..49 {
            shortage.waits(ms * MS, ms, ms + 1);
        }
        assert!(!shortage.lasts(49 * MS), "49 ms of a second");
        shortage.waits(60 * MS, 60, 61);
        assert!(shortage.lasts(60 * MS));
    }

    #[test]
    fn callers_that_wait_for_the_same_time_count_once() {
        let mut shortage = Shortage::new(1);
        for _ in 0..1_000 {
            shortage.waits(0, 10, 15);
            shortage.waits(0, 11, 16);
        }
        assert!(!shortage.lasts(0));
        assert_eq!((shortage.waits, shortage.waited_ms), (2, 6));
    }

    #[test]
    fn of_a_format_of_seconds_two_used_up_ones_in_a_row_are_a_shortage() {
        let mut shortage = Shortage::new(1_000);
        shortage.waits(5 * MS, 5, 1_000);
        assert!(!shortage.lasts(5 * MS));
        shortage.waits(1_005 * MS, 1_005, 2_000);
        assert!(shortage.lasts(1_005 * MS));
        // One used-up second in a while is none.
        let mut shortage = Shortage::new(1_000);
        shortage.waits(5 * MS, 5, 1_000);
        shortage.waits(4_005 * MS, 4_005, 5_000);
        assert!(!shortage.lasts(4_005 * MS));
    }

    #[test]
    fn what_was_forgotten_has_to_last_anew() {
        let mut shortage = Shortage::new(1);
        shortage.waits(0, 0, 50);
        shortage.waits(0, 0, 60);
        assert!(shortage.lasts(0));
        shortage.forget(0);
        assert!(!shortage.lasts(0));
        shortage.waits(0, 0, 60);
        assert!(!shortage.lasts(0), "it was counted before");
    }
}
