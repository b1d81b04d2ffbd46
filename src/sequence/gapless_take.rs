//! Taking numbers of a gapless key: the log says which numbers were taken, not up to where they may be.
//!
//! The record of such a section has the last number taken as its ceiling and its floor, and a step of 0. So an epoch
//! gives nothing of it, there is nothing to checkpoint, to trim or to hand off, and a change of the leader skips
//! nothing.

use serde::{Deserialize, Serialize};

use super::{
    identifiers::{NamespaceId, SectionKey},
    progression::Range,
    request_id::PartId,
};

/// The takes of a message, or of a part of it: one entry takes all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePart {
    /// The namespace of the keys.
    pub namespace: NamespaceId,
    /// The name that the caller gave it. If that is known, the answer is the one that was given the first time.
    pub id: Option<PartId>,
    /// When the message was made, by the table's clock. A copy of it that comes when its id may be forgotten takes nothing.
    pub made_ms: Option<u64>,
    /// The checksum of all that the message takes, if it has an id and several parts. So the first part tells whether the id
    /// was used for another message, before anything is taken.
    pub whole: Option<u32>,
    /// The id of its caller, a principal or an address, if that is known.
    pub caller: Option<u64>,
    /// Its takes, in this order.
    pub takes: Vec<Take>,
}

/// Take the next numbers of a gapless key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// The key, which has a section of its own.
    pub section: SectionKey,
    /// How many numbers. At least 1.
    pub count: u64,
}

/// The answer to a part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartTaken {
    /// An answer for each take, in order.
    Taken(Vec<Taken>),
    /// As before: an earlier entry took this, under the same id.
    Repeated(Vec<Taken>),
    /// The id was used for another message; for which one, unless that took nothing.
    Reused(Option<FirstUse>),
    /// Nothing more can be remembered for the caller, or for the namespace.
    IdsFull(IdsFull),
    /// There is no gapless namespace with that id.
    NoNamespace,
    /// The message was made so long ago that its id may be forgotten, or later than now.
    Expired {
        /// When it was made.
        made_ms: u64,
        /// The reading of the table's clock.
        clock_ms: u64,
    },
}

/// As much is remembered under request ids as may be for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdsFull {
    /// For the caller, or for the namespace.
    pub of_caller: bool,
    /// How many bytes are remembered for them.
    pub held: u64,
    /// How many bytes may be remembered for all together.
    pub bytes_max: u64,
}

/// The request that a request id was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstUse {
    /// How many keys that part of the message had.
    pub keys: u64,
    /// The first of them.
    pub first: Take,
}

/// The leader's disk is low, so that keys without a record take nothing. In megabytes (2^20 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoom {
    /// How much is free.
    pub free_mb: u32,
    /// How much should be.
    pub reserve_mb: u32,
}

/// The answer to one take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taken {
    /// The numbers are the caller's.
    Range(Range),
    /// Too few numbers are left.
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The key is new, and there is no room for it.
    NoRoom(NoRoom),
    /// The key is new, and the namespace has as many keys as it may have.
    OverKeysMax {
        /// The namespace's `keys_max` when the take was applied.
        keys_max: u64,
    },
    /// The count is greater than it may be.
    TooLarge {
        /// The most that a count could be when the take was applied.
        count_max: u64,
    },
    /// An earlier try of the message took nothing of its part, why ever, and neither does any later one.
    LeftOut,
}
