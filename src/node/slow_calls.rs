//! Slow calls in the log: a line for each says where the time went. The span of a call that is traced says the same.
//!
//! Only a call that has to wait is measured. The node that was asked tells of it, and the leader that it forwarded the call to
//! tells of its own part.
//!
//! Invariant: no line has a key, a token or a header. An overload causes few lines, and those tell how many were left out.

use std::{pin::Pin, sync::Arc, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Config,
    line_rate::LineRate,
    told_call::{About, CallEnd},
    traces::Span,
};
use crate::{
    clock::whole_ms,
    laps::{Laps, Phase, is_measured},
    metrics::Metrics,
    sequence::NodeId,
};

/// How many lines a second tell of slow calls.
const LINES_PER_SECOND: u64 = 5;

/// Tells of slow calls.
pub struct SlowCalls {
    node: NodeId,
    /// From how long on a call is slow. `None`: none is.
    from: Option<Duration>,
    metrics: Arc<Metrics>,
    rate: Mutex<LineRate>,
}

impl SlowCalls {
    /// As the configuration has it.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        SlowCalls {
            node: config.node_id,
            from: (config.slow_call_ms > 0).then(|| Duration::from_millis(config.slow_call_ms)),
            metrics,
            rate: Mutex::new(LineRate::per_second(LINES_PER_SECOND)),
        }
    }

    /// Has a call answered. If it has to wait, it is measured from then on. A call that is traced has a span, which is told of
    /// it.
    #[inline]
    pub async fn watch<'a, A, E, F>(
        &self, about: impl Fn() -> About<'a>, span: Option<&Span>, mut call: Pin<&mut F>,
    ) -> F::Output
    where
        F: Future<Output = Result<A, E>>,
        CallEnd: for<'e> From<&'e E>,
    {
        if let Some(span) = span {
            span.tell_about(about());
        }
        let called = match futures::poll!(&mut call) {
            Poll::Ready(called) => called,
            Poll::Pending if span.is_some() || self.are_told() => {
                Box::pin(self.measure(about(), span, call)).await
            }
            Poll::Pending => call.await,
        };
        if let Some(span) = span {
            span.tell_end(end_of(&called));
        }
        called
    }

    /// Whether a call that has to wait is to be measured here. One within a call that is measured belongs to that.
    fn are_told(&self) -> bool {
        self.from.is_some() && !is_measured()
    }

    /// Measures a call that has to wait, until it has ended or its caller leaves.
    async fn measure<A, E, F>(
        &self, about: About<'_>, span: Option<&Span>, call: Pin<&mut F>,
    ) -> F::Output
    where
        F: Future<Output = Result<A, E>>,
        CallEnd: for<'e> From<&'e E>,
    {
        let laps = Laps::start();
        let mut measured = Measured { calls: self, about, span, laps, end: CallEnd::Left };
        let called = measured.laps.clone().scope(call).await;
        measured.end = end_of(&called);
        called
    }

    fn tell(&self, measured: &Measured<'_>, took: Duration) {
        let Measured { about, span, laps, end, .. } = measured;
        self.metrics.slow_calls.inc();
        let Some(left_out) = self.rate.lock().take(Instant::now()) else {
            return;
        };
        let ms = |phase| whole_ms(laps.spent(phase));
        tracing::warn!(
            method = about.method,
            namespace = about.namespace(),
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
            outcome = end.to_string(),
            trace = span.map(Span::trace_id),
            node = self.node,
            left_out,
            "slow call"
        );
    }
}

fn end_of<A, E>(called: &Result<A, E>) -> CallEnd
where
    CallEnd: for<'e> From<&'e E>,
{
    called.as_ref().map_or_else(CallEnd::from, |_| CallEnd::Answered)
}

/// A call that is measured.
struct Measured<'a> {
    calls: &'a SlowCalls,
    about: About<'a>,
    span: Option<&'a Span>,
    laps: Arc<Laps>,
    end: CallEnd,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let took = self.laps.elapsed();
        if let Some(span) = self.span {
            span.tell_waits(&self.laps);
        }
        if self.calls.from.is_some_and(|from| took >= from) {
            self.calls.tell(self, took);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, pin::pin};

    use super::*;
    use crate::{node::way::attempt::Unanswered, proto::refusal};

    const ABOUT: About<'_> = About {
        method: "ratchet.v1.Sequencer/Next",
        namespace: Some("book"),
        keys: 1,
        forwarded_here: false,
    };

    const fn about() -> About<'static> {
        ABOUT
    }

    fn calls(slow_call_ms: u64) -> SlowCalls {
        SlowCalls::new(&Config { slow_call_ms, ..Config::default() }, Metrics::new())
    }

    async fn takes_ms(ms: u64) -> Result<(), Unanswered> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Err(refusal!(NoLeader, "none").into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_told_from_the_time_on_that_the_setting_says_also_if_its_caller_leaves() {
        let calls = calls(20);
        let told = || calls.metrics.slow_calls.get();
        assert!(calls.watch(about, None, pin!(takes_ms(19))).await.is_err());
        assert_eq!(told(), 0);
        assert!(calls.watch(about, None, pin!(takes_ms(20))).await.is_err());
        assert_eq!(told(), 1);
        for (patience, expected) in [(10, 1), (30, 2)] {
            let waiting = pin!(pending::<Result<(), Unanswered>>());
            let measuring = calls.watch(about, None, waiting);
            let left = tokio::time::timeout(Duration::from_millis(patience), measuring).await;
            assert!(left.is_err());
            assert_eq!(told(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_writes_few_lines_and_counts_all_calls() {
        let calls = calls(1);
        for _ in 0..LINES_PER_SECOND + 7 {
            // Time is paused, and goes on with the calls alone: all of them come in one second.
            assert!(calls.watch(about, None, pin!(takes_ms(1))).await.is_err());
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
