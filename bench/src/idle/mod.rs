//! `ratchet-bench idle`: the cost of idle connections: the leader's memory and CPU time, and the latency of other callers.

mod connections;
mod leader;
mod measure;
mod options;
mod report;

pub use options::IdleOptions;
