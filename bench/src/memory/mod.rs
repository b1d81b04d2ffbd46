//! `ratchet-bench memory`: what a bound on the leader's memory costs its callers, while somebody asks for many more keys
//! than fit; and what a clean restart skips.

mod measure;
mod options;
mod report;
mod restart;

pub use options::MemoryOptions;
