//! A call, as the log and traces tell it: its method, its namespace, and how many keys it has. The keys themselves are told to
//! nobody.

use std::fmt;

use crate::{
    metrics::Label,
    proto::{Code, Refusal, name_of_reason, v1::Reason},
};

/// The subject of a call. It has no keys: they are their callers' business.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Service and method.
    pub method: &'static str,
    /// The name of the namespace that it is about, if it is about one.
    pub namespace: Option<&'a str>,
    /// How many keys it has.
    pub keys: usize,
    /// Whether a peer has forwarded it.
    pub forwarded_here: bool,
}

/// How many characters of a namespace's name are told: more has none that exists.
const NAME_CHARS_MAX: usize = 64;

impl About<'_> {
    /// The name of the namespace, or the beginning of what a caller takes for one.
    pub fn namespace(&self) -> Option<String> {
        self.namespace.map(|name| name.chars().take(NAME_CHARS_MAX).collect())
    }
}

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallEnd {
    /// Its caller did not wait for it.
    #[default]
    Left,
    /// It was answered.
    Answered,
    /// It was refused.
    Refused(Reason, Code),
    /// A peer was told that another node leads.
    NotLeader,
    /// The leader was asked, and gave no answer.
    Lost,
}

impl From<&Refusal> for CallEnd {
    fn from(refusal: &Refusal) -> Self {
        CallEnd::Refused(refusal.reason(), refusal.code())
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallEnd::Left => f.write_str("CALLER_LEFT (CANCELLED)"),
            CallEnd::Answered => f.write_str("ok"),
            CallEnd::Refused(reason, code) => {
                write!(f, "{} ({})", name_of_reason(*reason), Code::VALUES[code.place()])
            }
            CallEnd::NotLeader => f.write_str("another node leads"),
            CallEnd::Lost => f.write_str("no answer"),
        }
    }
}
