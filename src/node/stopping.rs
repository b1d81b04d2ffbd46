//! The signal that the node stops, for those of its parts that must know.

use tokio_util::sync::CancellationToken;

/// How far the node is with stopping. Clones show the same.
#[derive(Clone, Default)]
pub struct Stopping {
    leaving: CancellationToken,
    stopped: CancellationToken,
}

impl Stopping {
    /// Cancelled first of all when the node stops.
    pub fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Cancelled once the node hands nothing over any more, and answers what is under way: it follows no leadership any
    /// further.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }

    /// The node hands nothing over any more.
    pub fn stop(&self) {
        self.leaving.cancel();
        self.stopped.cancel();
    }
}
