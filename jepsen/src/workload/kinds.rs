//! Which key the next call is for, and how many numbers it asks for.

use clap::ValueEnum;
use rand::{RngExt, rngs::StdRng};

use crate::{
    history::Action,
    target::{NAMED, OWN, SHARED, SHARED_SECTION_SIZE, Target},
};

/// How many numbers a call asks for at most.
pub const COUNT_MAX: u64 = 50;
/// How many neighbours of a section are asked for. The leader keeps such keys in pages, of 256 ids each, once it knows 64 of
/// a page's ids.
const DENSE_KEYS: u64 = 400;
/// How many keys of another section are asked for, and how far they lie apart: too far for a page.
const SPARSE_KEYS: u64 = 50;
const SPARSE_DISTANCE: u64 = 10;
/// How many names are asked for.
const NAMES: u64 = 30;
/// How many keys are raised.
const FLOOR_KEYS: u64 = 40;
/// How far floors are raised, more or less: most need a bump.
const FLOOR_DISTANCE: u64 = 1_000;

/// The kinds of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// All callers ask for the same key.
    HotKey,
    /// Many keys with a section each, all equally often.
    ManyKeys,
    /// Many keys with a section each, a few of them often and most of them rarely.
    Skewed,
    /// Neighbouring keys of one section, and keys that lie apart in another.
    Sections,
    /// Keys that are names.
    Names,
    /// Ranges of up to 50 numbers.
    Ranges,
    /// Every other call is a read.
    Reads,
    /// Every third call raises a key's floor, mostly above the numbers that are handed out of it.
    Floors,
    /// Ids of all formats, by callers of their own. A few others ask for one key.
    Ids,
    /// Hot-key, many-keys, sections, names, ranges and reads, drawn at random for each call.
    Mixed,
}

impl Workload {
    /// How many keys must have been answered for, if `keys` are asked for. With fewer, the run says nothing
    /// about many keys.
    pub fn keys_min(self, keys: u64) -> u64 {
        match self {
            Workload::ManyKeys | Workload::Skewed => keys / 10,
            Workload::HotKey
            | Workload::Sections
            | Workload::Names
            | Workload::Ranges
            | Workload::Reads
            | Workload::Floors
            | Workload::Ids
            | Workload::Mixed => 0,
        }
    }

    /// Whether it reads last numbers.
    pub(super) fn reads(self) -> bool {
        match self {
            Workload::Reads | Workload::Floors | Workload::Mixed => true,
            Workload::HotKey
            | Workload::ManyKeys
            | Workload::Skewed
            | Workload::Sections
            | Workload::Names
            | Workload::Ranges
            | Workload::Ids => false,
        }
    }

    /// The target and the action of the next call. `keys` is the number of keys of the workloads with many keys.
    pub(super) fn draw(self, keys: u64, rng: &mut StdRng) -> (Target, Action) {
        let own = |id| Target { namespace: OWN, id };
        let one = Action::Next { count: 1 };
        match self {
            Workload::HotKey | Workload::Ids => (own(1), one),
            Workload::ManyKeys => (own(rng.random_range(1..=keys)), one),
            Workload::Skewed => {
                // With 200 000 keys, the first key gets one of twenty calls, and the first hundredth of the
                // keys gets three of ten.
                let place = rng.random::<f64>().powi(4) * keys as f64;
                (own(1 + place as u64), one)
            }
            Workload::Sections => {
                let id = match rng.random_bool(0.5) {
                    true => rng.random_range(0..DENSE_KEYS),
                    false => {
                        SHARED_SECTION_SIZE + SPARSE_DISTANCE * rng.random_range(0..SPARSE_KEYS)
                    }
                };
                let namespace = SHARED;
                (Target { namespace, id }, one)
            }
            Workload::Names => {
                let id = rng.random_range(0..NAMES);
                (Target { namespace: NAMED, id }, one)
            }
            Workload::Ranges => {
                let count = rng.random_range(1..=COUNT_MAX);
                (own(rng.random_range(1..=5)), Action::Next { count })
            }
            Workload::Reads => {
                let action = if rng.random_bool(0.5) { Action::Current } else { one };
                let target = match rng.random_bool(0.3) {
                    true => Workload::Sections.draw(keys, rng).0,
                    false => own(rng.random_range(1..=3)),
                };
                (target, action)
            }
            Workload::Floors => {
                let action = match rng.random_range(0..6) {
                    // The caller adds this distance to the last number that it knows.
                    0..2 => Action::Raise { floor: rng.random_range(1..=3 * FLOOR_DISTANCE) },
                    2 => Action::Current,
                    _ => one,
                };
                (own(rng.random_range(1..=FLOOR_KEYS)), action)
            }
            Workload::Mixed => {
                let all = [
                    Workload::HotKey,
                    Workload::ManyKeys,
                    Workload::Sections,
                    Workload::Names,
                    Workload::Ranges,
                    Workload::Reads,
                ];
                all[rng.random_range(0..all.len())].draw(keys, rng)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_workloads_that_read_are_those_that_draw_reads() {
        for workload in Workload::value_variants() {
            let mut rng = StdRng::seed_from_u64(1);
            let mut drawn = (0..1_000).map(|_| workload.draw(100, &mut rng).1);
            let draws_reads = drawn.any(|action| action == Action::Current);
            assert_eq!(workload.reads(), draws_reads, "{workload:?}");
        }
    }
}
