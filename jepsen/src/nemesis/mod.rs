//! Injects faults: one at a time or two at once, and says of each whether it took effect.
//!
//! A fault begins, lasts for a while, and is repaired; some are over as soon as they have begun. From
//! below to above: `kind` lists the faults, `fault` describes one that was injected, `injector` holds the
//! objects of faults, `recovery` checks the rules that must hold afterwards, one file for each family of
//! faults begins them, and `inject` puts a whole fault together.
//!
//! Invariant: no fault breaks more than the promise allows for. A fault that destroys data hits a minority
//! only.

mod clocks;
mod damaged_data;
mod disks;
mod fault;
mod handovers;
mod inject;
mod injector;
mod kind;
mod lease_expiry;
mod links;
mod members;
mod pods;
mod power;
mod processes;
mod recovery;
mod retry;
mod slow_disks;
mod slow_readers;
mod snapshots;
mod transfer;

pub use clocks::{WALL_JUMP_MAX_S, slowest_and_fastest};
pub use fault::Fault;
pub use injector::Injector;
pub use kind::Nemesis;
pub use recovery::RECOVERY_MAX;
