//! The log of a node: lines for standard error, which a thread of its own writes.
//!
//! Whoever reads standard error may stall: a pipe that nobody empties, a terminal that is stopped, a full disk behind a
//! supervisor. A task that waited for it would hold a thread of the runtime, and the lease would run out.
//!
//! Invariant: whoever logs waits for nobody. Lines for which there is no room are dropped and counted.

use std::{
    io::{self, IsTerminal, Write},
    panic,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::{
    exit::CommandError,
    settings::{LOG_FILTER, LogFormat},
};
use crate::metrics::PROCESS;

/// How many lines wait for the thread at most: some 2 MB.
const LINES_MAX: usize = 10_000;
/// How long the end of a node waits until its last lines are written.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long the wait for room lasts, each time, while the last lines are to be written.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// Logs to standard error from now on, panics as well.
///
/// # Errors
/// If the filter is malformed, the thread cannot be started, or logging is set up already.
pub fn log_to_stderr(filter: Option<&str>, format: LogFormat) -> Result<LogLines, CommandError> {
    let filter = filter.unwrap_or(LOG_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        CommandError::config(format!(
            "log is {filter:?}: {error}; it takes a filter such as \"info\" or \"ratchet=debug,warn\""
        ))
    })?;
    let dropped = PROCESS.log_lines_dropped.clone();
    let lines = LogLines::start(io::stderr(), LINES_MAX, dropped).map_err(|error| {
        CommandError::other(format!("cannot start the thread that writes the log: {error}"))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        // It would print to standard error.
        .log_internal_errors(false)
        .with_writer(lines.clone());
    let set = match format {
        LogFormat::Human => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    set.map_err(|error| CommandError::other(format!("cannot set up logging: {error}")))?;
    // Otherwise a thread that panics waits for standard error before the node hears of the panic.
    panic::set_hook(Box::new(|panicked| {
        let thread = thread::current();
        tracing::error!("thread {:?} {panicked}", thread.name().unwrap_or("without a name"));
    }));
    Ok(lines)
}

/// Where lines of the log go to.
#[derive(Clone)]
pub struct LogLines {
    lines: SyncSender<Message>,
    dropped: Counter,
}

enum Message {
    Line(Vec<u8>),
    /// All lines before are to be written; then the sender is dropped.
    Flush(SyncSender<()>),
}

impl LogLines {
    /// Starts the thread that writes to `out`. At most `lines_max` lines wait for it; `dropped` counts the others.
    ///
    /// # Errors
    /// If the system gives no thread.
    fn start(
        out: impl Write + Send + 'static, lines_max: usize, dropped: Counter,
    ) -> io::Result<LogLines> {
        let (lines, waiting) = sync_channel(lines_max);
        let lost = dropped.clone();
        let writing = move || write_all(out, &waiting, &lost);
        thread::Builder::new().name("ratchet-stderr".to_owned()).spawn(writing)?;
        Ok(LogLines { lines, dropped })
    }

    /// Waits until the lines before this call are written, but not for long. Blocks.
    pub fn flush(&self) {
        let deadline = Instant::now() + FLUSH_MAX;
        let (done, written) = sync_channel(0);
        let mut flush = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.lines.try_send(flush) {
            if Instant::now() >= deadline {
                return;
            }
            flush = back;
            thread::sleep(FLUSH_PAUSE);
        }
        // It ends with an error in any case: once the thread drops its end, or when the time is over.
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Takes a whole line at a time: that is how `tracing_subscriber` writes.
impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Message::Line(line.to_owned())).is_err() {
            self.dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogLines {
    type Writer = LogLines;

    fn make_writer(&self) -> LogLines {
        self.clone()
    }
}

/// What the thread runs.
fn write_all(mut out: impl Write, waiting: &Receiver<Message>, dropped: &Counter) {
    while let Ok(message) = waiting.recv() {
        match message {
            Message::Line(line) => {
                if out.write_all(&line).is_err() {
                    dropped.inc();
                }
            }
            Message::Flush(done) => drop(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes each line once it is let.
    struct Stalled {
        let_go: Receiver<()>,
        lines: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if self.let_go.recv().is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.lines.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_does_not_wait_for_a_reader_that_stalls_and_lines_without_room_are_dropped_and_counted()
     {
        let lines = Arc::new(Mutex::default());
        let (go, let_go) = sync_channel(100);
        let dropped = Counter::default();
        let stalled = Stalled { let_go, lines: lines.clone() };
        let mut log = LogLines::start(stalled, 2, dropped.clone()).unwrap();
        for line in 0..20 {
            log.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        // Two wait. A third one is being written, if the thread was there in time.
        let lost = dropped.get();
        assert!((17..=18).contains(&lost), "{lost}");
        for _ in 0..20 - lost {
            go.send(()).unwrap();
        }
        log.flush();
        let written = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert!(written.starts_with("0\n1\n"), "{written}");
        assert_eq!(written.lines().count() as u64, 20 - lost);
        // A reader that is gone is no failure of whoever logs.
        drop(go);
        log.write_all(b"last\n").unwrap();
        log.flush();
        assert_eq!(dropped.get(), lost + 1);
    }

    #[test]
    fn the_end_does_not_wait_for_ever_for_a_reader_that_stalls() {
        let (_go, let_go) = sync_channel(0);
        let stalled = Stalled { let_go, lines: Arc::default() };
        let mut log = LogLines::start(stalled, 2, Counter::default()).unwrap();
        log.write_all(b"a line\n").unwrap();
        let started = Instant::now();
        log.flush();
        assert!(started.elapsed() >= FLUSH_MAX);
    }
}
