//! Puts one node together: start, serve, drain, stop; and the way of a request to the leader.
//!
//! Uses the allocator and below; the front doors (`server`) use it. Invariant: the allocator in use
//! belongs to the term that Raft last said this node leads, or there is none.

mod administer;
mod builds;
pub mod config;
mod error;
mod formation;
mod forward;
mod greeting;
mod handover;
mod handovers;
mod hello;
mod leader_search;
mod leadership;
mod lifecycle;
mod measure;
mod members;
mod namespaces;
mod readiness;
mod rejoin;
mod request;
mod request_memory;
mod route;
mod seams;
mod sequence_request;
mod serve;
pub mod settings;
mod shared;
mod status;
mod wire;

pub use config::Config;
pub use error::StartError;
pub use forward::{Forwarder, Lost, MERGED_BYTES_MAX};
pub use leader_search::{Attempt, Failure, ForLeader, Origin, leader_of};
pub use lifecycle::{Node, recover};
pub use readiness::NotReady;
pub use request::{
    Answered, Current, Exhausted, Keys, ManyRanges, Next, NextMany, REQUEST_KEYS_MAX,
};
pub use request_memory::{RETRY_AFTER_MS, RequestMemory, Reservation};
pub use route::{KnownRoute, Route};
pub use seams::{Addresses, Seams};
pub use sequence_request::SequenceRequest;
pub use shared::Shared;
