//! What callers ask for: which keys, how many numbers, through which nodes.

mod callers;
mod kinds;
mod product_client;
mod recorded;

pub use callers::{Callers, PRODUCT_CLIENT_NODE, WorkloadConfig};
pub use kinds::Workload;
pub use recorded::ask;
