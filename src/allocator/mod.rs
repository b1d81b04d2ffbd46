//! The leader's memory: `cur_seq`, chunks, prefetch, the fence. The hot path lives here.
//!
//! Uses consensus (to propose bumps, and for the lease), the domain, and metrics. Its invariant is
//! the order of four steps, which is the safety argument of every answer:
//!
//! 1. read the term's allocator ([`Term`]; where there is none, this node does not lead),
//! 2. take the numbers from memory,
//! 3. *then* check the fence of that same term; where it fails the numbers are discarded,
//! 4. answer.
//!
//! Uniqueness comes from the chunk: it is the answer to this term's own proposal. Order comes from
//! the fence: had a successor answered before we took our numbers, the fence would fail.
//!
//! A [`Term`] starts empty and is never reused: losing the leadership drops it whole, and a late
//! answer to a proposal of an old term finds nothing to write to.

mod bumper;
mod cursor;
mod fence;
mod gate;
mod held;
mod memory;
mod section;
mod shard;
mod term;

pub use fence::FenceKind;
pub use shard::Footprint;
pub use term::{NextError, NextMany, Term};
