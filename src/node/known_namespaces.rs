//! Namespaces as this node knows them: of one that it has not heard of, the leader is asked. The interfaces that read a key as
//! text ask here for the kind of the namespace's keys.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::{
    access::Asker, admission::Admission, common::Common, namespaces::kind, operations::Operations,
    requests::checks::check_namespace,
};
use crate::{
    consensus::Group,
    proto::{Refusal, refusal, v1},
    sequence::{KeyKind, NamespaceConfig, NodeId, Wanted},
};

/// The facts about a namespace that a request for one of its keys needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysOf {
    /// The kind of its keys.
    pub kind: KeyKind,
    /// How many keys it may have.
    pub keys_max: Option<u64>,
    /// The first number of each.
    pub start: u64,
    /// True if Redis clients get its numbers and ids as strings.
    pub redis_strings: bool,
}

/// Tells what this node knows of namespaces, and asks the leader of others.
pub struct KnownNamespaces {
    node: NodeId,
    group: Arc<Group>,
    admission: Arc<Admission>,
    operations: Arc<Operations>,
}

impl KnownNamespaces {
    /// Those that the node's group has told it of.
    pub(super) fn new(
        common: &Common, admission: Arc<Admission>, operations: Arc<Operations>,
    ) -> Self {
        let (node, group) = (common.config.node_id, common.group.clone());
        KnownNamespaces { node, group, admission, operations }
    }

    /// The facts about the keys of the namespace on which something is wanted, for a caller that may have that. Of a namespace
    /// that this node does not know the leader is asked, which may know more. The kind changes only if the namespace is deleted
    /// and created again, or before its first number; for a moment this node may then know the old one, and the leader refuses
    /// such a key.
    ///
    /// # Errors
    /// Those of [`Admission::admit`]; NOT_FOUND if there is no such namespace, INVALID_ARGUMENT if there can be none of that
    /// name, and those of [`Operations::ask`].
    pub async fn keys_of(
        &self, wanted: Wanted<'_>, by: &Asker, deadline: Instant,
    ) -> Result<KeysOf, Refusal> {
        self.admission.admit(by, wanted, deadline).await?;
        let namespace = wanted.namespace().unwrap_or_default();
        if let Some(known) = self.group.view.namespaces().by_name(namespace) {
            let NamespaceConfig { key_kind: kind, keys_max, start, redis_strings, .. } =
                known.config;
            return Ok(KeysOf { kind, keys_max, start, redis_strings });
        }
        // Before anything waits.
        check_namespace(namespace)?;
        let known = self.ask_leader(namespace, deadline).await?;
        let kind = kind(known.key_kind()).unwrap_or(KeyKind::Id);
        let v1::Namespace { keys_max, start, redis_strings, .. } = known;
        Ok(KeysOf { kind, keys_max, start, redis_strings })
    }

    /// The kind of a namespace's keys, if this node knows it. Nobody was let in for it: so nobody may be told it.
    pub fn known_kind(&self, namespace: &str) -> Option<KeyKind> {
        let namespaces = self.group.view.namespaces();
        namespaces.by_name(namespace).map(|known| known.config.key_kind)
    }

    /// The kind of a namespace's keys.
    ///
    /// # Errors
    /// The same refusals as for the facts about the keys: [`KnownNamespaces::keys_of`] lists them.
    pub async fn key_kind(
        &self, wanted: Wanted<'_>, by: &Asker, deadline: Instant,
    ) -> Result<KeyKind, Refusal> {
        Ok(self.keys_of(wanted, by, deadline).await?.kind)
    }

    /// Has the leader tell of a namespace.
    async fn ask_leader(&self, name: &str, deadline: Instant) -> Result<v1::Namespace, Refusal> {
        let get = v1::GetNamespaceRequest { namespace: name.to_owned() };
        let node = Asker::node(self.node);
        Ok(Box::pin(self.operations.ask(&get, &node, deadline)).await?.0)
    }

    /// Waits until this node knows a namespace that the leader knows.
    ///
    /// # Errors
    /// Those of [`Operations::ask`]: NOT_FOUND if the leader knows no such namespace; UNAVAILABLE if this node has not heard of
    /// it before the deadline.
    pub(super) async fn learn(&self, name: &str, deadline: Instant) -> Result<(), Refusal> {
        self.ask_leader(name, deadline).await?;
        let view = &self.group.view;
        let learnt = view.until_namespaces(|known| known.by_name(name).is_some());
        let learnt = timeout_at(deadline, learnt).await;
        learnt.map_err(|_| {
            refusal!(
                NotHeardYet,
                "node {} has not heard of namespace {name:?} yet, which the leader knows; ask again",
                self.node
            )
        })
    }
}
