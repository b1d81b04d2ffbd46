//! A restart: the node keeps silent for as long as a promise of its last run may bind it. Meanwhile it asks
//! its peers whether its disk still holds everything that it acknowledged.
//!
//! Invariant: a node whose log is known to be shorter than what it acknowledged takes no part in elections.
//! The directory may be an older copy, or the disk may have lost synced writes. Such a node could vote for a
//! leader that lacks a committed ceiling, and the next ceiling would be too low.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use tonic::{Code, Status};

use super::{Config, StartError, seams::FIRST_SET};
use crate::{
    consensus::Transport,
    planted_bugs::{Bug, is_planted},
    proto::peer::{Acknowledged, HelloRequest},
    sequence::NodeId,
    storage::{AppliedTable, LogStore, Store, StoreError},
};

/// Waits out the promises of the last run, and records how long those of this run last. It does not wait if the
/// node has never voted.
///
/// A promise lasts for `election_timeout_ms`, which may be lower now than it was in the last run. So its length is
/// kept in the store.
///
/// # Errors
/// [`StartError`] if a peer knows that this node's log was longer, or the store cannot be read or written.
pub async fn rejoin(
    store: &Arc<Store>, config: &Config, transport: &Arc<dyn Transport>,
) -> Result<(), StartError> {
    let promise_ms = config.election_timeout_ms;
    let last_promise_ms = store.promise_ms(FIRST_SET)?;
    if store.has_vote(FIRST_SET)? && !is_planted(Bug::NoVoteRefusal) {
        let silence_ms = promise_ms.max(last_promise_ms.unwrap_or(0));
        let silence = Duration::from_millis(silence_ms);
        tracing::info!(
            silence_ms,
            "this node has voted before: it keeps out of elections until its promises have ended"
        );
        // At the same time. A peer that does not answer during the silence is not waited for.
        let (asked, ()) =
            tokio::join!(ask_peers(store, config, transport, silence), tokio::time::sleep(silence));
        asked?;
    }
    // Before Raft starts, and with it this run's promises.
    if last_promise_ms != Some(promise_ms) {
        let recording = store.clone();
        let recorded =
            store.blocking().run(move || recording.record_promise_ms(FIRST_SET, promise_ms));
        recorded.await.map_err(|e| StartError::Internal(e.to_string()))??;
    }
    Ok(())
}

async fn ask_peers(
    store: &Arc<Store>, config: &Config, transport: &Arc<dyn Transport>, limit: Duration,
) -> Result<(), StartError> {
    // Opening purges a log that ends before the table, so that this covers what a snapshot brought as well.
    let mine = Acknowledged {
        incarnation: store.identity().incarnation,
        log_index: LogStore::open(store, FIRST_SET)?.last_index()?,
    };
    let asked = peers(store, config)?.into_iter().map(|(to, address)| {
        let request =
            HelloRequest { acknowledged: Some(mine), ..HelloRequest::from_node(config, to) };
        async move { transport.hello(&address, request, limit).await }
    });
    let refused = |answer: Result<_, Status>| answer.err().filter(|s| s.code() == Code::DataLoss);
    match join_all(asked).await.into_iter().find_map(refused) {
        Some(status) => Err(StoreError::Refused(status.message().to_owned()).into()),
        None => Ok(()),
    }
}

/// The peers that the settings and the last known membership name, with their addresses.
fn peers(store: &Arc<Store>, config: &Config) -> Result<BTreeMap<NodeId, String>, StoreError> {
    let mut peers = config.peers.clone();
    let table = AppliedTable::open(store, FIRST_SET)?;
    for (id, member) in table.meta().membership.membership().nodes() {
        peers.insert(*id, member.peer_address.clone());
    }
    peers.remove(&config.node_id);
    Ok(peers)
}
