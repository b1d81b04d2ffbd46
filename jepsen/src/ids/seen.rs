//! The state that all callers of ids share: the nodes, the checker, and the bound of its memory.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use ratchet_ids::InvalidFormat;
use serde::Serialize;

use super::{
    checker::{Checker, Rule},
    connection::IdInterface,
    distance::Distance,
    namespace::ALL,
    taken::{Maker, Said, TakenIds},
    wish::Wish,
};
use crate::{
    nodes::{KnownNodes, Starts},
    record::{Flow, Recorder},
};

/// The state that callers share.
pub struct SeenIds {
    pub(super) nodes: KnownNodes,
    pub(super) starts: Starts,
    pub(super) recorder: Arc<Recorder>,
    checker: Mutex<Checker>,
    per_second_max: u64,
    ids: AtomicU64,
    applications: AtomicU64,
    used: Mutex<BTreeMap<IdInterface, Used>>,
    last_errors: Mutex<BTreeMap<&'static str, String>>,
}

/// How an interface was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that were not.
    pub failed: u64,
}

/// Ids in figures, as `summary.json` holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// How many different ids were taken of each namespace.
    pub ids: BTreeMap<&'static str, usize>,
    /// How each interface was used.
    pub calls: BTreeMap<IdInterface, Used>,
    /// How often the product's client leased a worker id.
    pub applications: u64,
    /// How often each rule was broken.
    pub broken: BTreeMap<Rule, u64>,
    /// The greatest distance of the time in an id from the time between call and answer, in milliseconds.
    pub farthest_ms: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.ids.values().sum();
        write!(f, "{total} ids:")?;
        for (name, count) in &self.ids {
            write!(f, " {name} {count}")?;
        }
        write!(f, "\nthrough")?;
        for (interface, Used { answered, failed }) in &self.calls {
            write!(f, " {interface:?} {answered} ({failed} failed)")?;
        }
        let (applications, farthest_ms) = (self.applications, self.farthest_ms);
        write!(f, "; {applications} applications; times of ids at most {farthest_ms} ms off")?;
        for (rule, count) in &self.broken {
            write!(f, "; {rule:?} broken {count} times")?;
        }
        Ok(())
    }
}

/// The findings on which the verdict on a run depends.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The rules that were broken.
    pub violations: Vec<String>,
    /// The events that did not happen, although the run says nothing without them.
    pub shortcomings: Vec<String>,
}

/// Ids that arrived, and when they were asked for.
pub(super) struct Arrived {
    pub interface: IdInterface,
    pub maker: Maker,
    pub process: Option<u64>,
    pub invoked_ns: u64,
    pub asked: usize,
    pub ids: Vec<Said>,
}

impl SeenIds {
    /// The state before the first call.
    ///
    /// # Errors
    /// [`InvalidFormat`] if a namespace has such a format.
    pub fn new(
        (nodes, starts): (&KnownNodes, &Starts), recorder: &Arc<Recorder>, distance: Distance,
        per_second_max: u64,
    ) -> Result<Arc<SeenIds>, InvalidFormat> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.unwrap_or_default().as_millis() as u64;
        let start_ms = now_ms.saturating_sub(recorder.now() / 1_000_000);
        Ok(Arc::new(SeenIds {
            nodes: nodes.clone(),
            starts: starts.clone(),
            recorder: recorder.clone(),
            checker: Mutex::new(Checker::new(&ALL, start_ms, distance)?),
            per_second_max,
            ids: AtomicU64::new(0),
            applications: AtomicU64::new(0),
            used: Mutex::default(),
            last_errors: Mutex::default(),
        }))
    }

    /// Judges ids that arrived just now.
    pub(super) fn take(&self, wish: &Wish, arrived: Arrived) {
        let Arrived { interface, maker, process, invoked_ns, asked, ids } = arrived;
        self.ids.fetch_add(ids.len() as u64, Ordering::Relaxed);
        self.used.lock().entry(interface).or_default().answered += 1;
        if matches!(maker, Maker::Node(_)) {
            self.recorder.answered(Flow::Ids, invoked_ns);
        }
        self.checker.lock().add(&TakenIds {
            namespace: wish.place,
            key: wish.key,
            parameters: wish.parameters.clone(),
            maker,
            process,
            invoked_ns,
            returned_ns: self.recorder.now(),
            asked,
            ids,
        });
    }

    /// Notes a call that was not answered.
    pub(super) fn failed(&self, interface: IdInterface, namespace: &'static str, why: String) {
        self.used.lock().entry(interface).or_default().failed += 1;
        self.last_errors.lock().insert(namespace, why);
    }

    /// The number of the next `Ids` of the product's client.
    pub(super) fn new_application(&self) -> Maker {
        Maker::Application(1 + self.applications.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits while more ids were taken than the bound allows.
    pub(super) async fn hold_back(&self) {
        loop {
            // The ids of one second may come at once.
            let seconds = 1.0 + self.recorder.now() as f64 / 1e9;
            let taken = self.ids.load(Ordering::Relaxed) as f64;
            if taken <= seconds * self.per_second_max as f64 {
                return;
            }
            // It is not the nodes that are silent then.
            self.recorder.answered(Flow::Ids, self.recorder.now());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether a rule was broken so far.
    pub fn is_violated(&self) -> bool {
        !self.checker.lock().violations().is_empty()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let checker = self.checker.lock();
        Figures {
            ids: checker.ids(),
            calls: self.used.lock().clone(),
            applications: self.applications.load(Ordering::Relaxed),
            broken: checker.broken(),
            farthest_ms: checker.farthest_ms(),
        }
    }

    /// The findings on which the verdict depends.
    pub fn findings(&self) -> Findings {
        let Figures { ids, calls, .. } = self.figures();
        let errors = self.last_errors.lock();
        let none_taken = ids.iter().filter(|(_, count)| **count == 0).map(|(name, _)| {
            let error = errors.get(name).map_or("none", |error| error);
            format!("no id of {name} was taken; the last error was: {error}")
        });
        let unanswered = calls.iter().filter(|(_, used)| used.answered == 0);
        let unanswered =
            unanswered.map(|(interface, _)| format!("no ids came through {interface:?}"));
        Findings {
            violations: self.checker.lock().violations(),
            shortcomings: none_taken.chain(unanswered).collect(),
        }
    }
}
