//! One request's way to its numbers: from this node's memory if it leads, from the leader's if not.
//!
//! Invariant: a request that came from a peer is never forwarded again.

use std::{pin::pin, task::Poll, time::Duration};

use tokio::time::Instant;
use tonic::Status;

use super::{
    Shared,
    ask::{Ask, Unanswered},
    forward::Forwarded,
};
use crate::{
    consensus::Leadership,
    sequence::{NodeId, check_name},
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
        request.check(&self.config)?;
        let (answer, reserved) = {
            let mut here = pin!(self.ask_here(&request, deadline));
            match futures::poll!(&mut here) {
                Poll::Ready(answer) => (answer?, None),
                // It waits: from here on it counts.
                Poll::Pending => {
                    let reserved = self.request_memory.reserve(request.bytes())?;
                    (here.await?, Some(reserved))
                }
            }
        };
        if let Some(answer) = answer {
            return Ok(answer);
        }
        let _reserved = match reserved {
            Some(reserved) => reserved,
            None => self.request_memory.reserve(request.bytes())?,
        };
        // Boxed, as are the other ways that are seldom gone: the hot one's future stays small.
        Box::pin(self.ask_around(request, origin, deadline)).await
    }

    /// The hot path: this node leads and has the numbers. `None` where it does not lead.
    async fn ask_here<A: Ask>(
        &self,
        request: &A,
        deadline: Instant,
    ) -> Result<Option<A::Answer>, Status> {
        let allocator = self.allocator.load();
        let Some(term) = &*allocator else {
            return Ok(None);
        };
        let namespaces = self.group.view().namespaces();
        let Some(namespace) = namespaces.by_name(request.namespace()) else {
            check_name(request.namespace()).map_err(|e| Status::invalid_argument(e.to_string()))?;
            // Another leader may know better than a deposed one.
            if !term.still_leads(deadline).await {
                return Ok(None);
            }
            let name = request.namespace();
            return Err(Status::not_found(format!(
                "namespace {name:?} does not exist; create it with: ratchet namespace create {name}"
            )));
        };
        match request.answer(term, namespace, deadline).await {
            Ok(mut answer) => {
                self.add_route(request, &mut answer, term.term());
                Ok(Some(answer))
            }
            Err(Unanswered::NotLeading) => Ok(None),
            Err(Unanswered::Status(status)) => Err(status),
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
        // Before anything waits. That the namespace exists, the leader alone can tell.
        check_name(request.namespace()).map_err(|e| Status::invalid_argument(e.to_string()))?;
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
}

/// Ends when the leadership has changed and whoever was asked before had time to send what it had
/// taken until then. (A leader that hands over answers in that time, and no number is lost; one that
/// is paused does not, and a newer one is asked.)
async fn passed_over(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_ok() {
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// A leader's id, for a peer that asked the wrong node.
pub fn leader_of(leadership: &Leadership) -> Option<NodeId> {
    leadership.leader.as_ref().map(|(leader, _)| *leader)
}
