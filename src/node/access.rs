//! The check of a caller: whether what it asks for is granted to it.
//!
//! `asker.rs` says who asks, `entrance.rs` where, and `guarded.rs` what a request needs. `wire.rs` has askers and principals in
//! messages.
//! `token_questions.rs` bounds how often the leader is asked about tokens. `spending.rs` bounds what a caller takes, by the
//! counts in `quotas.rs`: `used_quota.rs` is the used part of one, and `burnt_numbers.rs` counts what a call burns.
//! `audit.rs` tells the log who did what, and `open.rs` says what strangers reach.
//!
//! A request says what its caller needs ([`Guarded`]), as `proto` has it. Every way into the node checks that before anything
//! else: numbers, operations, ids and exports through `Admission`, and what is watched. A follower checks by its own table,
//! and tells the leader who asks; the leader checks again, by its own.
//!
//! Invariant: nothing is carried out, or told, for a caller that was not let in.

mod asker;
mod audit;
mod burnt_numbers;
mod entrance;
mod guarded;
mod open;
mod quotas;
mod spending;
mod token_questions;
mod used_quota;
mod wire;

pub use self::{
    asker::{Asker, hash_of},
    audit::{AUDIT, RefusedCertificate},
    entrance::Entrance,
    guarded::Guarded,
    open::are_peers_nodes,
    wire::written_quotas,
};
pub(super) use self::{
    audit::{Note, Subject},
    burnt_numbers::BurntNumbers,
    open::{
        check_founding, check_granting, check_joining, check_peer_addresses, check_peer_port,
        check_start, is_open_to_strangers, warn_of_what_is_open, what_is_open,
    },
    wire::{
        all_to_wire, in_order, invalid, read_grants, read_hash, read_key, read_quotas, to_wire,
    },
};

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep},
};

use self::{
    asker::{Who, refused},
    audit::{Audit, AuditedCaller},
    open::is_exposed,
    quotas::Quotas,
    token_questions::TokenQuestions,
};
use super::{Config, callers::Guest};
use crate::{
    consensus::Group,
    metrics::Metrics,
    proto::{Refusal, refusal, refuse},
    sequence::{Credential, PrincipalKey, Principals, Verb, Wanted},
    storage::LOCAL_SOCKET,
};

/// Without a leader for so long, nobody knows whose tokens were revoked: only the status and formats are told.
const LEADERLESS_MAX: Duration = Duration::from_secs(30);
/// How long a caller that was let in is not looked up again, while nobody's grants change.
const LET_IN_FOR: Duration = Duration::from_secs(1);
/// How often it is looked at whether a caller that is told something for long may still hear it.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// That a call shows several tokens.
#[derive(Debug)]
pub struct SeveralTokens;

impl From<SeveralTokens> for Refusal {
    fn from(SeveralTokens: SeveralTokens) -> Refusal {
        refusal!(
            Unauthenticated,
            "the call has several tokens; send one, in one header 'authorization'"
        )
    }
}

/// That a caller was let in, by these principals.
#[derive(Debug, Default)]
pub struct LetIn {
    principals: Option<Arc<Principals>>,
    until: Option<Instant>,
}

/// Lets callers do what is granted to them.
pub struct Access {
    config: Arc<Config>,
    group: Arc<Group>,
    started: Instant,
    /// Up to then a leader was heard recently enough: nanoseconds of the group's clock.
    in_touch_until: AtomicU64,
    token_questions: TokenQuestions,
    quotas: Arc<Quotas>,
    audit: Audit,
}

impl Access {
    pub(super) fn new(config: Arc<Config>, group: Arc<Group>, metrics: Arc<Metrics>) -> Self {
        let audit = Audit::new(config.node_id, metrics);
        let token_questions = TokenQuestions::new();
        let quotas = Quotas::new(config.node_id);
        let (started, in_touch_until) = (Instant::now(), AtomicU64::new(0));
        Access { config, group, started, in_touch_until, token_questions, quotas, audit }
    }

    /// Checks by what this node knows that a caller may do what it wants.
    ///
    /// # Errors
    /// UNAUTHENTICATED if it shows nothing and has to, or what it shows is worth nothing; PERMISSION_DENIED if that is not
    /// granted to it, or is not served where it asks; UNAVAILABLE if this node has heard of no leader for long. None of them
    /// tells what exists.
    pub fn check(&self, by: &Asker, wanted: Wanted<'_>) -> Result<(), Refusal> {
        self.check_entrance(by, wanted)?;
        let principals = self.group.view.principals();
        if wanted == Wanted::OnAll(Verb::Admin) {
            self.check_founder(by)?;
        }
        match by.check(&principals, wanted, || self.group.leader_wall_ms()) {
            Ok(()) => self.check_is_in_touch(by, wanted, &principals),
            Err(denied) => Err(refused(denied, by, wanted, &principals)),
        }
    }

    /// Whether a caller that was let in before is so still: it is looked up again once somebody may do something else, or a
    /// second has passed.
    pub fn is_let_in_still(&self, known: &mut LetIn, by: &Asker) -> Result<(), Refusal> {
        let (principals, now) = (self.group.view.principals(), Instant::now());
        let is_same = known.principals.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &principals));
        if is_same && known.until.is_some_and(|until| now < until) {
            return Ok(());
        }
        self.let_in(by, Wanted::Anything)?;
        known.principals = Some(Arc::clone(&principals));
        known.until = Some(now + LET_IN_FOR);
        Ok(())
    }

    /// Returns once a caller may not do any more what it wants, with why: nothing else looks at that while it hears of
    /// something.
    pub async fn until_refused(&self, by: &Asker, wanted: Wanted<'_>) -> Refusal {
        until_fails(|| self.check(by, wanted)).await
    }

    /// As [`Access::check`], of a call that has come in: the audit tells of one that is refused.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE: [`Access::check`] says when.
    pub fn let_in(&self, by: &Asker, wanted: Wanted<'_>) -> Result<(), Refusal> {
        self.check(by, wanted).inspect_err(|refused| self.turned_away(by, wanted, refused))
    }

    /// Has the audit tell of a call that was `refused` because of who asks.
    pub fn turned_away(&self, by: &Asker, wanted: Wanted<'_>, refused: &Refusal) {
        if let Some(caller) = self.audited(by) {
            self.audit.turned_away(&caller, None, &Subject::of(wanted), refused);
        }
    }

    /// Refuses a call of `by` that shows several tokens, and has the audit tell of it. Nobody looks whose they are.
    pub fn several_tokens(&self, by: &Asker) -> Refusal {
        let refused = Refusal::from(SeveralTokens);
        if let Some(entrance) = by.entrance {
            let caller = AuditedCaller::with_several_tokens(entrance);
            self.audit.turned_away(&caller, None, &Subject::of(Wanted::Anything), &refused);
        }
        refused
    }

    /// Has the audit tell of a connection that is refused because of a certificate.
    pub fn refuse_certificate(&self, refused: &RefusedCertificate<'_>) {
        self.audit.refuse_certificate(refused);
    }

    /// Sees that a call that shows a token elsewhere than in its headers has none there, too.
    ///
    /// # Errors
    /// UNAUTHENTICATED if there is one in its headers.
    pub fn check_shows_no_token(&self, by: &Asker) -> Result<(), Refusal> {
        match by.shown() {
            Credential::Token(_) => Err(self.several_tokens(by)),
            Credential::Nothing | Credential::Certificate(_) => Ok(()),
        }
    }

    /// As [`Access::turned_away`], of a call of this method.
    pub(super) fn turned_away_from(
        &self, by: &Asker, method: &'static str, subject: &Subject, refused: &Refusal,
    ) {
        if let Some(caller) = self.audited(by) {
            self.audit.turned_away(&caller, Some(method), subject, refused);
        }
    }

    /// The line of the audit about an administrative call, written once it has ended. `None` if another node was asked, which
    /// writes it.
    pub(super) fn begin(
        &self, by: &Asker, method: &'static str, subject: Subject,
    ) -> Option<Note<'_>> {
        Some(self.audit.begin(self.audited(by)?, method, subject))
    }

    /// The caller that asks this node, as the audit tells it.
    fn audited(&self, by: &Asker) -> Option<AuditedCaller> {
        let shown = match by.shown() {
            Credential::Token(hash) => Some(hash.id()),
            Credential::Nothing | Credential::Certificate(_) => None,
        };
        let is_known = *by.shown() != Credential::Nothing && self.knows(by);
        let (entrance, shows_token) = (by.entrance?, shown.is_some());
        Some(AuditedCaller { who: self.name_of(by), entrance, shown, shows_token, is_known })
    }

    /// How a caller is called where people read: the name of its token, the URI of its certificate, `anonymous`, or `local`.
    pub fn name_of(&self, by: &Asker) -> String {
        by.name(&self.group.view.principals())
    }

    /// Whether there are tokens.
    pub fn has_tokens(&self) -> bool {
        let principals = self.group.view.principals();
        principals.iter().any(|(key, _)| matches!(key, PrincipalKey::Token(_)))
    }

    /// Sees that an administrative call has come where this node serves such: if administrators have a port of their own, that
    /// is none of the ports for clients. A caller there does not learn what its token is worth. A node that passes a call on
    /// has checked it: the call comes here without an entrance.
    fn check_entrance(&self, by: &Asker, wanted: Wanted<'_>) -> Result<(), Refusal> {
        let verb = wanted.verb().filter(|verb| verb.is_administrative());
        let is_elsewhere =
            self.config.admin_listen.is_some() && by.entrance.is_some_and(Entrance::is_client_port);
        match verb {
            Some(verb) if is_elsewhere => Err(refusal!(
                PermissionDenied,
                "node {} does not serve what needs the verb {verb} at its ports for clients: ask at the address of its setting \
                 admin_listen, or over the local socket in its data directory",
                self.config.node_id
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Sees that no stranger founds a cluster: nobody has a token by then. Nodes that know one another by certificates are
    /// founded by who may open a data directory, or shows a certificate; others that strangers reach, also by who comes over
    /// loopback.
    fn check_founder(&self, by: &Asker) -> Result<(), Refusal> {
        let is_stranger = matches!(by.who, Who::Caller(Credential::Nothing | Credential::Token(_)));
        let is_near = |entrance: Entrance| entrance.address.is_none_or(|at| at.is_loopback());
        let config = &self.config;
        let is_kept_off = config.peer_tls.dials()
            || is_exposed(config) && by.entrance.is_some_and(|entrance| !is_near(entrance));
        match is_stranger && is_kept_off && !self.group.is_formed() {
            false => Ok(()),
            // Where the data directory is, no stranger learns.
            true => Err(refusal!(
                Unauthenticated,
                "node {} waits, and is founded through the local socket in its data directory, or by a caller that shows a \
                 certificate which tls_client_ca has signed: ratchet found --server unix:DATA_DIR/{LOCAL_SOCKET}",
                config.node_id
            )),
        }
    }

    /// Has what comes from here on over the connection that this task serves count for the caller, and the connection, too, if
    /// it is nobody's yet and this node knows what that caller shows.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if that principal has as many connections as it may have.
    pub fn connection_is_used_by(&self, by: &Asker) -> Result<(), Refusal> {
        Guest::is_asked_here_by(|| self.id_of(by))
    }

    /// The id of a caller where callers share something: `None` if this node knows of its address alone.
    pub fn id_of(&self, by: &Asker) -> Option<u64> {
        match by.shown() {
            Credential::Nothing => None,
            shown => self.group.view.principals().id_of(shown, || self.group.leader_wall_ms()),
        }
    }

    /// Whether a caller shows a token that is worth something, and callers at its address may do nothing without one.
    pub fn has_rights_by_token_alone(&self, by: &Asker) -> bool {
        let is_closed = || self.group.view.principals().are_closed_to(by.network);
        matches!(by.shown(), Credential::Token(_)) && self.id_of(by).is_some() && is_closed()
    }

    /// Whether this node knows what a caller shows.
    pub fn knows(&self, by: &Asker) -> bool {
        match by.shown() {
            Credential::Token(hash) => {
                self.group.view.principals().get(&PrincipalKey::Token(*hash)).is_some()
            }
            Credential::Nothing | Credential::Certificate(_) => true,
        }
    }

    /// Sees that the principals that this node knows are not too old. Its knowledge that a cluster is open may be old, too.
    fn check_is_in_touch(
        &self, by: &Asker, wanted: Wanted<'_>, principals: &Principals,
    ) -> Result<(), Refusal> {
        if matches!(by.who, Who::Local | Who::Node(_)) {
            return Ok(());
        }
        let node = self.config.node_id;
        if self.group.lacks_changes_of_principals(principals.version()) {
            refuse!(
                NotHeardYet,
                "node {node} has not caught up with changes of tokens and grants; ask again, or another node"
            );
        }
        match wanted {
            _ if principals.is_open() => Ok(()),
            Wanted::Anything | Wanted::OnAll(Verb::Read) => Ok(()),
            _ if self.has_heard_of_leader() => Ok(()),
            _ => Err(refusal!(
                NoLeader,
                "node {node} has heard for {} s of no leader that has a majority, and does not know what was granted or \
                 revoked since; ask another node",
                LEADERLESS_MAX.as_secs()
            )),
        }
    }

    /// Whether a leader with a majority was heard in the last [`LEADERLESS_MAX`]. Each message of a caller with a token
    /// comes here: so how long that stays true is not looked up for each, which would have all threads write to one place.
    fn has_heard_of_leader(&self) -> bool {
        let now = self.group.now();
        if now.as_nanos() < self.in_touch_until.load(Relaxed) {
            return true;
        }
        let leaderless = self.group.leaderless_for().unwrap_or_else(|| self.started.elapsed());
        let left = LEADERLESS_MAX.checked_sub(leaderless);
        if let Some(left) = left {
            self.in_touch_until.store(now.after(left).as_nanos(), Relaxed);
        }
        left.is_some()
    }

    /// As [`TokenQuestions::wait_for_turn`].
    pub(super) async fn wait_for_turn(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.token_questions.wait_for_turn(deadline).await
    }
}

/// Looks every [`LOOK_EVERY`] until `check` fails. Returns why it does.
async fn until_fails(check: impl Fn() -> Result<(), Refusal>) -> Refusal {
    loop {
        sleep(LOOK_EVERY).await;
        if let Err(refusal) = check() {
            return refusal;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, pin::pin};

    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_may_not_hear_any_more_is_refused_within_3_s() {
        const MOMENT: Duration = Duration::from_millis(1);
        assert_eq!(LOOK_EVERY, Duration::from_secs(3), "docs/access.md says so");
        let is_revoked = Cell::new(false);
        let mut looking = pin!(until_fails(|| match is_revoked.get() {
            true => Err(refusal!(Unauthenticated, "the token was revoked")),
            false => Ok(()),
        }));
        let mut ends = || looking.as_mut().now_or_never().is_some();
        assert!(!ends());
        for _ in 0..3 {
            advance(LOOK_EVERY).await;
            assert!(!ends(), "it may hear on");
        }
        // Just after a look: so it takes as long as it can.
        is_revoked.set(true);
        advance(LOOK_EVERY - MOMENT).await;
        assert!(!ends(), "it is looked at too often");
        advance(MOMENT).await;
        assert!(ends());
    }
}
