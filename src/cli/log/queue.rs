//! The lines that wait for the thread that writes the log.
//!
//! Invariant: a task that adds a line waits for nobody, and the lines that wait have a bound in bytes.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::counter::Counter;

/// The memory of a line beside its text.
pub(super) const LINE_BYTES: usize = 32;

/// Which room a line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRoom {
    /// The room of all lines.
    Shared,
    /// The room of all lines, and half as much that other lines do not take.
    Audit,
    /// The room of all lines, and as much again: lines of the audit leave half of that free.
    Reserved,
}

/// The lines. Clones have the same.
#[derive(Clone)]
pub struct LogQueue(Arc<Adding>);

/// Where lines are added. The thread ends once this is dropped, and the lines are written.
struct Adding(Arc<Shared>);

struct Shared {
    lines: Mutex<Lines>,
    /// A line was added, or none will be any more.
    added: Condvar,
    /// A line was written.
    written: Condvar,
    bytes_max: usize,
    /// Counts the lines that found no room, or could not be written.
    dropped: Counter,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    /// How much those take, and the one that is being written.
    bytes: usize,
    /// How many lines were added, ever, and how many of them are done.
    added: u64,
    done: u64,
    is_closed: bool,
}

impl LogQueue {
    /// Starts the thread that writes to `out`. At most `bytes_max` of lines wait for it; `dropped` counts the others.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        out: impl Write + Send + 'static, bytes_max: usize, dropped: Counter,
    ) -> io::Result<LogQueue> {
        let shared = Arc::new(Shared {
            lines: Mutex::default(),
            added: Condvar::new(),
            written: Condvar::new(),
            bytes_max,
            dropped,
        });
        let writing = shared.clone();
        let thread = thread::Builder::new().name("ratchet-stderr".to_owned());
        thread.spawn(move || writing.write_all(out))?;
        Ok(LogQueue(Arc::new(Adding(shared))))
    }

    /// Adds a line, if there is room for it.
    pub fn push(&self, line: &[u8], room: LineRoom) {
        let shared = &self.0.0;
        let bytes_max = match room {
            LineRoom::Shared => shared.bytes_max,
            LineRoom::Audit => shared.bytes_max + shared.bytes_max / 2,
            LineRoom::Reserved => 2 * shared.bytes_max,
        };
        let mut lines = shared.lines.lock();
        let bytes = lines.bytes + line.len() + LINE_BYTES;
        if bytes > bytes_max {
            drop(lines);
            shared.dropped.inc();
            return;
        }
        lines.bytes = bytes;
        lines.added += 1;
        lines.waiting.push_back(line.to_owned());
        drop(lines);
        shared.added.notify_one();
    }

    /// Waits until the lines that are there are written, for at most `limit`. Blocks.
    pub fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut lines = self.0.0.lines.lock();
        let last = lines.added;
        while lines.done < last {
            if self.0.0.written.wait_until(&mut lines, deadline).timed_out() {
                return;
            }
        }
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        self.0.lines.lock().is_closed = true;
        self.0.added.notify_one();
    }
}

impl Shared {
    /// Writes all lines, in the thread.
    fn write_all(&self, mut out: impl Write) {
        while let Some(line) = self.next() {
            if out.write_all(&line).is_err() {
                self.dropped.inc();
            }
            let mut lines = self.lines.lock();
            lines.bytes -= line.len() + LINE_BYTES;
            lines.done += 1;
            drop(lines);
            self.written.notify_all();
        }
    }

    /// The next line, once there is one; `None` if there will be none.
    fn next(&self) -> Option<Vec<u8>> {
        let mut lines = self.lines.lock();
        loop {
            if let Some(line) = lines.waiting.pop_front() {
                return Some(line);
            }
            if lines.is_closed {
                return None;
            }
            self.added.wait(&mut lines);
        }
    }
}
