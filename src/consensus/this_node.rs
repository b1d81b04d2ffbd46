//! [`ThisNode`]: what a node has once, however many Raft groups run on it: who it is, its store, its tasks, and what other
//! nodes tell of their machines. A group borrows from here: the store's disk and threads, and its share of the node's budget
//! (`budget.rs`).
//!
//! Other nodes tell of themselves with their answers (`peer_machines.rs`): what their clocks show (`peer_clocks.rs`), whether
//! their disks are low, how long these take for a write (`peer_disks.rs`), and, if this node does not know it, what of them is
//! open to others.
//!
//! Invariant: as long as it is not known which incarnation is on the disk, no message reaches Raft and nobody claims the node.

mod budget;
mod peer_clocks;
mod peer_disks;
mod peer_machines;

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use self::peer_machines::PeerMachines;
pub use self::{
    budget::{Budget, NodeBudget},
    peer_clocks::ClockDistance,
};
use crate::{
    clock::Instant,
    ordered_watch,
    sequence::NodeId,
    storage::{Store, StoreError},
    tasks::Tasks,
};

/// The parts that a node has once, however many Raft groups run on it.
pub struct ThisNode {
    /// The cluster's name.
    pub cluster: String,
    /// The node's id.
    pub id: NodeId,
    /// The store, which holds the parts of all groups.
    pub store: Arc<Store>,
    /// The tasks of the node.
    pub tasks: Tasks,
    /// The budget of its groups together.
    pub budget: NodeBudget,
    /// The machines of other nodes, as these tell of them.
    pub(super) peer_machines: PeerMachines,
    /// The open ports of this node, as the leader is told, and the CRC-32 of that.
    open: Mutex<(Bytes, u32)>,
    /// Whether this node is known to belong to a cluster: once it does, it always does.
    had_members: AtomicBool,
    /// The last peer that took this node, while it belonged to no cluster, for one with another data directory.
    taken_for_another: ordered_watch::Sender<Option<NodeId>>,
    /// Whether it is known which incarnation is on the disk. Shared by the messages of members while this node belongs to no
    /// cluster; held alone by the task that claims it.
    incarnation_is_known: Arc<RwLock<bool>>,
}

impl ThisNode {
    /// The node `id` of `cluster`, whose data is in `store` and whose tasks are `tasks`. Its groups share `budget`.
    pub fn new(
        cluster: String, id: NodeId, store: Arc<Store>, tasks: Tasks, budget: NodeBudget,
    ) -> Arc<Self> {
        Arc::new(ThisNode {
            cluster,
            id,
            store,
            tasks,
            budget,
            peer_machines: PeerMachines::default(),
            open: Mutex::default(),
            had_members: AtomicBool::new(false),
            taken_for_another: ordered_watch::Sender::default(),
            incarnation_is_known: Arc::new(RwLock::new(true)),
        })
    }

    /// The open ports of this node, for an answer to its leader. `None` if the leader knows them: `known` is the CRC-32 of its
    /// knowledge.
    pub fn open_unless(&self, known: u32) -> Option<Bytes> {
        let open = self.open.lock();
        (open.1 != known).then(|| open.0.clone())
    }

    /// Tells the leader from now on what of this node is open, in words; empty: nothing is.
    pub fn tell_open(&self, open: &str) {
        let open = Bytes::copy_from_slice(open.as_bytes());
        let checksum = crc32fast::hash(&open);
        *self.open.lock() = (open, checksum);
    }

    /// Whether a group of this node is known to have, or to have had, members.
    pub(super) fn had_members(&self) -> bool {
        self.had_members.load(Acquire)
    }

    /// A group of this node has members.
    pub(super) fn note_members(&self) {
        self.had_members.store(true, Release);
    }

    /// The last sender of a message for another data directory of this node, if this one belonged to no cluster then, now and
    /// from now on. Either files were lost, or a stranger says so: any caller can.
    pub fn taken_for_another(&self) -> ordered_watch::Receiver<Option<NodeId>> {
        self.taken_for_another.subscribe()
    }

    /// `peer` takes this node, which belongs to no cluster, for one with another data directory.
    pub(super) fn note_taken_for_another(&self, peer: NodeId) {
        self.taken_for_another.send_replace(Some(peer));
    }

    /// Keeps the incarnation of this node, which belongs to no cluster, as it is while the result lives: a message for it must
    /// not reach Raft under another one.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the disk failed while the incarnation was written: no message is taken any more.
    pub(super) async fn keep_incarnation(&self) -> Result<OwnedRwLockReadGuard<bool>, StoreError> {
        let is_known = self.incarnation_is_known.clone().read_owned().await;
        check_known(*is_known)?;
        Ok(is_known)
    }

    /// Makes sure that this node can be claimed: no message of a cluster has reached its Raft. With `renews` it gets another
    /// incarnation then. False, and nothing is done, if one has.
    ///
    /// # Errors
    /// [`StoreError`] if the disk fails, or has failed in an earlier call.
    pub async fn be_claimed(&self, renews: bool) -> Result<bool, StoreError> {
        let mut is_known = self.incarnation_is_known.write().await;
        check_known(*is_known)?;
        // Also if this call is dropped in the middle.
        *is_known = false;
        let store = self.store.clone();
        let claiming = self.store.blocking().run(move || {
            let is_free = !store.has_raft_state()?;
            if is_free && renews {
                store.renew_incarnation()?;
            }
            Ok(is_free)
        });
        let claimed =
            claiming.await.unwrap_or_else(|error| Err(StoreError::invalid(error.to_string())));
        *is_known = claimed.is_ok();
        claimed
    }

    /// How long a write takes at `now` to the disk of the logs. `None` if nothing was written lately.
    pub(super) fn flush_takes(&self, now: Instant) -> Option<Duration> {
        self.store.health().flush_takes(now)
    }

    /// For how long the disk of the logs has not answered at `now`; `None` if nothing waits for it.
    pub(super) fn disk_silence(&self, now: Instant) -> Option<Duration> {
        self.store.health().oldest_pending().map(|since| now.since(since))
    }
}

/// Fails if it is not known which incarnation is on the disk.
fn check_known(is_known: bool) -> Result<(), StoreError> {
    match is_known {
        true => Ok(()),
        false => Err(StoreError::invalid(
            "the disk failed while the node's incarnation was written: which one it has is not known, and the node stops",
        )),
    }
}
