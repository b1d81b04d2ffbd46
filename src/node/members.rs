//! Administration of members, by the leader: each change is checked before it is proposed.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    NodeContext, administer::ANSWER_MARGIN, error::proposal_failed, hello::Purpose,
    reach::check_reach,
};
use crate::{
    clock,
    consensus::MembershipChange,
    proto::{Refusal, peer::administer_reply::Reply, refusal, v1},
    sequence::NodeId,
    storage::Member,
};

/// How soon the voters after a change are checked again.
const RETRY: Duration = Duration::from_millis(20);

impl NodeContext {
    pub(super) async fn add_node(
        &self, term: u64, v1::AddNodeRequest { id, peer_address }: v1::AddNodeRequest,
        deadline: Instant,
    ) -> Result<Reply, Refusal> {
        if id == 0 {
            return Err(refusal!(InvalidRequest, "id is 0; node ids start at 1"));
        }
        if self.config.dev {
            return Err(refusal!(
                WrongState,
                "this cluster is for trying (--dev): if its first node lost its data, it would found a cluster anew, and \
                 numbers would begin at 1 again beside the other nodes. Found one that grows with: ratchet found"
            ));
        }
        let is_member = || {
            refusal!(
                NodeExists,
                "node {id} is a member already; ratchet node promote {id} makes a learner a voter, \
                 ratchet node update {id} takes in another address"
            )
        };
        let known = self.group.nodes().into_iter().find(|node| node.id == id);
        if known.as_ref().is_some_and(|known| known.voter || known.log_index.is_some()) {
            return Err(is_member());
        }
        let member = self.introduce(id, &peer_address, Purpose::Add).await?;
        let members = self.group.members().into_iter().map(|(id, (known, _))| (id, known));
        check_reach(&members.chain([(id, member.clone())]).collect())?;
        let known = known.map(|known| known.member.incarnation);
        if known == Some(member.incarnation) {
            return Err(is_member());
        }
        // If it is known, it was started again before this leader reached it. It has never voted.
        let gone = known.map(|incarnation| MembershipChange::RemoveLearner(id, incarnation));
        let changes = gone.into_iter().chain([MembershipChange::Add(id, member)]);
        self.change(term, changes.collect(), None, deadline).await
    }

    /// Records a member's new address. The member must listen there already, with the directory that the cluster
    /// knows: a wrong address would take a voter away.
    pub(super) async fn update_node(
        &self, term: u64, v1::UpdateNodeRequest { id, peer_address }: v1::UpdateNodeRequest,
        deadline: Instant,
    ) -> Result<Reply, Refusal> {
        let known = self.known(id)?;
        let address = peer_address.as_ref().unwrap_or(&known.peer_address);
        let member = self.find(id, &known, address).await?;
        if member == known {
            return Ok(self.membership());
        }
        let change = MembershipChange::Move(id, member);
        self.change(term, vec![change], None, deadline).await
    }

    pub(super) async fn promote_node(
        &self, term: u64, node: v1::NodeRequest, deadline: Instant,
    ) -> Result<Reply, Refusal> {
        self.known(node.id)?;
        let change = MembershipChange::Promote(node.id);
        self.change_voters(term, change, node.force, deadline).await
    }

    pub(super) async fn remove_node(
        &self, term: u64, node: v1::NodeRequest, deadline: Instant,
    ) -> Result<Reply, Refusal> {
        self.known(node.id)?;
        if node.id == self.config.node_id {
            return Err(refusal!(
                WrongState,
                "node {} leads; hand the leadership over first: ratchet transfer",
                node.id
            ));
        }
        let change = MembershipChange::Remove(node.id);
        self.change_voters(term, change, node.force, deadline).await
    }

    /// Promotes or removes a node, once the voters after the change can go on.
    async fn change_voters(
        &self, term: u64, change: MembershipChange, force: bool, deadline: Instant,
    ) -> Result<Reply, Refusal> {
        let (asked, asked_at) = (Instant::now(), self.group.now());
        while let Err(unfit) = self.group.check_voters_after(term, &change, asked_at) {
            let patience = match unfit.silent {
                true => asked + self.silence_patience(),
                false => deadline,
            };
            if force {
                tracing::warn!(?change, %unfit, "a membership change is forced");
                break;
            }
            if Instant::now() + ANSWER_MARGIN >= patience.min(deadline) {
                return Err(refusal!(WrongState, "{unfit}"));
            }
            tokio::time::sleep(RETRY).await;
        }
        let unless_unfit = (!force).then_some(asked_at);
        self.change(term, vec![change], unless_unfit, deadline).await
    }

    /// Carries changes out, one after the other. They go on when the deadline passes. With `unless_unfit` each is refused if
    /// the voters after it could not go on, as heard since that moment.
    async fn change(
        &self, term: u64, changes: Vec<MembershipChange>, unless_unfit: Option<clock::Instant>,
        deadline: Instant,
    ) -> Result<Reply, Refusal> {
        let in_time = deadline.checked_sub(ANSWER_MARGIN).unwrap_or(deadline);
        let changing = self.group.change(term, changes, unless_unfit);
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

    fn membership(&self) -> Reply {
        let ids = |voting: bool| {
            let members = self.group.members().into_iter();
            let chosen = members.filter(|(_, (_, voter))| *voter == voting);
            chosen.map(|(id, _)| id).collect()
        };
        Reply::Membership(v1::MembershipResponse { voters: ids(true), learners: ids(false) })
    }
}
