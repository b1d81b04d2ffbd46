//! What the log tells of calls that took long: a line for each, with where the time went.
//!
//! Only a call that has to wait is measured. The node that was asked tells of it, and the leader that it forwarded the call to
//! tells of its own part.
//!
//! Invariant: no line has a key, a token or a header. An overload causes few lines, and those tell how many were left out.

use std::{pin::Pin, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Config, line_rate::LineRate};
use crate::{
    clock::whole_ms,
    laps::{Laps, Phase, is_measured},
    metrics::{Label, Metrics},
    proto::{Code, name_of_reason, v1::Reason},
    sequence::NodeId,
};

/// How many lines a second tell of slow calls.
const LINES_PER_SECOND: u64 = 5;
/// How many characters of a namespace's name a line has: more has none that exists.
const NAME_CHARS_MAX: usize = 64;

/// Tells of slow calls.
pub struct SlowCalls {
    node: NodeId,
    /// From how long on a call is slow. `None`: none is.
    from: Option<Duration>,
    metrics: Arc<Metrics>,
    rate: Mutex<LineRate>,
}

/// What a line tells of a call beside its times.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Service and method.
    pub method: &'static str,
    /// The name of the namespace that it is about, if it is about one.
    pub namespace: Option<&'a str>,
    /// How many keys it has.
    pub keys: usize,
    /// Whether a peer has forwarded it.
    pub forwarded_here: bool,
}

/// How a call has ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// Its caller did not wait for it.
    Left,
    /// It was answered.
    Answered,
    /// It was refused.
    Refused(Reason, Code),
    /// A peer was told that another node leads.
    NotLeader,
}

impl SlowCalls {
    /// As the configuration has it.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        SlowCalls {
            node: config.node_id,
            from: (config.slow_call_ms > 0).then(|| Duration::from_millis(config.slow_call_ms)),
            metrics,
            rate: Mutex::new(LineRate::new(LINES_PER_SECOND)),
        }
    }

    /// Has a call answered. If it has to wait, it is measured from then on.
    #[inline]
    pub async fn watch<'a, A, E, F>(
        &self, about: impl FnOnce() -> About<'a>, mut call: Pin<&mut F>,
    ) -> F::Output
    where
        F: Future<Output = Result<A, E>>,
        Outcome: for<'e> From<&'e E>,
    {
        match futures::poll!(&mut call) {
            Poll::Ready(called) => called,
            Poll::Pending if self.are_told() => Box::pin(self.measure(about(), call)).await,
            Poll::Pending => call.await,
        }
    }

    /// Whether a call that has to wait is to be measured here. One within a call that is measured belongs to that.
    fn are_told(&self) -> bool {
        self.from.is_some() && !is_measured()
    }

    /// Measures a call that has to wait, until it has ended or its caller leaves.
    async fn measure<A, E, F>(&self, about: About<'_>, call: Pin<&mut F>) -> F::Output
    where
        F: Future<Output = Result<A, E>>,
        Outcome: for<'e> From<&'e E>,
    {
        let laps = Laps::start();
        let mut measured = Measured { calls: self, about, laps, outcome: Outcome::Left };
        let called = measured.laps.clone().scope(call).await;
        measured.outcome = called.as_ref().map_or_else(Outcome::from, |_| Outcome::Answered);
        called
    }

    fn tell(&self, about: About<'_>, took: Duration, laps: &Laps, outcome: Outcome) {
        self.metrics.slow_calls.inc();
        let Some(left_out) = self.rate.lock().take(Instant::now()) else {
            return;
        };
        let name = |name: &str| name.chars().take(NAME_CHARS_MAX).collect::<String>();
        let outcome = match outcome {
            Outcome::Left => "CALLER_LEFT (CANCELLED)".to_owned(),
            Outcome::Answered => "ok".to_owned(),
            Outcome::Refused(reason, code) => {
                format!("{} ({})", name_of_reason(reason), Code::VALUES[code.place()])
            }
            Outcome::NotLeader => "another node leads".to_owned(),
        };
        let ms = |phase| whole_ms(laps.spent(phase));
        tracing::warn!(
            method = about.method,
            namespace = about.namespace.map(name),
            keys = about.keys,
            forwarded_here = about.forwarded_here,
            took_ms = whole_ms(took),
            queue_ms = ms(Phase::Queue),
            leader_ms = ms(Phase::Leader),
            forward_ms = ms(Phase::Forward),
            read_ms = ms(Phase::Read),
            bump_ms = ms(Phase::Bump),
            write_ms = ms(Phase::Write),
            fence_ms = ms(Phase::Fence),
            outcome,
            node = self.node,
            left_out,
            "slow call"
        );
    }
}

/// A call that is measured.
struct Measured<'a> {
    calls: &'a SlowCalls,
    about: About<'a>,
    laps: Arc<Laps>,
    outcome: Outcome,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let took = self.laps.elapsed();
        if self.calls.from.is_some_and(|from| took >= from) {
            self.calls.tell(self.about, took, &self.laps, self.outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, pin::pin};

    use super::*;
    use crate::{node::numbers::leader_search::Failure, proto::refusal};

    const ABOUT: About<'_> = About {
        method: "ratchet.v1.Sequencer/Next",
        namespace: Some("book"),
        keys: 1,
        forwarded_here: false,
    };

    fn calls(slow_call_ms: u64) -> SlowCalls {
        SlowCalls::new(&Config { slow_call_ms, ..Config::default() }, Metrics::new())
    }

    async fn takes_ms(ms: u64) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Err(refusal!(NoLeader, "none").into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_told_from_the_time_on_that_the_setting_says_also_if_its_caller_leaves() {
        let calls = calls(20);
        let told = || calls.metrics.slow_calls.get();
        assert!(calls.measure(ABOUT, pin!(takes_ms(19))).await.is_err());
        assert_eq!(told(), 0);
        assert!(calls.measure(ABOUT, pin!(takes_ms(20))).await.is_err());
        assert_eq!(told(), 1);
        for (patience, expected) in [(10, 1), (30, 2)] {
            let waiting = pin!(pending::<Result<(), Failure>>());
            let measuring = calls.measure(ABOUT, waiting);
            let left = tokio::time::timeout(Duration::from_millis(patience), measuring).await;
            assert!(left.is_err());
            assert_eq!(told(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_writes_few_lines_and_counts_all_calls() {
        let calls = calls(1);
        for _ in 0..LINES_PER_SECOND + 7 {
            // Time is paused, and does not go on by itself.
            assert!(calls.measure(ABOUT, pin!(takes_ms(1))).await.is_err());
        }
        assert_eq!(calls.rate.lock().written(), LINES_PER_SECOND);
        assert_eq!(calls.metrics.slow_calls.get(), LINES_PER_SECOND + 7);
    }

    #[tokio::test]
    async fn a_call_within_one_that_is_measured_is_not_measured_again_and_with_0_none_is() {
        let told = calls(20);
        assert!(told.are_told());
        Laps::start().scope(async { assert!(!told.are_told()) }).await;
        assert!(!calls(0).are_told());
    }
}
