//! Callers at work, which are stopped together. Who starts them says what they ask.

use tokio::{sync::watch, task::JoinSet};

/// Callers at work, each in a task of its own.
pub struct CallersAtWork<T> {
    /// The tasks. Each ends once the callers are stopped, and returns what its caller has to tell.
    pub tasks: JoinSet<T>,
    /// True once they are to stop.
    pub stop: watch::Sender<bool>,
}

impl<T: 'static> CallersAtWork<T> {
    /// Stops them, each after its current call. Returns what they have to tell.
    pub async fn stop(mut self) -> Vec<T> {
        self.stop.send_replace(true);
        let mut told = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            told.push(ended.expect("a caller panicked"));
        }
        told
    }
}
