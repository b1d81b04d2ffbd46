//! The books of namespaces: day by day, in total, and what is left of one that was deleted.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{
    ids::NamespaceId,
    namespace::Namespace,
    progression::Progression,
    section::{LIFTS_LIVE, SectionRecord},
    workers::{LeaseFloor, WorkerRecord},
};
use crate::planted_bugs::{Bug, is_planted};

// The books of namespaces: how many numbers were handed out and skipped on each day.
//
// What an entry does to sections is booked by the state machine, on the day of the entry's time. What the leader alone
// sees travels with its entries (`Lost`).
//
// Invariant: a namespace has the books of at most `DAYS_KEPT` days.

/// The books of so many days on which something was booked are kept. The log's entries mean something else with another
/// value: a change of it is a change of format.
pub const DAYS_KEPT: u32 = 31;

/// The milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The books of one namespace and one day, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DayBooks {
    /// At least so many numbers were handed out, as far as the log tells. Numbers that were lost on the way to a caller,
    /// and those that a raised floor passed over, are among them. Of ids that share sections, those of the id that took the
    /// greatest numbers count.
    pub handed_out: u64,
    /// At most so many were skipped because a leader ended without giving its chunks back. Booked when the section is written
    /// again.
    pub leader_change: u64,
    /// So many were skipped because a key rose to the greatest number of the section that it shares.
    pub shared_section: u64,
    /// So many were taken, and the fence failed.
    pub fence: u64,
    /// So many were taken for a message of several keys, whose deadline passed.
    pub deadline: u64,
    /// So many were passed over because a floor was raised.
    pub floor: u64,
}

/// Numbers of a namespace that were taken, and that nobody got. Only the leader sees that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Why nobody got them.
    pub by: LostBy,
    /// How many they are.
    pub numbers: u64,
}

/// Why nobody got numbers that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LostBy {
    /// The fence failed, or the call ended early for another reason, such as a handover.
    Fence,
    /// The deadline of a message of several keys passed.
    Deadline,
    /// A floor was raised above them.
    Floor,
}

/// The day of a moment, in days since 1970.
pub fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)
}

impl DayBooks {
    /// The books with what `more` has on top.
    #[must_use]
    pub fn plus(self, more: DayBooks) -> Self {
        DayBooks {
            handed_out: self.handed_out.saturating_add(more.handed_out),
            leader_change: self.leader_change.saturating_add(more.leader_change),
            shared_section: self.shared_section.saturating_add(more.shared_section),
            fence: self.fence.saturating_add(more.fence),
            deadline: self.deadline.saturating_add(more.deadline),
            floor: self.floor.saturating_add(more.floor),
        }
    }

    /// What became known when a section's record changed from `before` to `after`.
    pub fn of_change(
        before: &SectionRecord, after: &SectionRecord, progression: Progression,
    ) -> DayBooks {
        let handed_out = |record: &SectionRecord| record.handed_out(progression);
        DayBooks {
            handed_out: handed_out(after).saturating_sub(handed_out(before)),
            leader_change: after.skipped.saturating_sub(before.skipped),
            ..DayBooks::default()
        }
    }
}

impl From<Lost> for DayBooks {
    fn from(lost: Lost) -> Self {
        let mut books = DayBooks::default();
        match lost.by {
            LostBy::Fence => books.fence = lost.numbers,
            LostBy::Deadline => books.deadline = lost.numbers,
            LostBy::Floor => books.floor = lost.numbers,
        }
        books
    }
}

/// What one entry books, by namespace.
#[derive(Debug, Default)]
pub struct Booked(BTreeMap<NamespaceId, DayBooks>);

impl Booked {
    /// Books `more` of a namespace.
    pub fn add(&mut self, namespace: NamespaceId, more: DayBooks) {
        let books = self.0.entry(namespace).or_default();
        *books = books.plus(more);
    }

    /// What was booked.
    pub fn into_iter(self) -> impl Iterator<Item = (NamespaceId, DayBooks)> {
        self.0.into_iter().filter(|(_, books)| *books != DayBooks::default())
    }
}

// What is known of all sections of a namespace together, and what a namespace leaves when it is deleted.

/// What is known of all sections and worker ids of a namespace together. Kept whenever a record of them is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamespaceTotals {
    /// How many sections have a record.
    pub sections: u64,
    /// The greatest ceiling that a record ever had.
    pub ceiling_max: u64,
    /// The greatest step that a record ever had.
    pub step_max: u64,
    /// No worker id was leased beyond this.
    pub leased: LeaseFloor,
}

/// What a deleted namespace leaves under its name: no number and no lease of a worker id lay above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// No number above this one was handed out under the name. 0 if none was.
    pub floor: u64,
    /// How far the greatest step of a section reached. `ratchet recover` counts its margin in it.
    pub step_width: u64,
    /// No worker id was leased beyond this under the name.
    pub leased: LeaseFloor,
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
        self.leased = self.leased.max(lease.floor());
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
    /// What `namespace` leaves when it is deleted. `None` if no number and no worker id was ever handed out under its name.
    ///
    /// Nobody logged what the lifts after a record gave: a lift writes no section. A leader may have handed out those
    /// numbers, so they count for every section, as if each had the greatest ceiling and the greatest step.
    pub fn of(namespace: &Namespace, totals: NamespaceTotals) -> Option<Tombstone> {
        let config = &namespace.config;
        let given_width = totals.step_max.saturating_mul(config.increment);
        let lifts = match is_planted(Bug::TombstoneIgnoresLifts) {
            false => LIFTS_LIVE,
            true => 0,
        };
        let given = given_width.saturating_mul(lifts);
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
