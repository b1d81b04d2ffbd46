//! Lines that are logged while nobody reads, and panics.

use std::{
    process::{Command, Output},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Instant,
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use super::{queue::LINE_BYTES, *};

/// Set for the process that panics.
const PANICS: &str = "RATCHET_TEST_PANICS";

/// The output of a process that logs nothing, and panics in a thread, and in another one while that unwinds, which aborts it.
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

/// How long a flush waits for a reader that stalls.
const SHORT: Duration = Duration::from_millis(50);
/// How long it waits for one that does not.
const LONG: Duration = Duration::from_secs(300);

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
        self.lines.lock().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log with room for so many lines of ten bytes, whose reader stalls: what lets a line go, what was written, and the
/// lines that were dropped.
fn stalled(lines_max: usize) -> (LogQueue, Sender<()>, Arc<Mutex<Vec<u8>>>, Counter) {
    let (lines, dropped) = (Arc::new(Mutex::default()), Counter::default());
    let (go, let_go) = channel();
    let out = Stalled { let_go, lines: lines.clone() };
    let bytes_max = lines_max * (10 + LINE_BYTES);
    (LogQueue::start(out, bytes_max, dropped.clone()).unwrap(), go, lines, dropped)
}

fn line(number: usize) -> Vec<u8> {
    format!("{number:09}\n").into_bytes()
}

#[test]
fn who_logs_does_not_wait_for_a_reader_that_stalls_and_lines_without_room_are_dropped_and_counted()
{
    let (log, go, written, dropped) = stalled(3);
    (0..20).for_each(|number| log.push(&line(number), LineRoom::Shared));
    assert_eq!(dropped.get(), 17, "three have room, with the one that is being written");
    (0..3).for_each(|_| go.send(()).unwrap());
    log.flush(LONG);
    assert_eq!(*written.lock(), [0, 1, 2].map(line).concat());
    // A reader that is gone is no failure of the task that logs.
    drop(go);
    log.push(&line(20), LineRoom::Shared);
    log.flush(LONG);
    assert_eq!(dropped.get(), 18);
}

#[test]
fn lines_are_bounded_by_their_bytes_and_not_by_their_number() {
    let (log, _go, _, dropped) = stalled(100);
    log.push(&vec![b'.'; 100 * (10 + LINE_BYTES)], LineRoom::Shared);
    assert_eq!(dropped.get(), 1, "a line takes more than its text");
    log.push(&vec![b'.'; 90 * (10 + LINE_BYTES)], LineRoom::Shared);
    (0..10).for_each(|number| log.push(&line(number), LineRoom::Shared));
    assert_eq!(dropped.get(), 1 + 1);
}

#[test]
fn a_panic_has_room_of_its_own() {
    let (log, go, written, dropped) = stalled(3);
    (0..20).for_each(|number| log.push(&line(number), LineRoom::Shared));
    (20..40).for_each(|number| log.push(&line(number), LineRoom::Reserved));
    assert_eq!(dropped.get(), 17 + 17, "it is bounded, too");
    (0..6).for_each(|_| go.send(()).unwrap());
    log.flush(LONG);
    assert_eq!(*written.lock(), [0, 1, 2, 20, 21, 22].map(line).concat());
}

#[test]
fn the_audit_has_room_of_its_own_and_leaves_that_of_panics() {
    let (log, go, written, dropped) = stalled(4);
    (0..20).for_each(|number| log.push(&line(number), LineRoom::Shared));
    (20..40).for_each(|number| log.push(&line(number), LineRoom::Audit));
    (40..60).for_each(|number| log.push(&line(number), LineRoom::Reserved));
    assert_eq!(dropped.get(), 16 + 18 + 18);
    (0..8).for_each(|_| go.send(()).unwrap());
    log.flush(LONG);
    assert_eq!(*written.lock(), [0, 1, 2, 3, 20, 21, 40, 41].map(line).concat());
}

#[test]
fn a_filter_lets_the_audit_through_unless_it_names_it() {
    for (text, is_added) in [
        (LOG_FILTER, true),
        ("off", true),
        ("ratchet=warn", true),
        ("warn,ratchet::audit=off", false),
        ("ratchet::audit=warn", false),
    ] {
        let filter = filter_of(text).unwrap_or_else(|_| panic!("{text}")).to_string();
        assert_eq!(filter.contains("ratchet::audit=info"), is_added, "{text}: {filter}");
    }
}

#[test]
fn nobody_waits_for_ever_for_a_reader_that_stalls() {
    let (log, _go, _, _) = stalled(3);
    log.push(&line(0), LineRoom::Shared);
    let started = Instant::now();
    log.flush(SHORT);
    assert!(started.elapsed() >= SHORT);
}
