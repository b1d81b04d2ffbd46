//! The ledger of a set: which term may write sections, how many epochs have begun, and what the last writer left.
//!
//! An *epoch* begins with a term's first entry, and lasts until the next one begins: for that term, and for those that
//! take over from it. The chunks of the set's sections belong to epochs.
//!
//! Invariant: a term writes sections only between its own epoch or hand-off and its hand-off, or the next term's
//! epoch or hand-off.

use serde::{Deserialize, Serialize};

use super::ids::NodeId;

/// The ledger of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// How many epochs count. One that was given back is given again under the same number.
    pub epoch: u64,
    /// The term that began an epoch or took over last. 0 if none did.
    pub writer: u64,
    /// What the writer left, if it has written its last entry.
    pub hand_off: Option<HandOff>,
}

/// What a term leaves to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOff {
    /// Its memory, which it has sent to one node. Everything that it was entitled to is that node's.
    Memory {
        /// The node that was sent the memory.
        successor: NodeId,
        /// What was sent.
        digest: MemoryDigest,
    },
    /// Its epoch: it has trimmed every section that it touched. The chunks of the others are unused, so that the
    /// next epoch may give them again.
    Epoch,
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
    /// The term has left its chunks to the next one.
    #[error("term {0} has left its chunks to the next term")]
    Left(u64),
    /// Nothing was left to this node, something else was, or an epoch came between.
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
        match self.hand_off.take() {
            // The last epoch was given back.
            Some(HandOff::Epoch) => {}
            Some(HandOff::Memory { .. }) | None => self.epoch += 1,
        }
        self.writer = term;
        Ok(self.epoch)
    }

    /// Gives `term`, led by `successor`, what was left to that node. Returns the number of the epoch that goes on.
    ///
    /// # Errors
    /// [`LedgerRefused::NotSuccessor`] if the last entry of the last writer did not leave this memory to this node.
    pub fn take_over(
        &mut self, term: u64, successor: NodeId, digest: MemoryDigest,
    ) -> Result<u64, LedgerRefused> {
        if self.hand_off != Some(HandOff::Memory { successor, digest }) {
            return Err(LedgerRefused::NotSuccessor(successor));
        }
        self.hand_off = None;
        self.writer = term;
        Ok(self.epoch)
    }

    /// Logs the last entry of `term`: it writes nothing any more.
    ///
    /// # Errors
    /// As [`Ledger::check_writer`].
    pub fn hand_off(&mut self, term: u64, hand_off: HandOff) -> Result<(), LedgerRefused> {
        self.check_writer(term)?;
        self.hand_off = Some(hand_off);
        Ok(())
    }

    /// Checks that `term` may write sections.
    ///
    /// # Errors
    /// [`LedgerRefused`] if it has neither begun an epoch nor taken over, a later term has, or it has left its chunks.
    pub fn check_writer(&self, term: u64) -> Result<(), LedgerRefused> {
        if self.writer != term {
            let writer = self.writer;
            return Err(LedgerRefused::NotWriter { term, writer });
        }
        match self.hand_off {
            None => Ok(()),
            Some(_) => Err(LedgerRefused::Left(term)),
        }
    }
}

#[cfg(test)]
mod tests;
