//! Follows the leadership: an allocator for each term that this node leads. The first entry of a term gives it its chunks: it
//! takes over from the last leader, or begins an epoch. Only then is the allocator opened. A term that gets no chunks ends.

use std::{sync::Arc, time::Duration};

use super::LedTerms;
use crate::{
    allocator::{GaplessLimits, MemoryLimits, ReceivedMemory, Term, TermOptions},
    consensus::{ProposeError, TermLease},
    metrics::TermStart,
    planted_bugs::{Bug, is_planted},
    sequence::{Command, EntryOutcome, LedgerRefused, MemoryDigest, NodeId, TermEnd},
};

impl LedTerms {
    /// Opens an allocator for each term that this node leads, and drops it when the term is over.
    pub(in crate::node) async fn follow_leadership(self: Arc<Self>) {
        let mut leadership = self.group.leadership();
        let mut told = None;
        loop {
            let now = leadership.borrow_and_update().clone();
            self.group.set_metrics.term.set(now.term.cast_signed());
            self.group.set_metrics.leads.set(i64::from(now.own.is_some()));
            let has_leader = i64::from(now.leader.is_some());
            self.group.set_metrics.has_leader.set(has_leader);
            match &now.own {
                Some(lease) if self.own.stage().term() != Some(lease.term()) => {
                    self.begin(lease).await;
                }
                // Its allocator is open, or the term got no chunks and must end.
                Some(_) => {}
                None => {
                    if let Some(term) = self.own.leave() {
                        tracing::info!(term = term.term(), "not leading any more");
                    }
                }
            }
            self.held_memory.follow(&now, self.config.node_id);
            let leader = now.leader.as_ref().map(|(leader, _)| (now.term, *leader));
            if let Some((leader, member)) = &now.leader
                && told != Some((now.term, *leader))
            {
                self.group.set_metrics.leader_changes.inc();
                let address = &member.client_address;
                tracing::info!(term = now.term, leader, address, "leader");
            }
            told = leader;
            self.changes.send_modify(|n| *n += 1);
            if leadership.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins the term of `lease`: gets it its chunks, and opens its allocator.
    async fn begin(&self, lease: &Arc<TermLease>) {
        let Ok(before) = self.own.begin(lease.term()) else {
            // The node stops.
            return;
        };
        let is_void = |term: Arc<Term>| term.lease().is_void();
        assert!(before.is_none_or(is_void), "two terms of this node serve at once");
        self.changes.send_modify(|n| *n += 1);
        let Some((epoch, received)) = self.take_chunks(lease).await else {
            return;
        };
        if received.is_none() && is_planted(Bug::TermOpensLate) {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        self.create_first_namespaces(lease).await;
        self.name_cluster(lease).await;
        if !lease.is_void() {
            self.open(lease, epoch, received);
        }
    }

    /// Opens the allocator of the term, whose epoch has the number `epoch`.
    fn open(&self, lease: &Arc<TermLease>, epoch: u64, received: Option<ReceivedMemory>) {
        let start = match received {
            Some(_) => TermStart::hand_off,
            None => TermStart::epoch,
        };
        let term = Term::open(
            self.group.clone(),
            lease.clone(),
            epoch,
            received,
            TermOptions {
                fence: self.config.fence,
                memory: MemoryLimits {
                    bytes_max: self.memory_bytes_max(),
                    idle: self.config.key_idle(),
                },
                gapless: GaplessLimits {
                    keep: Duration::from_millis(self.config.request_id_keep_ms),
                    bytes_max: self.group.budget.request_ids_bytes,
                    count_max: self.config.count_max,
                },
            },
            self.clock.clone(),
            self.metrics.clone(),
        );
        tracing::info!(term = lease.term(), "leading: numbers come from here");
        self.group.set_metrics.terms_begun.add(start, 1);
        self.show_leader_change(lease);
        if self.own.open(lease.term(), Arc::new(term)).is_err() {
            tracing::info!(term = lease.term(), "the node stops: the term is not led");
        }
    }

    /// Gets the term its first chunks. It takes over if the last leader handed its memory off to this node. Otherwise
    /// an epoch gives the term a chunk of every live section. Returns the number of the epoch, and the memory that it
    /// took over. `None` if the term got none, and must end.
    async fn take_chunks(&self, lease: &TermLease) -> Option<(u64, Option<ReceivedMemory>)> {
        let held = self.held_memory.take(lease.term());
        let held = held.map(|(memory, digest)| (memory, (self.config.node_id, digest)));
        let (memory, handed_off) = match is_planted(Bug::StrangerTakesOver) {
            false => held.unzip(),
            true => (None, self.handed_off()),
        };
        if let Some((successor, digest)) = handed_off {
            let take_over = Command::TakeOver { successor, digest };
            match self.propose_first(lease, take_over).await? {
                Ok(epoch) => return Some((epoch, memory)),
                Err(refused) => tracing::info!(
                    term = lease.term(),
                    %refused,
                    "the memory of the last term is of no use; this one begins with an empty memory"
                ),
            }
        }
        match self.propose_first(lease, Command::BeginEpoch).await? {
            Ok(epoch) => Some((epoch, None)),
            Err(refused) => self.end_without_chunks(lease, &refused.to_string()),
        }
    }

    /// The hand-off of the last leader: the successor, and the digest. Only a planted bug asks for it.
    fn handed_off(&self) -> Option<(NodeId, MemoryDigest)> {
        match self.group.view.ledger().ok()?.end? {
            TermEnd::HandOff { successor, digest } => Some((successor, digest)),
            TermEnd::Return => None,
        }
    }

    /// Proposes an entry that gives the term its chunks. Returns the number of their epoch, or why it gives none. `None`
    /// if it is not known, or the term is lost: it must end.
    async fn propose_first(
        &self, lease: &TermLease, first: Command,
    ) -> Option<Result<u64, LedgerRefused>> {
        match self.propose_in(lease, first).await? {
            Ok(EntryOutcome::InEpoch(epoch)) => {
                assert!(epoch > 0, "term {} has chunks, and no epoch has begun", lease.term());
                Some(Ok(epoch))
            }
            Ok(EntryOutcome::Refused(refused)) => Some(Err(refused)),
            Ok(outcome) => self.end_without_chunks(lease, &format!("the answer was {outcome:?}")),
            Err(error) => self.end_without_chunks(lease, &error.to_string()),
        }
    }

    /// Proposes an entry of the term. `None` if the term is lost: a node that is cut off meanwhile would wait, and not
    /// follow the leadership.
    pub(super) async fn propose_in(
        &self, lease: &TermLease, command: Command,
    ) -> Option<Result<EntryOutcome, ProposeError>> {
        tokio::select! {
            biased;
            proposed = self.group.propose(lease.term(), command) => Some(proposed),
            () = lease.until_void() => None,
        }
    }

    /// No number can be taken in this term. It must end.
    fn end_without_chunks<T>(&self, lease: &TermLease, why: &str) -> Option<T> {
        tracing::info!(term = lease.term(), why, "the term holds no chunks");
        lease.void();
        None
    }
}
