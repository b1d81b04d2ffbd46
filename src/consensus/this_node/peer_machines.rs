//! What other nodes tell of their machines with each answer: their wall clocks, and the room on their disks and how quick
//! these are. It is true of a node in all groups that it is in.

use super::{peer_clocks::PeerClocks, peer_disks::PeerDisks};

/// What other nodes tell of their machines.
#[derive(Default)]
pub struct PeerMachines {
    /// The room on their disks, and how quick these are.
    pub disks: PeerDisks,
    /// What their wall clocks show.
    pub clocks: PeerClocks,
}
