//! Asks the voters before Raft does.
//!
//! Raft asks for votes once, and waits for each no longer than half an election timeout. A voter answers once its vote is on
//! its disk. Where that takes longer Raft never gets a vote, and each attempt is a term and two more writes. So this node
//! asks first whether the others would vote for it, as Raft's pre-vote does. If the disk of any of those is slow, or its
//! own, it asks for the votes themselves, and waits as long as the disks take. Then Raft asks for the same votes,
//! which are on the disks by now, and are answered at once.
//!
//! Invariant: what is asked for is the vote that Raft will ask for next, this node's own in the term after the one it
//! knows. Raft alone decides who leads: a voter gives one vote in a term, and Raft counts the answers to its own
//! questions.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use openraft::{RaftState, raft::VoteRequest};

use super::{group::Group, quorums::quorums_of};
use crate::{
    consensus::network::RaftRpc,
    storage::{Types, Vote},
};

/// How long to wait for votes, in times of a write to the slowest disk: the vote stands behind a write that is under way,
/// and disks differ.
const WRITES: u32 = 4;
/// The longest wait for votes.
const WAIT_MAX: Duration = Duration::from_secs(15);

impl Group {
    /// Asks the voters, so that Raft gets its votes in time if it holds an election after this. `known` is the vote that this
    /// node was seen to have when it decided to stand. False if Raft should hold none now: something has changed, or votes are
    /// slow to come.
    pub(super) async fn canvass(&self, known: Vote) -> bool {
        let Some(request) = self.next_vote_request().await else {
            return false;
        };
        // This node's own promise binds it, too.
        let promised = self.raft.pre_vote(request.clone()).await;
        if !promised.is_ok_and(|own| own.vote_granted) || self.metrics().vote != known {
            return false;
        }
        // No longer than a turn: one that is silent must not hold the next attempt up.
        let wait = Duration::from_millis(self.config.heartbeat_ms);
        let would = self.ask_voters(RaftRpc::PreVote, &request, wait).await;
        // Raft's own pre-vote will not succeed either then. But it learns from the answers of later terms.
        !would || self.gather_slow_votes(&request).await
    }

    /// Before Raft obeys a leader, whose vote is `from`, that has this node take over: asks for the votes that Raft will ask
    /// for, where disks are slow. Voters give them although they hear that leader: it says so itself.
    pub(in crate::consensus) async fn canvass_for_transfer(&self, from: Vote) {
        if let Some(request) = self.next_vote_request().await
            && request.vote.leader_id.term == from.leader_id.term + 1
        {
            let request = VoteRequest { leadership_transfer: true, ..request };
            self.gather_slow_votes(&request).await;
        }
    }

    /// Asks for the votes themselves if a write takes long here, or on a voter whose speed is known. False if a majority does
    /// not give them. True at once if the disks are quick.
    async fn gather_slow_votes(&self, request: &VoteRequest<Types>) -> bool {
        let slowest = self.slowest_flush();
        if slowest <= self.config.quick_flush() {
            return true;
        }
        let term = request.vote.leader_id.term;
        let _standing = self.canvassed_term.begin(term);
        let wait = (WRITES * slowest).clamp(self.config.slow_flush(), WAIT_MAX);
        tracing::info!(
            term,
            flush_ms = slowest.as_millis(),
            "the disks are slow: votes are asked for ahead of the election"
        );
        self.ask_voters(RaftRpc::Vote, request, wait).await
    }

    /// The request that Raft will send the voters if it holds an election next. `None` if this node may not stand, or Raft has
    /// stopped.
    async fn next_vote_request(&self) -> Option<VoteRequest<Types>> {
        let me = self.node();
        let read = move |state: &RaftState<Types>| {
            // A voter whose removal is not committed may have the only log with which a candidate can win.
            let of = &state.membership_state;
            let memberships = [of.committed().membership(), of.effective().membership()];
            let votes = memberships.iter().any(|members| members.voter_ids().any(|id| id == me));
            let term = state.vote_ref().leader_id.term;
            votes.then(|| VoteRequest::new(Vote::new(term + 1, me), state.log_ids.last().copied()))
        };
        self.raft.with_raft_state(read).await.ok()?
    }

    /// Asks all voters, and waits at most `wait`. True if a majority, this node among them, says yes.
    async fn ask_voters(&self, rpc: RaftRpc, request: &VoteRequest<Types>, wait: Duration) -> bool {
        let membership = self.metrics().membership_config;
        let quorums = quorums_of(&membership);
        let mut yes = BTreeSet::from([self.node()]);
        let mut answers: FuturesUnordered<_> = quorums
            .voters()
            .into_iter()
            .filter(|voter| *voter != self.node())
            .filter_map(|voter| {
                let peer = self.network.peer(voter, membership.membership().get_node(&voter)?);
                Some(async move { (voter, peer.request_vote(rpc, request, wait).await) })
            })
            .collect();
        while !quorums.agree(&yes) {
            match answers.next().await {
                Some((voter, Ok(answer))) if answer.vote_granted => drop(yes.insert(voter)),
                Some((_, Ok(_) | Err(_))) => {}
                None => return false,
            }
        }
        true
    }

    /// How long a write takes to the slowest disk that is known lately: this node's, or a voter's.
    pub(super) fn slowest_flush(&self) -> Duration {
        let now = self.now();
        let voters = quorums_of(&self.metrics().membership_config).voters();
        let disks = &self.this_node.peer_machines.disks;
        let others = voters.into_iter().filter_map(|voter| disks.flush_of(voter, now));
        others.chain(self.flush_takes()).max().unwrap_or_default()
    }

    /// True if this node asks for votes of its own in `term`, or a later one, at this moment: it should not vote for another
    /// one in it. Two that vote for each other would both lose.
    pub(in crate::consensus) fn stands_in(&self, term: u64) -> bool {
        self.canvassed_term.is_at_least(term)
    }
}
