//! The kinds of workload.

use clap::ValueEnum;
use rand::{RngExt, rngs::StdRng};

use crate::{client::Target, history::Action};

/// The namespace whose keys have a section each.
pub const OWN: &str = "own";
/// The namespace whose keys share sections.
pub const SHARED: &str = "shared";
/// How many ids share a section of [`SHARED`].
pub const SHARED_SECTION_SIZE: u64 = 50;

/// The kinds of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// All callers want the same key.
    HotKey,
    /// Many keys with a section each, all as often.
    ManyKeys,
    /// Many keys with a section each, few of them often and most of them rarely.
    Skewed,
    /// A hundred keys in two sections.
    Sections,
    /// Ranges of up to 50 numbers.
    Ranges,
    /// Every other call reads.
    Reads,
    /// All of these by turns.
    Mixed,
}

impl Workload {
    /// For how many of its keys something must be answered, for a run to say anything of many keys.
    pub fn keys_min(self, keys: u64) -> u64 {
        match self {
            Workload::ManyKeys | Workload::Skewed => keys / 10,
            _ => 0,
        }
    }

    /// What the next call asks for, of so many keys where there are many.
    pub(super) fn draw(self, keys: u64, rng: &mut StdRng) -> (Target, Action) {
        let own = |id| Target { namespace: OWN, id };
        let one = Action::Next { count: 1 };
        match self {
            Workload::HotKey => (own(1), one),
            Workload::ManyKeys => (own(rng.random_range(1..=keys)), one),
            Workload::Skewed => {
                // The first key takes part in one of twenty calls where there are 200 000, and the
                // first hundredth of the keys in three of ten.
                let place = rng.random::<f64>().powi(4) * keys as f64;
                (own(1 + place as u64), one)
            }
            Workload::Sections => {
                let id = rng.random_range(0..2 * SHARED_SECTION_SIZE);
                let namespace = SHARED;
                (Target { namespace, id }, one)
            }
            Workload::Ranges => {
                let count = rng.random_range(1..=50);
                (own(rng.random_range(1..=5)), Action::Next { count })
            }
            Workload::Reads => {
                let action = if rng.random_bool(0.5) {
                    Action::Current
                } else {
                    one
                };
                (own(rng.random_range(1..=3)), action)
            }
            Workload::Mixed => {
                let all = [
                    Workload::HotKey,
                    Workload::ManyKeys,
                    Workload::Sections,
                    Workload::Ranges,
                    Workload::Reads,
                ];
                all[rng.random_range(0..all.len())].draw(keys, rng)
            }
        }
    }
}
