//! Operations: what is asked for in one message that has one answer, and is carried out by the leader or by the node that is
//! asked. Numbers have a way of their own (`numbers.rs`).
//!
//! A message keeps its bytes on the way to the leader, so that what a newer client sends is not lost. `proto` says what each
//! operation is; who carries it out implements [`ByLeader`] or [`ByAskedNode`] for its request.
//!
//! `services.rs` holds the services that carry operations out; `reload.rs` is the one that reads certificates again.

mod reload;
pub(super) mod services;

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use prost::Message;
use tokio::time::Instant;

use self::services::OperationServices;
use super::{
    access::{Access, Asker, Guarded, Note, Subject},
    admission::Admission,
    common::Common,
    request_memory::{RequestMemory, Reservation},
    requests::operation::{ByAskedNode, ByLeader, facts_of},
    slow_calls::SlowCalls,
    terms::LedTerms,
    told_call::About,
    traces::Span,
    way::{
        Way,
        attempt::{Attempt, SoFar, Unanswered},
        effect::Effect,
        for_leader::ForLeader,
        operation::Facts,
        origin::Origin,
    },
};
use crate::{
    allocator::Term,
    proto::{Operation, Refusal, refusal},
    sequence::{NamespaceId, NodeId, Verb},
    storage::Member,
};

/// How an operation is served: what is known of it without the types of its messages.
pub struct ServedOperation {
    /// Service and method, as in the path of a gRPC call.
    pub method: &'static str,
    /// How many bytes the request and its answer hold at most.
    bytes: fn(&OperationServices, &Bytes) -> Result<usize, Refusal>,
    admit: Admit,
    check: Check,
    /// Whether the audit tells of it, also if it is carried out.
    is_administrative: fn(&Bytes) -> bool,
    /// Its subject, by the request and by the answer, if there is one. `None` if no such request can be read.
    subject: fn(&Bytes, Option<&Bytes>) -> Option<Subject>,
    by: CarriedOutBy,
}

enum CarriedOutBy {
    Leader(Led),
    AskedNode(CarryOutHere),
}

/// How the leader serves an operation.
struct Led {
    facts: Facts,
    carry_out: CarryOut,
    without_leader: fn(&OperationServices) -> Option<Bytes>,
}

/// Lets the caller in, if it may, and counts the call.
type Admit =
    for<'a> fn(&'a Admission, &'a Asker, Bytes, Instant) -> BoxFuture<'a, Result<(), Refusal>>;

/// Sees that the caller may have it, by what this node knows.
type Check = fn(&Access, &Asker, &Bytes) -> Result<(), Refusal>;

/// The flag: an attempt before may have carried it out.
type CarryOut = for<'a> fn(
    &'a OperationServices,
    (&'a Term, &'a Asker),
    (Bytes, bool),
    Instant,
) -> BoxFuture<'a, Attempt<Bytes>>;

type CarryOutHere = fn(&OperationServices, Bytes, Instant) -> BoxFuture<'_, Result<Bytes, Refusal>>;

/// All operations.
pub static OPERATIONS: &[ServedOperation] = include!(concat!(env!("OUT_DIR"), "/served.rs"));

const fn by_leader<Q: ByLeader>() -> ServedOperation
where
    OperationServices: AsRef<Q::Service>,
{
    ServedOperation {
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
        by: CarriedOutBy::Leader(Led {
            facts: facts_of::<Q>(),
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

const fn by_asked_node<Q: ByAskedNode>() -> ServedOperation
where
    OperationServices: AsRef<Q::Service>,
{
    ServedOperation {
        method: Q::METHOD,
        bytes: |_, message| decoded::<Q>(message.clone()).map(|_| held_by::<Q>(message)),
        admit: admit::<Q>,
        check: check::<Q>,
        is_administrative: is_administrative::<Q>,
        subject: |message, _| {
            let asked: Q = decoded(message.clone()).ok()?;
            Some(asked.subject())
        },
        by: CarriedOutBy::AskedNode(|services, message, deadline| {
            let carrying_out = async move {
                let asked: Q = decoded(message)?;
                Ok(encoded(&asked.carry_out(services.as_ref(), deadline).await?))
            };
            carrying_out.boxed()
        }),
    }
}

fn admit<'a, Q: Operation + Guarded>(
    admission: &'a Admission, by: &'a Asker, message: Bytes, deadline: Instant,
) -> BoxFuture<'a, Result<(), Refusal>> {
    let admitting = async move {
        let asked: Q = decoded(message)?;
        admission.admit_without_audit(by, asked.wanted(), deadline).await?;
        admission.access().count_call(by, asked.wanted())
    };
    admitting.boxed()
}

fn check<Q: Operation + Guarded>(
    access: &Access, by: &Asker, message: &Bytes,
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

impl ServedOperation {
    /// The operation of the leader's with that service and method.
    pub fn by_leader(method: &str) -> Option<&'static ServedOperation> {
        let is_meant = |one: &&ServedOperation| {
            one.method == method && matches!(one.by, CarriedOutBy::Leader(_))
        };
        OPERATIONS.iter().find(is_meant)
    }

    /// The operation whose request is `Q`.
    fn of<Q: Operation>() -> &'static ServedOperation {
        let of_request = OPERATIONS.iter().find(|one| one.method == Q::METHOD);
        of_request.expect("the build makes the table of what it makes operations of")
    }

    /// The line of the audit about a call, if it is administrative, and this node was asked.
    fn note<'a>(&self, access: &'a Access, (message, by): (&Bytes, &Asker)) -> Option<Note<'a>> {
        match by.asks_here() && (self.is_administrative)(message) {
            true => access.begin(by, self.method, (self.subject)(message, None)?),
            false => None,
        }
    }

    /// Has the audit tell how a call has ended, if that is to be told.
    fn tell<T>(
        &self, access: &Access, note: Option<Note<'_>>, (message, by): (&Bytes, &Asker),
        called: &Attempt<(Bytes, T)>, is_let_in: bool,
    ) {
        match (note, called) {
            // A peer's request alone fails so, and has no note.
            (None, Ok(_)) | (_, Err(Unanswered::Elsewhere(_) | Unanswered::Mistaken)) => {}
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

/// Has operations carried out, by this node or by the leader.
pub struct Operations {
    request_memory: Arc<RequestMemory>,
    slow_calls: Arc<SlowCalls>,
    admission: Arc<Admission>,
    access: Arc<Access>,
    led: Arc<LedTerms>,
    way: Arc<Way>,
    services: Arc<OperationServices>,
}

impl Operations {
    /// Those that `services` carry out.
    pub(super) fn new(
        common: &Common, admission: Arc<Admission>, services: Arc<OperationServices>,
    ) -> Self {
        Operations {
            request_memory: common.request_memory.clone(),
            slow_calls: common.slow_calls.clone(),
            admission,
            access: services.access.clone(),
            led: services.of_group.led.clone(),
            way: services.of_group.way.clone(),
            services,
        }
    }

    /// Has an operation carried out for a caller before `deadline`: by this node, or by the leader, whichever node that is. The
    /// memory that the answer holds comes with it, if it is much: it is to be dropped when the answer is sent. It is reserved
    /// before anything is carried out.
    ///
    /// # Errors
    /// [`Unanswered`]: those of [`Admission::admit`]; a refusal with what was wrong; RESOURCE_EXHAUSTED if other requests and
    /// answers hold the memory; or, for a peer's request, that another node is to be asked.
    pub async fn call(
        &self, operation: &'static ServedOperation, (message, by): (Bytes, &Asker),
        (origin, span): (Origin, Option<&Span>), deadline: Instant,
    ) -> Attempt<(Bytes, Option<Reservation>)> {
        let forwarded_here = origin != Origin::Client;
        let about = || About { method: operation.method, namespace: None, keys: 0, forwarded_here };
        let calling = pin!(self.call_unwatched(operation, (message, by), (origin, span), deadline));
        match by.is_node() {
            false => self.slow_calls.watch(about, span, calling).await,
            // A node's own operation is part of a call, or nobody waits for it.
            true => calling.await,
        }
    }

    /// As [`Operations::call`]. The log does not tell if it is slow.
    async fn call_unwatched(
        &self, operation: &'static ServedOperation, (message, by): (Bytes, &Asker),
        from: (Origin, Option<&Span>), deadline: Instant,
    ) -> Attempt<(Bytes, Option<Reservation>)> {
        let admitted = (operation.admit)(&self.admission, by, message.clone(), deadline).await;
        let (is_let_in, note) = (admitted.is_ok(), operation.note(&self.access, (&message, by)));
        let called = match admitted {
            Ok(()) => self.carry_out(operation, (message.clone(), by), from, deadline).await,
            Err(refusal) => Err(refusal.into()),
        };
        operation.tell(&self.access, note, (&message, by), &called, is_let_in);
        called
    }

    /// Has an operation carried out for a caller that may have that.
    async fn carry_out(
        &self, operation: &'static ServedOperation, (message, by): (Bytes, &Asker),
        (origin, span): (Origin, Option<&Span>), deadline: Instant,
    ) -> Attempt<(Bytes, Option<Reservation>)> {
        let expected = (operation.bytes)(&self.services, &message)?;
        let reserved = self.request_memory.reserve_if_many(expected)?;
        let answer = match &operation.by {
            CarriedOutBy::Leader(led) => {
                let call = OperationCall { check: operation.check, led, message, by, span };
                self.way.answer(self, &call, origin, deadline).await?
            }
            CarriedOutBy::AskedNode(carry_out) => {
                carry_out(&self.services, message, deadline).await?
            }
        };
        Ok((answer, reserved))
    }

    /// As [`Operations::call`], with messages, and without a trace.
    ///
    /// # Errors
    /// The refusal of the caller, of the operation, or for want of memory: [`Operations::call`] lists them.
    pub async fn ask<Q: Operation>(
        &self, request: &Q, by: &Asker, deadline: Instant,
    ) -> Result<(Q::Answer, Option<Reservation>), Refusal> {
        self.ask_in(None, request, by, deadline).await
    }

    /// As [`Operations::call`], with messages.
    ///
    /// # Errors
    /// The refusal of the caller, of the operation, or for want of memory: [`Operations::call`] lists them.
    pub async fn ask_in<Q: Operation>(
        &self, span: Option<&Span>, request: &Q, by: &Asker, deadline: Instant,
    ) -> Result<(Q::Answer, Option<Reservation>), Refusal> {
        let asked = (encoded(request), by);
        let calling =
            self.call(ServedOperation::of::<Q>(), asked, (Origin::Client, span), deadline);
        let (answer, reserved) = calling.await?;
        let unreadable = |error| refusal!(Internal, "the answer of {}: {error}", Q::METHOD);
        Ok((Q::Answer::decode(answer).map_err(unreadable)?, reserved))
    }
}

/// An operation on its way to the leader.
struct OperationCall<'a> {
    check: Check,
    led: &'static Led,
    message: Bytes,
    by: &'a Asker,
    span: Option<&'a Span>,
}

impl ForLeader for OperationCall<'_> {
    type Here = Operations;
    type Answer = Bytes;

    /// A deposed leader that still owes the answer may carry the change out yet.
    fn may_be_asked_again(&self, _: &Operations, _: Option<NamespaceId>) -> bool {
        self.led.facts.is_idempotent
    }

    fn check_asker(&self, here: &Operations) -> Result<(), Refusal> {
        (self.check)(&here.access, self.by, &self.message)
    }

    fn effect(&self) -> Effect {
        self.led.facts.effect()
    }

    async fn serve_locally(
        &self, here: &Operations, (origin, so_far): (Origin, SoFar), deadline: Instant,
    ) -> Attempt<Bytes> {
        let Some(term) = here.led.serving() else {
            return Err(Unanswered::ELSEWHERE);
        };
        if !term.still_leads(deadline).await {
            return Err(Unanswered::ELSEWHERE);
        }
        let again =
            so_far == SoFar::MayBeDone || matches!(origin, Origin::Peer { again: true, .. });
        let message = (self.message.clone(), again);
        (self.led.carry_out)(&here.services, (&term, self.by), message, deadline).await
    }

    async fn serve_remotely(
        &self, here: &Operations, leader: (NodeId, &Member), _: Option<NamespaceId>, so_far: SoFar,
        deadline: Instant,
    ) -> Attempt<Bytes> {
        let asked = (&self.message, self.by, self.span);
        self.led.facts.send(here.way.forwarder(), leader, asked, so_far, deadline).await
    }

    fn serve_without_leader(&self, here: &Operations) -> Option<Bytes> {
        (self.led.without_leader)(&here.services)
    }
}
