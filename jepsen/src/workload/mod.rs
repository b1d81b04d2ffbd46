//! The workload of callers: keys, counts of numbers, interfaces and nodes.

mod caller;
mod callers;
mod config;
mod kinds;
mod product_client;
mod recorded;
mod warm;

pub use caller::PRODUCT_CLIENT_NODE;
pub use callers::start_callers;
pub use config::WorkloadConfig;
pub use kinds::{COUNT_MAX, Workload};
pub use product_client::ProductClient;
pub use recorded::ask;
pub use warm::{Answered, start_warm_callers};
