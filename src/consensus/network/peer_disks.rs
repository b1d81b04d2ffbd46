//! Which peers have said that their disks are low.
//!
//! Invariant: what counts of a peer is what its last answer said. One that says nothing any more may have run into its
//! full disk.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{proto::peer, sequence::NodeId, storage::LowDisk};

/// The peers whose disks are low.
#[derive(Default)]
pub struct PeerDisks(Mutex<BTreeMap<NodeId, LowDisk>>);

impl PeerDisks {
    /// Notes what an answer of `peer` says of its disk.
    pub fn note(&self, peer: NodeId, told: Option<peer::LowDisk>) {
        let mut low = self.0.lock();
        match told {
            None => drop(low.remove(&peer)),
            Some(peer::LowDisk { free_mb, reserve_mb }) => {
                low.insert(peer, LowDisk { free_mb, reserve_mb, follower: Some(peer) });
            }
        }
    }

    /// The peers whose disks are low.
    pub fn low(&self) -> BTreeMap<NodeId, LowDisk> {
        self.0.lock().clone()
    }
}
