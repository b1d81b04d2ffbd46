//! Logs what a fresh cluster comes with, before the allocator of a term opens: its first token, its first namespaces, and its
//! id.
//!
//! A term that cannot log one of these ends, and the next term's leader tries again.

use super::LedTerms;
use crate::{
    consensus::TermLease,
    random,
    sequence::{AccessChange, ClusterId, Command, EntryOutcome, Grant, NamespaceConfig},
};

impl LedTerms {
    /// Creates the namespaces that a fresh cluster comes with, unless none are wanted. One entry does it, so that a later
    /// leader, whatever it is set to, does not do it again.
    pub(super) async fn create_first_namespaces(&self, lease: &TermLease) {
        // The disk may hang.
        let is_founded = tokio::select! {
            biased;
            is_founded = self.group.view.is_founded() => is_founded,
            () = lease.until_void() => return,
        };
        match is_founded {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "cannot read whether the cluster was founded");
                lease.void();
                return;
            }
        }
        if !self.close_to_strangers(lease).await {
            lease.void();
            return;
        }
        let namespaces = match self.config.no_default_namespaces {
            true => Vec::new(),
            false => NamespaceConfig::fresh_cluster().to_vec(),
        };
        let names: Vec<_> = namespaces.iter().map(|one| one.name.clone()).collect();
        match self.propose_in(lease, Command::FoundNamespaces(namespaces)).await {
            None => {}
            Some(Ok(_)) => tracing::info!(?names, "the first namespaces are created"),
            Some(Err(error)) => {
                // This term must end: it would answer that the namespaces do not exist. The next term's leader creates
                // them.
                tracing::info!(%error, "the first namespaces are not created yet");
                lease.void();
            }
        }
    }

    /// Grants anonymous nothing, if the cluster is founded with a token. It is logged before anything can be asked for. False
    /// if this term must end.
    async fn close_to_strangers(&self, lease: &TermLease) -> bool {
        let (store, set) = (self.group.this_node.store.clone(), self.group.config.set);
        let read =
            self.group.this_node.store.blocking().run(move || store.founding_token(set)).await;
        let admin = match read {
            Ok(Ok(None)) => return true,
            Ok(Ok(Some(admin))) => admin,
            failed => {
                tracing::error!(?failed, "cannot read with which token the cluster is founded");
                return false;
            }
        };
        let (grants, now_ms) = (Grant::everything(), self.clock.wall_ms());
        let found = AccessChange::Found { admin, grants, now_ms };
        match self.propose_in(lease, Command::ChangeAccess(found)).await {
            Some(Ok(EntryOutcome::Access(Ok(())))) => {
                tracing::info!(token = admin.id(), "a token is needed from the beginning");
                true
            }
            other => {
                tracing::info!(?other, "the first token is not logged yet");
                false
            }
        }
    }

    /// Gives the cluster its id, unless it has one: at its founding, and when the data comes from a release without ids.
    pub(super) async fn name_cluster(&self, lease: &TermLease) {
        // The epoch was applied here, and with it whatever was logged before it.
        if self.group.view.cluster_id().is_some() || lease.is_void() {
            return;
        }
        let drawn = u128::from(random::u64()) << 64 | u128::from(random::u64());
        let id = ClusterId::from_random(drawn.to_be_bytes());
        match self.propose_in(lease, Command::NameCluster(id)).await {
            None => {}
            Some(Ok(_)) => tracing::info!(%id, "the cluster has an id"),
            Some(Err(error)) => {
                // This term must end: callers would not learn which cluster answers. The next term's leader names it.
                tracing::info!(%error, "the cluster has no id yet");
                lease.void();
            }
        }
    }
}
