//! Why a fresh node was not met or claimed: whether to ask it again is told by this type, and not by the reason for callers.

use crate::proto::Refusal;

/// Why a fresh node was not met or claimed.
#[derive(Debug)]
pub enum NotMet {
    /// Ask again: nobody answers there yet, another one has claimed it, or it has not listened for long enough.
    NotYet(Refusal),
    /// It refuses, or is not the node that was looked for.
    Refused(Refusal),
}

impl From<Refusal> for NotMet {
    fn from(refusal: Refusal) -> Self {
        NotMet::Refused(refusal)
    }
}

impl From<NotMet> for Refusal {
    fn from(why: NotMet) -> Self {
        match why {
            NotMet::NotYet(refusal) | NotMet::Refused(refusal) => refusal,
        }
    }
}
