//! The history: each operation with its process, its action, its times and its answer.
//!
//! Invariant: an operation's times come from one monotonic clock, and a process never has two
//! operations under way. A process whose operation has an unknown outcome retires.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

/// An action that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Numbers.
    Next {
        /// How many, at least 1.
        count: u64,
    },
    /// The last number handed out: an allocation of nothing.
    Current,
    /// Makes all later numbers greater than a floor; answers the new floor.
    Raise {
        /// The floor.
        floor: u64,
    },
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered.
    Ok,
    /// It certainly did not happen.
    Fail,
    /// It may have happened, or may still happen.
    Info,
}

/// An interface through which a caller asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// gRPC: a call for each number or range.
    Unary,
    /// gRPC: a stream, with messages for several keys.
    Stream,
    /// The product's own client, which may try many times on the way.
    ProductClient,
    /// HTTP: a request for each number or range.
    Http,
    /// The protocol of Redis clients: pipelines for several keys.
    Resp,
}

impl Interface {
    /// Its name in histories and reports.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Unary => "unary",
            Interface::Stream => "stream",
            Interface::ProductClient => "product-client",
            Interface::Http => "http",
            Interface::Resp => "resp",
        }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The process that asked.
    pub process: u64,
    /// The key, its namespace included.
    pub key: String,
    /// The action that was asked for.
    pub action: Action,
    /// When it was asked, in nanoseconds since the start of the run.
    pub invoked_ns: u64,
    /// When the answer arrived; `None` if none did.
    pub returned_ns: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// `Next`: the first number. `Current` and `Raise`: the answer.
    pub first: u64,
    /// `Next`: the last number. `Current` and `Raise`: the answer.
    pub last: u64,
    /// The node that was asked.
    pub node: u64,
    /// The interface through which it was asked.
    pub interface: Interface,
    /// The text of the error; empty for an answer.
    pub note: String,
}

impl Op {
    /// Whether it was answered.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok && self.returned_ns.is_some()
    }

    /// When it returned; `u64::MAX` if it did not.
    pub fn returned(&self) -> u64 {
        self.returned_ns.unwrap_or(u64::MAX)
    }
}

/// All operations of a run, in no particular order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The operations.
    pub ops: Vec<Op>,
}

impl History {
    /// Adds an operation.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// The number of keys that have an answered operation.
    pub fn keys(&self) -> usize {
        let keys: HashSet<&str> = self.answered().map(|op| op.key.as_str()).collect();
        keys.len()
    }

    /// How many operations were answered through each interface that was used.
    pub fn answered_through(&self) -> BTreeMap<Interface, u64> {
        let mut answered = BTreeMap::new();
        for op in &self.ops {
            *answered.entry(op.interface).or_default() += u64::from(op.is_ok());
        }
        answered
    }

    /// The answered operations.
    pub fn answered(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().filter(|op| op.is_ok())
    }
}

/// The longest time without an answer between `from_ns` and `to_ns`, in nanoseconds.
pub fn longest_silence(answered: impl Iterator<Item = u64>, from_ns: u64, to_ns: u64) -> u64 {
    let (begun, ended) = longest_silence_of(answered, from_ns, to_ns);
    ended - begun
}

/// When the longest time without an answer between `from_ns` and `to_ns` began and ended.
pub fn longest_silence_of(
    answered: impl Iterator<Item = u64>, from_ns: u64, to_ns: u64,
) -> (u64, u64) {
    let mut moments: Vec<u64> = answered
        .filter(|moment| (from_ns..=to_ns).contains(moment))
        .chain([from_ns, to_ns])
        .collect();
    moments.sort_unstable();
    let silences = moments.windows(2).map(|pair| (pair[0], pair[1]));
    silences.max_by_key(|(begun, ended)| ended - begun).unwrap_or((from_ns, from_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_begins_and_ends_with_an_answer_or_with_the_time_that_is_looked_at() {
        let silence = |answered: &[u64]| longest_silence(answered.iter().copied(), 100, 200);
        assert_eq!(silence(&[90, 130, 110, 195, 300]), 65);
        assert_eq!(silence(&[150, 155]), 50);
        assert_eq!(silence(&[101]), 99);
        assert_eq!(silence(&[]), 100);
        let answered = [130, 110, 195].into_iter();
        assert_eq!(longest_silence_of(answered, 100, 200), (130, 195));
    }
}
