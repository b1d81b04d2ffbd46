//! Machines with clocks that jump and processes that are restarted, and the verdict on their ids. Pure.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet_ids::{Format, InvalidFormat};
use serde::Serialize;

use super::generators::{Author, Process};
use crate::ids::{Checker, Distance, Maker, Rule, Said, TakenIds};

const MACHINES: u64 = 3;
/// For how long ids are made, in simulated milliseconds.
const RUN_MS: u64 = 20_000;
/// 2026-01-01T00:00:00Z: when that begins.
const START_MS: u64 = 1_767_225_600_000;
/// How far a clock may be off, in milliseconds.
const OFF_MAX_MS: i64 = 3_000;
/// A clock is set once in so many milliseconds, on average. Half of the times its machine's process is restarted, too.
const SET_EVERY_MS: u32 = 1_500;
/// A process makes so many ids in a millisecond of a busy second, one second in four; otherwise one.
const BUSY: u64 = 13;

/// The verdict on an author's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The author.
    pub name: &'static str,
    /// How many different ids there were.
    pub ids: usize,
    /// How many were made again.
    pub duplicates: u64,
    /// When the first one was made again, in simulated milliseconds.
    pub first_after_ms: Option<u64>,
}

struct Machine {
    off_ms: i64,
    starts: u64,
    process: Process,
}

/// Makes ids as an author does, and judges them.
///
/// # Errors
/// [`InvalidFormat`] if the author's format is none.
pub fn judge(author: &Author, seed: u64) -> Result<Judged, InvalidFormat> {
    let format = Format::parse(author.namespace.format)?;
    let distance = Distance { always_ms: 2 * OFF_MAX_MS.unsigned_abs(), per_second_ms: 0 };
    let mut checker = Checker::new(&[author.namespace], START_MS, distance)?;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut machines: Vec<Machine> = (0..MACHINES)
        .map(|id| Machine { off_ms: 0, starts: 0, process: Process::start(author, &format, id, 0) })
        .collect();
    let (mut count, mut first_after_ms) = (1, None);
    for run_ms in 0..RUN_MS {
        if run_ms % 1_000 == 0 {
            count = if rng.random_ratio(1, 4) { BUSY } else { 1 };
        }
        for (id, machine) in (0..).zip(&mut machines) {
            if rng.random_ratio(1, SET_EVERY_MS) {
                machine.off_ms = rng.random_range(-OFF_MAX_MS..=OFF_MAX_MS);
                if rng.random_bool(0.5) {
                    machine.starts += 1;
                    machine.process = Process::start(author, &format, id, machine.starts);
                }
            }
            let ids = machine.make(author, &format, run_ms, count);
            checker.add(&TakenIds {
                namespace: 0,
                key: (author.namespace.keys > 0).then_some(0),
                parameters: Vec::new(),
                maker: Maker::Node(id),
                process: None,
                invoked_ns: run_ms * 1_000_000,
                returned_ns: run_ms * 1_000_000 + 1,
                asked: ids.len(),
                ids,
            });
        }
        if first_after_ms.is_none() && checker.broken().contains_key(&Rule::Unique) {
            first_after_ms = Some(run_ms);
        }
    }
    Ok(Judged {
        name: author.name,
        ids: checker.ids().values().sum(),
        duplicates: checker.broken().get(&Rule::Unique).copied().unwrap_or(0),
        first_after_ms,
    })
}

impl Machine {
    /// The ids of one millisecond: fewer if the process refuses.
    fn make(&mut self, author: &Author, format: &Format, run_ms: u64, count: u64) -> Vec<Said> {
        let clock_ms = (START_MS + run_ms).saturating_add_signed(self.off_ms);
        let parameters = author.parameters(format);
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| (&name[..], *value)).collect();
        let key = (author.namespace.keys > 0).then_some(0);
        let fixed = format.fixed(&parameters, key);
        let made = (0..count).filter_map(|_| {
            let parts = self.process.next(format, clock_ms)?;
            let id = format.encode(&parts, fixed.clone().ok()?).ok()?;
            Some(Said::Number(id))
        });
        made.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::authors, *};

    #[test]
    fn every_author_but_baidu_makes_ids_twice_under_every_seed() {
        for seed in 1..4 {
            for author in authors() {
                let judged = judge(&author, seed).unwrap();
                assert!(judged.ids > 10_000, "{judged:?}");
                let is_apart = author.name == "uid-generator";
                assert_eq!(judged.duplicates == 0, is_apart, "seed {seed}: {judged:?}");
            }
        }
    }
}
