//! Ids that were taken. Pure.

use std::fmt;

/// A maker of ids, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Maker {
    /// The node that was asked.
    Node(u64),
    /// An `Ids` of the product's client. Each one has a number of its own.
    Application(u64),
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Maker::Node(id) => write!(f, "node {id}"),
            Maker::Application(number) => write!(f, "application {number}"),
        }
    }
}

/// An id, as it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The id as a number.
    Number(u128),
    /// The id as its format writes it.
    Text(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Number(number) => number.fmt(f),
            Said::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// The ids that one call took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenIds {
    /// The place of its namespace in the checker's list.
    pub namespace: usize,
    /// The key, where ids have one.
    pub key: Option<u64>,
    /// The values of the namespace's parameters, in their order.
    pub parameters: Vec<u64>,
    /// The maker of the ids, where they have a worker; otherwise the node that was asked.
    pub maker: Maker,
    /// Which process of the node made them, if that is certain.
    pub process: Option<u64>,
    /// When they were asked for, in nanoseconds since the start of the run.
    pub invoked_ns: u64,
    /// When they arrived.
    pub returned_ns: u64,
    /// How many were asked for. A call that failed may have got fewer: then that is how many it got.
    pub asked: usize,
    /// The ids, in the order of the answer.
    pub ids: Vec<Said>,
}
