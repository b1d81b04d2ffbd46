//! Principals that ask: a caller with the token or certificate that it shows, somebody at a node's local socket, or a node.

use ring::digest::{SHA256, digest};

use super::entrance::Entrance;
use crate::{
    consensus::Group,
    node::callers::Caller,
    proto::{Refusal, refusal},
    sequence::{
        ANONYMOUS, Credential, Denied, LOCAL, NO_NETWORK, NodeId, PrincipalKey, Principals,
        TokenHash, Wanted,
    },
};

/// The hash by which a token is known.
pub fn hash_of(token: &[u8]) -> TokenHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    TokenHash(hash)
}

/// The asker: who asks for something, and what is known of it without the table of principals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    pub(super) who: Who,
    /// The id of the network of its address (`network_of`).
    pub(super) network: u64,
    /// Where it has reached this node. `None`: it is a node, or has asked another one.
    pub(super) entrance: Option<Entrance>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Who {
    /// A caller that shows this.
    Caller(Credential),
    /// Somebody at the local socket of a node.
    Local,
    /// A node of the cluster.
    Node(NodeId),
}

impl Asker {
    /// A caller that shows this, and whose address `network` names, as `network_of` says.
    pub fn caller(shown: Credential, network: u64) -> Self {
        Asker { who: Who::Caller(shown), network, entrance: None }
    }

    /// The same caller, who has reached this node here. Only such a caller's calls are told by this node's audit.
    pub fn through(self, entrance: Option<Entrance>) -> Self {
        Asker { entrance, ..self }
    }

    /// Whether it is a caller that asks this node.
    pub(in crate::node) fn asks_here(&self) -> bool {
        self.entrance.is_some()
    }

    /// Whether it is a node that asks for itself.
    pub(in crate::node) fn is_node(&self) -> bool {
        matches!(self.who, Who::Node(_))
    }

    /// Whether it is told at which addresses clients reach the leader and the members. A caller at the port for administrators
    /// is not: a client that goes there would be refused.
    pub fn is_told_route(&self) -> bool {
        self.entrance.is_none_or(|entrance| !entrance.is_admin_port)
    }

    /// The same caller, who shows this token.
    pub fn with_token(&self, token: &[u8]) -> Self {
        self.with_hash(hash_of(token))
    }

    /// The same caller, who shows the token that has this hash.
    pub fn with_hash(&self, hash: TokenHash) -> Self {
        Asker::caller(Credential::Token(hash), self.network).through(self.entrance)
    }

    /// Somebody at the local socket of a node: who may open its data directory. It may do all that callers may, whatever is
    /// granted to whom.
    pub fn local() -> Self {
        Asker { who: Who::Local, network: 0, entrance: None }
    }

    /// Whether it is somebody at the local socket of a node.
    pub(in crate::node) fn is_local(&self) -> bool {
        self.who == Who::Local
    }

    /// A node of the cluster, for itself. It may everything that nodes do.
    pub fn node(node: NodeId) -> Self {
        Asker { who: Who::Node(node), network: 0, entrance: None }
    }

    /// Of whom the leader is told beside it: what names the network of a caller's address, or for whom a node asks by itself.
    pub(in crate::node) fn told(&self) -> Option<u64> {
        match self.who {
            Who::Caller(_) => Some(self.network).filter(|network| *network != NO_NETWORK),
            Who::Local | Who::Node(_) => Caller::current().map(|caller| caller.id()),
        }
    }

    /// The credential that it shows: none, if it needs to show nothing.
    pub(in crate::node) fn shown(&self) -> &Credential {
        match &self.who {
            Who::Caller(shown) => shown,
            Who::Local | Who::Node(_) => &Credential::Nothing,
        }
    }

    /// As `Principals::check`, of this caller.
    pub(in crate::node) fn check(
        &self, principals: &Principals, wanted: Wanted<'_>, now_ms: impl FnOnce() -> u64,
    ) -> Result<(), Denied> {
        match &self.who {
            Who::Caller(shown) => principals.check(shown, self.network, wanted, now_ms),
            Who::Local if wanted == Wanted::OfNodes => Err(Denied::NotGranted),
            Who::Local | Who::Node(_) => Ok(()),
        }
    }

    /// Checks again, after a wait, that the caller may still do what it was let in for.
    ///
    /// # Errors
    /// As [`super::Access::check`] for what is not granted.
    pub(in crate::node) fn check_still(
        &self, group: &Group, wanted: Wanted<'_>,
    ) -> Result<(), Refusal> {
        let principals = group.view.principals();
        let checked = self.check(&principals, wanted, || group.leader_wall_ms());
        checked.map_err(|denied| refused(denied, self, wanted, &principals))
    }

    /// How it is called where people read.
    pub(in crate::node) fn name(&self, principals: &Principals) -> String {
        match &self.who {
            Who::Node(node) => format!("node {node}"),
            Who::Local => LOCAL.to_owned(),
            Who::Caller(Credential::Nothing) => ANONYMOUS.to_owned(),
            Who::Caller(Credential::Certificate(uri)) => (**uri).to_owned(),
            Who::Caller(Credential::Token(hash)) => {
                let record = principals.get(&PrincipalKey::Token(*hash));
                let token = record.and_then(|record| record.token.as_ref());
                token.map_or_else(|| hash.id(), |token| token.name.clone())
            }
        }
    }
}

/// The refusal of what is denied to a caller.
pub(super) fn refused(
    denied: Denied, by: &Asker, wanted: Wanted<'_>, principals: &Principals,
) -> Refusal {
    match denied {
        Denied::NothingShown => refusal!(
            Unauthenticated,
            "this needs a token, and the call has none; over gRPC and HTTP send 'authorization: Bearer TOKEN', over Redis AUTH, \
             and give ratchet --token-file"
        ),
        Denied::UnknownToken | Denied::Expired => refusal!(
            Unauthenticated,
            "the token is worth nothing: it is not known, was revoked, or has expired; ask an administrator for another one"
        ),
        Denied::NotGranted => refusal!(
            PermissionDenied,
            "{} may not do this: it would need the grant {wanted}; an administrator can make {}",
            by.name(principals),
            match by.shown() {
                Credential::Token(_) => "another token with it: ratchet token create",
                Credential::Nothing | Credential::Certificate(_) => "that: ratchet grant",
            }
        ),
    }
}
