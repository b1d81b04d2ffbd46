//! `ratchet-bench failover` and `ratchet-bench handover`: the cost of a leader change for the callers. The
//! leader is killed, or asked to hand over, while a load runs; the report has the throughput around it.

mod analysis;
mod carry_out;
mod leaders;
mod measure;
mod options;
mod plot;
mod report;
mod result;
mod skips;
mod timeline;

pub use carry_out::restart_ended;
pub use options::{FailoverOptions, HandoverOptions};
