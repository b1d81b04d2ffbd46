//! The grant that a request needs, as `proto` has it.

use crate::{
    proto::{peer, v1},
    sequence::{Verb, Wanted},
};

/// A request that needs something to be granted to its caller.
pub trait Guarded {
    /// The grant that it needs.
    fn wanted(&self) -> Wanted<'_>;
}

include!(concat!(env!("OUT_DIR"), "/needs.rs"));
