//! Who asks, and whether it may have what it asks for.
//!
//! A request says what its caller needs ([`Guarded`]), as `proto` has it. Every way into the node checks that before anything
//! else: numbers and operations in [`Leader`], ids in `Ids`, exports, and what is watched. A follower checks by its own table,
//! and tells the leader who asks; the leader checks again, by its own.
//!
//! Invariant: nothing is carried out, or told, for a caller that was not let in.

mod changes;
mod open;
mod wire;

pub(super) use self::{
    changes::check_peers,
    open::{
        check_founding, check_joining, check_start, is_open_to_everybody, open_to_strangers,
        warn_of_strangers,
    },
    wire::read_hash,
};

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::{Config, numbers::leader_search::Failure, services::Leader};
use crate::{
    consensus::Group,
    proto::{Refusal, peer, refusal, v1},
    sequence::{
        ANONYMOUS, Credential, Denied, NodeId, PrincipalKey, Principals, TokenHash, Verb, Wanted,
    },
};

/// Without a leader for so long, nobody knows whose tokens were revoked: only the status and formats are told.
const LEADERLESS_MAX: Duration = Duration::from_secs(30);
/// How often the leader is asked at most whether it knows a token, in milliseconds: strangers may show any.
const ASK_EVERY_MS: u64 = 50;

/// The hash by which a token is known.
pub fn hash_of(token: &[u8]) -> TokenHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    TokenHash(hash)
}

/// A request that needs something to be granted to its caller.
pub trait Guarded {
    /// What that is.
    fn wanted(&self) -> Wanted<'_>;
}

include!(concat!(env!("OUT_DIR"), "/needs.rs"));

/// Who asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    who: Who,
    /// What names the network of its address, as `network_of` says.
    network: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    /// A caller that shows this.
    Caller(Credential),
    /// A node of the cluster.
    Node(NodeId),
}

impl Principal {
    /// A caller that shows this, and whose address `network` names, as `network_of` says.
    pub fn caller(shown: Credential, network: u64) -> Self {
        Principal { who: Who::Caller(shown), network }
    }

    /// A node of the cluster, for itself. It may everything that nodes do.
    pub fn node(node: NodeId) -> Self {
        Principal { who: Who::Node(node), network: 0 }
    }

    /// What it shows, as a caller: nothing, if it is a node.
    fn shown(&self) -> &Credential {
        match &self.who {
            Who::Caller(shown) => shown,
            Who::Node(_) => &Credential::Nothing,
        }
    }

    fn check(
        &self, principals: &Principals, wanted: Wanted<'_>, now_ms: u64,
    ) -> Result<(), Denied> {
        match &self.who {
            Who::Caller(shown) => principals.check(shown, self.network, wanted, now_ms),
            Who::Node(_) => Ok(()),
        }
    }

    /// How it is called where people read.
    fn name(&self, principals: &Principals) -> String {
        match &self.who {
            Who::Node(node) => format!("node {node}"),
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

/// Lets callers do what is granted to them.
pub struct Access {
    config: Arc<Config>,
    group: Arc<Group>,
    started: Instant,
    /// When the leader was last asked whether it knows a token, in milliseconds since the start.
    asked_ms: AtomicU64,
}

impl Access {
    pub(super) fn new(config: Arc<Config>, group: Arc<Group>) -> Self {
        Access { config, group, started: Instant::now(), asked_ms: AtomicU64::new(0) }
    }

    /// Checks by what this node knows that a caller may do what it wants.
    ///
    /// # Errors
    /// UNAUTHENTICATED if it shows nothing and has to, or what it shows is worth nothing; PERMISSION_DENIED if that is not
    /// granted to it; UNAVAILABLE if this node has heard of no leader for long. None of them tells what exists.
    pub fn check(&self, by: &Principal, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let principals = self.group.view.principals();
        match by.check(&principals, wanted, self.now_ms(by)) {
            Ok(()) if principals.is_open() => Ok(()),
            Ok(()) => self.check_is_in_touch(by, wanted),
            Err(denied) => Err(refused(denied, by, wanted, &principals)),
        }
    }

    /// How a caller is called where people read: the name of its token, the URI of its certificate, or `anonymous`.
    pub fn name_of(&self, by: &Principal) -> String {
        by.name(&self.group.view.principals())
    }

    /// Whether there are tokens.
    pub fn has_tokens(&self) -> bool {
        let principals = self.group.view.principals();
        principals.iter().any(|(key, _)| matches!(key, PrincipalKey::Token(_)))
    }

    /// The leader's time. Only what expires needs it.
    fn now_ms(&self, by: &Principal) -> u64 {
        match by.shown() {
            Credential::Token(_) => self.group.leader_wall_ms(),
            Credential::Nothing | Credential::Certificate(_) => 0,
        }
    }

    fn knows(&self, by: &Principal) -> bool {
        match by.shown() {
            Credential::Token(hash) => {
                self.group.view.principals().get(&PrincipalKey::Token(*hash)).is_some()
            }
            Credential::Nothing | Credential::Certificate(_) => true,
        }
    }

    fn check_is_in_touch(&self, by: &Principal, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let leaderless = || self.group.leaderless_for().unwrap_or_else(|| self.started.elapsed());
        match (&by.who, wanted) {
            (Who::Node(_), _) | (_, Wanted::Anything | Wanted::OnAll(Verb::Read)) => Ok(()),
            _ if leaderless() <= LEADERLESS_MAX => Ok(()),
            _ => Err(refusal!(
                NoLeader,
                "node {} has heard of no leader for {} s, and does not know who may do what by now; ask another node",
                self.config.node_id,
                LEADERLESS_MAX.as_secs()
            )),
        }
    }

    /// Whether the leader may be asked now.
    fn takes_turn(&self) -> bool {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let asked = self.asked_ms.fetch_update(Relaxed, Relaxed, |before| {
            (now_ms >= before.saturating_add(ASK_EVERY_MS) || before == 0).then_some(now_ms.max(1))
        });
        asked.is_ok()
    }
}

fn refused(denied: Denied, by: &Principal, wanted: Wanted<'_>, principals: &Principals) -> Refusal {
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
            "{} may not do this: it would need the grant {wanted}; an administrator can give it, see ratchet token and ratchet \
             grant",
            by.name(principals)
        ),
    }
}

impl Leader {
    /// Lets a caller do what it wants, or refuses it. Of a token that this node does not know the leader is asked: nobody asks
    /// again after such a refusal.
    ///
    /// # Errors
    /// As [`Access::check`]; UNAVAILABLE if the leader was to be asked and gave no answer.
    pub async fn admit(
        &self, by: &Principal, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<(), Refusal> {
        match self.access.check(by, wanted) {
            Ok(()) => Ok(()),
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
        let not_heard = || {
            refusal!(
                NotHeardYet,
                "node {} does not know the token, and could not ask the leader; ask again",
                self.config.node_id
            )
            .retry_after(2 * ASK_EVERY_MS)
        };
        if let Some(term) = self.led.serving() {
            return match term.still_leads(deadline).await {
                true => Err(refusal),
                false => Err(not_heard()),
            };
        }
        if !self.access.takes_turn() {
            return Err(not_heard());
        }
        let asked = peer::KnowsTokenRequest { sha256: hash.0.to_vec().into() };
        let node = Principal::node(self.config.node_id);
        let known = self.ask(&asked, &node, deadline).await;
        let (known, _) = known.map_err(|_: Failure| not_heard())?;
        if !known.known {
            return Err(refusal);
        }
        let key = PrincipalKey::Token(*hash);
        let heard = self.group.view.until_principals(|known| known.get(&key).is_some());
        tokio::time::timeout_at(deadline, heard).await.map_err(|_| not_heard())?;
        self.access.check(by, wanted)
    }
}
