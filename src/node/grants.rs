//! Changes of the principals: tokens are added and revoked, and something is granted to those who show none.
//!
//! Invariant: a change that takes something from anybody needs nodes that talk to one another over TLS, or on one machine.
//! A follower tells the leader who asks, and over plain connections anybody could tell it.
//!
//! Invariant: changes of a term are made one after the other, each by a caller that may make it after the one before.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use super::{
    Config,
    access::{
        Asker, Guarded, Subject, check_granting, check_peer_addresses, in_order, invalid,
        read_grants, read_hash, read_key, read_quotas, to_wire, written_quotas,
    },
    common::Common,
    members::Members,
    requests::{
        ongoing::{OngoingChange, through_in_time},
        operation::ByLeader,
        refused::proposal_failed,
    },
    way::{attempt::Attempt, patience::time_to_tell},
};
use crate::{
    allocator::Term,
    consensus::{Group, ThisNode},
    proto::{Refusal, peer, refusal, refuse, v1},
    sequence::{
        AccessChange, AccessRefused, Command, EntryOutcome, Grant, InvalidAccess, PRINCIPALS_MAX,
        PrincipalKey, PrincipalRecord, Principals, TokenRecord, Verb, Wanted, check_token_name,
    },
};

/// The changes of the principals of a Raft group: of their tokens, their grants and their quotas.
pub struct Grants {
    config: Arc<Config>,
    group: Arc<Group>,
    members: Arc<Members>,
    this_node: Arc<ThisNode>,
    /// Held from the last check of a change until Raft has told what became of it.
    turn: Arc<Mutex<()>>,
}

impl Grants {
    /// Those of this group, as this node changes them while it leads.
    pub(super) fn new(common: &Common, members: Arc<Members>) -> Self {
        Grants {
            config: common.config.clone(),
            group: common.group.clone(),
            members,
            this_node: common.this_node.clone(),
            turn: Arc::default(),
        }
    }

    /// Waits until no other change is under way, and sees that the caller may do what it wants then, too. It was let in before
    /// it waited.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if another change takes that long; else those of [`Asker::check_still`].
    async fn turn(
        &self, by: &Asker, wanted: Wanted<'_>, deadline: Instant,
    ) -> Result<OwnedMutexGuard<()>, Refusal> {
        let turn = timeout_at(time_to_tell(deadline), self.turn.clone().lock_owned()).await;
        let turn = turn.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "this call changes nothing: an earlier change of tokens, grants or quotas, perhaps your own, is under way, and may \
                 be made yet; ask again when a majority of the voters runs"
            )
            .not_done()
        })?;
        by.check_still(&self.group, wanted)?;
        Ok(turn)
    }

    /// Makes the change, which goes on when the deadline passes.
    async fn change(
        &self, turn: OwnedMutexGuard<()>, (term, change): (&Term, AccessChange), deadline: Instant,
    ) -> Attempt<()> {
        let (group, term) = (self.group.clone(), term.term());
        // The turn lasts until Raft has told, also if the caller leaves before.
        let proposing = async move {
            let _turn = turn;
            group.propose(term, Command::ChangeAccess(change)).await
        };
        let proposing = tokio::spawn(self.this_node.tasks.watched("a change of grants", proposing));
        let change = OngoingChange {
            name: "the change of tokens, grants or quotas",
            voters: "the voters",
            shown_by: "ratchet token list",
        };
        let proposed = through_in_time(proposing, deadline, change).await?;
        let proposed = proposed.map_err(|error| refusal!(Internal, "{error}"))?;
        match proposed.map_err(proposal_failed)? {
            EntryOutcome::Access(Ok(())) => Ok(()),
            EntryOutcome::Access(Err(refused)) => Err(told(&refused).into()),
            other => Err(refusal!(Internal, "unexpected outcome: {other:?}").into()),
        }
    }

    /// The record of a principal as it is now.
    fn told(&self, key: &PrincipalKey) -> v1::Principal {
        let principals = self.group.view.principals();
        let nobody = PrincipalRecord::default();
        self.shown(key, principals.get(key).unwrap_or(&nobody))
    }

    /// A principal as callers read it, with the namespaces that its grants name, and that do not exist.
    fn shown(&self, key: &PrincipalKey, record: &PrincipalRecord) -> v1::Principal {
        let namespaces = self.group.view.namespaces();
        let named = record.grants.iter().filter_map(|grant| grant.namespaces.name());
        let missing = named.filter(|name| namespaces.by_name(name).is_none());
        let mut missing: Vec<_> = missing.map(str::to_owned).collect();
        missing.dedup();
        v1::Principal { missing_namespaces: missing, ..to_wire(key, record) }
    }

    /// The principals and their grants, before and after a change.
    ///
    /// # Errors
    /// ALREADY_EXISTS if the token is there with other properties, FAILED_PRECONDITION if there are as many principals as may
    /// be, NOT_FOUND if there is no such principal.
    fn before_and_after(&self, change: &AccessChange) -> Result<(Principals, Principals), Refusal> {
        let before = Principals::clone(&self.group.view.principals());
        let mut after = before.clone();
        for (key, record) in change.records(&before, true).map_err(|refused| told(&refused))? {
            after.put(key, record);
        }
        Ok((before, after))
    }

    /// Sees that nobody passes for a node. While the cluster has no tokens, the other members are asked, too. Afterwards each
    /// of them sees to it that it takes nothing from strangers.
    ///
    /// # Errors
    /// As [`check_peer_addresses`] and [`Members::ask_for_peer_tls`].
    async fn check_peer_tls(&self) -> Result<(), Refusal> {
        let members = self.group.membership.members();
        check_peer_addresses(
            &self.config,
            members.values().map(|(member, _)| &member.peer_address),
        )?;
        let is_open = self.group.view.principals().is_open();
        if is_open {
            self.members.ask_for_peer_tls().await?;
        }
        Ok(())
    }
}

fn told(refused: &AccessRefused) -> Refusal {
    match refused {
        AccessRefused::Exists(_) => refusal!(TokenExists, "{refused}"),
        AccessRefused::TooMany(_) => refusal!(WrongState, "{refused}"),
        AccessRefused::NotFound(_) | AccessRefused::NoPrincipal => {
            refusal!(TokenNotFound, "{refused}")
        }
    }
}

impl ByLeader for v1::CreateTokenRequest {
    type Service = Grants;

    fn subject(&self, _: Option<&v1::Principal>) -> Subject {
        let id = read_hash(&self.sha256).ok().map(|hash| hash.id());
        let granted = granted(&self.grants).map(|granted| match self.expires_ms {
            Some(end) => format!("{granted} until {end}"),
            None => granted,
        });
        Subject::of(self.wanted()).on(&self.name).with_token(id).setting(granted)
    }

    async fn carry_out(
        self, grants: &Grants, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::Principal> {
        check_token_name(&self.name).map_err(|why| invalid(&why))?;
        let (hash, granted) = (read_hash(&self.sha256)?, read_grants(&self.grants)?);
        if granted.is_empty() {
            return Err(invalid(&InvalidAccess::GrantCount(0)).into());
        }
        let now_ms = grants.group.wall_ms();
        if let Some(expires_ms) = self.expires_ms.filter(|end| *end <= now_ms) {
            refuse!(
                InvalidRequest,
                "expires_ms is {expires_ms}, and the leader's clock shows {now_ms}; give a time to come"
            );
        }
        grants.check_peer_tls().await?;
        let turn = grants.turn(by, self.wanted(), deadline).await?;
        let token = TokenRecord {
            name: self.name,
            expires_ms: self.expires_ms,
            made_by: by.name(&grants.group.view.principals()),
            made_ms: now_ms,
        };
        let record = PrincipalRecord { grants: granted, token: Some(token), quotas: Vec::new() };
        let add = AccessChange::AddToken { hash, record, principals_max: PRINCIPALS_MAX };
        grants.change(turn, (term, add), deadline).await?;
        Ok(grants.told(&PrincipalKey::Token(hash)))
    }
}

impl ByLeader for v1::RevokeTokenRequest {
    /// Without an id the same request may mean another token the next time.
    const IS_ASKED_ONCE: bool = true;

    type Service = Grants;

    fn subject(&self, answer: Option<&v1::RevokeTokenResponse>) -> Subject {
        let id = answer.map(|answer| answer.id.clone()).or_else(|| self.id.clone());
        Subject::of(self.wanted()).on(&self.name).with_token(id)
    }

    fn done_before(
        &self, _: &Grants, _: &Term, refused: &Refusal,
    ) -> Option<v1::RevokeTokenResponse> {
        let id = self.id.clone().filter(|_| refused.reason() == v1::Reason::TokenNotFound)?;
        Some(v1::RevokeTokenResponse { id })
    }

    async fn carry_out(
        self, grants: &Grants, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::RevokeTokenResponse> {
        let turn = grants.turn(by, self.wanted(), deadline).await?;
        let mut meant: Vec<_> = grants.group.view.principals().tokens_named(&self.name).collect();
        let ids = meant.iter().map(|hash| hash.id()).collect::<Vec<_>>().join(", ");
        if let Some(id) = &self.id {
            meant.retain(|hash| hash.id() == *id);
        }
        let [hash] = meant[..] else {
            match (meant.len(), &self.id) {
                (0, Some(id)) => refuse!(
                    TokenNotFound,
                    "there is no token {:?} with the id {id:?}; see ratchet token list",
                    self.name
                ),
                (0, None) => {
                    refuse!(
                        TokenNotFound,
                        "there is no token {:?}; see ratchet token list",
                        self.name
                    )
                }
                _ => refuse!(
                    WrongState,
                    "several tokens have the name {:?}: give the id of one of them, {ids}",
                    self.name
                ),
            }
        };
        let mut after = Principals::clone(&grants.group.view.principals());
        after.put(PrincipalKey::Token(hash), None);
        if !by.is_local() && !after.has_administrator(grants.group.wall_ms()) {
            refuse!(
                WrongState,
                "token {:?} is the last principal with the grant admin:*; make another one first, or revoke it over the local socket",
                self.name
            );
        }
        grants.change(turn, (term, AccessChange::RemoveToken(hash)), deadline).await?;
        Ok(v1::RevokeTokenResponse { id: hash.id() })
    }
}

/// That of a call about a principal, or about callers of it at some addresses.
fn about(wanted: Wanted<'_>, principal: &str, addresses: Option<&str>) -> Subject {
    let subject = Subject::of(wanted);
    match addresses {
        Some(addresses) => subject.on(format_args!("{principal} from {addresses}")),
        None => subject.on(principal),
    }
}

/// Grants as they are written, if they can be read.
fn granted(grants: &[v1::Grant]) -> Option<String> {
    let grants = read_grants(grants).ok()?;
    Some(match grants.is_empty() {
        true => "nothing".to_owned(),
        false => grants.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    })
}

impl ByLeader for v1::SetGrantsRequest {
    type Service = Grants;

    fn subject(&self, _: Option<&v1::Principal>) -> Subject {
        let subject = about(self.wanted(), &self.principal, self.addresses.as_deref());
        subject.setting(granted(&self.grants))
    }

    async fn carry_out(
        self, grants: &Grants, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::Principal> {
        let key = read_key(&self.principal, self.addresses.as_deref())?;
        let granted = read_grants(&self.grants)?;
        let change = AccessChange::Grant {
            key: key.clone(),
            grants: granted,
            principals_max: PRINCIPALS_MAX,
        };
        if !grants.before_and_after(&change)?.1.is_open() {
            grants.check_peer_tls().await?;
        }
        let turn = grants.turn(by, self.wanted(), deadline).await?;
        let (before, after) = grants.before_and_after(&change)?;
        check_granting(&grants.config, &before, &after)?;
        let now_ms = || grants.group.leader_wall_ms();
        if by.check(&after, Wanted::OnAll(Verb::Admin), now_ms).is_err() {
            refuse!(
                WrongState,
                "nothing is changed: {} could not take it back, as it would have no grant admin:*; make a token that has it \
                 first (ratchet token create admin --grant all), and ask with it",
                by.name(&before)
            );
        }
        grants.change(turn, (term, change), deadline).await?;
        Ok(grants.told(&key))
    }
}

impl ByLeader for v1::SetQuotasRequest {
    type Service = Grants;

    fn subject(&self, _: Option<&v1::SetQuotasResponse>) -> Subject {
        let subject = about(self.wanted(), &self.principal, self.addresses.as_deref());
        let quotas = read_quotas(&self.quotas).is_ok().then(|| written_quotas(&self.quotas));
        subject.with_token(self.id.clone()).setting(quotas)
    }

    async fn carry_out(
        self, grants: &Grants, (term, by): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::SetQuotasResponse> {
        let quotas = read_quotas(&self.quotas)?;
        let turn = grants.turn(by, self.wanted(), deadline).await?;
        let keys = grants.holders(&self)?;
        let everything = Grant::everything();
        let change = AccessChange::SetQuotas { keys: keys.clone(), quotas, everything };
        grants.change(turn, (term, change), deadline).await?;
        Ok(v1::SetQuotasResponse { principals: keys.iter().map(|key| grants.told(key)).collect() })
    }
}

impl Grants {
    /// The principals whose quotas are to be set.
    fn holders(&self, asked: &v1::SetQuotasRequest) -> Result<Vec<PrincipalKey>, Refusal> {
        let principals = self.group.view.principals();
        if check_token_name(&asked.principal).is_ok() && asked.addresses.is_none() {
            let mut tokens: Vec<_> = principals.tokens_named(&asked.principal).collect();
            if let Some(id) = &asked.id {
                tokens.retain(|hash| hash.id() == *id);
            }
            if tokens.is_empty() {
                refuse!(
                    TokenNotFound,
                    "there is no token {:?}{}; see ratchet token list",
                    asked.principal,
                    asked.id.as_ref().map(|id| format!(" with the id {id:?}")).unwrap_or_default()
                );
            }
            return Ok(tokens.into_iter().map(PrincipalKey::Token).collect());
        }
        if let Some(id) = &asked.id {
            refuse!(
                InvalidRequest,
                "id is {id:?}; it goes with the name of a token alone: leave it out"
            );
        }
        let key = read_key(&asked.principal, asked.addresses.as_deref())?;
        match principals.get(&key) {
            Some(_) => Ok(vec![key]),
            None => Err(refusal!(
                TokenNotFound,
                "nothing is granted to {}{}; grant it something first: ratchet grant",
                asked.principal,
                asked.addresses.as_ref().map(|at| format!(" from {at}")).unwrap_or_default()
            )),
        }
    }
}

impl ByLeader for v1::ListPrincipalsRequest {
    type Service = Grants;

    async fn carry_out(
        self, grants: &Grants, _: (&Term, &Asker), _: Instant,
    ) -> Attempt<v1::ListPrincipalsResponse> {
        let principals = grants.group.view.principals();
        let principals = in_order(&principals).into_iter();
        let principals = principals.map(|(key, record)| grants.shown(key, record));
        Ok(v1::ListPrincipalsResponse { principals: principals.collect() })
    }

    fn answer_bytes(&self, grants: &Grants) -> usize {
        let principals = grants.group.view.principals();
        principals
            .iter()
            .map(|(_, record)| {
                PRINCIPAL_BYTES + (record.grants.len() + record.quotas.len()) * GRANT_BYTES
            })
            .sum()
    }
}

/// How many bytes a principal has at most in an answer, as a message and encoded, without its grants.
const PRINCIPAL_BYTES: usize = 1_024;
/// How many bytes a grant, or a quota, has at most.
const GRANT_BYTES: usize = 160;

impl ByLeader for peer::KnowsTokenRequest {
    type Service = Grants;

    async fn carry_out(
        self, grants: &Grants, _: (&Term, &Asker), _: Instant,
    ) -> Attempt<peer::KnowsTokenResponse> {
        let key = PrincipalKey::Token(read_hash(&self.sha256)?);
        let known = grants.group.view.principals().get(&key).is_some();
        Ok(peer::KnowsTokenResponse { known })
    }
}
