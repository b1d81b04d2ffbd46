//! A file system in memory that does to a node what bad disks and power cuts do.
//!
//! It is mounted over FUSE, so that the node's process uses it through the kernel like any other. A
//! file remembers how to undo what was written to it since its last fsync, and a directory what was done
//! to its names; a power cut undoes it. The page cache of a real machine survives `kill -9`, and so
//! hides a missing fsync: this one does not.

mod content;
mod fuse;
mod inode;
mod mounted;
mod names;
mod state;

pub use mounted::Disk;
pub use state::{Faults, Image, Tally};
