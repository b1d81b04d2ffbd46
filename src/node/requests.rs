//! One request's way to its numbers: from this node's memory if it leads, from the leader's if not.
//!
//! Invariant: a request that came from a peer is never forwarded again.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic::Status;

use super::{Shared, forward::Forwarded};
use crate::{
    allocator::{NextError, Term},
    consensus::Leadership,
    proto::{
        peer::forward_request::Request as Forward,
        v1::{
            CurrentRequest, CurrentResponse, Key as WireKey, NextRequest, NextResponse, Route,
            key::Kind,
        },
    },
    sequence::{Key, KeyKind, Namespace, NodeId, check_name},
    watch,
};

/// How soon numbers are taken again after the fence fell for no lasting reason.
const FENCE_RETRY: Duration = Duration::from_millis(50);
/// How soon a leader that did not answer, or says that it does not lead, is asked again.
const RETRY: Duration = Duration::from_millis(20);

/// How long a leader that was passed over may still answer what it was asked before.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client: it may be forwarded.
    Client,
    /// A peer that took this node for the leader: it may not.
    Peer,
}

/// Why a request was not answered.
#[derive(Debug)]
pub enum Failure {
    /// With this status.
    Status(Status),
    /// It came from a peer, and this node does not lead.
    NotLeader(Leadership),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Failure::Status(status)
    }
}

/// A request that is answered out of one key's sequence.
pub trait Ask: Clone + Send {
    /// What it is answered with.
    type Answer: Send;

    /// Refuses what no leader could answer.
    fn check(&self, shared: &Shared) -> Result<(), Status>;
    /// The namespace.
    fn namespace(&self) -> &str;
    /// The key.
    fn key(&self) -> Option<&WireKey>;
    /// Answers it from a term's memory.
    fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        key: &Key,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, NextError>> + Send;
    /// The route's version that the caller knows.
    fn route_version(&self) -> u64;
    /// Adds the route to an answer.
    fn set_route(answer: &mut Self::Answer, route: Route);
    /// The message that forwards it.
    fn forward(self) -> Forward;
    /// Its answer in the leader's reply.
    fn forwarded(reply: Forwarded) -> Option<Self::Answer>;
    /// What to say when the namespace's numbers are used up.
    fn exhausted(&self, namespace: &Namespace, left: u64) -> Status;
}

impl Shared {
    /// Answers a request before `deadline`, from here or from the leader.
    ///
    /// # Errors
    /// [`Failure`]: a status with what was wrong, or, for a peer's request, who leads instead.
    pub async fn ask<A: Ask>(
        &self,
        request: A,
        origin: Origin,
        deadline: Instant,
    ) -> Result<A::Answer, Failure> {
        let started = std::time::Instant::now();
        request.check(self)?;
        let answer = match self.ask_here(&request, deadline).await? {
            Some(answer) => answer,
            None => self.ask_around(request, origin, deadline).await?,
        };
        let elapsed = started.elapsed().as_secs_f64();
        self.metrics.request_seconds.observe(elapsed);
        Ok(answer)
    }

    /// The hot path: this node leads and has the numbers. `None` where it does not lead.
    async fn ask_here<A: Ask>(
        &self,
        request: &A,
        deadline: Instant,
    ) -> Result<Option<A::Answer>, Status> {
        let Some(term) = self.allocator.load_full() else {
            return Ok(None);
        };
        let namespaces = self.group.view().namespaces();
        let Some(namespace) = namespaces.by_name(request.namespace()) else {
            // Another leader may know better than a deposed one.
            if !term.still_leads(deadline).await {
                return Ok(None);
            }
            let name = request.namespace();
            return Err(Status::not_found(format!(
                "namespace {name:?} does not exist; create it with: ratchet namespace create {name}"
            )));
        };
        let key = key_for(namespace, request.key())?;
        match request.answer(&term, namespace, &key, deadline).await {
            Ok(mut answer) => {
                self.add_route::<A>(&mut answer, request.route_version(), &term);
                Ok(Some(answer))
            }
            Err(NextError::NotLeading) => Ok(None),
            Err(NextError::Exhausted { left }) => Err(request.exhausted(namespace, left)),
            Err(NextError::DeadlineExceeded) => Err(Status::deadline_exceeded(format!(
                "namespace {:?}: the deadline passed while the ceiling was being raised in term {}",
                request.namespace(),
                term.term()
            ))),
            Err(NextError::Store(error)) => Err(Status::internal(error.to_string())),
        }
    }

    /// Finds the leader, as often as need be, until the deadline.
    #[tracing::instrument(level = "debug", name = "ask_around", skip_all, fields(node = self.config.node_id))]
    async fn ask_around<A: Ask>(
        &self,
        request: A,
        origin: Origin,
        deadline: Instant,
    ) -> Result<A::Answer, Failure> {
        let mut changes = self.changes.subscribe();
        loop {
            // Marked as seen before anything is read: what changes from here on wakes us below.
            changes.borrow_and_update();
            if let Some(answer) = self.ask_here(&request, deadline).await? {
                return Ok(answer);
            }
            let now = self.group.leadership().borrow().clone();
            let mut rest_until = deadline;
            if let Some((leader, member)) = now.leader.clone()
                && leader != self.config.node_id
            {
                if origin == Origin::Peer {
                    return Err(Failure::NotLeader(now));
                }
                let forwarding =
                    self.forwarder
                        .forward(leader, &member, request.clone().forward(), deadline);
                tokio::select! {
                    biased;
                    reply = forwarding => match reply {
                        Ok(Forwarded::Error(status)) => return Err(status.into()),
                        Ok(reply) => if let Some(answer) = A::forwarded(reply) {
                            return Ok(answer);
                        },
                        Err(lost) => tracing::debug!(leader, %lost, "forwarding"),
                    },
                    () = passed_over(&mut changes) => continue,
                }
                // It is gone, or no longer leads, and we have not heard who does.
                rest_until = deadline.min(Instant::now() + RETRY);
            } else if let Some(term) = self.allocator.load_full()
                && !term.is_over()
            {
                if term.lease().is_valid(self.clock.now()) {
                    // We lead, and yet the fence fell: no majority said so when asked. Each try
                    // burns its numbers, so that this one must not spin.
                    rest_until = deadline.min(Instant::now() + FENCE_RETRY);
                } else {
                    // We lead, and a majority has not been heard of for a lease.
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep_until(deadline) => {}
                        () = term.lease().wait_until(|lease| {
                            lease.is_void() || lease.is_valid(self.clock.now())
                        }) => continue,
                        _ = changes.changed() => continue,
                    }
                }
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(rest_until) => if rest_until == deadline {
                    return Err(self.nobody_leads().into());
                },
            }
        }
    }

    pub(super) fn nobody_leads(&self) -> Status {
        let now = self.group.leadership().borrow().clone();
        let known = match &now.leader {
            Some((leader, _)) if *leader == self.config.node_id => {
                format!(
                    "this node leads term {} and hears from no majority",
                    now.term
                )
            }
            Some((leader, member)) => format!(
                "node {leader} at {} leads term {} and does not answer",
                member.client_address, now.term
            ),
            None if !self.group.is_formed() => {
                "the cluster is not founded yet, or this node not added to it".to_owned()
            }
            None => format!("no leader is known in term {}", now.term),
        };
        Status::unavailable(format!(
            "node {}: no leader answered before the deadline: {known}; see ratchet status",
            self.config.node_id
        ))
    }

    fn add_route<A: Ask>(&self, answer: &mut A::Answer, known: u64, term: &Arc<Term>) {
        if term.term() > known {
            A::set_route(
                answer,
                Route {
                    version: term.term(),
                    leader: self.config.node_id,
                    address: self.client_address.clone(),
                },
            );
        }
    }
}

/// Ends when the leadership has changed and whoever was asked before had time to send what it had
/// taken until then. (A leader that hands over answers in that time, and no number is lost; one that
/// is paused does not, and a newer one is asked.)
async fn passed_over(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_ok() {
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// A key as it came over the wire.
///
/// # Errors
/// INVALID_ARGUMENT.
fn key_of(key: Option<&WireKey>) -> Result<Key, Status> {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => Ok(Key::Id(*id)),
        Some(Kind::Name(name)) => {
            Key::name(name).map_err(|e| Status::invalid_argument(e.to_string()))
        }
        None => Err(Status::invalid_argument(
            "the key is missing; give key.id (an unsigned 64-bit integer) or key.name (bytes)",
        )),
    }
}

fn check_names(namespace: &str, key: Option<&WireKey>) -> Result<(), Status> {
    check_name(namespace).map_err(|e| Status::invalid_argument(e.to_string()))?;
    key_of(key).map(drop)
}

/// The key, if it is of the namespace's kind.
fn key_for(namespace: &Namespace, key: Option<&WireKey>) -> Result<Key, Status> {
    let key = key_of(key)?;
    if key.kind() == namespace.config.key_kind {
        return Ok(key);
    }
    let give = match namespace.config.key_kind {
        KeyKind::Id => "give key.id",
        KeyKind::Name => "give key.name (ratchet next --name)",
    };
    Err(Status::invalid_argument(format!(
        "namespace {:?} takes keys of kind {}; {key} is of kind {}: {give}",
        namespace.config.name,
        namespace.config.key_kind,
        key.kind()
    )))
}

fn used_up(namespace: &Namespace, asked: impl fmt::Display, left: u64) -> Status {
    let config = &namespace.config;
    Status::out_of_range(format!(
        "{asked}: only {left} numbers are left below max {} of namespace {:?}; ask for fewer, or \
         raise it with: ratchet namespace update {} --max N",
        config.max, config.name, config.name
    ))
}

impl Ask for NextRequest {
    type Answer = NextResponse;

    fn check(&self, shared: &Shared) -> Result<(), Status> {
        let (count, most) = (self.count.unwrap_or(1), shared.config.count_max);
        if count == 0 || count > most {
            return Err(Status::invalid_argument(format!(
                "count is {count}; it must lie between 1 and {most}"
            )));
        }
        check_names(&self.namespace, self.key.as_ref())
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn key(&self) -> Option<&WireKey> {
        self.key.as_ref()
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        key: &Key,
        deadline: Instant,
    ) -> Result<NextResponse, NextError> {
        let count = self.count.unwrap_or(1);
        let range = term.next(namespace, key, count, deadline).await?;
        Ok(NextResponse {
            first: range.first,
            last: range.last,
            increment: range.increment,
            route: None,
        })
    }

    fn route_version(&self) -> u64 {
        self.route_version
    }

    fn set_route(answer: &mut NextResponse, route: Route) {
        answer.route = Some(route);
    }

    fn forward(self) -> Forward {
        Forward::Next(self)
    }

    fn forwarded(reply: Forwarded) -> Option<NextResponse> {
        match reply {
            Forwarded::Next(answer) => Some(answer),
            _ => None,
        }
    }

    fn exhausted(&self, namespace: &Namespace, left: u64) -> Status {
        used_up(
            namespace,
            format_args!("count is {}", self.count.unwrap_or(1)),
            left,
        )
    }
}

impl Ask for CurrentRequest {
    type Answer = CurrentResponse;

    fn check(&self, _shared: &Shared) -> Result<(), Status> {
        check_names(&self.namespace, self.key.as_ref())
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn key(&self) -> Option<&WireKey> {
        self.key.as_ref()
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        key: &Key,
        deadline: Instant,
    ) -> Result<CurrentResponse, NextError> {
        let last = term.current(namespace, key, deadline).await?;
        Ok(CurrentResponse { last, route: None })
    }

    fn route_version(&self) -> u64 {
        self.route_version
    }

    fn set_route(answer: &mut CurrentResponse, route: Route) {
        answer.route = Some(route);
    }

    fn forward(self) -> Forward {
        Forward::Current(self)
    }

    fn forwarded(reply: Forwarded) -> Option<CurrentResponse> {
        match reply {
            Forwarded::Current(answer) => Some(answer),
            _ => None,
        }
    }

    fn exhausted(&self, namespace: &Namespace, left: u64) -> Status {
        used_up(namespace, "current", left)
    }
}

/// A leader's id, for a peer that asked the wrong node.
pub fn leader_of(leadership: &Leadership) -> Option<NodeId> {
    leadership.leader.as_ref().map(|(leader, _)| *leader)
}
