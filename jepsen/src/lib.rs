//! Proves Ratchet's promise from outside: real processes under faults, recorded histories, and a checker.
//!
//! A run goes through these modules: [`run`] starts a [`cluster`] on a [`network`] and [`disk`]s of its own;
//! a [`workload`] asks for numbers through all interfaces of the nodes ([`connections`]) while a [`nemesis`] injects
//! faults; [`verdict`] decides on the [`history`]; [`report`] shows the run, and [`export`] writes the history for other
//! checkers.
//!
//! Invariant: the crate knows the public API, the Rust client and the command line, and no code of the node.

pub mod access;
pub mod accounting;
pub mod address;
pub mod authors;
pub mod callers;
pub mod changes;
pub mod checker;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod connections;
pub mod disk;
pub mod export;
pub mod exported;
pub mod final_reads;
pub mod finding;
pub mod gapless;
pub mod gaps;
pub mod history;
pub mod ids;
pub mod isolate;
pub mod manifest;
pub mod max_wins;
pub mod monitor;
pub mod namespaces;
pub mod nemesis;
pub mod network;
pub mod nodes;
pub mod probing;
pub mod proto;
pub mod record;
pub mod report;
pub mod result;
pub mod run;
pub mod slow_reader;
pub mod stalls;
pub mod strangers;
pub mod target;
pub mod verdict;
pub mod workload;
