//! Lets callers in: by what this node knows, and, of tokens that it has not heard of yet, by what the leader knows. Every
//! interface asks here before it does anything for a caller. `access` has what is granted.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::{
    access::{Access, Asker},
    callers::RETRY_AFTER_MS,
    common::Common,
    requests::operation::facts_of,
    terms::LedTerms,
    way::{
        Way,
        attempt::{Attempt, SoFar, Unanswered},
        effect::Effect,
        for_leader::ForLeader,
        operation::Facts,
        origin::Origin,
        patience::{FOR_TOKEN, within},
    },
};
use crate::{
    consensus::Group,
    laps::{self, Phase},
    proto::{Code, Refusal, peer, refusal},
    sequence::{Credential, NamespaceId, NodeId, PrincipalKey, Wanted},
    storage::Member,
};

/// Lets callers in.
pub struct Admission {
    node: NodeId,
    group: Arc<Group>,
    access: Arc<Access>,
    led: Arc<LedTerms>,
    way: Arc<Way>,
}

impl Admission {
    /// Lets callers in whom `access` lets in, and asks for tokens on the `way` to the leader.
    pub(super) fn new(
        common: &Common, access: Arc<Access>, led: Arc<LedTerms>, way: Arc<Way>,
    ) -> Self {
        let (node, group) = (common.config.node_id, common.group.clone());
        Admission { node, group, access, led, way }
    }

    /// By what this node lets callers in, and counts what they use.
    pub(super) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Lets a caller do what it wants, or refuses it. Of a token that this node does not know the leader is asked: nobody asks
    /// again after such a refusal.
    ///
    /// # Errors
    /// As [`Access::check`](super::Access::check); UNAVAILABLE if the leader was to be asked and gave no answer;
    /// RESOURCE_EXHAUSTED if the caller's principal has as many connections as it may have.
    pub async fn admit(
        &self, by: &Asker, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<(), Refusal> {
        let admitted = self.admit_without_audit(by, wanted, deadline).await;
        admitted.inspect_err(|refused| self.access.turned_away(by, wanted, refused))
    }

    /// As [`Admission::admit`]. The audit is not told of a refusal.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED, UNAVAILABLE or RESOURCE_EXHAUSTED: [`Admission::admit`] says when.
    pub(super) async fn admit_without_audit(
        &self, by: &Asker, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<(), Refusal> {
        self.access.connection_is_used_by(by)?;
        match self.access.check(by, wanted) {
            Ok(()) => Ok(()),
            // Of other refusals, nothing changes if the token is known to the leader.
            Err(refusal) if refusal.code() != Code::Unauthenticated => Err(refusal),
            Err(refusal) if self.access.knows(by) => Err(refusal),
            Err(refusal) => {
                let learnt = Box::pin(self.learn_token(by, wanted, refusal, deadline)).await;
                laps::lap(Phase::Queue);
                learnt
            }
        }
    }

    async fn learn_token(
        &self, by: &Asker, wanted: Wanted<'_>, refusal: Refusal, deadline: Instant,
    ) -> Result<(), Refusal> {
        let Credential::Token(hash) = by.shown() else {
            return Err(refusal);
        };
        // A node that waits for its cluster has nobody to ask.
        if self.group.view.cluster_id().is_none() {
            return Err(refusal);
        }
        let not_heard = || {
            refusal!(
                NotHeardYet,
                "node {} does not know the token, and could not ask the leader; ask again",
                self.node
            )
            .retry_after(RETRY_AFTER_MS)
        };
        let deadline = within(FOR_TOKEN, deadline);
        let Some(_place) = self.access.wait_for_turn(deadline).await else {
            return Err(not_heard());
        };
        if let Some(term) = self.led.serving() {
            return match term.still_leads(deadline).await {
                true => Err(refusal),
                false => Err(not_heard()),
            };
        }
        let asked = peer::KnowsTokenRequest { sha256: hash.0.to_vec().into() };
        let message = asked.encode_to_vec().into();
        let question = WhetherKnown { shows: by, message, node: Asker::node(self.node) };
        let from = (Origin::Client, SoFar::NotDone);
        let answered = self.way.to_leader(self, &question, from, deadline);
        if !answered.await.map_err(|_| not_heard())? {
            return Err(refusal);
        }
        let key = PrincipalKey::Token(*hash);
        let heard = self.group.view.until_principals(|known| known.get(&key).is_some());
        tokio::time::timeout_at(deadline, heard).await.map_err(|_| not_heard())?;
        self.access.connection_is_used_by(by)?;
        self.access.check(by, wanted)
    }
}

/// The facts about the operation that asks whether a token is known.
const FACTS: Facts = facts_of::<peer::KnowsTokenRequest>();

/// The question of this node whether the leader knows a token.
struct WhetherKnown<'a> {
    /// The caller that shows it.
    shows: &'a Asker,
    message: Bytes,
    /// This node, which asks for itself.
    node: Asker,
}

impl ForLeader for WhetherKnown<'_> {
    type Here = Admission;
    type Answer = bool;

    fn may_be_asked_again(&self, _: &Admission, _: Option<NamespaceId>) -> bool {
        FACTS.is_idempotent
    }

    /// A node may ask.
    fn check_asker(&self, _: &Admission) -> Result<(), Refusal> {
        Ok(())
    }

    fn effect(&self) -> Effect {
        FACTS.effect()
    }

    async fn serve_locally(
        &self, here: &Admission, _: (Origin, SoFar), deadline: Instant,
    ) -> Attempt<bool> {
        match here.led.serving() {
            Some(term) if term.still_leads(deadline).await => Ok(here.access.knows(self.shows)),
            Some(_) | None => Err(Unanswered::ELSEWHERE),
        }
    }

    async fn serve_remotely(
        &self, here: &Admission, leader: (NodeId, &Member), _: Option<NamespaceId>, so_far: SoFar,
        deadline: Instant,
    ) -> Attempt<bool> {
        let (forwarder, asked) = (here.way.forwarder(), (&self.message, &self.node, None));
        let answer = FACTS.send(forwarder, leader, asked, so_far, deadline).await?;
        let unreadable = |error| refusal!(Internal, "the answer of {}: {error}", FACTS.method);
        Ok(peer::KnowsTokenResponse::decode(answer).map_err(unreadable)?.known)
    }
}
