//! What can go wrong, one fault at a time or several at once, and the proof that it did.
//!
//! A fault begins, lasts, and ends; some run their whole course in their beginning. Invariant: no
//! fault here breaks more than the promise allows for: what destroys data hits a minority only.

mod clocks;
mod damaged_data;
mod disks;
mod fault;
mod inject;
mod injector;
mod kind;
mod lease_expiry;
mod links;
mod members;
mod power;
mod processes;
mod recovery;
mod slow_readers;
mod snapshots;
mod transfer;

pub use fault::Strike;
pub use injector::Stage;
pub use kind::Nemesis;
pub use recovery::RECOVERY;
