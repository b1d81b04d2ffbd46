//! How the authors of the formats make ids. Pure.
//!
//! - *Twitter, Leaf.* A counter for each millisecond. A clock that shows less than the last time that was used is refused, by
//!   comparison with memory. (Leaf also compares with ZooKeeper at the start, where it writes the time every three seconds.)
//! - *Baidu.* The same for seconds. Each start of a process takes a new worker id from a database, so that nothing is
//!   forgotten.
//! - *Yuewen.* One counter goes round, at any time.
//! - *RongCloud.* The same, on each server; nothing in an id says which server made it.

use ratchet_ids::{Format, Parts};

use crate::ids::IdNamespace;

/// An author's way to make ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Author {
    /// The author's name.
    pub name: &'static str,
    /// The format, as the checker knows it.
    pub namespace: IdNamespace,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A counter for each unit of time; a clock that went back is refused.
    Compares {
        /// Each start takes a new worker id, of which there are so many.
        new_worker: bool,
    },
    /// A counter that goes round.
    GoesRound,
}

/// All of them.
pub fn authors() -> [Author; 6] {
    let author = |name, format, keys, kind| Author {
        name,
        namespace: IdNamespace { name, format, parameters: &[], keys, count_max: 1 },
        kind,
    };
    let compares = Kind::Compares { new_worker: false };
    let new_worker = Kind::Compares { new_worker: true };
    [
        author("snowflake", "snowflake", 0, compares),
        author("uid-generator", "uid-generator epoch=2024-06-01", 0, new_worker),
        author("yuewen-route", "yuewen-route", 0, Kind::GoesRound),
        author("yuewen-published", "yuewen-published", 0, Kind::GoesRound),
        author("yuewen-exception", "yuewen-exception", 0, Kind::GoesRound),
        author("rongcloud", "rongcloud", 1, Kind::GoesRound),
    ]
}

impl Author {
    /// The values of the format's parameters in all ids: 0.
    pub fn parameters(&self, format: &Format) -> Vec<(String, u64)> {
        format.parameters().map(|name| (name.to_owned(), 0)).collect()
    }
}

/// A process that makes ids. A new one knows nothing of those before it.
#[derive(Debug, Clone)]
pub struct Process {
    kind: Kind,
    worker: u64,
    counter: u64,
    last_tick: u64,
}

impl Process {
    /// The process of a machine, which was started so often before.
    pub fn start(author: &Author, format: &Format, machine: u64, starts: u64) -> Process {
        let worker = match author.kind {
            Kind::Compares { new_worker: true } => machine + 100 * starts,
            _ => machine,
        };
        Process {
            kind: author.kind,
            worker: worker.min(format.workers_max().saturating_sub(1)),
            counter: 0,
            last_tick: 0,
        }
    }

    /// The parts of the next id. `None` if it is refused, or its time is used up.
    pub fn next(&mut self, format: &Format, clock_ms: u64) -> Option<Parts> {
        let tick = clock_ms / format.tick_ms();
        match self.kind {
            Kind::GoesRound => self.counter = (self.counter + 1) % format.capacity(),
            Kind::Compares { .. } if tick < self.last_tick => return None,
            Kind::Compares { .. } if tick > self.last_tick => self.counter = 0,
            Kind::Compares { .. } if self.counter + 1 == format.capacity() => return None,
            Kind::Compares { .. } => self.counter += 1,
        }
        self.last_tick = tick;
        Some(Parts { time_ms: clock_ms, worker: self.worker, sequence: self.counter, random: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_767_225_600_000;

    fn process(name: &str) -> (Author, Format, Process) {
        let author = authors().into_iter().find(|author| author.name == name);
        let author = author.unwrap();
        let format = Format::parse(author.namespace.format).unwrap();
        let process = Process::start(&author, &format, 3, 0);
        (author, format, process)
    }

    #[test]
    fn twitters_process_refuses_a_clock_that_went_back_and_its_successor_repeats_ids() {
        let (author, format, mut process) = process("snowflake");
        let first = process.next(&format, NOW_MS);
        assert!(first.is_some());
        assert_eq!(process.next(&format, NOW_MS - 1), None);
        let mut again = Process::start(&author, &format, 3, 1);
        assert_eq!(again.next(&format, NOW_MS), first);
    }

    #[test]
    fn baidus_process_has_a_new_worker_id_after_each_start() {
        let (author, format, mut process) = process("uid-generator");
        let mut again = Process::start(&author, &format, 3, 1);
        assert_ne!(process.next(&format, NOW_MS), again.next(&format, NOW_MS));
    }

    #[test]
    fn yuewens_counter_goes_round_within_a_second() {
        let (_, format, mut process) = process("yuewen-published");
        let first = process.next(&format, NOW_MS);
        let later = (0..10_000).map(|_| process.next(&format, NOW_MS));
        assert_eq!(later.last().unwrap(), first);
    }
}
