//! Lets callers in: by what this node knows, and, of tokens that it has not heard of yet, by what the leader knows.

use std::time::Duration;

use tokio::time::Instant;

use super::{access::Principal, callers::RETRY_AFTER_MS, services::Leader};
use crate::{
    proto::{Code, Refusal, peer, refusal},
    sequence::{Credential, PrincipalKey, Wanted},
};

/// How long the leader is asked whether it knows a token. The caller's message is held meanwhile, and counted nowhere.
const PATIENCE: Duration = Duration::from_secs(1);

impl Leader {
    /// Lets a caller do what it wants, or refuses it. Of a token that this node does not know the leader is asked: nobody asks
    /// again after such a refusal.
    ///
    /// # Errors
    /// As [`Access::check`](super::Access::check); UNAVAILABLE if the leader was to be asked and gave no answer; RESOURCE_EXHAUSTED
    /// if the caller's principal has as many connections as it may have.
    pub async fn admit(
        &self, by: &Principal, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<(), Refusal> {
        let admitted = self.admit_untold(by, wanted, deadline).await;
        admitted.inspect_err(|refused| self.access.turned_away(by, wanted, refused))
    }

    /// As [`Leader::admit`]. The audit is not told of a refusal.
    ///
    /// # Errors
    /// As [`Leader::admit`].
    pub(super) async fn admit_untold(
        &self, by: &Principal, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<(), Refusal> {
        self.access.connection_is_used_by(by)?;
        match self.access.check(by, wanted) {
            Ok(()) => Ok(()),
            // Of other refusals, nothing changes if the token is known to the leader.
            Err(refusal) if refusal.code() != Code::Unauthenticated => Err(refusal),
            Err(refusal) if self.access.knows(by) => Err(refusal),
            Err(refusal) => Box::pin(self.learn_token(by, wanted, refusal, deadline)).await,
        }
    }

    async fn learn_token(
        &self, by: &Principal, wanted: Wanted<'_>, refusal: Refusal, deadline: Instant,
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
                self.config.node_id
            )
            .retry_after(RETRY_AFTER_MS)
        };
        let deadline = deadline.min(Instant::now() + PATIENCE);
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
        let node = Principal::node(self.config.node_id);
        let known = self.ask(&asked, &node, deadline).await;
        let (known, _) = known.map_err(|_| not_heard())?;
        if !known.known {
            return Err(refusal);
        }
        let key = PrincipalKey::Token(*hash);
        let heard = self.group.view.until_principals(|known| known.get(&key).is_some());
        tokio::time::timeout_at(deadline, heard).await.map_err(|_| not_heard())?;
        self.access.connection_is_used_by(by)?;
        self.access.check(by, wanted)
    }
}
