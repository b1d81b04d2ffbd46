//! `ratchet-bench memory`: the cost of a bound on the leader's memory for its callers, while somebody asks for many more
//! keys than fit; and the numbers that a clean restart skips.

mod measure;
mod options;
mod report;
mod restart;

pub use options::MemoryOptions;
