//! The client: takes numbers on behalf of any number of tasks.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    caller_span::CallerSpan, dispatcher::Dispatcher, error::Error, key::Key,
    namespaces::Namespaces, numbers::Numbers, queue::BATCH_REQUESTS_MAX, request::PendingRequest,
    server_pool::ServerPool,
};

/// The longest name of a namespace, in bytes. Its characters are ASCII.
const NAMESPACE_BYTES_MAX: usize = 64;
/// The longest name of a key, in bytes.
const KEY_BYTES_MAX: usize = 256;
/// The longest request id, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// A client of one cluster. It is cheap to clone, and meant to be shared by all tasks.
///
/// Answers name the voters, and answers to `next`, `next_range` and segments also name the leader: from then on it sends
/// these straight to the leader. It keeps working when the servers that it was given are gone. It asks given servers that are
/// no members only if no member answers.
///
/// The first answer tells it which cluster it asks, unless it was built with that: see [`Builder::cluster_id`](
/// crate::Builder::cluster_id).
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    servers: Arc<ServerPool>,
    namespaces: Namespaces,
    /// Where the dispatcher takes requests. The first request starts it, on its own runtime.
    dispatcher: OnceLock<mpsc::UnboundedSender<PendingRequest>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut client = f.debug_struct("Client");
        client.field("servers", &self.servers());
        client.field("timeout", &self.inner.servers.timeout());
        client.field("follow_leader", &self.inner.servers.follows_leader());
        client.field("cluster_id", &self.inner.servers.cluster_id());
        client.field("has_token", &self.inner.servers.has_token());
        client.finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(servers: ServerPool) -> Self {
        let inner = Inner {
            servers: Arc::new(servers),
            namespaces: Namespaces::default(),
            dispatcher: OnceLock::new(),
        };
        Client { inner: Arc::new(inner) }
    }

    /// The id of the cluster that the client asks: the one that it was built with, or the first one that answered. `None`
    /// before that.
    pub fn cluster_id(&self) -> Option<String> {
        self.inner.servers.cluster_id().map(str::to_owned)
    }

    /// The known servers, "host:port": the voters, once an answer has listed them, and the servers that the
    /// client was given.
    pub fn servers(&self) -> Vec<String> {
        self.pool().members().all().iter().map(ToString::to_string).collect()
    }

    /// The next number of a key.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name of the namespace does not have 1 to 64 bytes, or that of the key 1 to 256,
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time, [`Error::Disorder`]
    /// if the number is not greater than an earlier one, [`Error::OtherCluster`] if every server that is left belongs to
    /// another cluster, [`Error::Gone`] if the runtime of the first
    /// request has ended. The numbers of a request that failed may be burnt; they are never handed out
    /// twice. In a gapless namespace none are burnt unless the error is [`Error::OutcomeUnknown`]: the client asks again under
    /// an id of its own, as long as it can.
    pub async fn next(&self, namespace: &str, key: impl Into<Key>) -> Result<u64, Error> {
        let numbers = self.next_range(namespace, key, 1).await?;
        Ok(numbers.first)
    }

    /// The next `count` (at least 1) numbers of a key.
    ///
    /// # Errors
    /// The cases are those of one number: [`Client::next`] lists them.
    pub async fn next_range(
        &self, namespace: &str, key: impl Into<Key>, count: u64,
    ) -> Result<Numbers, Error> {
        self.take(namespace, key.into(), count, None).await
    }

    /// The next `count` numbers of a key of a gapless namespace, or the numbers that an earlier request with this id got.
    /// Make up an id for each purpose, for example a UUID or the number of an order, and ask again with it after an error,
    /// also from another process.
    ///
    /// Each id gets numbers exactly once while it is remembered (`request_id_keep_ms` of the cluster, 10 minutes unless it is
    /// changed). [`Client::next_range`] needs no id: the client has one of its own for as long as it asks.
    ///
    /// Such requests travel as others do, in messages of their own.
    ///
    /// # Errors
    /// As [`Client::next`]; also [`Error::Invalid`] if the id does not have 1 to 64 bytes.
    /// [`Code::FailedPrecondition`](crate::Code::FailedPrecondition) if the id was used for another key or count, or the
    /// namespace is not gapless.
    pub async fn next_once(
        &self, namespace: &str, key: impl Into<Key>, count: u64, request_id: impl AsRef<[u8]>,
    ) -> Result<Numbers, Error> {
        let id = Bytes::copy_from_slice(request_id.as_ref());
        self.take(namespace, key.into(), count, Some(id)).await
    }

    /// Takes numbers, under the request id of the application if it gives one.
    async fn take(
        &self, namespace: &str, key: Key, count: u64, request_id: Option<Bytes>,
    ) -> Result<Numbers, Error> {
        check("the namespace", namespace.len(), NAMESPACE_BYTES_MAX)?;
        if let Key::Name(name) = &key {
            check("the key", name.len(), KEY_BYTES_MAX)?;
        }
        if let Some(id) = &request_id {
            check("the request id", id.len(), REQUEST_ID_BYTES_MAX)?;
        }
        let (reply, answer) = oneshot::channel();
        let traceparent = self.pool().caller_span().and_then(CallerSpan::text);
        // The server refuses a count of 0. In a merged range it would not see it.
        let is_alone = count == 0 || request_id.is_some() || traceparent.is_some();
        let request = PendingRequest {
            namespace: self.inner.namespaces.intern(namespace),
            key,
            count,
            deadline: Instant::now() + self.inner.servers.timeout(),
            may_share: !is_alone,
            batch_max: if is_alone { 1 } else { BATCH_REQUESTS_MAX },
            request_id: request_id.map(Box::new),
            traceparent,
            reply,
        };
        // Both fail only if the runtime of the dispatcher has ended.
        self.dispatcher().send(request).map_err(|_| Error::Gone)?;
        answer.await.map_err(|_| Error::Gone)?
    }

    /// The servers, for unary calls.
    pub(crate) fn pool(&self) -> &ServerPool {
        &self.inner.servers
    }

    fn dispatcher(&self) -> &mpsc::UnboundedSender<PendingRequest> {
        self.inner.dispatcher.get_or_init(|| {
            let (dispatcher, requests) = mpsc::unbounded_channel();
            let inner = &self.inner;
            let namespaces = inner.namespaces.clone();
            tokio::spawn(Dispatcher::new(inner.servers.clone(), namespaces).run(requests));
            dispatcher
        })
    }
}

/// Refuses a name that no server takes: its message could be larger than any that a server reads, and take the others on its
/// stream with it.
fn check(what: &str, bytes: usize, max: usize) -> Result<(), Error> {
    match (1..=max).contains(&bytes) {
        true => Ok(()),
        false => Err(Error::Invalid(format!("{what} has {bytes} bytes; give 1 to {max}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_no_server_takes_is_refused_before_anything_is_sent() {
        let client = Client::builder().build().expect("a client");
        let long = "x".repeat(2 << 20);
        for (namespace, key, id, why) in [
            ("", "a", "1", "the namespace has 0 bytes; give 1 to 64"),
            (&long[..65], "a", "1", "the namespace has 65 bytes; give 1 to 64"),
            ("book", "", "1", "the key has 0 bytes; give 1 to 256"),
            ("book", &long[..], "1", "the key has 2097152 bytes; give 1 to 256"),
            ("book", "a", "", "the request id has 0 bytes; give 1 to 64"),
            ("book", "a", &long[..65], "the request id has 65 bytes; give 1 to 64"),
        ] {
            let refused = client.next_once(namespace, key, 1, id).await.expect_err(why);
            assert!(matches!(&refused, Error::Invalid(text) if text == why), "{refused}");
        }
        assert!(client.inner.dispatcher.get().is_none(), "nothing was sent");
    }
}
