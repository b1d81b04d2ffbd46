//! The processes under test.

mod config;
mod nodes;

pub use config::{Fence, Plan, Product};
pub use nodes::{Cluster, METRICS_PORT, Node};
