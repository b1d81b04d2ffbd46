//! The workers of a round: they drive a target with a load.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    call_loop::{closed_loop, open_loop},
    caller::callers,
    error::Error,
    id_stream,
    load::Load,
    options::Interface,
    recorder::{Recorder, Records, histogram},
    stream,
    target::{Protocol, Target},
};

/// How often the recorder is read.
pub const TICK: Duration = Duration::from_millis(100);

/// The workers of a round. They stop when this is dropped.
pub struct Workers {
    recorder: Arc<Recorder>,
    tasks: JoinSet<()>,
    spare: Mutex<Records>,
}

/// The requests that failed.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    pub count: u64,
    pub first: Option<String>,
}

/// The results of workers that have stopped.
pub struct Stopped {
    pub failures: Failures,
    /// The latencies of the requests of an open loop that were under way, or overdue, when it ended. Empty for a closed loop.
    pub late: Histogram<u64>,
}

impl Workers {
    /// Starts the workers.
    ///
    /// # Errors
    /// If the target cannot be reached.
    pub async fn start(target: &Target, load: &Load) -> Result<Workers, Error> {
        let recorder = Arc::new(Recorder::new(load, target.is_checked));
        Ok(Workers {
            tasks: start(target, &recorder).await?,
            recorder,
            spare: Mutex::new(Records::new()),
        })
    }

    /// When the round began.
    pub fn started(&self) -> Instant {
        self.recorder.started
    }

    /// True if the workers have aborted the run.
    pub fn have_stopped(&self) -> bool {
        self.recorder.stop.load(Relaxed)
    }

    /// Takes the records since the last time.
    pub fn records(&self) -> Records {
        self.recorder.drain(&mut self.spare.lock())
    }

    /// Stops the workers, and waits for their last requests. Of an open loop, the latencies of requests that were due before
    /// have to be counted: they are recorded by then.
    ///
    /// # Errors
    /// If a number did not grow, if the workers fell too far behind an open loop, or if one panicked.
    pub async fn stop(mut self) -> Result<Stopped, Error> {
        self.recorder.stop.store(true, Relaxed);
        while let Some(done) = self.tasks.join_next().await {
            done.map_err(|error| Error::other(format!("a worker died: {error}")))?;
        }
        if let Some(why) = self.recorder.aborted.lock().take() {
            return Err(Error::other(why));
        }
        let (count, first) = self.recorder.errors.lock().clone();
        let late = match self.recorder.load.rate {
            Some(_) => self.records().latencies,
            None => histogram(),
        };
        Ok(Stopped { failures: Failures { count, first }, late })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.recorder.stop.store(true, Relaxed);
    }
}

async fn start(target: &Target, recorder: &Arc<Recorder>) -> Result<JoinSet<()>, Error> {
    let load = &recorder.load;
    let mut workers = JoinSet::new();
    if target.protocol == Protocol::Ratchet(Interface::Stream) {
        stream::start(target.connections(load.connections)?, recorder, &mut workers);
        return Ok(workers);
    }
    if target.protocol == Protocol::Ids {
        let connections = target.connections(load.connections)?;
        id_stream::start(connections, target.is_checked, recorder, &mut workers);
        return Ok(workers);
    }
    let callers = callers(target, load).await?;
    match load.rate {
        None => {
            for (place, caller) in callers.into_iter().enumerate() {
                workers.spawn(closed_loop(caller, place, recorder.clone()));
            }
        }
        Some(rate) => {
            let recorder = recorder.clone();
            let handle = tokio::runtime::Handle::current();
            // It runs on a thread of its own, since the timers of the runtime tick in milliseconds.
            workers.spawn_blocking(move || open_loop(&callers, rate, &recorder, &handle));
        }
    }
    Ok(workers)
}
