//! `ratchet-bench run`: measures throughput and latency in rounds, alone or in comparison with another server.

mod measure;
mod options;
mod plot;
mod report;

pub use options::RunOptions;
