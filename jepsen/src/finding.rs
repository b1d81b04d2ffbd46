//! The ways in which the promise can be broken, and their descriptions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way in which the promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Numbers came twice, or not in order.
    Order,
    /// A read of a healed cluster failed, or lay below an earlier answer.
    FinalRead,
    /// More numbers of a key were skipped than may be.
    Gap,
    /// The nodes' accounts or counters have other numbers than callers saw.
    Accounting,
    /// An export lacks numbers that were answered.
    Export,
    /// A task of a node panicked.
    Panic,
    /// Two nodes said that they lead one term.
    TwoLeaders,
    /// Gapless numbers came twice, or some are missing.
    Gapless,
    /// Ids came twice, or do not fit their formats.
    Ids,
    /// Numbers did not flow for too long.
    Silence,
    /// The leadership changed although that did not help, or did not change where it had to.
    Leadership,
    /// A node did not fulfil a duty, such as to come back or to stop.
    Node,
}

/// How the promise was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The kind of the violation.
    pub finding: Finding,
    /// The violation in words.
    pub text: String,
}

impl Finding {
    /// The violation in which this was found, in words.
    pub fn told(self, text: impl Into<String>) -> Violation {
        Violation { finding: self, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
