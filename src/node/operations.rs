//! Operations: what is asked for in one message that has one answer, and is carried out by the leader or by the node that is
//! asked. Numbers have a way of their own (`numbers.rs`).
//!
//! A message keeps its bytes on the way to the leader, so that what a newer client sends is not lost. `proto` says what each
//! operation is; who carries it out implements [`ByLeader`] or [`ByAskedNode`] for its request.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use prost::Message;
use tokio::time::Instant;

use super::{
    access::{Access, Guarded, Note, Principal, Subject},
    numbers::leader_search::{Attempt, ForLeader, Origin, Trace, Unanswered},
    request_memory::Reservation,
    seams::Reload,
    services::{
        Founding, Handovers, Leader, LeaderIds, Members, Namespaces, OperationServices, Status,
    },
};
use crate::{
    allocator::Term,
    clock::whole_ms,
    proto::{
        Code, Operation, Refusal,
        peer::{AdministerRequest, administer_reply::Reply},
        refusal,
    },
    sequence::{NamespaceId, NodeId, Verb},
    storage::Member,
};

/// How long before the deadline an answer leaves at the latest.
pub(super) const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// How many bytes the numbers of what is listed, a key or a namespace, have at most, encoded.
pub(super) const NUMBERS_BYTES: usize = 96;

/// An operation that the leader carries out.
pub(super) trait ByLeader: Operation + Guarded {
    /// It is not asked of a second leader once the answer of the first one is lost.
    const IS_ASKED_ONCE: bool = false;

    /// What was done of it shows, although nobody got its answer.
    const SHOWS: bool = !Self::ONLY_READS;

    /// How long a leader is waited for, if not until the deadline.
    const PATIENCE: Duration = Duration::MAX;

    /// The part of the node that carries it out.
    type Service;

    /// Carries it out before `deadline`, on the node that leads the term, for whoever asks and may.
    fn carry_out(
        self, service: &Self::Service, term_and_asker: (&Term, &Principal), deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// Its answer, if it was `refused` because an attempt before has carried it out, as far as shows: things are as it asks.
    fn done_before(
        &self, _service: &Self::Service, _term: &Term, _refused: &Refusal,
    ) -> Option<Self::Answer> {
        None
    }

    /// What the audit says that it is about, once it has the answer, and before.
    fn subject(&self, _answer: Option<&Self::Answer>) -> Subject {
        Subject::of(self.wanted())
    }

    /// About how many bytes the answer holds at most, as a message and encoded. 0: few.
    fn answer_bytes(&self, _service: &Self::Service) -> usize {
        0
    }

    /// The answer while no leader answers; `None` if only a leader has one.
    fn without_leader(_service: &Self::Service) -> Option<Self::Answer> {
        None
    }
}

/// An operation that the node carries out that is asked.
pub(super) trait ByAskedNode: Operation + Guarded {
    /// The part of the node that carries it out.
    type Service;

    /// Carries it out before `deadline`.
    fn carry_out(
        self, service: &Self::Service, deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// The services that operations name, and where they are.
macro_rules! services {
    ($($service:ty: $($part:ident).+,)*) => {
        $(impl AsRef<$service> for OperationServices {
            fn as_ref(&self) -> &$service {
                &self.$($part).+
            }
        })*
    };
}

services! {
    Arc<Access>: access,
    Members: members,
    Arc<Founding>: founding,
    Arc<Handovers>: of_group.handovers,
    LeaderIds: of_group.leader_ids,
    Namespaces: of_group.namespaces,
    Arc<Status>: status,
    Arc<dyn Reload>: certificates,
}

/// What needs no service.
impl AsRef<()> for OperationServices {
    fn as_ref(&self) -> &() {
        &()
    }
}

/// How an operation is served: what is known of it without the types of its messages.
pub struct Served {
    /// Service and method, as in the path of a gRPC call.
    pub method: &'static str,
    /// How many bytes the request and its answer hold at most.
    bytes: fn(&OperationServices, &Bytes) -> Result<usize, Refusal>,
    admit: Admit,
    check: Check,
    /// Whether the audit tells of it, also if it is carried out.
    is_administrative: fn(&Bytes) -> bool,
    /// What it is about, by the request and by the answer, if there is one. `None` if no such request can be read.
    subject: fn(&Bytes, Option<&Bytes>) -> Option<Subject>,
    by: By,
}

enum By {
    Leader(Led),
    AskedNode(CarryOutHere),
}

/// How the leader serves an operation.
struct Led {
    is_idempotent: bool,
    is_asked_once: bool,
    shows: bool,
    patience: Duration,
    carry_out: CarryOut,
    without_leader: fn(&OperationServices) -> Option<Bytes>,
}

/// Lets the caller in, if it may, and counts the call.
type Admit =
    for<'a> fn(&'a Leader, &'a Principal, Bytes, Instant) -> BoxFuture<'a, Result<(), Refusal>>;

/// Sees that the caller may have it, by what this node knows.
type Check = fn(&Access, &Principal, &Bytes) -> Result<(), Refusal>;

/// The flag: an attempt before may have carried it out.
type CarryOut = for<'a> fn(
    &'a OperationServices,
    (&'a Term, &'a Principal),
    (Bytes, bool),
    Instant,
) -> BoxFuture<'a, Attempt<Bytes>>;

type CarryOutHere = fn(&OperationServices, Bytes, Instant) -> BoxFuture<'_, Result<Bytes, Refusal>>;

/// All operations.
pub static OPERATIONS: &[Served] = include!(concat!(env!("OUT_DIR"), "/served.rs"));

const fn by_leader<Q: ByLeader>() -> Served
where
    OperationServices: AsRef<Q::Service>,
{
    Served {
        method: Q::METHOD,
        bytes: |services, message| {
            let asked: Q = decoded(message.clone())?;
            Ok(held_by::<Q>(message) + asked.answer_bytes(services.as_ref()))
        },
        admit: admit::<Q>,
        check: check::<Q>,
        is_administrative: is_administrative::<Q>,
        subject: |message, answer| {
            let asked: Q = decoded(message.clone()).ok()?;
            let answer = answer.and_then(|answer| Q::Answer::decode(answer.clone()).ok());
            Some(asked.subject(answer.as_ref()))
        },
        by: By::Leader(Led {
            is_idempotent: Q::IS_IDEMPOTENT,
            is_asked_once: Q::IS_ASKED_ONCE,
            shows: Q::SHOWS,
            patience: Q::PATIENCE,
            carry_out: |services, (term, by), (message, again), deadline| {
                let carrying_out = async move {
                    let asked: Q = decoded(message.clone())?;
                    let answer =
                        match asked.carry_out(services.as_ref(), (term, by), deadline).await {
                            Err(Unanswered::Refused(refused)) if again => {
                                let asked: Q = decoded(message)?;
                                let answer = asked.done_before(services.as_ref(), term, &refused);
                                answer.ok_or(Unanswered::Refused(refused))?
                            }
                            answer => answer?,
                        };
                    Ok(encoded(&answer))
                };
                carrying_out.boxed()
            },
            without_leader: |services| Some(encoded(&Q::without_leader(services.as_ref())?)),
        }),
    }
}

const fn by_asked_node<Q: ByAskedNode>() -> Served
where
    OperationServices: AsRef<Q::Service>,
{
    Served {
        method: Q::METHOD,
        bytes: |_, message| decoded::<Q>(message.clone()).map(|_| held_by::<Q>(message)),
        admit: admit::<Q>,
        check: check::<Q>,
        is_administrative: is_administrative::<Q>,
        subject: |message, _| {
            let asked: Q = decoded(message.clone()).ok()?;
            Some(Subject::of(asked.wanted()))
        },
        by: By::AskedNode(|services, message, deadline| {
            let carrying_out = async move {
                let asked: Q = decoded(message)?;
                Ok(encoded(&asked.carry_out(services.as_ref(), deadline).await?))
            };
            carrying_out.boxed()
        }),
    }
}

fn admit<'a, Q: Operation + Guarded>(
    leader: &'a Leader, by: &'a Principal, message: Bytes, deadline: Instant,
) -> BoxFuture<'a, Result<(), Refusal>> {
    let admitting = async move {
        let asked: Q = decoded(message)?;
        leader.admit_untold(by, asked.wanted(), deadline).await?;
        leader.access.count_call(by, asked.wanted())
    };
    admitting.boxed()
}

fn check<Q: Operation + Guarded>(
    access: &Access, by: &Principal, message: &Bytes,
) -> Result<(), Refusal> {
    let asked: Q = decoded(message.clone())?;
    access.check(by, asked.wanted())
}

fn is_administrative<Q: Operation + Guarded>(message: &Bytes) -> bool {
    let asked: Result<Q, Refusal> = decoded(message.clone());
    asked.is_ok_and(|asked| asked.wanted().verb().is_some_and(Verb::is_administrative))
}

/// How many bytes a request holds: as it came, as a message, and as it is sent to the leader.
fn held_by<Q>(message: &Bytes) -> usize {
    size_of::<Q>() + 3 * message.len()
}

fn decoded<Q: Operation>(message: Bytes) -> Result<Q, Refusal> {
    let unreadable =
        |error| refusal!(InvalidRequest, "the message is no request of {}: {error}", Q::METHOD);
    Q::decode(message).map_err(unreadable)
}

fn encoded(answer: &impl Message) -> Bytes {
    answer.encode_to_vec().into()
}

impl Served {
    /// The operation of the leader's with that service and method.
    pub fn by_leader(method: &str) -> Option<&'static Served> {
        let is_meant = |one: &&Served| one.method == method && matches!(one.by, By::Leader(_));
        OPERATIONS.iter().find(is_meant)
    }

    /// The operation whose request is `Q`.
    fn of<Q: Operation>() -> &'static Served {
        let of_request = OPERATIONS.iter().find(|one| one.method == Q::METHOD);
        of_request.expect("the build makes the table of what it makes operations of")
    }

    /// What has the audit tell of a call, if it is administrative, and this node was asked.
    fn note<'a>(
        &self, access: &'a Access, (message, by): (&Bytes, &Principal),
    ) -> Option<Note<'a>> {
        match by.asks_here() && (self.is_administrative)(message) {
            true => access.begin(by, self.method, (self.subject)(message, None)?),
            false => None,
        }
    }

    /// Has the audit tell how a call has ended, if that is to be told.
    fn tell<T>(
        &self, access: &Access, note: Option<Note<'_>>, (message, by): (&Bytes, &Principal),
        called: &Attempt<(Bytes, T)>, is_let_in: bool,
    ) {
        match (note, called) {
            // A peer's request alone fails so, and has no note.
            (None, Ok(_)) | (_, Err(Unanswered::Elsewhere { .. } | Unanswered::Mistaken)) => {}
            (Some(note), Ok((answer, _))) => {
                note.end((self.subject)(message, Some(answer)), Ok(()), is_let_in);
            }
            (Some(note), Err(Unanswered::Refused(refused))) => {
                note.end(None, Err(refused), is_let_in)
            }
            (None, Err(Unanswered::Refused(refused))) => {
                if let Some(subject) = (self.subject)(message, None) {
                    access.turned_away_from(by, self.method, &subject, refused);
                }
            }
        }
    }
}

impl Leader {
    /// Has an operation carried out for a caller before `deadline`: by this node, or by the leader, whichever node that is. The
    /// memory that the answer holds comes with it, if it is much: it is to be dropped when the answer is sent. It is reserved before
    /// anything is carried out.
    ///
    /// # Errors
    /// [`Unanswered`]: those of [`Leader::admit`]; a refusal with what was wrong; RESOURCE_EXHAUSTED if other requests and answers
    /// hold the memory; or, for a peer's request, that another node is to be asked.
    pub async fn call(
        &self, operation: &'static Served, (message, by): (Bytes, &Principal), origin: Origin,
        deadline: Instant,
    ) -> Attempt<(Bytes, Option<Reservation>)> {
        let admitted = (operation.admit)(self, by, message.clone(), deadline).await;
        let (is_let_in, note) = (admitted.is_ok(), operation.note(&self.access, (&message, by)));
        let called = match admitted {
            Ok(()) => self.carry_out(operation, (message.clone(), by), origin, deadline).await,
            Err(refusal) => Err(refusal.into()),
        };
        operation.tell(&self.access, note, (&message, by), &called, is_let_in);
        called
    }

    /// Has an operation carried out for a caller that may have that.
    async fn carry_out(
        &self, operation: &'static Served, (message, by): (Bytes, &Principal), origin: Origin,
        deadline: Instant,
    ) -> Attempt<(Bytes, Option<Reservation>)> {
        let expected = (operation.bytes)(&self.services, &message)?;
        let reserved = self.request_memory.reserve_if_many(expected)?;
        let answer = match &operation.by {
            By::Leader(led) => {
                let call =
                    Call { method: operation.method, check: operation.check, led, message, by };
                self.route_to_leader(&call, origin, false, deadline).await?
            }
            By::AskedNode(carry_out) => carry_out(&self.services, message, deadline).await?,
        };
        Ok((answer, reserved))
    }

    /// As [`Leader::call`], with messages.
    ///
    /// # Errors
    /// As [`Leader::call`].
    pub async fn ask<Q: Operation>(
        &self, request: &Q, by: &Principal, deadline: Instant,
    ) -> Result<(Q::Answer, Option<Reservation>), Refusal> {
        let asked = (encoded(request), by);
        let calling = self.call(Served::of::<Q>(), asked, Origin::Client, deadline);
        let (answer, reserved) = calling.await?;
        let unreadable = |error| refusal!(Internal, "the answer of {}: {error}", Q::METHOD);
        Ok((Q::Answer::decode(answer).map_err(unreadable)?, reserved))
    }
}

/// An operation on its way to the leader.
struct Call<'a> {
    method: &'static str,
    check: Check,
    led: &'static Led,
    message: Bytes,
    by: &'a Principal,
}

impl ForLeader for Call<'_> {
    type Answer = Bytes;

    /// A deposed leader that still owes the answer may carry the change out yet.
    fn may_be_asked_again(&self, _: &Leader, _: Option<NamespaceId>) -> bool {
        self.led.is_idempotent
    }

    fn check_asker(&self, here: &Leader) -> Result<(), Refusal> {
        (self.check)(&here.access, self.by, &self.message)
    }

    fn trace(&self) -> Trace {
        match self.led {
            Led { shows: false, .. } => Trace::None,
            Led { is_idempotent: true, .. } => Trace::Harmless,
            Led { .. } => Trace::Change,
        }
    }

    async fn serve_locally(
        &self, here: &Leader, (origin, may_be_done): (Origin, bool), deadline: Instant,
    ) -> Attempt<Bytes> {
        let Some(term) = here.led.serving() else {
            return Err(Unanswered::ELSEWHERE);
        };
        if !term.still_leads(deadline).await {
            return Err(Unanswered::ELSEWHERE);
        }
        let again = may_be_done || matches!(origin, Origin::Peer { again: true, .. });
        let message = (self.message.clone(), again);
        (self.led.carry_out)(&here.services, (&term, self.by), message, deadline).await
    }

    async fn serve_remotely(
        &self, here: &Leader, (leader, member): (NodeId, &Member), _: Option<NamespaceId>,
        may_be_done: bool, deadline: Instant,
    ) -> Attempt<Bytes> {
        let left = deadline.saturating_duration_since(Instant::now()).min(self.led.patience);
        let message = AdministerRequest {
            budget_ms: whole_ms(left),
            caller: self.by.told(),
            by: self.by.to_wire(),
            method: self.method.to_owned(),
            again: may_be_done,
            message: self.message.clone(),
            ..AdministerRequest::default()
        };
        match here.forwarder.administer(leader, member, message, left).await {
            Ok(answer) => match answer.reply {
                Some(Reply::Answer(answer)) => Ok(answer),
                Some(Reply::Error(error)) => Err(Unanswered::Refused(error.into())),
                Some(Reply::NotLeader(_)) | None => Err(Unanswered::ELSEWHERE),
            },
            Err(lost) => Err(self.lost(leader, &lost)),
        }
    }

    fn serve_without_leader(&self, here: &Leader) -> Option<Bytes> {
        (self.led.without_leader)(&here.services)
    }
}

impl Call<'_> {
    /// What it comes to if no answer came back from the `leader`.
    fn lost(&self, leader: NodeId, why: &Refusal) -> Unanswered {
        let Call { method, led: Led { is_idempotent, is_asked_once, shows, .. }, .. } = self;
        match why.code() {
            // It read the message, and knows no such operation. It would not know it if it were asked again.
            Code::InvalidArgument | Code::Unimplemented => refusal!(
                WrongState,
                "node {leader} leads, and its release does not know {method}; upgrade it: {}",
                why.message()
            )
            .into(),
            Code::DeadlineExceeded if !is_idempotent => may_be_done(leader, why).into(),
            _ if *is_asked_once => may_be_done(leader, why).into(),
            _ => {
                tracing::debug!(leader, method, %why, "no answer");
                if *shows { Unanswered::MAY_BE_DONE } else { Unanswered::ELSEWHERE }
            }
        }
    }
}

fn may_be_done(leader: NodeId, why: &Refusal) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "node {leader} leads and did not answer in time; whether the request was carried out is unknown: look before you ask \
         again: {}",
        why.message()
    )
}
