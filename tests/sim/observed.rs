//! The outcome of one run: its report, or its fault and how to see it again.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, Once},
};

use crate::trace::Trace;

/// The report of a run without a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub digest: u64,
    pub answered: usize,
    /// How often each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Has panics recorded. A task that panics does not end the run by itself; its record fails the run.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            usual(panic);
        }));
    });
}

/// Checks that no task of this run has panicked.
///
/// # Errors
/// If one has.
pub fn no_panic() -> Result<(), String> {
    PANICS.with_borrow(|panics| match panics.first() {
        Some(panic) => Err(panic.clone()),
        None => Ok(()),
    })
}

/// Has `simulate` run one seed, and return how many calls were answered. Call it on a fresh thread. `command` replays
/// the seed.
///
/// # Errors
/// If it fails or panics: why, the last events, and how to replay it.
pub fn observe(
    command: &str, seed: u64, loud: bool,
    simulate: impl FnOnce(&Arc<Trace>) -> Result<usize, String>,
) -> Result<Report, String> {
    remember_panics();
    let trace = Arc::new(if loud { Trace::loud() } else { Trace::default() });
    let verdict = if loud {
        // Prints the nodes' logs, filtered by RUST_LOG.
        let logging = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .without_time()
            .finish();
        tracing::subscriber::with_default(logging, || simulate(&trace))
    } else {
        simulate(&trace)
    };
    let panics = PANICS.take();
    let verdict = match panics.first() {
        Some(panic) => Err(format!("a panic: {panic}")),
        None => verdict,
    };
    match verdict {
        Ok(answered) => Ok(Report { digest: trace.digest(), answered, counts: trace.counts() }),
        Err(why) => Err(format!(
            "seed {seed}: {why}\n\nwhat happened last:\n{}\nsee it again with:\n  \
             RATCHET_SIM_SEED={seed} {command} --nocapture\n",
            trace.tail()
        )),
    }
}
