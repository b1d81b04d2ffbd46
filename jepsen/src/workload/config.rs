//! The workload of all callers together.

use std::time::Duration;

use super::kinds::Workload;
use crate::{history::Interface, record::Recorder, target::SHARED_SECTION_SIZE};

/// How many keys a message on a stream, or a pipeline, asks for.
const MESSAGE_KEYS: u64 = 3;
/// The same for workloads with more than [`MANY_KEYS`] keys.
const MESSAGE_KEYS_OF_MANY: u64 = 64;
const MANY_KEYS: u64 = 1_000;

/// The workload of all callers together.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadConfig {
    /// The kind.
    pub workload: Workload,
    /// How many keys the kinds with many keys have.
    pub keys: u64,
    /// The interfaces through which they ask.
    pub interfaces: &'static [Interface],
    /// How many operations may end in a second. This bounds the history.
    pub per_second_max: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

impl WorkloadConfig {
    /// The interface through which a caller asks. Each interface gets callers that stay at one node and callers that roam.
    pub(super) fn interface_of(&self, place: usize) -> Interface {
        self.interfaces[place / 2 % self.interfaces.len()]
    }

    /// How many keys a message on a stream, or a pipeline, asks for.
    pub(super) fn message_keys(&self) -> u64 {
        if self.keys > MANY_KEYS { MESSAGE_KEYS_OF_MANY } else { MESSAGE_KEYS }
    }

    /// How many ids of [`SHARED`](crate::target::SHARED) are asked for.
    pub(super) fn shared_ids(&self) -> u64 {
        self.keys.max(2 * SHARED_SECTION_SIZE)
    }

    /// Waits while more operations have ended than `per_second_max` allows.
    pub(super) async fn hold_back(&self, recorder: &Recorder) {
        loop {
            // The operations of one second may end at once.
            let seconds = 1.0 + recorder.now() as f64 / 1e9;
            if recorder.recorded() as f64 <= seconds * self.per_second_max as f64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
