//! The time by which this node leases worker ids and makes ids of keys when it leads, and which it tells to makers of ids: the
//! wall clock's, without its jumps, and only if the clocks of a majority agree.
//!
//! No promise rests on it: it decides when a worker id is free again, and which times are in ids. But what is logged once is
//! not taken back: a leader that believed a clock that is wrong by years would spoil ids for as long.

use std::sync::Arc;

use parking_lot::Mutex;
use ratchet_ids::{DateTime, Observed, Offset};

use super::believed_time::{Belief, BelievedTime, ClockDoubt, Readings};
use crate::{
    clock::{Clock, Instant},
    consensus::{ClockDistance, Group},
    metrics::Metrics,
    proto::{Refusal, refusal},
    sequence::NodeId,
};

/// What is known of the voters' clocks.
pub trait Witnesses: Send + Sync {
    /// As [`Group::clock_distance`].
    fn distance(&self, time_ms: u64, now: Instant, own_ms: u64) -> Option<ClockDistance>;
    /// True if this node is the only voter: nobody else can say what time it is.
    fn are_none(&self) -> bool;
}

impl Witnesses for Group {
    fn distance(&self, time_ms: u64, now: Instant, own_ms: u64) -> Option<ClockDistance> {
        self.clock_distance(time_ms, now, own_ms)
    }

    fn are_none(&self) -> bool {
        self.is_sole_voter()
    }
}

/// The time of ids. Clones show the same.
#[derive(Clone)]
pub struct IdsTime {
    node: NodeId,
    clock: Arc<dyn Clock>,
    witnesses: Arc<dyn Witnesses>,
    apart_max_ms: u64,
    state: Arc<Mutex<State>>,
    metrics: Arc<Metrics>,
}

struct State {
    time: BelievedTime,
    /// What was last said of the wall clock, and in which term.
    said: Option<(u64, Said)>,
}

/// What is said of a leader's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Agreed,
    RunsOn,
    Doubted,
}

impl IdsTime {
    /// The time that `clock` shows on `node`, believed as far as `witnesses` agree within `apart_max_ms`.
    pub fn new(
        node: NodeId, clock: Arc<dyn Clock>, witnesses: Arc<dyn Witnesses>, apart_max_ms: u64,
        metrics: Arc<Metrics>,
    ) -> Self {
        let time = BelievedTime::new(readings(&*clock));
        let state = Arc::new(Mutex::new(State { time, said: None }));
        IdsTime { node, clock, witnesses, apart_max_ms, state, metrics }
    }

    /// Milliseconds since 1970, for what this node logs and answers as leader of `term`.
    ///
    /// # Errors
    /// UNAVAILABLE with the reason CLOCK_DOUBTED if a majority's clocks do not agree: nothing may be made of this node's time.
    pub fn now_ms(&self, term: u64) -> Result<u64, Refusal> {
        match self.look(term) {
            Belief::Agreed { time_ms, .. } | Belief::RunsOn { time_ms, .. } => Ok(time_ms),
            Belief::Doubted(doubt) => {
                self.metrics.clock_refusals.inc();
                Err(self.refusal(doubt))
            }
        }
    }

    /// Whether the time of this node, which leads `term`, is believed.
    pub fn look(&self, term: u64) -> Belief {
        let mut state = self.state.lock();
        let (now, at) = (readings(&*self.clock), self.clock.now());
        let distance = |time_ms| self.witnesses.distance(time_ms, at, now.wall_ms);
        let belief = state.time.lead(term, now, self.apart_max_ms, distance);
        if let Belief::Agreed { observed, .. } = belief {
            self.note(observed, "the wall clock");
        }
        self.say(&mut state, term, belief, now.wall_ms);
        belief
    }

    /// Milliseconds since 1970, for answers that tell the time beside what was done. Nothing is logged that is made of it.
    pub fn shown_ms(&self) -> u64 {
        self.state.lock().time.shown_ms(self.clock.now().as_nanos())
    }

    /// Looks at the wall clock of a node that does not lead.
    pub fn follow(&self) {
        let mut state = self.state.lock();
        let observed = state.time.follow(readings(&*self.clock));
        if state.said.take().is_some() {
            self.metrics.clock_doubted.set(0);
        }
        self.note(observed, "the wall clock");
    }

    /// Another node, which leads, has told its time. This node goes on from there if it leads later.
    pub fn told(&self, leader_ms: u64) {
        let now = self.clock.now().as_nanos();
        self.note(self.state.lock().time.told(now, leader_ms), "the leader's clock");
    }

    fn refusal(&self, doubt: ClockDoubt) -> Refusal {
        let node = self.node;
        refusal!(
            ClockDoubted,
            "node {node} leads, and makes no ids of a time, because its wall clock is not believed: {doubt}; set the clock \
                 of its machine, or have another node lead: ratchet transfer"
        )
    }

    fn note(&self, observed: Observed, after: &'static str) {
        if let Observed::Followed { step_ms } = observed {
            self.metrics.clock_steps.inc();
            tracing::warn!(
                step_ms,
                after,
                "the time of ids follows a clock that differs; check the machines' clocks"
            );
        }
    }

    /// Logs what has changed since it was last said.
    fn say(&self, state: &mut State, term: u64, belief: Belief, wall_ms: u64) {
        let now = match belief {
            Belief::Agreed { .. } => Said::Agreed,
            Belief::RunsOn { .. } => Said::RunsOn,
            Belief::Doubted(_) => Said::Doubted,
        };
        let before = state.said.replace((term, now));
        if before == Some((term, now)) {
            return;
        }
        self.metrics.clock_doubted.set(i64::from(now != Said::Agreed));
        match belief {
            Belief::Agreed { .. } if self.witnesses.are_none() => tracing::info!(
                shows = %DateTime::new(wall_ms, Offset::default()),
                "this node is the only voter: ids of a time go by its own wall clock, whatever it shows"
            ),
            Belief::Agreed { .. } if before.is_some_and(|(_, said)| said != Said::Agreed) => {
                tracing::info!(
                    "a majority's clocks agree with this node's wall clock: it is believed"
                );
            }
            Belief::Agreed { .. } => {}
            Belief::RunsOn { doubt, .. } => tracing::error!(
                "this node's wall clock is not believed: {doubt}; the time of ids goes on without it. Set the clock of its machine"
            ),
            Belief::Doubted(doubt) => tracing::error!(
                "this node leads, and makes no ids of a time, because its wall clock is not believed: {doubt}. Set the clock of \
                 its machine, or have another node lead"
            ),
        }
    }
}

fn readings(clock: &dyn Clock) -> Readings {
    Readings { mono_ns: clock.now().as_nanos(), wall_ms: clock.wall_ms() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::proto::{Code, v1::Reason};

    const HOUR_MS: u64 = 3_600_000;

    /// A clock that shows what a test sets, both in milliseconds.
    #[derive(Default)]
    struct SetClock {
        elapsed: AtomicU64,
        wall: AtomicU64,
    }

    impl SetClock {
        fn set(&self, elapsed_ms: u64, wall_ms: u64) {
            self.elapsed.store(elapsed_ms, Ordering::SeqCst);
            self.wall.store(wall_ms, Ordering::SeqCst);
        }
    }

    impl Clock for SetClock {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.elapsed.load(Ordering::SeqCst) * 1_000_000)
        }

        fn wall_ms(&self) -> u64 {
            self.wall.load(Ordering::SeqCst)
        }
    }

    /// Voters whose clocks show the own time, or none that is near it.
    #[derive(Default)]
    struct Others {
        differ: AtomicBool,
    }

    impl Witnesses for Others {
        fn distance(&self, time_ms: u64, _: Instant, own_ms: u64) -> Option<ClockDistance> {
            Some(match self.differ.load(Ordering::SeqCst) {
                true => ClockDistance { ms: 2 * HOUR_MS, is_ahead: true },
                false => ClockDistance::of(time_ms, own_ms),
            })
        }

        fn are_none(&self) -> bool {
            false
        }
    }

    fn ids_time(clock: &Arc<SetClock>) -> (IdsTime, Arc<Others>) {
        let others = Arc::new(Others::default());
        let time = IdsTime::new(1, clock.clone(), others.clone(), 60_000, Metrics::new());
        (time, others)
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_not_followed_at_once_and_the_leaders_time_is() {
        let clock = Arc::new(SetClock::default());
        clock.set(0, 10 * HOUR_MS);
        let (time, _) = ids_time(&clock);
        assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS);
        clock.set(1_000, 11 * HOUR_MS);
        assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS + 1_000);
        clock.set(2_000, 2 * HOUR_MS);
        assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS + 2_000);
        assert_eq!(time.metrics.clock_steps.get(), 0);
        time.told(12 * HOUR_MS);
        assert_eq!(time.shown_ms(), 12 * HOUR_MS);
        assert_eq!(time.metrics.clock_steps.get(), 1);
    }

    #[test]
    fn a_clock_that_is_not_believed_is_refused_with_what_to_do_and_shown_until_another_node_leads()
    {
        let clock = Arc::new(SetClock::default());
        clock.set(0, 10 * HOUR_MS);
        let (time, others) = ids_time(&clock);
        others.differ.store(true, Ordering::SeqCst);
        let refused = time.now_ms(1).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(refused.reason(), Reason::ClockDoubted);
        for part in ["node 1 leads", "1970-01-01T10:00:00.000Z", "7200.000 s ahead", "transfer"] {
            assert!(refused.message().contains(part), "{refused}");
        }
        assert_eq!((time.metrics.clock_doubted.get(), time.metrics.clock_refusals.get()), (1, 1));
        time.follow();
        assert_eq!(time.metrics.clock_doubted.get(), 0);
    }
}
