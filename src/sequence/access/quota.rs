//! Quotas: how much a principal may use.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

use super::pattern::NamespacePattern;

/// How much all calls of a principal may use together, of the namespaces that fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quota {
    /// The namespaces, which are counted together.
    pub namespaces: NamespacePattern,
    /// How many calls each node takes in a second; at most [`PER_SECOND_MAX`](crate::sequence::PER_SECOND_MAX).
    pub calls_per_second: Option<NonZeroU32>,
    /// How many numbers may be asked for in a second, and at once; at most [`PER_SECOND_MAX`](crate::sequence::PER_SECOND_MAX).
    pub numbers_per_second: Option<NonZeroU32>,
    /// How many numbers calls that failed may have taken in a day, as far as a node knows.
    pub burnt_per_day: Option<NonZeroU64>,
}
