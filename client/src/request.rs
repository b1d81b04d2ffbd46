//! A request, who waits for it, and how it may travel with others.

use tokio::{sync::oneshot, time::Instant};
use tonic::Status;

use crate::{error::Error, key::Key, numbers::Numbers};

/// A request, and who waits for it.
pub struct Asked {
    /// By the client's numbering.
    pub namespace: u32,
    /// The key.
    pub key: Key,
    /// How many numbers.
    pub count: u64,
    /// Until when it is waited for.
    pub deadline: Instant,
    /// How it may travel with others.
    pub travels: Travels,
    /// Who waits.
    pub reply: oneshot::Sender<Result<Numbers, Error>>,
}

/// How a request may travel with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travels {
    /// In one range with others for its key.
    Merged,
    /// In one message with others, with a place of its own.
    Apart,
    /// In a message of its own.
    Alone,
}

impl Asked {
    /// Answers it.
    pub fn answer(self, answer: Result<Numbers, Error>) {
        // Whoever gave up no longer listens.
        let _ = self.reply.send(answer);
    }
}

/// Tells all of them why they were not answered.
pub fn tell(asked: Vec<Asked>, server: &str, status: &Status) {
    for asked in asked {
        asked.answer(Err(Error::status(server, status)));
    }
}
