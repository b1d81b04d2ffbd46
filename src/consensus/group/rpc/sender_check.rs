//! Refuses messages of peers that are not for this node, or not from a member, or that no honest node sends. Raft itself obeys
//! every sender, so each of its messages is checked here before.

use openraft::{async_runtime::watch::WatchReceiver, raft::AppendEntriesRequest};

use super::RpcHandler;
use crate::{
    consensus::terms,
    proto::{Refusal, peer::Header, refusal, refuse},
    sequence::NodeId,
    storage::{Membership, Types, Vote, replacing},
};

impl RpcHandler {
    /// Refuses a message that is not meant for this node.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there is no header. FAILED_PRECONDITION if the header names another cluster,
    /// node, data directory or set, or another `election_timeout_ms`.
    pub fn check_header<'a>(&self, header: Option<&'a Header>) -> Result<&'a Header, Refusal> {
        let Some(header) = header else {
            refuse!(InvalidRequest, "a peer message without a header");
        };
        let (this_node, config) = (&self.group.this_node, &self.group.config);
        let refuse = |what: String| {
            Err(refusal!(
                WrongState,
                "node {} of cluster {:?} refuses a message from node {}: {what}",
                this_node.id,
                this_node.cluster,
                header.from
            ))
        };
        if header.cluster != this_node.cluster {
            return refuse(format!("it is for cluster {:?}", header.cluster));
        }
        if header.to != this_node.id {
            return refuse(format!("it is for node {}", header.to));
        }
        if header.to_incarnation != this_node.store.incarnation() {
            if !self.group.is_formed() {
                this_node.note_taken_for_another(header.from);
            }
            // The incarnation here is not told: only members may know it.
            return refuse(format!(
                "it is for another data directory of node {0} (incarnation {1:x}); if the one that \
                 the cluster knows was lost, {2}",
                this_node.id,
                header.to_incarnation,
                replacing(this_node.id)
            ));
        }
        if header.set != u64::from(config.set) {
            return refuse(format!("it is for set {}", header.set));
        }
        if header.election_timeout_ms != config.election_timeout_ms {
            return refuse(format!(
                "its election_timeout_ms is {}, here it is {}; all nodes must agree",
                header.election_timeout_ms, config.election_timeout_ms
            ));
        }
        Ok(header)
    }

    /// Whether a message that is meant for this node comes from a member.
    pub fn is_member(&self, header: &Header) -> bool {
        let metrics = self.group.raft.metrics();
        let metrics = metrics.borrow_watched();
        is_sent_by_one_of(metrics.membership_config.membership(), header)
    }

    /// Refuses a sender that is not a member, or does not vote although it must.
    ///
    /// This node may have to listen to a node that it does not know yet: while it was away its peers may
    /// have changed, and the leader, or the only candidate that can win, may be new. So a stranger is let
    /// in if this node hears of no leader, or follows this very stranger. The stranger's messages carry
    /// this node's incarnation, which only members know. (A leader that lost its majority is heard at
    /// intervals longer than this memory: it cannot keep a stranger out for ever.)
    ///
    /// A node that was removed is no such stranger. A voter that has applied its removal refuses it, whichever leader is heard:
    /// with the key of its certificate anybody could speak as that node, and it knows the incarnations. That keeps no majority
    /// from electing: where a former member's id comes again, it votes only once all voters know so
    /// (`GroupMembership::check_voters_after`). A learner refuses nobody more for it. It may be on its way through the log,
    /// behind an entry that added a node again; and its vote does not count.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, with the list of members.
    pub(super) fn check_sender(&self, header: &Header, must_vote: bool) -> Result<(), Refusal> {
        let metrics = self.group.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let may_vote = || membership.voter_ids().any(|voter| voter == header.from);
        let is_accepted = is_sent_by_one_of(membership, header) && (!must_vote || may_vote());
        let is_fresh = membership.nodes().next().is_none();
        if is_accepted || is_fresh {
            return Ok(());
        }
        let votes_here = || membership.voter_ids().any(|voter| voter == self.group.node());
        let was_removed = || {
            let former = self.group.view.former_members().contains(&header.from);
            former && !is_sent_by_one_of(membership, header) && votes_here()
        };
        match self.leader_heard_of_late() {
            Some(leader) if leader == header.from => return Ok(()),
            None if !was_removed() => return Ok(()),
            Some(_) | None => {}
        }
        let ids: Vec<_> = membership.nodes().map(|(id, _)| id).collect();
        let what = match must_vote && membership.get_node(&header.from).is_some() {
            true => "that node does not vote with this data directory",
            false => "that node is not a member with this data directory",
        };
        Err(refusal!(
            WrongState,
            "node {} of cluster {:?} refuses a message from node {}: {what} (members: {ids:?}). If it was \
             removed, stop it; if it should belong to the cluster, {}",
            self.group.node(),
            self.group.this_node.cluster,
            header.from,
            replacing(header.from)
        ))
    }

    /// The leader that this node hears: itself while it holds a lease, or the one that it followed less
    /// than an election timeout ago.
    fn leader_heard_of_late(&self) -> Option<NodeId> {
        let group = &self.group;
        if group.lease.is_valid() {
            return Some(group.node());
        }
        let (leader, at) = group.heard_leader.last()?;
        (group.lease.now().since(at) < group.config.promise_time()).then_some(leader)
    }

    /// Refuses a vote that is not the sender's own, or of a term that no cluster comes to. With `of_leader`
    /// it must be the vote of a leader, otherwise that of a candidate.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for the vote of another node, FAILED_PRECONDITION for an absurd term.
    pub(super) fn check_vote(
        &self, header: &Header, vote: &Vote, of_leader: bool,
    ) -> Result<(), Refusal> {
        if vote.leader_id.voted_for != header.from || vote.committed != of_leader {
            refuse!(
                InvalidRequest,
                "a message from node {} carries the vote {vote}, which is not its own",
                header.from
            );
        }
        terms::check(self.group.term(), vote.leader_id.term).map_err(|why| {
            let text = format!("a message from node {} is refused: {why}", header.from);
            tracing::error!("{text}");
            refusal!(WrongState, "{text}")
        })
    }
}

/// Refuses an append whose entries no honest leader sends. Raft checks that the log has the entry before them, and nothing of
/// the entries themselves: it would write a gap, and this node would end when it comes to apply what is behind that.
///
/// # Errors
/// INVALID_ARGUMENT, unless the entries follow the one before them one by one, their terms do not fall, and none is of a later
/// term than the leader.
pub(super) fn check_entries(request: &AppendEntriesRequest<Types>) -> Result<(), Refusal> {
    let leads = request.vote.leader_id;
    let mut before = request.prev_log_id;
    for entry in &request.entries {
        let log_id = entry.log_id;
        let (next, term) = match before {
            None => (Some(0), 0),
            Some(before) => (before.index.checked_add(1), before.committed_leader_id().term),
        };
        if next != Some(log_id.index) || log_id.committed_leader_id().term < term {
            let before = before.map_or_else(|| "none".to_owned(), |before| before.to_string());
            refuse!(
                InvalidRequest,
                "node {} sent an append in which entry {log_id} follows entry {before}: no leader's log is so",
                leads.voted_for
            );
        }
        before = Some(log_id);
    }
    match before {
        Some(last) if last.committed_leader_id().term > leads.term => Err(refusal!(
            InvalidRequest,
            "node {} leads term {}, and sent an append with entry {last}, which is of a later term",
            leads.voted_for,
            leads.term
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether the sender of a message is a member, with that data directory.
fn is_sent_by_one_of(membership: &Membership, header: &Header) -> bool {
    let known = membership.get_node(&header.from);
    known.is_some_and(|node| node.incarnation == header.from_incarnation)
}
