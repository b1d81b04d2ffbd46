//! Proves Ratchet's promise from outside: real processes under faults, recorded histories, and a
//! checker that judges them. It knows the public API, the command line and nothing of the inside.
//!
//! A run goes down this list: [`run`] starts a [`cluster`] on a [`network`] and [`disk`]s of its own,
//! lets a [`workload`] ask for numbers while [`nemesis`] does its worst, and [`judge`] gives the
//! verdict on the [`history`], which [`report`] shows and [`export`] hands to other checkers.

pub mod checker;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod disk;
pub mod export;
pub mod final_reads;
pub mod gaps;
pub mod history;
pub mod isolate;
pub mod judge;
pub mod max_wins;
pub mod monitor;
pub mod namespaces;
pub mod nemesis;
pub mod network;
pub mod nodes;
pub mod proto;
pub mod record;
pub mod report;
pub mod result;
pub mod run;
pub mod slow_reader;
pub mod workload;
