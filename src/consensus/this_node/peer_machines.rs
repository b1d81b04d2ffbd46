//! The machines of other nodes, as these tell of them with each answer: their wall clocks, and the room and the speed of
//! their disks. A node has one machine in all groups that it is in.

use super::{peer_clocks::PeerClocks, peer_disks::PeerDisks};

/// The machines of other nodes, as these tell of them.
#[derive(Default)]
pub struct PeerMachines {
    /// The room on their disks, and the speed of these.
    pub disks: PeerDisks,
    /// The readings of their wall clocks.
    pub clocks: PeerClocks,
}
