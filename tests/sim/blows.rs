//! What hits a handover in the middle.

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

use crate::network::Host;

/// What hits a handover in the middle.
#[derive(Debug, Clone, Copy)]
pub enum Blow {
    Crash(Host),
    /// Nothing gets through between the two.
    Cut(Host, Host),
    /// An operator asks for another transfer.
    Transfer(Host),
    /// The node is told to stop.
    Stop(Host),
}

impl Blow {
    /// A blow to the handover of `leader` to `heir`, one of `members`.
    pub fn to_handover(rng: &mut StdRng, leader: Host, heir: Host, members: &[Host]) -> Blow {
        match rng.random_range(0..10) {
            0..3 => Blow::Crash(leader),
            3..6 => Blow::Crash(heir),
            6..8 => Blow::Cut(leader, heir),
            8 => Blow::Transfer(*members.choose(rng).unwrap_or(&heir)),
            _ => Blow::Stop(heir),
        }
    }

    /// How many milliseconds after the handover was asked for it comes: mostly while the memory is sent, and before
    /// the successor leads.
    pub fn after_ms(rng: &mut StdRng) -> u64 {
        let max = match rng.random_range(0..10) {
            0..5 => 40,
            5..9 => 120,
            _ => 400,
        };
        rng.random_range(0..=max)
    }
}
