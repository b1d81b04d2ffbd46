//! Takes a number of many keys, fast, so that all of them are active.

use std::{collections::VecDeque, ops::Range, time::Duration};

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    connection::connect,
    error::Error,
    load::Load,
    target::{NAMESPACE, Target},
    token::request,
};
use ratchet_client::api::{NextManyRequest, sequencer_client::SequencerClient};

/// How many keys a message has. A cold key may cost a bump, so a message takes a while.
const MESSAGE_KEYS: u64 = 16_384;
/// How many messages are in flight. The server handles 131 072 keys of a stream at a time.
const IN_FLIGHT: usize = 6;
const TIMEOUT_MS: u64 = 60_000;
/// How often messages may fail, for example while a leader is elected.
const FAILURES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The keys of message `id` out of `keys` in all.
fn keys_of(id: u64, keys: &Range<u64>) -> Range<u64> {
    let first = keys.start + id * MESSAGE_KEYS;
    first..(first + MESSAGE_KEYS).min(keys.end)
}

/// Takes a number of each of the first `keys` keys of `load` from the leader of `target`.
///
/// # Errors
/// If the leader cannot be reached, or goes on failing.
pub async fn touch_all(target: &Target, load: &Load, keys: u64) -> Result<(), Error> {
    touch(target, load, 0..keys).await
}

/// Takes a number of each of `keys` of `load` from the leader of `target`.
///
/// # Errors
/// If the leader cannot be reached, or goes on failing.
pub async fn touch(target: &Target, load: &Load, keys: Range<u64>) -> Result<(), Error> {
    let leader = target.servers.iter().find(|one| one.id == target.leader);
    let leader = leader.ok_or_else(|| Error::other(format!("{} has no leader", target.name)))?;
    let server = &leader.address;
    let failed = |why: &str| Error::other(format!("cannot touch all keys at {server}: {why}"));
    let (messages, outgoing) = mpsc::channel(IN_FLIGHT);
    let answers = SequencerClient::new(connect(server, target.tls().as_ref()).await?)
        .max_decoding_message_size(16 << 20)
        .next_many(request(ReceiverStream::new(outgoing), target.token.as_ref()))
        .await;
    let mut answers = answers.map_err(|status| failed(status.message()))?.into_inner();
    let mut left: VecDeque<u64> = (0..(keys.end - keys.start).div_ceil(MESSAGE_KEYS)).collect();
    let mut in_flight = 0;
    let mut failures = 0;
    while in_flight > 0 || !left.is_empty() {
        while in_flight < IN_FLIGHT
            && let Some(id) = left.pop_front()
        {
            let message = NextManyRequest {
                id,
                namespace: NAMESPACE.to_owned(),
                ids: keys_of(id, &keys).map(|key| load.id(key)).collect(),
                timeout_ms: TIMEOUT_MS,
                route_version: u64::MAX,
                ..NextManyRequest::default()
            };
            in_flight += 1;
            let sent = messages.send(message).await;
            sent.map_err(|_| failed("the stream ended"))?;
        }
        let answer = answers.next().await.ok_or_else(|| failed("the stream ended"))?;
        let answer = answer.map_err(|status| failed(status.message()))?;
        in_flight -= 1;
        let refused = answer.refused.into_iter().find_map(|keys| keys.failure);
        if let Some(failure) = answer.failure.or(refused) {
            failures += 1;
            if failures > FAILURES_MAX {
                return Err(failed(&failure.message));
            }
            left.push_back(answer.id);
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_warm_up_cover_every_key_once() {
        for keys in [1, MESSAGE_KEYS, MESSAGE_KEYS + 1, 50_000] {
            let (messages, keys) = (0..keys.div_ceil(MESSAGE_KEYS), 7..7 + keys);
            let covered: Vec<u64> = messages.flat_map(|id| keys_of(id, &keys)).collect();
            assert_eq!(covered, keys.collect::<Vec<_>>());
        }
    }
}
