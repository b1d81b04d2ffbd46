//! The totals of all sections of a namespace, and the tombstone that it leaves when it is deleted. A namespace that is created
//! under the same name begins above the tombstone.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    namespace::Namespace,
    section::{EPOCHS_LIVE, SectionRecord},
    workers::{LeaseBound, WorkerRecord},
};
use crate::planted_bugs::{Bug, is_planted};

/// The totals of all sections and worker ids of a namespace. Kept whenever a record of them is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamespaceTotals {
    /// How many sections have a record.
    pub sections: u64,
    /// The greatest ceiling that a record ever had.
    pub ceiling_max: u64,
    /// The greatest step that a record ever had.
    pub step_max: u64,
    /// No worker id was leased beyond this.
    pub leased: LeaseBound,
}

/// The mark that a deleted namespace leaves under its name: no number and no lease of a worker id lay above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// No number above this one was handed out under the name. 0 if none was.
    pub floor: u64,
    /// How far the greatest step of a section reached. `ratchet recover` counts its margin in it.
    pub step_width: u64,
    /// No worker id was leased beyond this under the name.
    pub leased: LeaseBound,
}

impl NamespaceTotals {
    /// Notes that a section's record is written in the place of `before`.
    pub fn note(&mut self, before: &SectionRecord, after: &SectionRecord) {
        self.sections += u64::from(!before.exists());
        self.ceiling_max = self.ceiling_max.max(after.max_seq);
        self.step_max = self.step_max.max(after.step);
    }

    /// Notes that a lease of a worker id is written.
    pub fn note_lease(&mut self, lease: &WorkerRecord) {
        self.leased = self.leased.max(lease.bound());
    }

    /// True if nothing was handed out: no number, and no worker id.
    pub fn is_unused(&self) -> bool {
        self.sections == 0 && self.leased.is_none()
    }

    /// True if a namespace with `keys_max` and `section_size` has as many sections as it may have.
    pub fn is_full(&self, keys_max: u64, section_size: u64) -> bool {
        self.sections.saturating_mul(section_size) >= keys_max
    }
}

impl Tombstone {
    /// The tombstone that `namespace` leaves when it is deleted. `None` if no number and no worker id was ever handed out under
    /// its name.
    ///
    /// Nobody logged what the epochs after a record gave: an epoch writes no section. A leader may have handed out those
    /// numbers, so they count for every section, as if each had the greatest ceiling and the greatest step.
    pub fn of(namespace: &Namespace, totals: NamespaceTotals) -> Option<Tombstone> {
        let config = &namespace.config;
        let given_width = totals.step_max.saturating_mul(config.increment);
        let epochs = match is_planted(Bug::TombstoneIgnoresEpochs) {
            false => EPOCHS_LIVE,
            true => 0,
        };
        let given = given_width.saturating_mul(epochs);
        let ceiling = totals.ceiling_max.saturating_add(given);
        // A floor may have been raised to anything below the next number.
        let ceiling = (ceiling.min(namespace.greatest_number()))
            .saturating_add(config.increment - 1)
            .min(namespace.max_ever);
        // Sections of gapless keys, and of keys that were only raised, have no step of their own.
        let step = totals.step_max.max(config.step_bounds().1);
        let step_width = step.saturating_mul(config.increment);
        let floor = match totals.sections {
            0 => namespace.floor,
            _ if config.gapless && is_planted(Bug::GaplessTombstoneForgets) => namespace.floor,
            _ => namespace.floor.max(ceiling),
        };
        let leased = namespace.lease_floor.max(totals.leased);
        (floor > 0 || !leased.is_none()).then_some(Tombstone { floor, step_width, leased })
    }
}

impl fmt::Display for Tombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tombstone { floor, leased, .. } = self;
        match (floor, leased.is_none()) {
            (floor, true) => write!(f, "numbers up to {floor}"),
            (0, false) => write!(f, "ids with times up to {} ms", leased.ceiling_ms),
            (floor, false) => write!(
                f,
                "numbers up to {floor}, and ids with times up to {} ms",
                leased.ceiling_ms
            ),
        }
    }
}
