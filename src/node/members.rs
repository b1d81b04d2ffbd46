//! Administration of members, by the leader: each change is checked before it is proposed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    NodeContext,
    error::proposal_failed,
    hello::Purpose,
    leader_search::Attempt,
    operations::{ANSWER_MARGIN, ByLeader},
    reach::check_reach,
};
use crate::{
    allocator::Term,
    clock,
    consensus::MembershipChange,
    proto::{Refusal, refusal, v1},
    sequence::NodeId,
    storage::Member,
};

/// How soon the voters after a change are checked again.
const RETRY: Duration = Duration::from_millis(20);

/// How many election timeouts a node is waited for that was not heard lately. One that is up is heard within a heartbeat or
/// two, unless its machine is overloaded.
const SILENCE_ELECTIONS: u64 = 5;

impl ByLeader for v1::AddNodeRequest {
    async fn carry_out(
        self, node: &Arc<NodeContext>, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::AddNodeRequest { id, peer_address } = self;
        if id == 0 {
            return Err(refusal!(InvalidRequest, "id is 0; node ids start at 1").into());
        }
        if node.config.dev {
            return Err(refusal!(
                WrongState,
                "this cluster is for trying (--dev): if its first node lost its data, it would found a cluster anew, and \
                 numbers would begin at 1 again beside the other nodes. Found one that grows with: ratchet found"
            )
            .into());
        }
        let is_member = || {
            refusal!(
                NodeExists,
                "node {id} is a member already; ratchet node promote {id} makes a learner a voter, \
                 ratchet node update {id} takes in another address"
            )
        };
        let known = node.group.nodes().into_iter().find(|node| node.id == id);
        if known.as_ref().is_some_and(|known| known.voter || known.log_index.is_some()) {
            return Err(is_member().into());
        }
        let member = node.introduce(id, &peer_address, Purpose::Add).await?;
        let members = node.group.members().into_iter().map(|(id, (known, _))| (id, known));
        check_reach(&members.chain([(id, member.clone())]).collect())?;
        let known = known.map(|known| known.member.incarnation);
        if known == Some(member.incarnation) {
            return Err(is_member().into());
        }
        // If it is known, it was started again before this leader reached it. It has never voted.
        let gone = known.map(|incarnation| MembershipChange::RemoveLearner(id, incarnation));
        let changes = gone.into_iter().chain([MembershipChange::Add(id, member)]);
        node.change(term, changes.collect(), None, deadline).await
    }
}

impl ByLeader for v1::UpdateNodeRequest {
    /// Records a member's new address. The member must listen there already, with the directory that the cluster
    /// knows: a wrong address would take a voter away.
    async fn carry_out(
        self, node: &Arc<NodeContext>, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::UpdateNodeRequest { id, peer_address } = self;
        let known = node.known(id)?;
        let address = peer_address.as_ref().unwrap_or(&known.peer_address);
        let member = node.find(id, &known, address).await?;
        if member == known {
            return Ok(node.membership());
        }
        node.change(term, vec![MembershipChange::Move(id, member)], None, deadline).await
    }
}

impl ByLeader for v1::PromoteNodeRequest {
    async fn carry_out(
        self, node: &Arc<NodeContext>, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        node.known(self.id)?;
        let change = MembershipChange::Promote(self.id);
        node.change_voters(term, change, self.force, deadline).await
    }
}

impl ByLeader for v1::RemoveNodeRequest {
    async fn carry_out(
        self, node: &Arc<NodeContext>, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        node.known(self.id)?;
        if self.id == node.config.node_id {
            return Err(refusal!(
                WrongState,
                "node {} leads; hand the leadership over first: ratchet transfer",
                self.id
            )
            .into());
        }
        let change = MembershipChange::Remove(self.id);
        node.change_voters(term, change, self.force, deadline).await
    }
}

impl NodeContext {
    /// How long a node is waited for that was not heard lately.
    pub(super) fn silence_patience(&self) -> Duration {
        Duration::from_millis(SILENCE_ELECTIONS * self.config.election_timeout_ms)
    }

    /// Promotes or removes a node, once the voters after the change can go on.
    async fn change_voters(
        &self, term: &Term, change: MembershipChange, force: bool, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let (asked, asked_at) = (Instant::now(), self.group.now());
        while let Err(unfit) = self.group.check_voters_after(term.term(), &change, asked_at) {
            let patience = match unfit.silent {
                true => asked + self.silence_patience(),
                false => deadline,
            };
            if force {
                tracing::warn!(?change, %unfit, "a membership change is forced");
                break;
            }
            if Instant::now() + ANSWER_MARGIN >= patience.min(deadline) {
                return Err(refusal!(WrongState, "{unfit}").into());
            }
            tokio::time::sleep(RETRY).await;
        }
        let unless_unfit = (!force).then_some(asked_at);
        self.change(term, vec![change], unless_unfit, deadline).await
    }

    /// Carries changes out, one after the other. They go on when the deadline passes. With `unless_unfit` each is refused if
    /// the voters after it could not go on, as heard since that moment.
    async fn change(
        &self, term: &Term, changes: Vec<MembershipChange>, unless_unfit: Option<clock::Instant>,
        deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let in_time = deadline.checked_sub(ANSWER_MARGIN).unwrap_or(deadline);
        let changing = self.group.change(term.term(), changes, unless_unfit);
        let done = tokio::time::timeout_at(in_time, changing).await.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "the membership change is not through yet, and goes on: a majority of its voters \
                 must write it down; see ratchet status"
            )
            .ongoing()
        })?;
        done.map_err(proposal_failed)?;
        Ok(self.membership())
    }

    /// The member `id`.
    pub(super) fn known(&self, id: NodeId) -> Result<Member, Refusal> {
        let mut members = self.group.members();
        if let Some((member, _)) = members.remove(&id) {
            return Ok(member);
        }
        let ids: Vec<String> = members.keys().map(u64::to_string).collect();
        Err(refusal!(NodeNotFound, "node {id} is not a member; the members are {}", ids.join(", ")))
    }

    fn membership(&self) -> v1::MembershipResponse {
        let ids = |voting: bool| {
            let members = self.group.members().into_iter();
            let chosen = members.filter(|(_, (_, voter))| *voter == voting);
            chosen.map(|(id, _)| id).collect()
        };
        v1::MembershipResponse { voters: ids(true), learners: ids(false) }
    }
}
