//! The accounts of namespaces: how many numbers were handed out and skipped on each day.
//!
//! The state machine enters the effect of an entry on sections in the accounts of the day of the entry's time. Skipped
//! numbers that the leader alone sees travel with its entries (`Skipped`).
//!
//! Invariant: a namespace has the accounts of at most `DAYS_KEPT` days.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{identifiers::NamespaceId, progression::Progression, section::SectionRecord};

/// The accounts of so many days are kept; a day on which nothing happened has none. The log's entries mean something
/// else with another value: a change of it is a change of format.
pub const DAYS_KEPT: u32 = 31;

/// The milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The accounts of one namespace and one day, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DayAccounts {
    /// At least so many numbers were handed out, as far as the log tells. Numbers that were burnt, and those that a raised
    /// floor passed over, are among them. Of ids that share sections, those of the id that took the
    /// greatest numbers count.
    pub handed_out: u64,
    /// How many were skipped, at most, because a leader ended without returning its chunks. Entered when the section is
    /// written again.
    pub leader_change: u64,
    /// How many were skipped because a key rose to the greatest number of the section that it shares.
    pub shared_section: u64,
    /// How many were taken before the fence failed.
    pub fence: u64,
    /// How many were taken for a message of several keys, whose deadline passed.
    pub deadline: u64,
    /// How many were passed over because a floor was raised.
    pub floor: u64,
}

/// Skipped numbers of a namespace, of which the leader alone knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Why they were skipped.
    pub by: SkippedBy,
    /// How many they are.
    pub numbers: u64,
}

/// Why numbers were skipped, where the leader alone sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkippedBy {
    /// They were taken, and the fence failed, or the call ended early for another reason, such as a handover.
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

impl DayAccounts {
    /// The sum of both accounts.
    #[must_use]
    pub fn plus(self, more: DayAccounts) -> Self {
        DayAccounts {
            handed_out: self.handed_out.saturating_add(more.handed_out),
            leader_change: self.leader_change.saturating_add(more.leader_change),
            shared_section: self.shared_section.saturating_add(more.shared_section),
            fence: self.fence.saturating_add(more.fence),
            deadline: self.deadline.saturating_add(more.deadline),
            floor: self.floor.saturating_add(more.floor),
        }
    }

    /// The accounts that became known when a section's record changed from `before` to `after`.
    pub fn of_change(
        before: &SectionRecord, after: &SectionRecord, progression: Progression,
    ) -> DayAccounts {
        let handed_out = |record: &SectionRecord| record.handed_out(progression);
        DayAccounts {
            handed_out: handed_out(after).saturating_sub(handed_out(before)),
            leader_change: after.skipped.saturating_sub(before.skipped),
            ..DayAccounts::default()
        }
    }
}

impl From<Skipped> for DayAccounts {
    fn from(skipped: Skipped) -> Self {
        let mut accounts = DayAccounts::default();
        match skipped.by {
            SkippedBy::Fence => accounts.fence = skipped.numbers,
            SkippedBy::Deadline => accounts.deadline = skipped.numbers,
            SkippedBy::Floor => accounts.floor = skipped.numbers,
        }
        accounts
    }
}

/// The accounts of one entry, by namespace.
#[derive(Debug, Default)]
pub struct EntryAccounts(BTreeMap<NamespaceId, DayAccounts>);

impl EntryAccounts {
    /// Adds `more` to the accounts of a namespace.
    pub fn add(&mut self, namespace: NamespaceId, more: DayAccounts) {
        let accounts = self.0.entry(namespace).or_default();
        *accounts = accounts.plus(more);
    }

    /// The accounts of each namespace that has some.
    pub fn into_iter(self) -> impl Iterator<Item = (NamespaceId, DayAccounts)> {
        self.0.into_iter().filter(|(_, accounts)| *accounts != DayAccounts::default())
    }
}
