//! Other servers to compare with, if they are installed: Redis, etcd, tsoracle.

mod etcd;
mod grpc;
mod program;
mod redis;
mod tsoracle;

pub use etcd::{Etcd, start as etcd};
pub use redis::start as redis;
pub use tsoracle::{TsOracle, start as tsoracle};
