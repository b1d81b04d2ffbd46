//! A request for numbers, the caller that waits for it, and how it may be merged with others.

use bytes::Bytes;
use tokio::{sync::oneshot, time::Instant};
use tonic::Status;

use crate::{error::Error, key::Key, namespaces::InternedNamespace, numbers::Numbers};

/// A request that is not answered yet.
pub struct PendingRequest {
    /// The namespace of the key.
    pub namespace: InternedNamespace,
    /// The key.
    pub key: Key,
    /// How many numbers are wanted.
    pub count: u64,
    /// When the caller gives up.
    pub deadline: Instant,
    /// Whether it may share one range with other requests for its key.
    pub may_share: bool,
    /// How many requests a batch with it has at most. 1: it gets a batch of its own.
    pub batch_max: u16,
    /// The application's id of the request, which then gets a batch of its own. Boxed, since few
    /// requests have one.
    pub request_id: Option<Box<Bytes>>,
    /// The span that it is a part of; it then gets a batch of its own.
    pub traceparent: Option<Box<str>>,
    /// Where the caller waits for the answer.
    pub reply: oneshot::Sender<Result<Numbers, Error>>,
}

impl PendingRequest {
    /// True if somebody waits for the answer.
    pub fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Answers the request with a failure. Nobody waits for it from now on.
    pub fn fail(&mut self, error: Error) {
        let reply = std::mem::replace(&mut self.reply, oneshot::channel().0);
        // Sending fails only if the caller has stopped waiting.
        let _ = reply.send(Err(error));
    }

    /// Answers the request.
    pub fn answer(self, answer: Result<Numbers, Error>) {
        // Sending fails only if the caller has stopped waiting.
        let _ = self.reply.send(answer);
    }
}

/// Answers all `requests` with the same failure.
pub fn fail_requests(requests: Vec<PendingRequest>, server: &str, status: &Status) {
    for request in requests {
        request.answer(Err(Error::status(server, status)));
    }
}
