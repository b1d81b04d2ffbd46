//! Where work runs that blocks: a seam.

/// Where work runs that blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockingExecutor {
    /// On threads of its own: the disk may take its time.
    #[default]
    Threads,
    /// In the task that wants it. For simulations: they have one thread, and a disk that takes none
    /// but simulated time.
    Inline,
}

impl BlockingExecutor {
    /// Has `work` done.
    ///
    /// # Errors
    /// [`tokio::task::JoinError`] where it panicked on its thread.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match self {
            BlockingExecutor::Threads => tokio::task::spawn_blocking(work).await,
            BlockingExecutor::Inline => Ok(work()),
        }
    }

    /// Has `work` done that nobody waits for.
    pub fn run_detached(self, work: impl FnOnce() + Send + 'static) {
        match (self, tokio::runtime::Handle::try_current()) {
            (BlockingExecutor::Threads, Ok(runtime)) => drop(runtime.spawn_blocking(work)),
            // Without a runtime there are no threads to leave it to.
            _ => work(),
        }
    }
}
