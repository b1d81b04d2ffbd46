//! The log of a node: lines for standard error, which a thread of its own writes (`log/queue.rs`).
//!
//! The reader of standard error may stall: a pipe that nobody empties, a terminal that is stopped, a full disk behind a
//! supervisor. A task that waited for it would hold a thread of the runtime, and the lease would run out.
//!
//! A panic is told whatever the filter says and however many lines wait, and with a backtrace if `RUST_BACKTRACE` asks
//! for one. The process may end with it, so the thread that panics waits a moment until it is written.
//!
//! The audit is told unless the filter names it and says otherwise, and has room that other lines do not take.
//!
//! Invariant: a task that logs waits for nobody. Lines for which there is no room are dropped and counted.

mod queue;

use std::{
    backtrace::Backtrace,
    env,
    io::{self, IsTerminal, Write},
    panic::{self, PanicHookInfo},
    thread,
    time::Duration,
};

use tracing::Metadata;
use tracing_subscriber::{EnvFilter, filter::Directive, fmt::MakeWriter};

use self::queue::{LineRoom, LogQueue};
use super::{
    command_error::CommandError,
    settings::{LOG_FILTER, LogFormat},
};
use crate::{metrics::PROCESS, node::AUDIT};

/// How many bytes of lines wait for the thread at most.
const BYTES_MAX: usize = 2 << 20;
/// How long the end of a node waits until its last lines are written.
pub const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long a thread that panics waits until that is written.
const PANIC_FLUSH_MAX: Duration = Duration::from_millis(100);
/// The target of panics. The filter has no say in it.
const PANIC: &str = "ratchet::panic";

/// Logs to standard error from now on, panics as well.
///
/// # Errors
/// If the filter is malformed, the thread cannot be started, or logging is set up already.
pub fn log_to_stderr(filter: Option<&str>, format: LogFormat) -> Result<LogQueue, CommandError> {
    let lines = LogQueue::start(io::stderr(), BYTES_MAX, PROCESS.log_lines_dropped.clone());
    let lines = lines.map_err(|error| {
        CommandError::other(format!("cannot start the thread that writes the log: {error}"))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter_of(filter.unwrap_or(LOG_FILTER))?)
        .with_ansi(io::stderr().is_terminal())
        // It would print to standard error.
        .log_internal_errors(false)
        .with_writer(lines.clone());
    let set = match format {
        LogFormat::Human => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    set.map_err(|error| CommandError::other(format!("cannot set up logging: {error}")))?;
    let wants_backtrace = env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    let told = lines.clone();
    // Otherwise a thread that panics waits for standard error before the node hears of the panic.
    panic::set_hook(Box::new(move |panicked| {
        tracing::error!(target: PANIC, "{}", describe(panicked, wants_backtrace));
        told.flush(PANIC_FLUSH_MAX);
    }));
    Ok(lines)
}

/// The filter of this text, which lets panics through in any case, and the audit unless it says otherwise of it.
fn filter_of(text: &str) -> Result<EnvFilter, CommandError> {
    let filter = EnvFilter::try_new(text).map_err(|error| {
        CommandError::config(format!(
            "log is {text:?}: {error}; it takes a filter such as \"info\" or \"ratchet=debug,warn\""
        ))
    })?;
    let directive = |text: String| {
        let wrong = |error| CommandError::other(format!("the filter {text}: {error}"));
        text.parse::<Directive>().map_err(wrong)
    };
    let filter = filter.add_directive(directive(format!("{PANIC}=error"))?);
    match text.contains(AUDIT) {
        true => Ok(filter),
        false => Ok(filter.add_directive(directive(format!("{AUDIT}=info"))?)),
    }
}

/// Which thread panicked, where and why; with a backtrace if it is wanted.
fn describe(panicked: &PanicHookInfo<'_>, wants_backtrace: bool) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    match wants_backtrace {
        true => format!("thread {name:?} {panicked}\n{}", Backtrace::force_capture()),
        false => format!("thread {name:?} {panicked}"),
    }
}

/// Takes a whole line at a time: that is how `tracing_subscriber` writes.
pub struct LineWriter<'a>(&'a LogQueue, LineRoom);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, self.1);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(self, LineRoom::Shared)
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> LineWriter<'a> {
        let room = match of.target() {
            PANIC => LineRoom::Reserved,
            AUDIT => LineRoom::Audit,
            _ => LineRoom::Shared,
        };
        LineWriter(self, room)
    }
}

#[cfg(test)]
mod tests;
