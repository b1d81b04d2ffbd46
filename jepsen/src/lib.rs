//! Proves Ratchet's promise from outside: real processes under faults, recorded histories, and a
//! checker that judges them. It knows the public API, the command line and nothing of the inside.
//!
//! A run goes down this list: [`run`] starts a [`cluster`] on a [`network`] and [`disk`]s of its own,
//! lets a [`workload`] ask for numbers while [`nemesis`] does its worst, and [`judge`] gives the
//! verdict on the [`history`], which [`report`] shows and [`export`] hands to other checkers.
//! [`matrix`] does so for every nemesis, [`controls`] for every planted bug.

pub mod checker;
pub mod disk;
pub mod history;
pub mod network;
