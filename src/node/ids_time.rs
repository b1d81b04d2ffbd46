//! The time that ids are stamped with, as the leader tells it.
//!
//! No promise rests on it: it decides when a worker id is free again, and how far a lease reaches.

use std::sync::Arc;

use crate::clock::Clock;

/// The time that ids are stamped with. Clones show the same.
#[derive(Clone)]
pub struct IdsTime {
    clock: Arc<dyn Clock>,
}

impl IdsTime {
    /// The time that `clock` shows.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        IdsTime { clock }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }
}
