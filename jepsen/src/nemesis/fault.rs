//! A fault.

use super::kind::Nemesis;
use crate::{network::Port, slow_reader::SlowReaders};

/// What must be mended when a fault ends.
pub(crate) enum Wound {
    Healed,
    Down(Vec<Port>),
    Paused(Port),
    Links,
    Clock(Port),
    LinksAndClock(Port),
    Disk(Port),
    SlowReaders(SlowReaders),
}

/// A fault that happened.
#[derive(Debug, Clone)]
pub struct Strike {
    /// Which.
    pub nemesis: Nemesis,
    /// When it began, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was over.
    pub to_ns: u64,
    /// What was done to whom.
    pub what: String,
    /// Whether it is certain that it happened.
    pub bit: bool,
    /// What the product did that it must not; empty otherwise.
    pub broken: Option<String>,
}

/// What begins to go wrong.
pub(crate) struct Begun {
    pub(super) what: String,
    pub(super) wound: Wound,
    pub(super) bit: bool,
    pub(super) broken: Option<String>,
}

impl Begun {
    pub(super) fn new(what: impl Into<String>, wound: Wound, bit: bool) -> Begun {
        Begun {
            what: what.into(),
            wound,
            bit,
            broken: None,
        }
    }

    pub(super) fn broken(mut self, why: Option<String>) -> Begun {
        self.broken = why;
        self
    }

    pub(super) fn take_wound(&mut self) -> Wound {
        std::mem::replace(&mut self.wound, Wound::Healed)
    }
}
