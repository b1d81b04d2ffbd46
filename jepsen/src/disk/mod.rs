//! A file system in memory that fails a node as bad disks and power cuts do.
//!
//! It is mounted over FUSE, so that the node uses it through the kernel like any other file system. A file
//! records how to undo the writes since its last fsync, and a directory how to undo the changes of its names;
//! a power cut undoes them. (The page cache of a real machine survives `kill -9` and hides a missing fsync.)

mod content;
mod fuse;
mod inode;
mod mounted;
mod names;
mod pace;
mod state;

pub use mounted::Disk;
pub use pace::Pace;
pub use state::{DiskCounts, DiskFaults, Image};
