//! The machines of other nodes, as these tell of them with each answer: their wall clocks, the room and the speed of their
//! disks, and what of them is open. A node has one machine in all groups that it is in.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{peer_clocks::PeerClocks, peer_disks::PeerDisks};
use crate::sequence::NodeId;

/// How many letters are kept of what is open at a peer. A node tells less.
const OPEN_MAX: usize = 2_048;

/// The machines of other nodes, as these tell of them.
#[derive(Default)]
pub struct PeerMachines {
    /// The room on their disks, and the speed of these.
    pub disks: PeerDisks,
    /// The readings of their wall clocks.
    pub clocks: PeerClocks,
    /// The ports of them that are open, in words: of each that told of something with its last answer.
    open: Mutex<BTreeMap<NodeId, String>>,
}

impl PeerMachines {
    /// Notes what an answer of `peer` says of what is open there. Printable letters up to a limit are kept: operators see them.
    pub fn note_open(&self, peer: NodeId, told: &[u8]) {
        let mut open = self.open.lock();
        if told.is_empty() {
            open.remove(&peer);
        } else if open.get(&peer).is_none_or(|known| known.as_bytes() != told) {
            let is_shown = |letter: &char| letter.is_ascii_graphic() || *letter == ' ';
            let letters = told.iter().copied().map(char::from).filter(is_shown);
            open.insert(peer, letters.take(OPEN_MAX).collect());
        }
    }

    /// The ports of `peer` that are open, as its last answer said; empty if nothing is.
    pub fn open_at(&self, peer: NodeId) -> String {
        self.open.lock().get(&peer).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_at_a_peer_is_what_it_told_last_as_far_as_it_can_be_shown() {
        let machines = PeerMachines::default();
        machines.note_open(2, b"node 2 is open");
        assert_eq!([2, 3].map(|peer| machines.open_at(peer)), ["node 2 is open", ""]);
        machines.note_open(2, b"a line,\n\x1b[31m\xff");
        assert_eq!(machines.open_at(2), "a line,[31m");
        machines.note_open(2, &[b'a'; OPEN_MAX + 1]);
        assert_eq!(machines.open_at(2), "a".repeat(OPEN_MAX));
        machines.note_open(2, b"");
        assert_eq!(machines.open_at(2), "");
    }
}
