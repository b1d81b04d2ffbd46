//! Worker ids: who may put one into ids, and with which times.
//!
//! Ids such as Snowflake's have a worker and a time. That time is a sequence, too: a holder may use the times of its
//! *chunk*, those above `from_ms` and up to `ceiling_ms`. A chunk belongs to one lease, for ever, since the next lease of
//! the worker id begins at its ceiling. The log's order decides that alone. A clock only says when a worker id is free.
//!
//! Invariant: the chunks of one worker id do not overlap, and the tokens of its leases grow, whatever the clocks show. The one
//! exception is a lease that an operator takes back, who answers for what was made under it.

use serde::{Deserialize, Serialize};

use super::identifiers::NamespaceId;
use crate::planted_bugs::{Bug, is_planted};

/// How many worker ids of a namespace can be leased, even if its format has room for more.
pub const WORKERS_MAX: u32 = 1_024;

/// A lease reaches at most so far above its leader's time, in milliseconds. `ratchet recover` counts on it.
pub const AHEAD_MAX_MS: u64 = 60_000;

/// The holder of a worker id whose lease was taken back.
const TAKEN_BACK: &str = "taken back";

/// The last lease of a worker id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The name that its holder gave itself, or that it was taken back; for the list of workers.
    pub holder: String,
    /// Names the lease: each one of a worker id has a greater token than the one before.
    pub token: u64,
    /// The holder uses times above this one. Milliseconds since 1970, as all times here.
    pub from_ms: u64,
    /// It uses no time above this one. At least `from_ms`.
    pub ceiling_ms: u64,
    /// When the record was written, by the clock of the leader that proposed it.
    pub written_ms: u64,
}

/// A ceiling and a token that bound the leases of some worker ids. Later leases lie above both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeaseBound {
    /// The greatest ceiling.
    pub ceiling_ms: u64,
    /// The greatest token.
    pub token: u64,
}

/// A request about a worker id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAsk {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The worker id. The leader has checked that the namespace's format has it.
    pub worker: u32,
    /// The action on it.
    pub act: WorkerAct,
}

/// An action on a worker id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerAct {
    /// Lease it, if it is free.
    Lease {
        /// The name that the holder gives itself, for the list of workers.
        holder: String,
        /// The ceiling, unless the lease begins above it.
        up_to_ms: u64,
    },
    /// Raise the ceiling of a lease. Also of one whose ceiling has passed, if nobody has leased the worker id since.
    Renew {
        /// The lease's token.
        token: u64,
        /// The new ceiling, if it is greater.
        up_to_ms: u64,
    },
    /// Lower the ceiling of a lease to what was used.
    Release {
        /// The lease's token.
        token: u64,
        /// The greatest time that the holder used, or 0.
        used_ms: u64,
    },
    /// End a lease that reaches too far ahead, because its leader's clock was wrong. Times above where it is to end may be
    /// used again, once they have come: an operator answers for that.
    TakeBack {
        /// The ceiling of that lease, so that no other one is ended.
        ceiling_ms: u64,
        /// Where it is to end. The next lease begins there.
        to_ms: u64,
    },
}

/// The answer to one ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerAnswer {
    /// The lease as it now is: leased, or renewed.
    Leased(WorkerRecord),
    /// Another lease has not ended.
    Held {
        /// Its holder.
        holder: String,
        /// Its ceiling.
        until_ms: u64,
    },
    /// The lease with that token is over: the worker id was leased again, or its namespace was created again.
    Lost,
    /// The ceiling is what was used.
    Released,
    /// There is no namespace with that id whose ids have a format: it was deleted, or replaced.
    NoNamespace,
}

impl LeaseBound {
    /// The least ceiling and token that bound the leases of both.
    #[must_use]
    pub fn max(self, other: LeaseBound) -> LeaseBound {
        LeaseBound {
            ceiling_ms: self.ceiling_ms.max(other.ceiling_ms),
            token: self.token.max(other.token),
        }
    }

    /// True if there was no lease.
    pub fn is_none(self) -> bool {
        self == LeaseBound::default()
    }
}

impl WorkerRecord {
    /// A lease of a worker id that had the record `before`, in a namespace whose leases lie above `floor`.
    ///
    /// # Errors
    /// [`WorkerAnswer::Held`] if the worker id is not free at `now_ms`.
    pub fn lease(
        before: Option<&WorkerRecord>, floor: LeaseBound, holder: &str, up_to_ms: u64, now_ms: u64,
    ) -> Result<WorkerRecord, WorkerAnswer> {
        if let Some(held) = before.filter(|before| !before.is_free(now_ms)) {
            return Err(WorkerAnswer::Held {
                holder: held.holder.clone(),
                until_ms: held.ceiling_ms,
            });
        }
        let last = before.map_or(LeaseBound::default(), WorkerRecord::bound);
        let from = match is_planted(Bug::WorkerReusedBeforeCeiling) {
            false => last.max(floor),
            true => LeaseBound { ceiling_ms: last.ceiling_ms.min(now_ms), ..last }.max(floor),
        };
        Ok(WorkerRecord {
            holder: holder.to_owned(),
            // Beyond the time, so that no token comes again where all that was known of earlier leases is forgotten, or was
            // lost: a holder of one of those cannot take this lease for its own.
            token: from.token.saturating_add(1).max(now_ms),
            from_ms: from.ceiling_ms,
            ceiling_ms: from.ceiling_ms.max(up_to_ms),
            written_ms: now_ms,
        })
    }

    /// True if another lease may follow at `now_ms`.
    pub fn is_free(&self, now_ms: u64) -> bool {
        self.ceiling_ms < now_ms || is_planted(Bug::WorkerReusedBeforeCeiling)
    }

    /// The lease with its ceiling raised to `up_to_ms`. `None` if `token` names an earlier one.
    pub fn renew(self, token: u64, up_to_ms: u64, now_ms: u64) -> Option<WorkerRecord> {
        (self.token == token).then(|| WorkerRecord {
            ceiling_ms: self.ceiling_ms.max(up_to_ms),
            written_ms: now_ms,
            ..self
        })
    }

    /// The lease with its ceiling lowered to `used_ms`, or to where it begins. `None` if `token` names an earlier one.
    pub fn release(self, token: u64, used_ms: u64, now_ms: u64) -> Option<WorkerRecord> {
        (self.token == token).then(|| WorkerRecord {
            ceiling_ms: used_ms.min(self.ceiling_ms).max(self.from_ms),
            written_ms: now_ms,
            ..self
        })
    }

    /// The lease taken back: nobody has it, and the next one begins at `to_ms`. `None` unless its ceiling is `ceiling_ms`,
    /// above that. Its token is a new one, so that its holder renews and releases nothing.
    pub fn take_back(self, ceiling_ms: u64, to_ms: u64, now_ms: u64) -> Option<WorkerRecord> {
        (self.ceiling_ms == ceiling_ms && to_ms < ceiling_ms).then(|| WorkerRecord {
            holder: TAKEN_BACK.to_owned(),
            token: self.token.saturating_add(1),
            from_ms: to_ms,
            ceiling_ms: to_ms,
            written_ms: now_ms,
        })
    }

    /// The ceiling and the token of this lease, which bound those before it, too.
    pub fn bound(&self) -> LeaseBound {
        LeaseBound { ceiling_ms: self.ceiling_ms, token: self.token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(
        before: Option<&WorkerRecord>, up_to_ms: u64, now_ms: u64,
    ) -> Result<WorkerRecord, WorkerAnswer> {
        WorkerRecord::lease(before, LeaseBound::default(), "a", up_to_ms, now_ms)
    }

    #[test]
    fn a_worker_id_is_free_once_its_ceiling_has_passed_and_not_at_the_ceiling() {
        let first = lease(None, 1_010, 1_000).unwrap();
        assert_eq!((first.token, first.from_ms, first.ceiling_ms), (1_000, 0, 1_010));
        for now_ms in [0, 1_009, 1_010] {
            let held = WorkerAnswer::Held { holder: "a".into(), until_ms: 1_010 };
            assert_eq!(lease(Some(&first), 1_020, now_ms), Err(held));
        }
        let second = lease(Some(&first), 1_021, 1_011).unwrap();
        assert_eq!((second.token, second.from_ms, second.ceiling_ms), (1_011, 1_010, 1_021));
    }

    #[test]
    fn a_lease_under_a_clock_that_was_set_back_begins_at_the_last_ceiling_and_is_empty() {
        let floor = LeaseBound { ceiling_ms: 5_000, token: 7 };
        let empty = WorkerRecord::lease(None, floor, "a", 1_010, 1_000).unwrap();
        assert_eq!((empty.from_ms, empty.ceiling_ms, empty.token), (5_000, 5_000, 1_000));
        let renewed = empty.renew(1_000, 5_010, 5_000).unwrap();
        assert_eq!((renewed.from_ms, renewed.ceiling_ms), (5_000, 5_010));
    }

    #[test]
    fn a_renewal_never_lowers_the_ceiling_and_needs_the_last_token_but_no_clock() {
        let first = lease(None, 1_010, 1_000).unwrap();
        let renewed = first.clone().renew(1_000, 1_005, 999).unwrap();
        assert_eq!(renewed.ceiling_ms, 1_010);
        // Its ceiling has long passed, and nobody has leased the worker id since.
        assert_eq!(renewed.renew(1_000, 9_010, 9_000).unwrap().ceiling_ms, 9_010);
        let second = lease(Some(&first), 1_030, 1_020).unwrap();
        assert_eq!(second.clone().renew(1_000, 1_030, 1_020), None);
        assert_eq!(second.release(1_000, 0, 1_020), None);
    }

    #[test]
    fn a_release_lowers_the_ceiling_to_what_was_used_within_the_chunk() {
        let first = lease(None, 1_010, 1_000).unwrap();
        let second = lease(Some(&first), 1_030, 1_020).unwrap();
        let released = |used_ms| second.clone().release(1_020, used_ms, 1_021).unwrap().ceiling_ms;
        assert_eq!(released(0), 1_010);
        assert_eq!(released(1_025), 1_025);
        assert_eq!(released(u64::MAX), 1_030);
    }

    #[test]
    fn a_lease_that_is_taken_back_ends_where_it_is_told_and_its_holder_has_lost_it() {
        let poisoned = lease(None, 4_000_000, 3_990_000).unwrap();
        assert_eq!(poisoned.clone().take_back(4_000_001, 2_000, 1_000), None, "another lease");
        assert_eq!(poisoned.clone().take_back(4_000_000, 4_000_000, 1_000), None, "not lower");
        let free = poisoned.clone().take_back(4_000_000, 2_000, 1_000).unwrap();
        assert_eq!(free.clone().renew(poisoned.token, 5_000_000, 1_000), None);
        assert_eq!(free.clone().release(poisoned.token, 4_000_000, 1_000), None);
        assert!(lease(Some(&free), 12_000, 2_000).is_err(), "not before its end has passed");
        let next = lease(Some(&free), 12_001, 2_001).unwrap();
        assert_eq!((next.from_ms, next.ceiling_ms), (2_000, 12_001));
        assert!(next.token > free.token && free.token > poisoned.token);
    }

    #[test]
    fn a_token_does_not_come_again_where_earlier_leases_were_forgotten() {
        let forgotten = lease(None, 1_010, 1_000).unwrap();
        let next = lease(None, 2_010, 2_000).unwrap();
        assert!(next.token > forgotten.token);
        assert_eq!(next.renew(forgotten.token, 3_000, 2_000), None);
        // Under a clock that stands still they grow as well.
        let again = lease(Some(&forgotten), 1_021, 1_011).unwrap();
        let floor = LeaseBound { token: again.token, ..LeaseBound::default() };
        let later = WorkerRecord::lease(None, floor, "a", 1_021, 1_000).unwrap();
        assert_eq!(later.token, again.token + 1);
    }
}
