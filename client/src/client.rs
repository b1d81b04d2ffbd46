//! The client: takes numbers, from any number of tasks.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    dispatcher::Lane,
    error::Error,
    key::Key,
    namespaces::Names,
    numbers::Numbers,
    request::{Asked, Travels},
    servers::Servers,
};

/// A client of one cluster; cheap to clone, and meant to be shared by all tasks.
///
/// From the first answer on it knows all voters, goes straight to whoever leads, and lives on when the
/// servers that it was given are gone; those that are no members are asked when no member answers.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    names: Names,
    /// Started by the first request, on the runtime that it is made on.
    lane: OnceLock<mpsc::UnboundedSender<Asked>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut client = f.debug_struct("Client");
        client.field("servers", &self.servers());
        client.field("timeout", &self.shared.servers.timeout());
        client.field("follow_leader", &!self.shared.servers.stays());
        client.finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(servers: &[String], timeout: Duration, stays: bool) -> Result<Self, Error> {
        let shared = Shared {
            servers: Arc::new(Servers::new(servers, timeout, stays)?),
            names: Names::default(),
            lane: OnceLock::new(),
        };
        Ok(Client {
            shared: Arc::new(shared),
        })
    }

    /// The servers that it knows, "host:port": the voters, once an answer told of them, and those that it
    /// was given.
    pub fn servers(&self) -> Vec<String> {
        let all = self.shared.servers.all();
        all.iter().map(ToString::to_string).collect()
    }

    /// The next number of a key.
    ///
    /// # Errors
    /// [`Error`]; numbers of a request that failed may be lost, never handed out twice.
    pub async fn next(&self, namespace: &str, key: impl Into<Key>) -> Result<u64, Error> {
        let numbers = self.next_range(namespace, key, 1).await?;
        Ok(numbers.first)
    }

    /// The next `count` (at least 1) numbers of a key.
    ///
    /// # Errors
    /// As [`Client::next`].
    pub async fn next_range(
        &self,
        namespace: &str,
        key: impl Into<Key>,
        count: u64,
    ) -> Result<Numbers, Error> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            namespace: self.shared.names.number_of(namespace),
            key: key.into(),
            count,
            deadline: Instant::now() + self.shared.servers.timeout(),
            travels: match count {
                // Merged with others, no count at all would go unnoticed.
                0 => Travels::Alone,
                _ => Travels::Merged,
            },
            reply,
        };
        // Both fail only with the runtime that the lane ran on.
        self.lane().send(asked).map_err(|_| Error::Gone)?;
        answer.await.map_err(|_| Error::Gone)?
    }

    /// The servers, for requests that any can answer.
    pub(crate) fn pool(&self) -> &Servers {
        &self.shared.servers
    }

    fn lane(&self) -> &mpsc::UnboundedSender<Asked> {
        self.shared.lane.get_or_init(|| {
            let (lane, asked) = mpsc::unbounded_channel();
            let shared = &self.shared;
            let names = shared.names.clone();
            tokio::spawn(Lane::new(shared.servers.clone(), names).run(asked));
            lane
        })
    }
}
