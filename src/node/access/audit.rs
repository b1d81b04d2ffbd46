//! The audit: a line of the log for each administrative call, and one for a caller, or a connection, that is not let in.
//!
//! The node that was asked writes the line, once, when the call has ended: whichever node carries it out, and also if the
//! caller did not wait for the answer.
//!
//! Invariant: no line has a token, a header, or more of a token's hash than its id. Callers that are not let in cause few
//! lines, and those tell how many were left out.

use std::{fmt::Display, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::entrance::Entrance;
use crate::{
    metrics::{Interface, Label, Metrics, RefusedAt, Shown},
    node::line_rate::LineRate,
    proto::{Code, Refusal, name_of_reason},
    sequence::{LOCAL, NodeId, Wanted},
};

/// The target of the lines.
pub const AUDIT: &str = "ratchet::audit";
/// How many lines a second tell of callers that are not let in because nobody knows them, and as many of those that are known.
const REFUSED_PER_SECOND: u64 = 10;
/// How often at most a line tells of the certificates that are refused at one interface. A node whose certificate has ended
/// connects again many times a second, for as long as nobody renews it.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(10);
/// How many characters of a caller's own words a line has in one place.
const WORDS_CHARS_MAX: usize = 128;
/// How many characters a line has of why a certificate is refused. That may name what is in the certificate.
const WHY_CHARS_MAX: usize = 512;
/// As many as a change has in a line: nothing that may be granted is cut off, nor any quota that may be set.
const CHANGE_CHARS_MAX: usize = 8_192;
/// The outcome of a call whose caller does not wait for it. It may be carried out.
const LEFT: &str = "CALLER_LEFT (CANCELLED)";

/// A caller that asks this node.
#[derive(Debug)]
pub struct AuditedCaller {
    /// The name of what it shows, as [`super::Access::name_of`] has it, or that it shows several tokens.
    pub who: String,
    /// Where it asks.
    pub entrance: Entrance,
    /// The id of the token that it shows.
    pub shown: Option<String>,
    /// Whether it shows a token, or several.
    pub shows_token: bool,
    /// Whether this node knows what it shows.
    pub is_known: bool,
}

impl AuditedCaller {
    /// One who shows several tokens: it may be anybody.
    pub fn with_several_tokens(entrance: Entrance) -> AuditedCaller {
        let who = "several tokens".to_owned();
        AuditedCaller { who, entrance, shown: None, shows_token: true, is_known: false }
    }
}

/// A connection that is refused because of the certificate at its other end, or because it has none.
#[derive(Debug)]
pub struct RefusedCertificate<'a> {
    /// The URI of the certificate, if a CA of this node has signed it and it names one URI; otherwise what there is to say.
    pub who: &'a str,
    /// From which address, if that is known still.
    pub from: Option<IpAddr>,
    /// At which interface.
    pub at: RefusedAt,
    /// Why it is refused.
    pub why: &'a str,
}

/// The subject of a call, and the grant that its caller needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Subject {
    needs: String,
    /// The namespace, the name of a token, the id of a node, or the principal.
    on: Option<String>,
    /// The id of the token that it makes or removes.
    token: Option<String>,
    /// The grants, the quotas, or the address of a node that it sets.
    change: Option<String>,
}

impl Subject {
    /// That of a call for which `wanted` is needed: the namespace, if it is about one.
    pub fn of(wanted: Wanted<'_>) -> Subject {
        let on = wanted.namespace().map(words);
        Subject { needs: words(wanted), on, token: None, change: None }
    }

    /// The same call is about this.
    pub fn on(self, what: impl Display) -> Subject {
        Subject { on: Some(words(what)), ..self }
    }

    /// The same call makes or removes the token with this id, if it is known.
    pub fn with_token(self, id: Option<String>) -> Subject {
        Subject { token: id.map(words), ..self }
    }

    /// The same call sets this, if it can be read.
    pub fn setting(self, change: Option<String>) -> Subject {
        let change = change.map(|change| change.chars().take(CHANGE_CHARS_MAX).collect());
        Subject { change, ..self }
    }
}

/// The beginning of a text, which may be a caller's.
fn words(text: impl Display) -> String {
    text.to_string().chars().take(WORDS_CHARS_MAX).collect()
}

/// Writes the lines.
pub struct Audit {
    node: NodeId,
    metrics: Arc<Metrics>,
    unknown: Mutex<LineRate>,
    /// They have a rate of their own: strangers cannot crowd them out.
    known: Mutex<LineRate>,
    /// Of refused certificates, by interface. They crowd out no line about a token.
    certificates: Box<[Mutex<LineRate>]>,
}

/// The content of a line.
struct AuditLine<'a> {
    caller: &'a AuditedCaller,
    method: Option<&'static str>,
    subject: &'a Subject,
    outcome: &'a str,
}

impl Audit {
    /// The audit of a node.
    pub fn new(node: NodeId, metrics: Arc<Metrics>) -> Audit {
        let rate = || Mutex::new(LineRate::per_second(REFUSED_PER_SECOND));
        let of_certificates = || Mutex::new(LineRate::new(1, CERTIFICATES_EVERY));
        let certificates = RefusedAt::VALUES.iter().map(|_| of_certificates()).collect();
        Audit { node, metrics, unknown: rate(), known: rate(), certificates }
    }

    /// An administrative call, which has begun.
    pub fn begin(&self, caller: AuditedCaller, method: &'static str, subject: Subject) -> Note<'_> {
        Note { audit: self, caller, method, subject, has_ended: false }
    }

    /// Tells of a call that is `refused` because of who asks, if it is so: a call without a token may be a mistake, and is left
    /// out.
    pub fn turned_away(
        &self, caller: &AuditedCaller, method: Option<&'static str>, subject: &Subject,
        refused: &Refusal,
    ) {
        let is_told = match refused.code() {
            Code::PermissionDenied => true,
            Code::Unauthenticated => caller.shows_token,
            _ => false,
        };
        if is_told {
            self.tell_refused(
                &AuditLine { caller, method, subject, outcome: &outcome(refused) },
                refused,
            );
        }
    }

    /// Tells of a connection that is refused because of a certificate, and counts it.
    pub fn refuse_certificate(&self, refused: &RefusedCertificate<'_>) {
        let RefusedCertificate { who, from, at, why } = refused;
        self.metrics.logins_refused.of(*at).add(Shown::certificate, 1);
        let Some(left_out) = self.certificates[at.place()].lock().take(Instant::now()) else {
            return;
        };
        let from = from.map_or_else(|| "unknown".to_owned(), |from| from.to_string());
        let outcome: String = why.chars().take(WHY_CHARS_MAX).collect();
        tracing::warn!(
            target: AUDIT,
            who = words(who),
            from,
            interface = RefusedAt::VALUES[at.place()],
            outcome,
            node = self.node,
            left_out,
            "not let in"
        );
    }

    fn tell(&self, line: &AuditLine<'_>) {
        let AuditLine {
            caller: AuditedCaller { who, entrance, shown, .. },
            method,
            subject,
            outcome,
        } = line;
        tracing::info!(
            target: AUDIT,
            who,
            shown,
            from = from(*entrance),
            interface = interface(*entrance),
            method,
            on = subject.on,
            token = subject.token,
            change = subject.change,
            outcome,
            node = self.node,
            "administrative call"
        );
    }

    fn tell_refused(&self, line: &AuditLine<'_>, refused: &Refusal) {
        let AuditLine { caller, method, subject, outcome } = line;
        let AuditedCaller { who, entrance, shown, shows_token, is_known } = caller;
        let is_worthless = refused.code() == Code::Unauthenticated;
        if *shows_token && is_worthless {
            self.metrics.logins_refused.of(entrance.interface.into()).add(Shown::token, 1);
        }
        // At the wrong port nobody looks what it is worth that a stranger shows.
        let rate = if is_worthless || !is_known { &self.unknown } else { &self.known };
        let Some(left_out) = rate.lock().take(Instant::now()) else {
            return;
        };
        tracing::warn!(
            target: AUDIT,
            who,
            shown,
            from = from(*entrance),
            interface = interface(*entrance),
            method,
            on = subject.on,
            token = subject.token,
            needs = subject.needs,
            outcome,
            node = self.node,
            left_out,
            "not let in"
        );
    }
}

fn from(entrance: Entrance) -> String {
    entrance.address.map_or_else(|| LOCAL.to_owned(), |address| address.to_string())
}

fn interface(entrance: Entrance) -> &'static str {
    Interface::VALUES[entrance.interface.place()]
}

/// Reason and code.
fn outcome(refused: &Refusal) -> String {
    format!("{} ({})", name_of_reason(refused.reason()), Code::VALUES[refused.code().place()])
}

/// An administrative call that is under way. If it is dropped before it has ended, the line says so: nobody can hide a call by
/// hanging up.
pub struct Note<'a> {
    audit: &'a Audit,
    caller: AuditedCaller,
    method: &'static str,
    subject: Subject,
    has_ended: bool,
}

impl Note<'_> {
    /// The call has ended so. `subject` is what the answer tells of it, too. `is_let_in`: the caller may have it carried out,
    /// by what this node knows.
    pub fn end(mut self, subject: Option<Subject>, done: Result<(), &Refusal>, is_let_in: bool) {
        self.has_ended = true;
        if let Some(subject) = subject {
            self.subject = subject;
        }
        match done {
            Ok(()) => self.audit.tell(&self.line("ok")),
            // The leader may know better than this node.
            Err(refused) if !is_let_in || refused.code() == Code::PermissionDenied => {
                self.audit.tell_refused(&self.line(&outcome(refused)), refused);
            }
            Err(refused) => self.audit.tell(&self.line(&outcome(refused))),
        }
    }

    fn line<'a>(&'a self, outcome: &'a str) -> AuditLine<'a> {
        let Note { caller, subject, .. } = self;
        AuditLine { caller, method: Some(self.method), subject, outcome }
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.audit.tell(&self.line(LEFT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{proto::refusal, sequence::Verb};

    #[test]
    fn strangers_at_the_wrong_port_take_no_lines_from_those_whom_the_node_knows() {
        let audit = Audit::new(1, Metrics::new());
        let caller = |is_known| AuditedCaller {
            who: "ci".to_owned(),
            entrance: Entrance {
                interface: Interface::grpc,
                address: Some([10, 0, 0, 1].into()),
                is_admin_port: false,
            },
            shown: Some("ba7816bf8f01".to_owned()),
            shows_token: true,
            is_known,
        };
        let subject = Subject::of(Wanted::OnAll(Verb::Admin));
        let refused = refusal!(PermissionDenied, "another port");
        for is_known in [false, false, true] {
            audit.turned_away(&caller(is_known), None, &subject, &refused);
        }
        assert_eq!([&audit.unknown, &audit.known].map(|rate| rate.lock().written()), [2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_certificates_are_counted_each_time_and_told_once_in_10_s_at_each_interface() {
        let metrics = Metrics::new();
        let audit = Audit::new(1, metrics.clone());
        let refuse = |at| {
            audit.refuse_certificate(&RefusedCertificate {
                who: "unknown certificate",
                from: Some([10, 0, 0, 1].into()),
                at,
                why: "invalid peer certificate: UnknownIssuer",
            });
        };
        for _ in 0..3 {
            refuse(RefusedAt::peer);
        }
        refuse(RefusedAt::grpc);
        let counted = |at, kind| metrics.logins_refused.of(at).get(kind);
        assert_eq!(counted(RefusedAt::peer, Shown::certificate), 3);
        assert_eq!(counted(RefusedAt::peer, Shown::token), 0);
        assert_eq!(counted(RefusedAt::grpc, Shown::certificate), 1);
        let told = |at: RefusedAt| audit.certificates[at.place()].lock().written();
        assert_eq!([RefusedAt::peer, RefusedAt::grpc, RefusedAt::http].map(told), [1, 1, 0]);
        let others = [&audit.unknown, &audit.known].map(|rate| rate.lock().written());
        assert_eq!(others, [0, 0], "no line of a caller is left out for them");
        tokio::time::advance(CERTIFICATES_EVERY).await;
        let mut of_peers = audit.certificates[RefusedAt::peer.place()].lock();
        assert_eq!(of_peers.take(Instant::now()), Some(2), "two were left out");
    }

    #[test]
    fn a_subject_is_the_namespace_or_what_is_said_and_never_long() {
        let subject = Subject::of(Wanted::On(Verb::Namespaces, "book"));
        let told = (&*subject.needs, subject.on.as_deref());
        assert_eq!(told, ("namespaces:book", Some("book")));
        let subject = Subject::of(Wanted::OnAll(Verb::Admin));
        assert_eq!((&*subject.needs, &subject.on), ("admin:*", &None));
        let subject = subject.on("é".repeat(1_000)).with_token(Some("1".repeat(1_000)));
        let subject = subject.setting(Some("é".repeat(10_000)));
        let long = |text: Option<String>| text.expect("a text").chars().count();
        let all = [long(subject.on), long(subject.token), long(subject.change)];
        assert_eq!(all, [WORDS_CHARS_MAX, WORDS_CHARS_MAX, CHANGE_CHARS_MAX]);
    }
}
