//! The return of a node with data: after a start it finds its place among the members.
//!
//! It keeps silent for as long as a promise of its last run may bind it. Meanwhile it asks its peers, and the leader that
//! they name, whether its disk still holds everything that it acknowledged, and at last whether another process answers
//! with the same data.
//!
//! A node without Raft state has promised nothing. If its directory is a copy from before its first vote, its peers
//! know it with another incarnation (`storage/identity.rs`).
//!
//! Invariant: a node whose log is known to be shorter than what it acknowledged takes no part in elections. The
//! directory may be an older copy, or the disk may have lost synced writes. Such a node could vote for a leader that
//! lacks a committed ceiling, and the next ceiling would be too low.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::time::Instant;

use super::greeting::{HELLO_TIMEOUT, greeting};
use crate::{
    consensus::{Destination, Transport},
    node::{Config, StartError},
    planted_bugs::{Bug, is_planted},
    proto::{
        Code, Refusal,
        peer::{Acknowledged, HelloRequest, HelloResponse},
    },
    sequence::{NodeId, SetId},
    storage::{AppliedTable, LogStore, Store, StoreError},
};

/// Peers, with their addresses, and what their clocks showed when they answered; 0 before that.
type AskedPeers = BTreeMap<NodeId, (String, u64)>;

/// Waits out the promises that this node's last run gave in `set`, and records how long those of this run last. It does not
/// wait if the node has no Raft state.
///
/// A promise lasts for `election_timeout_ms`, which may be lower now than it was in the last run. So its length is
/// kept in the store.
///
/// # Errors
/// [`StartError`] if a peer knows that this node's log was longer or that another process has its data, or if the store cannot
/// be read or written.
pub async fn rejoin(
    store: &Arc<Store>, set: SetId, config: &Config, transport: &Arc<dyn Transport>,
) -> Result<(), StartError> {
    let promise_ms = config.election_timeout_ms;
    let last_promise_ms = store.promise_ms(set)?;
    if store.has_raft_state()? && !is_planted(Bug::NoVoteRefusal) {
        let silence_ms = promise_ms.max(last_promise_ms.unwrap_or(0));
        let silence = Duration::from_millis(silence_ms);
        tracing::info!(
            silence_ms,
            "this node was a member before: it keeps out of elections until its promises have ended"
        );
        let began = Instant::now();
        let mine = mine(store, set)?;
        let (peers, until) = (peers(store, set, config)?, began + silence);
        let sender = HelloSender { config, transport };
        // At the same time. This node does not wait for a peer that does not answer during the silence.
        let asked = sender.ask(&peers, mine, until);
        let (answered, ()) = tokio::join!(asked, tokio::time::sleep_until(until));
        // A process that has acknowledged a message which they sent after they answered is not this one. Their own clocks tell:
        // one of them may have stood still with its machine.
        sender.ask(&answered?, mine, until + silence.min(HELLO_TIMEOUT)).await?;
    }
    // Before Raft starts, and with it this run's promises.
    if last_promise_ms != Some(promise_ms) {
        let recording = store.clone();
        let recorded = store.blocking().run(move || recording.record_promise_ms(set, promise_ms));
        recorded.await.map_err(|e| StartError::Internal(e.to_string()))??;
    }
    Ok(())
}

/// The log and the vote of `set` that this node has acknowledged, as its disk has them.
fn mine(store: &Arc<Store>, set: SetId) -> Result<Acknowledged, StoreError> {
    // Opening purges a log that ends before the table, so that its end covers what a snapshot brought as well.
    let log = LogStore::open(store, set)?;
    Ok(Acknowledged {
        incarnation: store.incarnation(),
        log_index: log.last_index()?,
        silent_since_ns: 0,
        vote_term: log.vote_term()?,
    })
}

/// Asks peers what they remember of this node.
struct HelloSender<'a> {
    config: &'a Config,
    transport: &'a Arc<dyn Transport>,
}

impl HelloSender<'_> {
    /// Asks `peers`, and leaders that they name, until `until`. Returns those that answered.
    ///
    /// # Errors
    /// [`StartError`] if one of them refuses this node.
    async fn ask(
        &self, peers: &AskedPeers, mine: Acknowledged, until: Instant,
    ) -> Result<AskedPeers, StartError> {
        let asked = peers.iter().map(|(&id, (address, silent_since_ns))| async move {
            let again = Acknowledged { silent_since_ns: *silent_since_ns, ..mine };
            let answer = self.ask_one(id, address, again, until).await?;
            let (leader, at) = (answer.leader, answer.leader_address);
            let mut answered = vec![(id, (address.clone(), answer.clock_ns))];
            // The peers that this node remembers may not lead any more, and the one that leads may be new.
            let is_known = peers.contains_key(&leader) || leader == self.config.node_id;
            if !at.is_empty() && !is_known {
                let clock_ns = self.ask_one(leader, &at, mine, until).await?.clock_ns;
                answered.push((leader, (at, clock_ns)));
            }
            Ok::<_, Refusal>(answered)
        });
        let mut answered = BTreeMap::new();
        for one in join_all(asked).await {
            match one {
                Ok(peers) => answered.extend(peers),
                Err(refusal) if refusal.code() == Code::DataLoss => {
                    return Err(StoreError::Refused(refusal.message().to_owned()).into());
                }
                Err(refusal) => tracing::debug!(%refusal, "a peer does not answer"),
            }
        }
        Ok(answered)
    }

    async fn ask_one(
        &self, to: NodeId, address: &str, mine: Acknowledged, until: Instant,
    ) -> Result<HelloResponse, Refusal> {
        let request = HelloRequest { acknowledged: Some(mine), ..greeting(self.config, to) };
        let left = until.saturating_duration_since(Instant::now());
        self.transport.hello(Destination { node: to, address }, request, left).await
    }
}

/// The peers that the settings and the last known membership of `set` name.
fn peers(store: &Arc<Store>, set: SetId, config: &Config) -> Result<AskedPeers, StoreError> {
    let mut peers = config.peers.clone();
    let table = AppliedTable::open(store, set)?;
    for (id, member) in table.meta().membership.membership().nodes() {
        peers.insert(*id, member.peer_address.clone());
    }
    peers.remove(&config.node_id);
    Ok(peers.into_iter().map(|(id, address)| (id, (address, 0))).collect())
}
