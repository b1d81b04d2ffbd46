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

mod address;
mod admin;
pub mod api;
mod batch;
mod batch_stream;
mod builder;
mod client;
mod dispatcher;
mod error;
mod high_water_marks;
mod key;
mod members;
mod namespaces;
mod numbers;
mod queue;
mod request;
mod route;
mod route_watches;
mod segment;
mod servers;
mod unary_call;

pub use builder::Builder;
pub use client::Client;
pub use error::{Code, Error};
pub use key::Key;
pub use numbers::{Numbers, NumbersIter};
pub use segment::Segment;
