//! The client of [Ratchet](https://github.com/ratchet-rs/ratchet), a replicated sequencer: strictly
//! increasing 64-bit numbers, one sequence per key, through crashes, leader changes and partitions.
//!
//! # The next number of a key
//! ```no_run
//! # async fn example() -> Result<(), ratchet_client::Error> {
//! let client = ratchet_client::Client::builder()
//!     .servers(["10.0.0.1:7600", "10.0.0.2:7600", "10.0.0.3:7600"])
//!     .build()?;
//! let chapter = client.next("book", 42).await?;
//! # Ok(()) }
//! ```
//! The number is greater than every number that anybody received for key 42 of namespace "book" before.
//! Clone the client, or share it, between all tasks: what they ask at the same time travels together.
//!
//! # Many numbers at once
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! for number in client.next_range("book", 42, 100).await? {
//!     println!("{number}");
//! }
//! # Ok(()) }
//! ```
//!
//! # The last number that was handed out
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! let last: Option<u64> = client.current("book", 42).await?;
//! # Ok(()) }
//! ```
//!
//! # Errors: what to try again
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! let number = match client.next("book", 42).await {
//!     // Nobody leads, or too much waits, for now.
//!     Err(error) if error.is_retryable() => {
//!         tokio::time::sleep(std::time::Duration::from_millis(200)).await;
//!         client.next("book", 42).await?
//!     }
//!     answer => answer?,
//! };
//! # Ok(()) }
//! ```
//! A request that failed may have taken numbers. They are lost, never handed out twice.
//!
//! # Numbers without a round trip
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! let ids = client.segment("uid", 10_001, 1_000);
//! let id = ids.next().await?;
//! # Ok(()) }
//! ```
//! Unique, and growing for each holder of a segment, but not in one order for all: see [`Segment`].
//!
//! # What is promised of order
//! A call that begins after another one for its key has returned gets greater numbers. Among calls for a
//! key that are under way at the same time any may get the lower ones: they may travel in several ranges
//! and messages, of which one is asked again while another is answered. Whoever needs an order waits for
//! one answer before it asks again, or asks for a range.
//!
//! Every number is checked to be greater than those that this client received for its key before it asked,
//! for the keys in recent use ([`Error::Disorder`]).
//!
//! It needs a [Tokio](https://tokio.rs) runtime with time and I/O enabled.

#![deny(missing_docs)]

mod admin;
pub mod api;
mod builder;
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
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

pub use builder::Builder;
pub use error::{Code, Error};
pub use key::{Key, Numbers, NumbersIter};
pub use segment::Segment;

use lane::{Asked, Lane, Travels};
use message::Names;
use servers::Servers;

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
    /// Makes a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(servers: &[String], timeout: Duration, stays: bool) -> Result<Self, Error> {
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
