//! A fault while it lasts, and the record of it.

use super::kind::Nemesis;
use crate::{
    finding::{Finding, Violation},
    network::Port,
    slow_reader::SlowReaders,
};

/// The action that ends a fault.
pub(super) enum Repair {
    /// The fault is over already.
    Nothing,
    /// Start these nodes.
    Start(Vec<Port>),
    /// Resume this paused node.
    Resume(Port),
    /// Make all links perfect.
    HealLinks,
    /// Reset the clocks of these nodes.
    ResetClocks(Vec<Port>),
    /// Make all links perfect and reset the clocks of this node.
    HealLinksAndResetClock(Port),
    /// Make the disks of these nodes work.
    ResetDisks(Vec<Port>),
    /// End these streams.
    EndSlowReaders(SlowReaders),
}

/// A fault that was injected.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Its kind.
    pub nemesis: Nemesis,
    /// When it began, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was over.
    pub to_ns: u64,
    /// The action in words, and its node.
    pub description: String,
    /// Whether it is certain that the fault happened.
    pub took_effect: bool,
    /// The product's violations of the promise.
    pub violations: Vec<Violation>,
}

/// A fault that has begun and is not repaired yet.
pub(super) struct ActiveFault {
    pub(super) description: String,
    pub(super) repair: Repair,
    pub(super) took_effect: bool,
    pub(super) violations: Vec<Violation>,
}

impl ActiveFault {
    pub(super) fn new(
        description: impl Into<String>, repair: Repair, took_effect: bool,
    ) -> ActiveFault {
        ActiveFault { description: description.into(), repair, took_effect, violations: Vec::new() }
    }

    /// A fault that cannot be injected on this machine.
    pub(super) fn impossible(reason: &str) -> ActiveFault {
        ActiveFault::new(reason, Repair::Nothing, false)
    }

    /// Adds a node's violation of the promise, if there was one.
    pub(super) fn with_violation(mut self, of_node: Option<String>) -> ActiveFault {
        self.found(Finding::Node, of_node);
        self
    }

    /// Adds a finding, if there was one.
    pub(super) fn found(&mut self, finding: Finding, what: Option<String>) {
        self.violations.extend(what.map(|what| finding.told(what)));
    }

    pub(super) fn take_repair(&mut self) -> Repair {
        std::mem::replace(&mut self.repair, Repair::Nothing)
    }
}
