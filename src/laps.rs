//! Where the time of a call goes that waits: a stopwatch in the task of the call. The code that ends a wait says what was
//! waited for.
//!
//! A call that is answered at once has none: it is begun once a call has to wait, and somebody wants to know for what.
//! Invariant: nobody's work depends on it. Where no call is measured, a lap reads no clock.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

tokio::task_local! {
    /// The stopwatch of the call that this task serves.
    static MEASURED: Arc<Laps>;
}

/// The phase of a call: it waits for one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its turn: behind other calls, and behind the log entry that is under way.
    Queue,
    /// A leader that is known.
    Leader,
    /// The answer of the leader, which is another node.
    Forward,
    /// A read of the disk.
    Read,
    /// The log entry that has its numbers: the majority, and all else but this node's disk.
    Bump,
    /// The same entry, while this node's disk wrote.
    Write,
    /// The fence.
    Fence,
}

/// How many phases there are.
pub const PHASES: usize = Phase::ALL.len();

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 7] = [
        Phase::Queue,
        Phase::Leader,
        Phase::Forward,
        Phase::Read,
        Phase::Bump,
        Phase::Write,
        Phase::Fence,
    ];

    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Queue => "queue",
            Phase::Leader => "leader",
            Phase::Forward => "forward",
            Phase::Read => "read",
            Phase::Bump => "bump",
            Phase::Write => "write",
            Phase::Fence => "fence",
        }
    }
}

/// The stopwatch of one call.
#[derive(Debug)]
pub struct Laps(Mutex<LapTimes>);

#[derive(Debug)]
struct LapTimes {
    began: Instant,
    /// When the last lap ended.
    last: Instant,
    spent: [Duration; PHASES],
}

/// When a log entry was under way that calls waited for.
#[derive(Debug, Clone, Copy)]
pub struct EntryTimes {
    /// From its proposal.
    pub began: Instant,
    /// Until its outcome was known.
    pub ended: Instant,
    /// For how long this node's disk wrote meanwhile.
    pub wrote: Duration,
}

impl Laps {
    /// A stopwatch that runs from now on.
    pub fn start() -> Arc<Laps> {
        let began = Instant::now();
        Arc::new(Laps(Mutex::new(LapTimes { began, last: began, spent: [Duration::ZERO; PHASES] })))
    }

    /// The future of a call whose waits are told to this stopwatch.
    pub fn scope<F: Future>(self: Arc<Self>, call: F) -> impl Future<Output = F::Output> {
        MEASURED.scope(self, call)
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.0.lock().began.elapsed()
    }

    /// How long the call has waited in this phase, up to the last lap.
    pub fn spent(&self, phase: Phase) -> Duration {
        self.all()[phase as usize]
    }

    /// How long it has waited in each phase, in the order of [`Phase::ALL`].
    pub fn all(&self) -> [Duration; PHASES] {
        self.0.lock().spent
    }
}

/// Whether the call that this task serves is measured.
pub fn is_measured() -> bool {
    MEASURED.try_with(|_| ()).is_ok()
}

/// Ends a lap: the call has been in this phase since the last one.
pub fn lap(phase: Phase) {
    // Mostly nobody measures.
    let _ = MEASURED.try_with(|laps| {
        let now = Instant::now();
        let mut times = laps.0.lock();
        let waited = now - times.last;
        times.spent[phase as usize] += waited;
        times.last = now;
    });
}

/// Ends a lap in which the call waited for a log entry. `entry` says which entry ended last.
pub fn lap_of_entry(entry: impl FnOnce() -> Option<EntryTimes>) {
    let _ = MEASURED.try_with(|laps| {
        let (entry, now) = (entry(), Instant::now());
        let mut times = laps.0.lock();
        let parts = entry.map_or([now - times.last, Duration::ZERO, Duration::ZERO], |entry| {
            parts_of(times.last, now, &entry)
        });
        for (phase, span) in [Phase::Queue, Phase::Bump, Phase::Write].into_iter().zip(parts) {
            times.spent[phase as usize] += span;
        }
        times.last = now;
    });
}

/// The parts of a wait that ended with an entry: outside of it, in it, and in it while this node's disk wrote. An entry that
/// had ended before is not what was waited for.
fn parts_of(since: Instant, now: Instant, entry: &EntryTimes) -> [Duration; 3] {
    let inside = entry.ended.min(now).saturating_duration_since(entry.began.max(since));
    let wrote = entry.wrote.min(inside);
    [(now - since) - inside, inside - wrote, wrote]
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_for_an_entry_is_its_turn_and_then_the_entry_with_what_the_disk_had_of_it() {
        let start = Instant::now();
        let at = |millis| start + ms(millis);
        let entry = |began, ended, wrote| EntryTimes {
            began: at(began),
            ended: at(ended),
            wrote: ms(wrote),
        };
        let parts = |entry| parts_of(at(100), at(200), &entry);
        assert_eq!(parts(entry(130, 190, 20)), [ms(40), ms(40), ms(20)]);
        assert_eq!(parts(entry(50, 190, 200)), [ms(10), ms(0), ms(90)], "it was under way");
        assert_eq!(parts(entry(20, 90, 10)), [ms(100), ms(0), ms(0)], "it had ended before");
        // The next one may be begun before the call is woken.
        assert_eq!(parts(entry(150, 210, 0)), [ms(50), ms(50), ms(0)]);
    }

    #[test]
    fn all_phases_stand_in_their_order() {
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, place, "{}", phase.name());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn laps_are_told_to_the_call_of_the_task_and_to_no_other() {
        let laps = Laps::start();
        lap(Phase::Fence);
        assert!(!is_measured());
        let call = async {
            assert!(is_measured());
            tokio::time::advance(ms(30)).await;
            lap(Phase::Forward);
            tokio::time::advance(ms(7)).await;
            lap_of_entry(|| None);
            tokio::time::advance(ms(5)).await;
            lap(Phase::Forward);
            tokio::time::advance(ms(1)).await;
        };
        laps.clone().scope(call).await;
        let spent = [Phase::Forward, Phase::Queue, Phase::Fence].map(|phase| laps.spent(phase));
        assert_eq!(spent, [ms(35), ms(7), ms(0)]);
        assert_eq!(laps.elapsed(), ms(43), "the rest belongs to no phase");
    }
}
