//! The machines of other nodes, as these tell of them with their answers: their wall clocks (which leaders tell with their
//! appends, too), the room and the speed of their disks, and their open ports. A node has one machine in all groups that it is
//! in.

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
    /// The open ports of each that told of some last.
    open: Mutex<BTreeMap<NodeId, Open>>,
}

/// The open ports of a peer.
struct Open {
    /// In words that can be shown.
    words: String,
    /// The CRC-32 of what the peer told.
    checksum: u32,
}

impl PeerMachines {
    /// Notes what an answer of `peer` says of what is open there. Printable letters up to a limit are kept: operators see them.
    pub fn note_open(&self, peer: NodeId, told: &[u8]) {
        if told.is_empty() {
            self.open.lock().remove(&peer);
            return;
        }
        let is_shown = |letter: &char| letter.is_ascii_graphic() || *letter == ' ';
        let letters = told.iter().copied().map(char::from).filter(is_shown);
        let words = letters.take(OPEN_MAX).collect();
        self.open.lock().insert(peer, Open { words, checksum: crc32fast::hash(told) });
    }

    /// The CRC-32 of what `peer` told last of what is open there, by which it knows whether to tell it again; 0 if that was
    /// nothing. It holds whatever happened to an answer, and for terms of other leaders that lay between.
    pub fn open_known(&self, peer: NodeId) -> u32 {
        self.open.lock().get(&peer).map_or(0, |open| open.checksum)
    }

    /// The open ports of `peer`, as it told last; empty if none is.
    pub fn open_at(&self, peer: NodeId) -> String {
        self.open.lock().get(&peer).map(|open| open.words.clone()).unwrap_or_default()
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
        let told = b"a line,\n\x1b[31m\xff";
        machines.note_open(2, told);
        assert_eq!(machines.open_at(2), "a line,[31m");
        assert_eq!([2, 3].map(|peer| machines.open_known(peer)), [crc32fast::hash(told), 0]);
        machines.note_open(2, &[b'a'; OPEN_MAX + 1]);
        assert_eq!(machines.open_at(2), "a".repeat(OPEN_MAX));
        machines.note_open(2, b"");
        assert_eq!((machines.open_at(2), machines.open_known(2)), (String::new(), 0));
    }
}
