//! The log of a node: lines for standard error, which a thread of its own writes.
//!
//! Whoever reads standard error may stall: a pipe that nobody empties, a terminal that is stopped, a full disk behind a
//! supervisor. A task that waited for it would hold a thread of the runtime, and the lease would run out.
//!
//! A panic is told whatever the filter says and however many lines wait, and with a backtrace if `RUST_BACKTRACE` asks for
//! one. The process may end with it, so the thread that panics waits a moment until it is written.
//!
//! Invariant: whoever logs waits for nobody. Lines for which there is no room are dropped and counted.

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

use super::{
    exit::CommandError,
    log_queue::{LogQueue, Room},
    settings::{LOG_FILTER, LogFormat},
};
use crate::metrics::PROCESS;

/// How many bytes of lines wait for the thread at most.
const BYTES_MAX: usize = 2 << 20;
/// How long the end of a node waits until its last lines are written.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long a thread that panics waits until that is written.
const PANIC_FLUSH_MAX: Duration = Duration::from_millis(100);
/// The target of panics. The filter has no say in it.
const PANIC: &str = "ratchet::panic";

/// Logs to standard error from now on, panics as well.
///
/// # Errors
/// If the filter is malformed, the thread cannot be started, or logging is set up already.
pub fn log_to_stderr(filter: Option<&str>, format: LogFormat) -> Result<LogLines, CommandError> {
    let lines = LogQueue::start(io::stderr(), BYTES_MAX, PROCESS.log_lines_dropped.clone());
    let lines = lines.map(LogLines).map_err(|error| {
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
        told.0.flush(PANIC_FLUSH_MAX);
    }));
    Ok(lines)
}

/// The filter of this text, which lets panics through in any case.
fn filter_of(text: &str) -> Result<EnvFilter, CommandError> {
    let filter = EnvFilter::try_new(text).map_err(|error| {
        CommandError::config(format!(
            "log is {text:?}: {error}; it takes a filter such as \"info\" or \"ratchet=debug,warn\""
        ))
    })?;
    let panics = format!("{PANIC}=error")
        .parse::<Directive>()
        .map_err(|error| CommandError::other(format!("the filter of panics: {error}")))?;
    Ok(filter.add_directive(panics))
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

/// Where lines of the log go to.
#[derive(Clone)]
pub struct LogLines(LogQueue);

impl LogLines {
    /// Waits until the lines before this call are written, but not for long. Blocks.
    pub fn flush(&self) {
        self.0.flush(FLUSH_MAX);
    }
}

/// Takes a whole line at a time: that is how `tracing_subscriber` writes.
pub struct LineWriter<'a>(&'a LogQueue, Room);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, self.1);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(&self.0, Room::Shared)
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> LineWriter<'a> {
        let room = if of.target() == PANIC { Room::Reserved } else { Room::Shared };
        LineWriter(&self.0, room)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    /// Set for the process that panics.
    const PANICS: &str = "RATCHET_TEST_PANICS";

    /// What a process says that logs nothing, and panics in a thread, and in another one while that unwinds, which aborts it.
    fn panicking(backtrace: &str) -> Output {
        let test = "cli::log::tests::a_panic_is_told_whatever_the_filter_says_and_with_a_backtrace_if_it_is_wanted";
        let program = env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", test, "--nocapture"]);
        command.env(PANICS, "1").env("RUST_BACKTRACE", backtrace);
        command.output().expect("the process runs")
    }

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the second panic");
        }
    }

    fn panic_twice() {
        let _lines = log_to_stderr(Some("off"), LogFormat::Json).expect("logging is set up");
        tracing::error!("what is filtered out");
        let _again = PanicsAgain;
        panic!("the first panic");
    }

    #[test]
    fn a_panic_is_told_whatever_the_filter_says_and_with_a_backtrace_if_it_is_wanted() {
        if env::var_os(PANICS).is_some() {
            return panic_twice();
        }
        for (backtrace, has_backtrace) in [("0", false), ("1", true)] {
            let ended = panicking(backtrace);
            assert!(!ended.status.success(), "{ended:?}");
            let told = String::from_utf8_lossy(&ended.stderr);
            for panic in ["the first panic", "the second panic"] {
                let line = told.lines().find(|line| line.contains(panic)).expect(&told);
                assert!(line.starts_with(r#"{"timestamp":"#), "{line}");
                assert_eq!(line.contains("panic_twice"), has_backtrace, "{line}");
            }
            assert!(!told.contains("filtered out"), "{told}");
        }
    }
}
