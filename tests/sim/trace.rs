//! Records the events of a run: a digest of everything, to compare runs, and the last lines, to read.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{Debug, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
    time::Duration,
};

const TAIL_LINES: usize = 60;

/// The events.
#[derive(Default)]
pub struct Trace(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    digest: DefaultHasher,
    tail: VecDeque<String>,
    counts: BTreeMap<&'static str, u64>,
    /// Whether events are printed as they come, and notes too.
    loud: bool,
    louder: bool,
}

impl Trace {
    /// A trace that prints as it goes.
    pub fn loud() -> Self {
        let trace = Trace::default();
        {
            let mut inner = trace.0.lock().expect("a trace");
            inner.loud = true;
            inner.louder = std::env::var_os("RATCHET_SIM_NOTES").is_some();
        }
        trace
    }

    /// Records an event that a reader wants to see.
    pub fn event(&self, at: Duration, kind: &'static str, text: impl AsRef<str>) {
        let mut inner = self.0.lock().expect("a trace");
        *inner.counts.entry(kind).or_default() += 1;
        let line = format!("{:9.3} s  {kind}: {}", at.as_secs_f64(), text.as_ref());
        line.hash(&mut inner.digest);
        if inner.loud {
            println!("{line}");
        }
        if inner.tail.len() == TAIL_LINES {
            inner.tail.pop_front();
        }
        inner.tail.push_back(line);
    }

    /// Records something that is counted and digested, but not kept for a reader.
    pub fn note(&self, at: Duration, kind: &'static str, what: impl Hash + Debug) {
        let mut inner = self.0.lock().expect("a trace");
        if inner.louder {
            println!("{:9.3} s  {kind}: {what:?}", at.as_secs_f64());
        }
        *inner.counts.entry(kind).or_default() += 1;
        (at, kind).hash(&mut inner.digest);
        what.hash(&mut inner.digest);
    }

    /// The digest of all that happened so far.
    pub fn digest(&self) -> u64 {
        self.0.lock().expect("a trace").digest.finish()
    }

    /// How often each kind of event happened.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().expect("a trace").counts.clone()
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        let inner = self.0.lock().expect("a trace");
        let mut text = String::new();
        for line in &inner.tail {
            let _ = writeln!(text, "  {line}");
        }
        text
    }
}
