//! Which peers have said that their disks are low.
//!
//! Invariant: what counts of a peer is what its last answer said. One that says nothing any more may have run into its
//! full disk.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{sequence::NodeId, storage::LowDisk};

/// The peers whose disks are low.
#[derive(Default)]
pub struct PeerDisks(Mutex<BTreeMap<NodeId, LowDisk>>);

impl PeerDisks {
    /// Notes what an answer of `peer` says of its disk: that it is low, if it is.
    pub fn note(&self, peer: NodeId, told: Option<LowDisk>) {
        let mut low = self.0.lock();
        match told {
            None => drop(low.remove(&peer)),
            Some(told) => drop(low.insert(peer, told)),
        }
    }

    /// The peers whose disks are low.
    pub fn low(&self) -> BTreeMap<NodeId, LowDisk> {
        self.0.lock().clone()
    }
}
