//! Changes of members, by the leader: each one is checked before it is proposed.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    error::proposal_failed,
    greeting::Purpose,
    leader_search::Attempt,
    operations::{ANSWER_MARGIN, ByLeader},
    reach::check_reach,
    services::Members,
};
use crate::{
    allocator::Term,
    clock,
    consensus::MembershipChange,
    proto::{refusal, v1},
};

/// How soon the voters after a change are checked again.
const RETRY: Duration = Duration::from_millis(20);

/// How many election timeouts a node is waited for that was not heard lately. One that is up is heard within a heartbeat or
/// two, unless its machine is overloaded.
const SILENCE_ELECTIONS: u64 = 5;

impl ByLeader for v1::AddNodeRequest {
    type Service = Members;

    async fn carry_out(
        self, members: &Members, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::AddNodeRequest { id, peer_address } = self;
        if id == 0 {
            return Err(refusal!(InvalidRequest, "id is 0; node ids start at 1").into());
        }
        if members.config.dev {
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
        let known = members.group.nodes().into_iter().find(|node| node.id == id);
        if known.as_ref().is_some_and(|known| known.voter || known.log_index.is_some()) {
            return Err(is_member().into());
        }
        let member = members.introduce(id, &peer_address, Purpose::Add).await?;
        let others = members.group.members().into_iter().map(|(id, (known, _))| (id, known));
        check_reach(&others.chain([(id, member.clone())]).collect())?;
        let known = known.map(|known| known.member.incarnation);
        if known == Some(member.incarnation) {
            return Err(is_member().into());
        }
        // If it is known, it was started again before this leader reached it. It has never voted.
        let gone = known.map(|incarnation| MembershipChange::RemoveLearner(id, incarnation));
        let changes = gone.into_iter().chain([MembershipChange::Add(id, member)]);
        members.change(term, changes.collect(), None, deadline).await
    }
}

impl ByLeader for v1::UpdateNodeRequest {
    type Service = Members;

    /// Records a member's new address. The member must listen there already, with the directory that the cluster
    /// knows: a wrong address would take a voter away.
    async fn carry_out(
        self, members: &Members, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::UpdateNodeRequest { id, peer_address } = self;
        let known = members.known(id)?;
        let address = peer_address.as_ref().unwrap_or(&known.peer_address);
        let member = members.find(id, &known, address).await?;
        if member == known {
            return Ok(members.membership());
        }
        members.change(term, vec![MembershipChange::Move(id, member)], None, deadline).await
    }
}

impl ByLeader for v1::PromoteNodeRequest {
    type Service = Members;

    async fn carry_out(
        self, members: &Members, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        members.known(self.id)?;
        let change = MembershipChange::Promote(self.id);
        members.change_voters(term, change, self.force, deadline).await
    }
}

impl ByLeader for v1::RemoveNodeRequest {
    type Service = Members;

    async fn carry_out(
        self, members: &Members, term: &Term, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        members.known(self.id)?;
        if self.id == members.config.node_id {
            return Err(refusal!(
                WrongState,
                "node {} leads; hand the leadership over first: ratchet transfer",
                self.id
            )
            .into());
        }
        let change = MembershipChange::Remove(self.id);
        members.change_voters(term, change, self.force, deadline).await
    }
}

impl Members {
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
}
