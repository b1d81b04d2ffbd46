//! Faults that strike some time after others began.

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

use crate::network::Host;

/// A fault that strikes some time after another began.
#[derive(Debug, Clone, Copy)]
pub enum DelayedFault {
    Crash(Host),
    /// Nothing gets through between the two.
    Cut(Host, Host),
    /// An operator asks for another transfer.
    Transfer(Host),
    /// The node is told to stop.
    Stop(Host),
}

impl DelayedFault {
    /// The fault that hits the handover of `leader` to `successor`, one of `members`.
    pub fn to_handover(
        rng: &mut StdRng, leader: Host, successor: Host, members: &[Host],
    ) -> DelayedFault {
        match rng.random_range(0..10) {
            0..3 => DelayedFault::Crash(leader),
            3..6 => DelayedFault::Crash(successor),
            6..8 => DelayedFault::Cut(leader, successor),
            8 => DelayedFault::Transfer(*members.choose(rng).unwrap_or(&successor)),
            _ => DelayedFault::Stop(successor),
        }
    }

    /// How many milliseconds after the handover was asked for it strikes: mostly while the memory is sent, and before
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
