//! The refusal of a command, as Redis clients are told of it: a code in the first word, which tells them whether to try again,
//! and a text.

use std::fmt;

use crate::proto::{Code, Refusal, refusal};

/// After this, clients of Redis clusters send a command again by themselves.
pub(super) const AGAIN: &str = "TRYAGAIN";

/// After this, clients of Redis clusters look first which nodes are in the cluster, and may then ask another node. LOADING
/// would say the same, but after it most of them give up.
pub(super) const ELSEWHERE: &str = "CLUSTERDOWN";

/// The words of Redis about a key that may not be used so.
const NO_KEY: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments:";

/// The reason why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The first word of the reply. After TRYAGAIN and CLUSTERDOWN some clients send a command again by themselves. Numbers of
    /// the first try that nobody got are skipped then; none is given twice. In a namespace without gaps the word is ERR
    /// instead.
    pub word: &'static str,
    /// The code that gRPC has for it. The metrics count by it.
    pub code: Code,
    /// The text: what was wrong, and what to do.
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
                Code::Unavailable => ELSEWHERE,
                Code::Cancelled
                | Code::Aborted
                | Code::DeadlineExceeded
                | Code::ResourceExhausted => AGAIN,
                // The text of Redis comes first, and then this node's own.
                Code::Unauthenticated => "NOAUTH Authentication required.",
                Code::PermissionDenied => NO_KEY,
                _ => "ERR",
            },
            code: refusal.code(),
            why: refusal.message().to_owned(),
        }
    }
}
