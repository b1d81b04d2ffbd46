//! The ledger of a set: which term may write sections, how many epochs have begun, and how the last writer ended.
//!
//! An *epoch* begins with a term's first entry, and lasts until the next one begins: for that term, and for those that
//! take over, one from the other. The chunks of the set's sections belong to epochs.
//!
//! Invariant: a term writes sections only between its first entry, which begins an epoch or takes over, and its
//! last entry, or the first entry of the next term that has one.

use serde::{Deserialize, Serialize};

use super::identifiers::NodeId;

/// The ledger of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// How many epochs count. The number of one that was returned is used again.
    pub epoch: u64,
    /// The term that began an epoch or took over last. 0 if none did.
    pub writer: u64,
    /// How the writer ended, if it has logged its last entry.
    pub end: Option<TermEnd>,
}

/// The last entry of a term: the memory is handed off to a successor, or the epoch is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TermEnd {
    /// The term hands its memory off, which it has sent to one node. All chunks of the term are that node's.
    HandOff {
        /// The node that was sent the memory.
        successor: NodeId,
        /// Identifies the memory that was sent.
        digest: MemoryDigest,
    },
    /// The term returns its epoch: it has trimmed every section that it touched. The chunks of the others are unused, so that
    /// the next epoch may give them again.
    Return,
}

/// Identifies a memory that was sent from node to node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryDigest {
    /// How many parts it had.
    pub parts: u64,
    /// The CRC-32 of what identifies the term's memory, and of all parts, one after the other.
    pub checksum: u32,
}

/// Why an entry of a term was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LedgerRefused {
    /// The term has begun an epoch or taken over before.
    #[error("term {0} holds the chunks already")]
    HoldsAlready(u64),
    /// Another term began an epoch or took over last, or none did.
    #[error("term {term} may not write: the chunks belong to term {writer} (0: to none)")]
    NotWriter {
        /// The term of the entry.
        term: u64,
        /// The term that holds the chunks. 0 for none.
        writer: u64,
    },
    /// The term has logged its last entry.
    #[error("term {0} has logged its last entry")]
    Ended(u64),
    /// Nothing was handed off to this node, another memory was, or an epoch came between.
    #[error("node {0} is not the successor of the memory that it named")]
    NotSuccessor(NodeId),
}

impl Ledger {
    /// Gives `term` a chunk of every live section. Returns the number of its epoch.
    ///
    /// # Errors
    /// [`LedgerRefused::HoldsAlready`] if the term has begun an epoch or taken over before.
    pub fn begin_epoch(&mut self, term: u64) -> Result<u64, LedgerRefused> {
        if self.writer == term {
            return Err(LedgerRefused::HoldsAlready(term));
        }
        match self.end.take() {
            // The last epoch was returned.
            Some(TermEnd::Return) => {}
            Some(TermEnd::HandOff { .. }) | None => self.epoch += 1,
        }
        self.writer = term;
        Ok(self.epoch)
    }

    /// Gives `term`, led by `successor`, the chunks that were handed off to that node. Returns the number of the epoch
    /// that goes on.
    ///
    /// # Errors
    /// [`LedgerRefused::NotSuccessor`] if the last writer did not hand this memory off to this node.
    pub fn take_over(
        &mut self, term: u64, successor: NodeId, digest: MemoryDigest,
    ) -> Result<u64, LedgerRefused> {
        if self.end != Some(TermEnd::HandOff { successor, digest }) {
            return Err(LedgerRefused::NotSuccessor(successor));
        }
        self.end = None;
        self.writer = term;
        Ok(self.epoch)
    }

    /// Logs the last entry of `term`: it writes nothing any more.
    ///
    /// # Errors
    /// [`LedgerRefused`] if the term may not write sections.
    pub fn end_term(&mut self, term: u64, end: TermEnd) -> Result<(), LedgerRefused> {
        self.check_writer(term)?;
        self.end = Some(end);
        Ok(())
    }

    /// Checks that `term` may write sections.
    ///
    /// # Errors
    /// [`LedgerRefused`] if it has neither begun an epoch nor taken over, a later term has, or it has logged its last
    /// entry.
    pub fn check_writer(&self, term: u64) -> Result<(), LedgerRefused> {
        if self.writer != term {
            let writer = self.writer;
            return Err(LedgerRefused::NotWriter { term, writer });
        }
        match self.end {
            None => Ok(()),
            Some(_) => Err(LedgerRefused::Ended(term)),
        }
    }
}

#[cfg(test)]
mod tests;
