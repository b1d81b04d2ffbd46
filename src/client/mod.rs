//! The Rust client.
//!
//! Uses the generated code alone. [`Client::next`], called from thousands of tasks, sends few messages:
//! what is asked while messages are under way forms the next one (no timer: a lone caller's request
//! leaves at once), and requests for one key become one range, which is shared out in the order of asking.
//! Who leads and who the members are is learnt from the answers, so that the servers that the client was
//! given may all go, one after the other.
//!
//! Order is the cluster's promise and no more: a call that begins after another one for its key has
//! returned gets greater numbers. Among calls for a key that are under way at the same time any may get
//! the lower ones, the later too: they may travel in several ranges and messages, of which one is waited
//! for or asked again while another is answered. Whoever needs an order waits for one answer before it
//! asks again, or asks for a range.
//!
//! Invariant: a retry takes new numbers, so that retrying can lose some and never disorder or repeat
//! any; and every number is checked to be greater than what was handed out for its key before it was
//! asked for.

mod admin;
mod error;
mod key;
mod lane;
mod link;
mod members;
mod message;
mod route;
mod seen;
mod segment;
mod servers;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

pub use error::ClientError;
pub use key::{Key, Numbers};
pub use segment::Segment;

use lane::{Asked, Lane, Travels};
use message::Names;
use servers::Servers;

/// A client of one cluster; cheap to clone, and meant to be shared by all tasks.
///
/// ```no_run
/// # async fn example() -> Result<(), ratchet::client::ClientError> {
/// let servers = ["127.0.0.1:7600".to_owned()];
/// let client = ratchet::client::Client::new(&servers, std::time::Duration::from_secs(5))?;
/// let chapter = client.next("book", 42).await?;
/// # Ok(())
/// # }
/// ```
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

impl Client {
    /// A client of the cluster that `servers` ("host:port") belong to. Each request is given up after
    /// `timeout`, retries included. Connects at the first request. From the first answer on it knows all
    /// voters, goes straight to whoever leads, and lives on when the servers that it was given are gone;
    /// those that are no members are asked when no member answers.
    ///
    /// # Errors
    /// [`ClientError::Server`] for an address that cannot be one, or if there is none.
    pub fn new(servers: &[String], timeout: Duration) -> Result<Self, ClientError> {
        Self::build(servers, timeout, false)
    }

    /// A client that stays with `servers` instead of following the leader: they forward what they are
    /// asked. For networks in which the nodes' own addresses cannot be reached. It learns of no other
    /// members: when all of `servers` are gone its requests fail, whoever else is there; name several.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn staying(servers: &[String], timeout: Duration) -> Result<Self, ClientError> {
        Self::build(servers, timeout, true)
    }

    fn build(servers: &[String], timeout: Duration, stays: bool) -> Result<Self, ClientError> {
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
    /// [`ClientError`]; numbers of a request that failed may be lost, never handed out twice.
    pub async fn next(&self, namespace: &str, key: impl Into<Key>) -> Result<u64, ClientError> {
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
    ) -> Result<Numbers, ClientError> {
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
        self.lane().send(asked).map_err(|_| ClientError::Gone)?;
        answer.await.map_err(|_| ClientError::Gone)?
    }

    /// Numbers of a key out of segments of `size` numbers that are fetched ahead and used up locally:
    /// most cost no round trip. **Not strictly increasing across holders**: see [`Segment`].
    pub fn segment(&self, namespace: &str, key: impl Into<Key>, size: u64) -> Segment {
        Segment::new(self.clone(), namespace, key.into(), size)
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
