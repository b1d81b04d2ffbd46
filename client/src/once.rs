//! Requests with an id: whoever asks again with it gets the same numbers.

use bytes::Bytes;

use crate::{client::Client, error::Error, key::Key, numbers::Numbers};

impl Client {
    /// The next `count` numbers of a key of a gapless namespace, or those that an earlier request with this id got. Make up
    /// an id for each purpose, for example a UUID or the number of an order, and ask again with it after an error, also
    /// from another process.
    ///
    /// Each id gets numbers exactly once while it is remembered (`request_id_keep_ms` of the cluster, 10 minutes unless it is
    /// changed). [`Client::next_range`] needs no id: the client has one of its own for as long as it asks.
    ///
    /// Such requests travel as others do, in messages of their own.
    ///
    /// # Errors
    /// As [`Client::next`]. [`Code::FailedPrecondition`](crate::Code::FailedPrecondition) if the id was used for another
    /// key or count, or the namespace is not gapless.
    pub async fn next_once(
        &self, namespace: &str, key: impl Into<Key>, count: u64, request_id: impl AsRef<[u8]>,
    ) -> Result<Numbers, Error> {
        let id = Bytes::copy_from_slice(request_id.as_ref());
        self.take(namespace, key.into(), count, Some(id)).await
    }
}
