//! The processes under test: real ones, each isolated as if on a machine of its own, as far as this machine
//! allows.

mod config;
mod leaks;
mod pods;
mod ports;
mod process;
mod processes;
mod secrets;

pub use config::{ClusterConfig, Fence, Product, Timings};
pub use pods::Pods;
pub use ports::{HTTP_PORT, METRICS_PORT, RESP_PORT};
pub use processes::Cluster;
