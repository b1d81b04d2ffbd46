//! Changes of members, by the leader: each one is checked before it is proposed. A node that is added or moved must answer at
//! its address. The voters after a change must have a majority that could go on, unless the change is forced.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{Members, greeting::Purpose, reach::check_reach};
use crate::{
    allocator::Term,
    clock,
    consensus::MembershipChange,
    node::{
        access::{Asker, Guarded, Subject, check_peer_addresses},
        requests::{
            ongoing::{OngoingChange, through_in_time},
            operation::ByLeader,
            refused::proposal_failed,
        },
        way::{attempt::Attempt, patience::time_to_tell},
    },
    proto::{
        Refusal, refusal, refuse,
        v1::{self, Reason},
    },
    sequence::NodeId,
};

/// A node gets an id that was never used only while fewer nodes than this were removed: the id of each is remembered for ever.
const FORMER_MEMBERS_MAX: usize = 1_024;

/// How soon the voters after a change are checked again.
const RETRY: Duration = Duration::from_millis(20);

impl ByLeader for v1::AddNodeRequest {
    type Service = Members;

    fn subject(&self, _: Option<&v1::MembershipResponse>) -> Subject {
        Subject::of(self.wanted()).on(self.id).setting(Some(self.peer_address.clone()))
    }

    async fn carry_out(
        self, members: &Members, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::AddNodeRequest { id, ref peer_address } = self;
        if id == 0 {
            refuse!(InvalidRequest, "id is 0; node ids start at 1");
        }
        if members.config.dev {
            refuse!(
                WrongState,
                "this cluster is for trying (--dev): if its first node lost its data, it would found a cluster anew, and \
                 numbers would begin at 1 again beside the other nodes. Found one that grows with: ratchet found"
            );
        }
        let is_member = || {
            refusal!(
                NodeExists,
                "node {id} is a member already; ratchet node promote {id} makes a learner a voter, \
                 ratchet node update {id} takes in another address"
            )
        };
        let known = members.group.membership.nodes().into_iter().find(|node| node.id == id);
        if known.as_ref().is_some_and(|known| known.voter || known.log_index.is_some()) {
            return Err(is_member().into());
        }
        if known.is_none() {
            check_id(id, &members.group.view.former_members())?;
        }
        let was_open = members.group.view.principals().is_open();
        let member =
            members.introduce(id, peer_address, Purpose::Add).await.map_err(Refusal::from)?;
        by.check_still(&members.group, self.wanted())?;
        if !members.group.view.principals().is_open() {
            check_peer_addresses(&members.config, [peer_address].into_iter())?;
            if was_open {
                refuse!(
                    NotHeardYet,
                    "nothing is added: the cluster has tokens since just now, and node {id} has not said whether its peers come \
                     with TLS; ask again"
                );
            }
        }
        let others =
            members.group.membership.members().into_iter().map(|(id, (known, _))| (id, known));
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

    fn done_before(
        &self, members: &Members, _: &Term, refused: &Refusal,
    ) -> Option<v1::MembershipResponse> {
        let known = members.known(self.id).ok()?;
        let is_done =
            refused.reason() == Reason::NodeExists && known.peer_address == self.peer_address;
        is_done.then(|| members.membership())
    }
}

impl ByLeader for v1::UpdateNodeRequest {
    type Service = Members;

    fn subject(&self, _: Option<&v1::MembershipResponse>) -> Subject {
        Subject::of(self.wanted()).on(self.id).setting(self.peer_address.clone())
    }

    /// Records a member's new address. The member must listen there already, with the directory that the cluster
    /// knows: a wrong address would take a voter away.
    async fn carry_out(
        self, members: &Members, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let v1::UpdateNodeRequest { id, ref peer_address } = self;
        let known = members.known(id)?;
        let address = peer_address.as_ref().unwrap_or(&known.peer_address);
        let member = members.find(id, &known, address).await?;
        by.check_still(&members.group, self.wanted())?;
        if !members.group.view.principals().is_open() {
            check_peer_addresses(&members.config, [address].into_iter())?;
        }
        if member == known {
            return Ok(members.membership());
        }
        members.change(term, vec![MembershipChange::Move(id, member)], None, deadline).await
    }
}

impl ByLeader for v1::PromoteNodeRequest {
    type Service = Members;

    fn subject(&self, _: Option<&v1::MembershipResponse>) -> Subject {
        Subject::of(self.wanted()).on(self.id).setting(forced(self.force))
    }

    async fn carry_out(
        self, members: &Members, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        members.known(self.id)?;
        let change = MembershipChange::Promote(self.id);
        let may_still = || by.check_still(&members.group, self.wanted());
        members.change_voters(term, (change, self.force), may_still, deadline).await
    }
}

impl ByLeader for v1::RemoveNodeRequest {
    type Service = Members;

    fn subject(&self, _: Option<&v1::MembershipResponse>) -> Subject {
        Subject::of(self.wanted()).on(self.id).setting(forced(self.force))
    }

    async fn carry_out(
        self, members: &Members, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        members.known(self.id)?;
        if self.id == members.config.node_id {
            refuse!(
                WrongState,
                "node {} leads; hand the leadership over first: ratchet transfer",
                self.id
            );
        }
        let change = MembershipChange::Remove(self.id);
        let may_still = || by.check_still(&members.group, self.wanted());
        members.change_voters(term, (change, self.force), may_still, deadline).await
    }

    fn done_before(
        &self, members: &Members, _: &Term, refused: &Refusal,
    ) -> Option<v1::MembershipResponse> {
        (refused.reason() == Reason::NodeNotFound).then(|| members.membership())
    }
}

/// The text of the audit about a change that is forced: it is made although members that it needs may not answer.
fn forced(force: bool) -> Option<String> {
    force.then(|| "force=true".to_owned())
}

impl Members {
    /// Promotes or removes a node, once the voters after the change can go on, if the caller `may_still` have that.
    async fn change_voters(
        &self, term: &Term, (change, force): (MembershipChange, bool),
        may_still: impl Fn() -> Result<(), Refusal>, deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let (asked, asked_at) = (Instant::now(), self.group.now());
        let membership = &self.group.membership;
        while let Err(unfit) = membership.check_voters_after(term.term(), &change, asked_at) {
            let patience = match unfit.silent {
                true => asked + self.config.silence_patience(),
                false => deadline,
            };
            if force {
                tracing::warn!(?change, %unfit, "a membership change is forced");
                break;
            }
            if Instant::now() >= time_to_tell(patience.min(deadline)) {
                refuse!(WrongState, "{unfit}");
            }
            tokio::time::sleep(RETRY).await;
        }
        may_still()?;
        let unless_unfit = (!force).then_some(asked_at);
        self.change(term, vec![change], unless_unfit, deadline).await
    }

    /// Carries changes out, one after the other. They go on when the deadline passes. With `unless_unfit` each is refused if
    /// the voters after it could not go on, as heard since that moment.
    async fn change(
        &self, term: &Term, changes: Vec<MembershipChange>, unless_unfit: Option<clock::Instant>,
        deadline: Instant,
    ) -> Attempt<v1::MembershipResponse> {
        let changing = self.group.membership.change(term.term(), changes, unless_unfit);
        let change = OngoingChange {
            name: "the membership change",
            voters: "its voters",
            shown_by: "ratchet status",
        };
        through_in_time(changing, deadline, change).await?.map_err(proposal_failed)?;
        Ok(self.membership())
    }
}

/// Refuses a new id once as many nodes were removed as are remembered. `former` are those.
///
/// # Errors
/// FAILED_PRECONDITION; the text says what to do.
fn check_id(id: NodeId, former: &BTreeSet<NodeId>) -> Result<(), Refusal> {
    if former.len() < FORMER_MEMBERS_MAX || former.contains(&id) {
        return Ok(());
    }
    refuse!(
        WrongState,
        "{} nodes were removed from this cluster, and so many are remembered at most: give the node the id of one of them, such as \
         {}, and an empty data_dir",
        former.len(),
        former.iter().next().unwrap_or(&id)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_never_used_is_refused_once_a_thousand_others_were_removed() {
        let few = (2..=FORMER_MEMBERS_MAX as u64).collect::<BTreeSet<_>>();
        check_id(9_999, &few).expect("there is room");
        let many = (2..=FORMER_MEMBERS_MAX as u64 + 1).collect();
        let refused = check_id(9_999, &many).expect_err("there is none");
        assert!(refused.message().contains("such as 2,"), "{refused}");
        check_id(7, &many).expect("it is remembered already");
    }
}
