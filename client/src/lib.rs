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
//! The number is greater than every number that anybody received for key 42 of namespace "book" before. Clone the client, or
//! share it, between all tasks: it merges requests that they make at the same time.
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
//!     // There is no leader at the moment, or too many requests wait.
//!     Err(error) if error.is_retryable() => {
//!         tokio::time::sleep(std::time::Duration::from_millis(200)).await;
//!         client.next("book", 42).await?
//!     }
//!     answer => answer?,
//! };
//! # Ok(()) }
//! ```
//! A request that failed may have taken numbers. They are burnt; they are never handed out twice.
//!
//! # The same numbers when asked again
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! let invoice = client.next_once("invoice", 42, 1, "order-1815").await?;
//! # Ok(()) }
//! ```
//! A caller that asks again with the id `order-1815` gets the same number, also from another process: see
//! [`Client::next_once`]. It is for gapless namespaces. In the other calls the client has ids of its own there.
//!
//! # Numbers without a round trip
//! ```no_run
//! # async fn example(client: ratchet_client::Client) -> Result<(), ratchet_client::Error> {
//! let ids = client.segment("uid", 10_001, 1_000);
//! let id = ids.next().await?;
//! # Ok(()) }
//! ```
//! The numbers are unique and grow within one segment, but not across several: see [`Segment`].
//!
//! # The order of numbers
//! A call that starts after another call for the same key has returned gets greater numbers. Calls for one
//! key that overlap in time may get their numbers in any order: they may travel in several ranges and
//! messages, and one of these may be sent again while another is answered. If you need an order, wait for
//! one answer before you ask again, or ask for a range.
//!
//! The client checks that every number is greater than the numbers that it had received for the key before it asked
//! ([`Error::Disorder`]). It checks the keys in recent use.
//!
//! # The cluster
//! The client asks one cluster: the one that [`Builder::cluster_id`] names, or else the first one that answers. Every call says
//! which one it is. If an address leads to another cluster, that one refuses the call, and the client goes on without it
//! ([`Error::OtherCluster`] if no other server is left).
//!
//! A cluster may want to know its callers: [`Builder::token`] has every call show a token, and [`Builder::tls`] keeps others on
//! the network from reading it.
//!
//! The client needs a [Tokio](https://tokio.rs) runtime with time and I/O enabled.

#![deny(missing_docs)]

mod address;
mod admin;
pub mod api;
mod backoff;
mod batch;
mod builder;
mod caller_span;
mod causes;
mod client;
mod cluster;
mod dispatcher;
mod error;
mod export;
mod floors;
mod high_water_marks;
mod ids;
mod in_flight;
#[cfg(feature = "json")]
mod json;
mod key;
mod leader_cache;
mod members;
mod named_message;
mod namespaces;
mod numbers;
mod queue;
mod reasons;
mod request;
mod request_clock;
mod route_watches;
mod segment;
mod server_pool;
mod streams;
mod tls;
mod token;
mod turns;
mod unary_call;
mod workers;

pub use builder::Builder;
pub use client::Client;
pub use error::{Code, Error};
pub use export::{Export, Exported};
pub use floors::Raised;
pub use ids::{Id, IdSource, Ids, Lessor, NotTaken};
pub use key::Key;
pub use numbers::{Numbers, NumbersIter};
pub use segment::Segment;
pub use tls::Tls;
