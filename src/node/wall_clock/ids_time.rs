//! The time by which this node leases worker ids and makes ids of keys when it leads, and which it tells to makers of
//! ids: the wall clock's, without its jumps, and only if the clocks of a majority agree.
//!
//! No promise rests on it: it decides when a worker id is free again, and which times are in ids. But what is logged
//! once is not taken back: a leader that believed a clock that is wrong by years would spoil ids for as long.

use std::{
    mem::{Discriminant, discriminant},
    sync::Arc,
};

use parking_lot::Mutex;
use ratchet_ids::{DateTime, Offset};

use super::believed_time::{Belief, BelievedTime, ClockDoubt, Readings};
use crate::{
    clock::{Clock, Instant},
    consensus::{ClockDistance, Group},
    metrics::{Metrics, SetMetrics},
    proto::{Refusal, refusal},
    sequence::NodeId,
};

/// The clocks of the voters, as far as they are known.
pub trait Witnesses: Send + Sync {
    /// The distance from `time_ms`, the time at `now`, within which the clocks of a majority of the voters lie. `None` if they
    /// are not known.
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
    state: Arc<Mutex<IdsTimeState>>,
    metrics: Arc<Metrics>,
    set_metrics: Arc<SetMetrics>,
}

/// The time, and the last word of the log about it.
struct IdsTimeState {
    time: BelievedTime,
    /// The last line of the log about the wall clock: its term, and its kind.
    said: Option<(u64, Discriminant<Belief>)>,
}

impl IdsTime {
    /// The time that `clock` shows on `node`, believed as far as `witnesses` agree within `apart_max_ms`.
    pub fn new(
        node: NodeId, clock: Arc<dyn Clock>, witnesses: Arc<dyn Witnesses>, apart_max_ms: u64,
        metrics: Arc<Metrics>, set_metrics: Arc<SetMetrics>,
    ) -> Self {
        let time = BelievedTime::new(readings(&*clock));
        let state = Arc::new(Mutex::new(IdsTimeState { time, said: None }));
        IdsTime { node, clock, witnesses, apart_max_ms, state, metrics, set_metrics }
    }

    /// Milliseconds since 1970, for what this node logs and answers as leader of `term`.
    ///
    /// # Errors
    /// UNAVAILABLE with the reason CLOCK_DOUBTED if a majority's clocks do not agree: nothing may be made of this node's time.
    pub fn now_ms(&self, term: u64) -> Result<u64, Refusal> {
        match self.look(term) {
            Belief::Agreed { time_ms, .. } | Belief::RunsOn { time_ms, .. } => Ok(time_ms),
            Belief::Doubted(doubt) => {
                self.set_metrics.clock_refusals.inc();
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
        if let Belief::Agreed { followed, .. } = belief {
            self.note(followed, "the wall clock");
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
        let followed = state.time.follow(readings(&*self.clock));
        if state.said.take().is_some() {
            self.set_metrics.clock_doubted.set(0);
        }
        self.note(followed, "the wall clock");
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
            "node {node} leads, and makes no ids of a time, because its wall clock is not believed: {doubt}; it hands over once \
                 it hears a voter whose clock is believed; set the clocks of the machines, or have another node lead: ratchet \
                 transfer"
        )
    }

    fn note(&self, followed: Option<i64>, after: &'static str) {
        if let Some(step_ms) = followed {
            self.metrics.clock_steps.inc();
            tracing::warn!(
                step_ms,
                after,
                "the time of ids follows a clock that differs; check the machines' clocks"
            );
        }
    }

    /// Logs what has changed since it was last said.
    fn say(&self, state: &mut IdsTimeState, term: u64, belief: Belief, wall_ms: u64) {
        use Belief::*;
        let now = discriminant(&belief);
        let before = state.said.replace((term, now));
        if before == Some((term, now)) {
            return;
        }
        self.set_metrics.clock_doubted.set(i64::from(!matches!(belief, Agreed { .. })));
        match belief {
            Agreed { .. } if self.witnesses.are_none() => tracing::info!(
                shows = %DateTime::new(wall_ms, Offset::default()),
                "this node is the only voter: ids of a time go by its own wall clock, whatever it shows"
            ),
            Agreed { .. } if before.is_some_and(|(_, said)| said != now) => {
                tracing::info!(
                    "a majority's clocks agree with this node's wall clock: it is believed"
                );
            }
            Agreed { .. } => {}
            RunsOn { doubt, .. } => tracing::error!(
                "this node's wall clock is not believed: {doubt}; the time of ids goes on without it. Set the clock of its machine"
            ),
            Doubted(doubt) => tracing::error!(
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
mod tests;
