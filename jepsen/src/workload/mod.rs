//! What callers ask for: which keys, how many numbers, at which nodes.

mod callers;
mod kinds;
mod library;
mod recorded;

pub use callers::{Asked, Callers};
pub use kinds::{OWN, SHARED, SHARED_SECTION_SIZE, Workload};
pub use recorded::ask;
