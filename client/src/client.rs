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
    dispatcher::Dispatcher,
    error::Error,
    key::Key,
    namespaces::Namespaces,
    numbers::Numbers,
    request::{Coalesce, PendingRequest},
    server_pool::ServerPool,
};

/// A client of one cluster. It is cheap to clone, and meant to be shared by all tasks.
///
/// Answers tell it who the voters are, and those of `next`, `next_range` and segments also who leads: from then on it sends
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
        let all = self.inner.servers.all();
        all.iter().map(ToString::to_string).collect()
    }

    /// The next number of a key.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time, [`Error::Disorder`]
    /// if the number is not greater than an earlier one, [`Error::OtherCluster`] if every server that is left belongs to
    /// another cluster, [`Error::Gone`] if the runtime of the first
    /// request has ended. The numbers of a request that failed may be lost; they are never handed out
    /// twice. In a gapless namespace none are lost unless the error is [`Error::OutcomeUnknown`]: the client asks again under
    /// an id of its own, as long as it can.
    pub async fn next(&self, namespace: &str, key: impl Into<Key>) -> Result<u64, Error> {
        let numbers = self.next_range(namespace, key, 1).await?;
        Ok(numbers.first)
    }

    /// The next `count` (at least 1) numbers of a key.
    ///
    /// # Errors
    /// As [`Client::next`].
    pub async fn next_range(
        &self, namespace: &str, key: impl Into<Key>, count: u64,
    ) -> Result<Numbers, Error> {
        self.take(namespace, key.into(), count, None).await
    }

    /// Takes numbers, under the request id of the application if it gives one.
    pub(crate) async fn take(
        &self, namespace: &str, key: Key, count: u64, request_id: Option<Bytes>,
    ) -> Result<Numbers, Error> {
        let (reply, answer) = oneshot::channel();
        let request = PendingRequest {
            namespace: self.inner.namespaces.intern(namespace),
            key,
            count,
            deadline: Instant::now() + self.inner.servers.timeout(),
            coalesce: match (count, &request_id) {
                // The server refuses a count of 0. In a merged range it would not see it.
                (0, _) | (_, Some(_)) => Coalesce::Never,
                (_, None) => Coalesce::IntoRange,
            },
            request_id: request_id.map(Box::new),
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
