//! Requests with an id: whoever asks again with it gets the same numbers.

use bytes::Bytes;

use crate::{
    api::{self as v1, sequencer_client::SequencerClient},
    client::Client,
    error::Error,
    key::Key,
    numbers::Numbers,
};

impl Client {
    /// The next `count` numbers of a key, or those that an earlier request with this id got. Make up an id for each
    /// purpose, for example a UUID or the number of an order, and ask again with it after an error.
    ///
    /// In a gapless namespace each id gets numbers exactly once while it is remembered (`request_id_keep_ms` of the
    /// cluster, 10 minutes unless it is changed). In others the leader alone remembers it: after a change of the leader
    /// a retry gets new numbers.
    ///
    /// Such requests are not merged with others.
    ///
    /// # Errors
    /// As [`Client::next`]. [`Code::AlreadyExists`](crate::Code::AlreadyExists) if the id was used for another key or
    /// count of the namespace.
    pub async fn next_once(
        &self, namespace: &str, key: impl Into<Key>, count: u64, request_id: impl AsRef<[u8]>,
    ) -> Result<Numbers, Error> {
        let request = v1::NextRequest {
            namespace: namespace.to_owned(),
            key: Some(key.into().into()),
            count: Some(count),
            // As for `current`: any server answers.
            route_version: u64::MAX,
            members_version: self.pool().members_version(),
            request_id: Some(Bytes::copy_from_slice(request_id.as_ref())),
        };
        // It changes something, and may be asked again all the same.
        let answer: v1::NextResponse = self
            .pool()
            .call(false, request, async |channel, request| {
                SequencerClient::new(channel).next(request).await
            })
            .await?;
        if let Some(route) = &answer.route {
            self.pool().learn(route);
        }
        Ok(Numbers { first: answer.first, last: answer.last, increment: answer.increment })
    }
}
