//! The executor of blocking work: threads of the runtime, or, in simulations, the calling task.

use tokio::{runtime::Handle, task::JoinError};

/// Where blocking work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockingExecutor {
    /// On the runtime's threads for blocking work, so that a slow disk holds up no task.
    #[default]
    Threads,
    /// In the calling task. For simulations: they have one thread, and their disk takes simulated time
    /// only.
    Inline,
}

impl BlockingExecutor {
    /// Runs `work` and waits for its result.
    ///
    /// # Errors
    /// [`JoinError`] if `work` panicked on its thread.
    pub async fn run<T: Send + 'static>(
        self, work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            BlockingExecutor::Threads => tokio::task::spawn_blocking(work).await,
            BlockingExecutor::Inline => Ok(work()),
        }
    }

    /// Runs `work`. Does not wait for it if it runs on another thread.
    pub fn run_detached(self, work: impl FnOnce() + Send + 'static) {
        match (self, Handle::try_current()) {
            (BlockingExecutor::Threads, Ok(runtime)) => drop(runtime.spawn_blocking(work)),
            // Without a runtime there are no other threads.
            (BlockingExecutor::Threads, Err(_)) | (BlockingExecutor::Inline, _) => work(),
        }
    }
}
