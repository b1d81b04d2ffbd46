//! Records operations while a run goes on.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::history::{History, Op};

/// A kind of request that callers make beside other kinds. After a fault each kind must be answered again: one kind may
/// hide that another is not. Floors are of none: only one workload raises any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// Numbers, which the history has.
    Numbers,
    /// Last numbers, which the history has, too, if the workload reads any.
    LastNumbers,
    /// Gapless numbers.
    Gapless,
    /// Ids that nodes make.
    Ids,
}

impl fmt::Display for Flow {
    /// Says which answers nobody got if the flow stopped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flow::Numbers => "no number was handed out",
            Flow::LastNumbers => "no last number was read",
            Flow::Gapless => "no gapless number was handed out",
            Flow::Ids => "no id was handed out",
        })
    }
}

/// Takes the operations of all callers.
pub struct Recorder {
    start: Instant,
    history: Mutex<History>,
    next_process: AtomicU64,
    /// When the latest answered operation of each flow was invoked. A flow is there once it was asked for.
    answered: watch::Sender<BTreeMap<Flow, u64>>,
    recorded: AtomicU64,
    acknowledged: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            start: Instant::now(),
            history: Mutex::default(),
            next_process: AtomicU64::new(0),
            answered: watch::Sender::default(),
            recorded: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        }
    }
}

impl Recorder {
    /// Nanoseconds since the start of the run.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A process id that was never used.
    pub fn new_process(&self) -> u64 {
        self.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// Callers of a flow begin to ask.
    pub fn begin(&self, flow: Flow) {
        self.answered.send_if_modified(|latest| {
            latest.entry(flow).or_default();
            false
        });
    }

    /// Notes that something of a flow was answered, which was asked for at `invoked_ns`.
    pub fn answered(&self, flow: Flow, invoked_ns: u64) {
        self.answered.send_if_modified(|latest| {
            let latest = latest.entry(flow).or_default();
            let is_later = invoked_ns > *latest;
            *latest = invoked_ns.max(*latest);
            is_later
        });
    }

    /// Adds an operation that ended, and the flow that it is of, if it is of one.
    pub fn push(&self, flow: Option<Flow>, op: Op) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        if op.is_ok() {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            if let Some(flow) = flow {
                self.answered(flow, op.invoked_ns);
            }
        }
        self.history.lock().push(op);
    }

    /// How many operations ended.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// How many operations were answered.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The flows that are asked for.
    pub fn flows(&self) -> Vec<Flow> {
        self.answered.borrow().keys().copied().collect()
    }

    /// Waits until something of a flow is answered that was asked for after `since`.
    pub async fn answered_since(&self, flow: Flow, since: u64) {
        let mut answered = self.answered.subscribe();
        let is_later =
            |latest: &BTreeMap<Flow, u64>| latest.get(&flow).is_some_and(|at| *at > since);
        // This cannot fail: the sender lives as long as `self`.
        let _ = answered.wait_for(is_later).await;
    }

    /// Waits, for `limit` at most, until something of each flow is answered that was asked for after `since`. Returns a flow of
    /// which nothing was.
    pub async fn silent_flow(&self, since: u64, limit: Duration) -> Option<Flow> {
        let latest = tokio::time::Instant::now() + limit;
        for flow in self.flows() {
            let answered = self.answered_since(flow, since);
            if tokio::time::timeout_at(latest, answered).await.is_err() {
                return Some(flow);
            }
        }
        None
    }

    /// Calls `look` with all operations so far.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.history.lock())
    }

    /// Takes all operations so far.
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.history.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flow_that_stopped_is_not_hidden_by_another_that_goes_on() {
        let recorder = Recorder::default();
        let silent = async |since| recorder.silent_flow(since, Duration::ZERO).await;
        assert_eq!(silent(7).await, None, "nothing is asked for");
        recorder.begin(Flow::Numbers);
        recorder.begin(Flow::LastNumbers);
        recorder.begin(Flow::Gapless);
        recorder.answered(Flow::Numbers, 8);
        recorder.answered_since(Flow::Numbers, 7).await;
        recorder.answered(Flow::LastNumbers, 8);
        assert_eq!(silent(7).await, Some(Flow::Gapless));
        recorder.answered(Flow::Gapless, 9);
        assert_eq!(silent(7).await, None);
        assert_eq!(silent(8).await, Some(Flow::Numbers));
        // An earlier request that is answered late says nothing new.
        recorder.answered(Flow::Numbers, 3);
        assert_eq!(silent(7).await, None);
    }
}
