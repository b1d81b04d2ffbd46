//! The lines that wait for the thread that writes the log.
//!
//! Invariant: whoever adds a line waits for nobody, and the lines that wait have a bound in bytes.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::counter::Counter;

/// What a line takes beside its text.
const LINE_BYTES: usize = 32;

/// Which room a line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// That of all lines.
    Shared,
    /// That, and as much again which other lines do not take.
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
    pub fn push(&self, line: &[u8], room: Room) {
        let shared = &self.0.0;
        let bytes_max = match room {
            Room::Shared => shared.bytes_max,
            Room::Reserved => 2 * shared.bytes_max,
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
    /// What the thread runs.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// How long a flush waits for a reader that stalls.
    const SHORT: Duration = Duration::from_millis(50);
    /// How long it waits for one that does not.
    const LONG: Duration = Duration::from_secs(30);

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
        (0..20).for_each(|number| log.push(&line(number), Room::Shared));
        assert_eq!(dropped.get(), 17, "three have room, with the one that is being written");
        (0..3).for_each(|_| go.send(()).unwrap());
        log.flush(LONG);
        assert_eq!(*written.lock(), [0, 1, 2].map(line).concat());
        // A reader that is gone is no failure of whoever logs.
        drop(go);
        log.push(&line(20), Room::Shared);
        log.flush(LONG);
        assert_eq!(dropped.get(), 18);
    }

    #[test]
    fn lines_are_bounded_by_their_bytes_and_not_by_their_number() {
        let (log, _go, _, dropped) = stalled(100);
        log.push(&vec![b'.'; 100 * (10 + LINE_BYTES)], Room::Shared);
        assert_eq!(dropped.get(), 1, "a line takes more than its text");
        log.push(&vec![b'.'; 90 * (10 + LINE_BYTES)], Room::Shared);
        (0..10).for_each(|number| log.push(&line(number), Room::Shared));
        assert_eq!(dropped.get(), 1 + 1);
    }

    #[test]
    fn a_panic_has_room_of_its_own() {
        let (log, go, written, dropped) = stalled(3);
        (0..20).for_each(|number| log.push(&line(number), Room::Shared));
        (20..40).for_each(|number| log.push(&line(number), Room::Reserved));
        assert_eq!(dropped.get(), 17 + 17, "it is bounded, too");
        (0..6).for_each(|_| go.send(()).unwrap());
        log.flush(LONG);
        assert_eq!(*written.lock(), [0, 1, 2, 20, 21, 22].map(line).concat());
    }

    #[test]
    fn nobody_waits_for_ever_for_a_reader_that_stalls() {
        let (log, _go, _, _) = stalled(3);
        log.push(&line(0), Room::Shared);
        let started = Instant::now();
        log.flush(SHORT);
        assert!(started.elapsed() >= SHORT);
    }
}
