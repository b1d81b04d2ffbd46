//! The formats as their authors make them: a control for the checker of [`ids`](crate::ids), and the reason why worker ids are
//! leased.
//!
//! Each machine trusts its clock, and has its worker id from its configuration. The memory of a process keeps ids apart, and a
//! restart forgets it. Time is simulated: clocks jump as real ones do when they are set, processes are restarted, and some
//! seconds are busy.

mod generators;
mod machines;

pub use generators::{Author, authors};
pub use machines::{Judged, judge};
