//! `ratchet-bench ids`: how fast ids of a format are made, by the Rust client and over a node's stream beside the echo, and
//! how many log entries their times cost.

mod client_alone;
mod entries;
mod measure;
mod options;
mod report;

pub use options::IdsOptions;
