//! Why a command is refused, as Redis clients are told: a code in the first word, which tells them whether to try
//! again, and a text.

use std::fmt;

use crate::proto::{Code, Refusal, refusal};

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The first word of the reply. Redis clients send a command again by themselves after LOADING (the node cannot
    /// answer yet) and TRYAGAIN. The numbers that nobody got are skipped then; none is given twice. Where that would be a gap, the word is ERR.
    pub word: &'static str,
    /// As gRPC calls it. The metrics count by it.
    pub code: Code,
    /// What was wrong, and what to do.
    pub why: String,
}

impl Refused {
    /// A command that makes no sense.
    pub fn invalid(why: impl fmt::Display) -> Self {
        Refused::from(refusal!(InvalidRequest, "{why}"))
    }
}

impl<E> From<E> for Refused
where
    Refusal: From<E>,
{
    fn from(error: E) -> Self {
        let refusal = Refusal::from(error);
        Refused {
            word: match refusal.code() {
                Code::Unavailable | Code::Cancelled | Code::Aborted => "LOADING",
                Code::DeadlineExceeded | Code::ResourceExhausted => "TRYAGAIN",
                _ => "ERR",
            },
            code: refusal.code(),
            why: refusal.message().to_owned(),
        }
    }
}
