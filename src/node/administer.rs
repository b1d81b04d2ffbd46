//! Administration: carried out by the leader, wherever it was asked for.
//!
//! Invariant: a request that came from a peer is never forwarded again.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic::{Code, Status};

use super::{
    Shared,
    leader_search::{Attempt, Failure, ForLeader, Origin, leader_of},
};
use crate::{
    clock,
    consensus::{MembershipChange, NodeState, ProposeError, Role},
    proto::{
        peer::{AdministerRequest, administer_reply::Reply, administer_request::Request},
        v1,
    },
    sequence::{
        Command, InvalidNamespace, KeyKind, Namespace, NamespaceConfig, NamespaceRefused, NodeId,
        Outcome, check_steps,
    },
    storage::Member,
};

/// How soon a leader that did not answer is asked again.
const RETRY: Duration = Duration::from_millis(20);

/// How long before the deadline an answer leaves at the latest.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How long another node's view of the status is waited for.
const STATUS_PATIENCE: Duration = Duration::from_millis(1_000);

impl ForLeader for Request {
    type Answer = Reply;

    /// A change must not be carried out twice.
    const MAY_CHANGE_LEADER: bool = false;

    async fn serve_locally(&self, node: &Arc<Shared>, deadline: Instant) -> Attempt<Reply> {
        let leading = node.allocator.load_full().filter(|term| !term.is_over());
        let Some(term) = leading else {
            return Attempt::Unanswered;
        };
        if !term.still_leads(deadline).await {
            return Attempt::Unanswered;
        }
        match node.carry_out(term.term(), self.clone(), deadline).await {
            Ok(reply) => Attempt::Answered(reply),
            Err(status) => Attempt::Refused(status),
        }
    }

    async fn serve_remotely(
        &self,
        node: &Arc<Shared>,
        leader: NodeId,
        member: &Member,
        deadline: Instant,
    ) -> Attempt<Reply> {
        let patience = match self {
            Request::Status(_) => deadline.min(Instant::now() + STATUS_PATIENCE),
            _ => deadline,
        };
        let left = patience.saturating_duration_since(Instant::now());
        let message = AdministerRequest {
            header: Some(node.sender.header(leader, member)),
            budget_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            request: Some(self.clone()),
        };
        let address = &member.peer_address;
        match node.transport.administer(address, message, left).await {
            Ok(answer) => match answer.reply {
                Some(Reply::Error(error)) => Attempt::Refused(error.into()),
                Some(Reply::NotLeader(_)) | None => Attempt::Unanswered,
                Some(reply) => Attempt::Answered(reply),
            },
            Err(status) if patience == deadline && status.code() == Code::DeadlineExceeded => {
                Attempt::Refused(Status::unavailable(format!(
                    "node {leader} leads and did not answer in time; whether the request was carried \
                     out is unknown: {}",
                    status.message()
                )))
            }
            Err(status) => {
                tracing::debug!(leader, %status, "administration");
                Attempt::Unanswered
            }
        }
    }

    fn serve_without_leader(&self, node: &Shared) -> Option<Reply> {
        matches!(self, Request::Status(_)).then(|| Reply::Status(node.status()))
    }
}

impl Shared {
    /// Has the leader carry out a request before `deadline`.
    ///
    /// # Errors
    /// [`Failure`]: a status with what was wrong, or, for a peer's request, who leads instead.
    pub async fn administer(
        self: &Arc<Self>,
        request: Request,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        self.find_leader(&request, origin, deadline).await
    }

    async fn carry_out(
        self: &Arc<Self>,
        term: u64,
        request: Request,
        deadline: Instant,
    ) -> Result<Reply, Status> {
        match request {
            Request::CreateNamespace(create) => {
                check_steps(create.step, create.step_min, create.step_max).map_err(invalid)?;
                let config = namespace_config(create)?;
                self.change_namespace(term, Command::create_namespace(config))
                    .await
            }
            Request::UpdateNamespace(update) => {
                check_steps(update.step, update.step_min, update.step_max).map_err(invalid)?;
                let command = Command::UpdateNamespace {
                    name: update.name,
                    step: update.step,
                    step_min: update.step_min,
                    step_max: update.step_max,
                    max: update.max,
                };
                self.change_namespace(term, command).await
            }
            Request::GetNamespace(get) => match self.group.view().namespaces().by_name(&get.name) {
                Some(namespace) => Ok(Reply::Namespace(to_wire(namespace))),
                None => Err(refusal(&NamespaceRefused::NotFound(get.name))),
            },
            Request::ListNamespaces(_) => {
                let namespaces = self.group.view().namespaces();
                Ok(Reply::Namespaces(v1::ListNamespacesResponse {
                    namespaces: namespaces.iter().map(to_wire).collect(),
                }))
            }
            Request::Status(_) => Ok(Reply::Status(self.status())),
            Request::AddNode(add) => self.add_node(term, add, deadline).await,
            Request::UpdateNode(update) => self.update_node(term, update, deadline).await,
            Request::PromoteNode(node) => {
                self.known(node.id)?;
                let change = MembershipChange::Promote(node.id);
                self.change_voters(term, change, node.force, deadline).await
            }
            Request::RemoveNode(node) => {
                self.known(node.id)?;
                if node.id == self.config.node_id {
                    return Err(Status::failed_precondition(format!(
                        "node {} leads; hand the leadership over first: ratchet transfer",
                        node.id
                    )));
                }
                let change = MembershipChange::Remove(node.id);
                self.change_voters(term, change, node.force, deadline).await
            }
            Request::TransferLeadership(transfer) => {
                if let Some(to) = transfer.to {
                    self.known(to)?;
                }
                let now = self.hand_over(transfer.to, deadline).await?;
                Ok(Reply::Transfer(v1::TransferLeadershipResponse {
                    leader: leader_of(&now).unwrap_or_default(),
                    term: now.term,
                }))
            }
        }
    }

    async fn change_namespace(&self, term: u64, command: Command) -> Result<Reply, Status> {
        match self
            .group
            .propose(term, command)
            .await
            .map_err(unproposed)?
        {
            Outcome::Namespace(Ok(namespace)) => Ok(Reply::Namespace(to_wire(&namespace))),
            Outcome::Namespace(Err(refused)) => Err(refusal(&refused)),
            other => Err(Status::internal(format!("unexpected outcome: {other:?}"))),
        }
    }

    async fn add_node(
        &self,
        term: u64,
        v1::AddNodeRequest { id, peer_address }: v1::AddNodeRequest,
        deadline: Instant,
    ) -> Result<Reply, Status> {
        if id == 0 {
            return Err(Status::invalid_argument("id is 0; node ids start at 1"));
        }
        if self.group.members().contains_key(&id) {
            return Err(Status::already_exists(format!(
                "node {id} is a member already; ratchet node promote {id} makes a learner a voter, \
                 ratchet node update {id} takes in another address"
            )));
        }
        let member = self.introduce(id, &peer_address).await?;
        let change = MembershipChange::Add(id, member);
        self.change(term, change, None, deadline).await
    }

    /// Has a change carried out. It goes on when the deadline passes. With `unless_unfit` it is refused
    /// where the voters after it could not go on.
    async fn change(
        &self,
        term: u64,
        change: MembershipChange,
        unless_unfit: Option<clock::Instant>,
        deadline: Instant,
    ) -> Result<Reply, Status> {
        let in_time = deadline.checked_sub(LAST_WORDS).unwrap_or(deadline);
        let changing = self.group.change(term, change, unless_unfit);
        match tokio::time::timeout_at(in_time, changing).await {
            Ok(done) => done.map_err(unproposed)?,
            Err(_) => {
                return Err(Status::unavailable(
                    "the membership change is not through yet, and goes on: a majority of its \
                     voters must write it down; see ratchet status",
                ));
            }
        }
        Ok(self.membership())
    }

    /// Takes in where a member is now. It must be there already, with the directory that the
    /// cluster knows: a wrong address would take a voter away.
    async fn update_node(
        &self,
        term: u64,
        v1::UpdateNodeRequest { id, peer_address }: v1::UpdateNodeRequest,
        deadline: Instant,
    ) -> Result<Reply, Status> {
        let known = self.known(id)?;
        let address = peer_address.as_ref().unwrap_or(&known.peer_address);
        let member = self.find(id, &known, address).await?;
        if member == known {
            return Ok(self.membership());
        }
        let change = MembershipChange::Move(id, member);
        self.change(term, change, None, deadline).await
    }

    /// Promotes or removes, once the voters that there would be can go on without the others.
    async fn change_voters(
        &self,
        term: u64,
        change: MembershipChange,
        force: bool,
        deadline: Instant,
    ) -> Result<Reply, Status> {
        let (asked, asked_at) = (Instant::now(), self.group.now());
        while let Err(unfit) = self.group.check_voters_after(term, &change, asked_at) {
            let patience = match unfit.silent {
                // Whoever is there is heard within a heartbeat or two.
                true => asked + Duration::from_millis(2 * self.config.election_timeout_ms),
                false => deadline,
            };
            if force {
                tracing::warn!(?change, %unfit, "a membership change is forced");
                break;
            }
            if Instant::now() + LAST_WORDS >= patience.min(deadline) {
                return Err(Status::failed_precondition(unfit.to_string()));
            }
            tokio::time::sleep(RETRY).await;
        }
        let unless_unfit = (!force).then_some(asked_at);
        self.change(term, change, unless_unfit, deadline).await
    }

    fn known(&self, id: NodeId) -> Result<Member, Status> {
        let mut members = self.group.members();
        if let Some((member, _)) = members.remove(&id) {
            return Ok(member);
        }
        let ids: Vec<String> = members.keys().map(u64::to_string).collect();
        Err(Status::not_found(format!(
            "node {id} is not a member; the members are {}",
            ids.join(", ")
        )))
    }

    fn membership(&self) -> Reply {
        let ids = |voting: bool| {
            let members = self.group.members().into_iter();
            let chosen = members.filter(|(_, (_, voter))| *voter == voting);
            chosen.map(|(id, _)| id).collect()
        };
        Reply::Membership(v1::MembershipResponse {
            voters: ids(true),
            learners: ids(false),
        })
    }

    /// What this node knows of the cluster.
    pub fn status(&self) -> v1::StatusResponse {
        let now = self.group.leadership().borrow().clone();
        let nodes = self.group.nodes();
        let own_log = nodes
            .iter()
            .find(|node| node.id == self.config.node_id)
            .and_then(|node| node.log_index);
        let leads = leader_of(&now) == Some(self.config.node_id);
        let serving = now
            .own
            .as_ref()
            .is_some_and(|own| own.is_valid(self.clock.now()));
        let missing_after = Duration::from_millis(self.config.election_timeout_ms);
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let lag = |node: &NodeState| {
            let behind = own_log
                .unwrap_or(0)
                .saturating_sub(node.log_index.unwrap_or(0));
            leads.then_some(behind)
        };
        v1::StatusResponse {
            cluster: self.config.cluster.clone(),
            set: self.group.config().set.into(),
            node: self.config.node_id,
            leader: leader_of(&now),
            term: now.term,
            serving,
            nodes: nodes
                .iter()
                .map(|node| v1::NodeStatus {
                    id: node.id,
                    role: role(node.role).into(),
                    voter: node.voter,
                    address: node.member.client_address.clone(),
                    peer_address: node.member.peer_address.clone(),
                    log_index: node.log_index,
                    applied_index: node.applied_index,
                    lag: lag(node),
                    silent_ms: node.silence.map(|silence| millis(silence.lasts)),
                    unheard_in_term: node.silence.is_some_and(|silence| !silence.in_term),
                    missing: node
                        .silence
                        .is_some_and(|silence| silence.lasts > missing_after),
                    build: self.build_of(node.id),
                })
                .collect(),
        }
    }
}

fn role(role: Role) -> v1::Role {
    match role {
        Role::Leader => v1::Role::Leader,
        Role::Follower => v1::Role::Follower,
        Role::Candidate => v1::Role::Candidate,
        Role::Learner => v1::Role::Learner,
    }
}

fn unproposed(error: ProposeError) -> Status {
    match error {
        ProposeError::Refused(why) => Status::failed_precondition(why),
        ProposeError::NotLeader(_) => Status::unavailable(format!("{error}; ask again")),
        other => Status::unavailable(format!("{other}; whether it takes effect is unknown")),
    }
}

fn refusal(refused: &NamespaceRefused) -> Status {
    match refused {
        NamespaceRefused::Exists(_) => Status::already_exists(refused.to_string()),
        NamespaceRefused::NotFound(_) => Status::not_found(refused.to_string()),
        NamespaceRefused::Invalid(_) => Status::invalid_argument(refused.to_string()),
        NamespaceRefused::TooMany(_) => Status::failed_precondition(refused.to_string()),
    }
}

fn namespace_config(create: v1::CreateNamespaceRequest) -> Result<NamespaceConfig, Status> {
    let defaults = NamespaceConfig::new(create.name.clone());
    let config = NamespaceConfig {
        key_kind: match create.key_kind() {
            v1::KeyKind::Unspecified | v1::KeyKind::Id => KeyKind::Id,
            v1::KeyKind::Name => KeyKind::Name,
        },
        step: create.step.unwrap_or(defaults.step),
        step_min: create.step_min,
        step_max: create.step_max,
        increment: create.increment.unwrap_or(defaults.increment),
        start: create.start.unwrap_or(defaults.start),
        max: create.max.unwrap_or(defaults.max),
        section_size: create.section_size.unwrap_or(defaults.section_size),
        name: create.name,
    };
    config.check().map_err(invalid)?;
    Ok(config)
}

fn invalid(invalid: InvalidNamespace) -> Status {
    Status::invalid_argument(invalid.to_string())
}

fn to_wire(namespace: &Namespace) -> v1::Namespace {
    let config = &namespace.config;
    let (step_min, step_max) = config.step_bounds();
    v1::Namespace {
        name: config.name.clone(),
        key_kind: match config.key_kind {
            KeyKind::Id => v1::KeyKind::Id.into(),
            KeyKind::Name => v1::KeyKind::Name.into(),
        },
        step: config.step,
        increment: config.increment,
        start: config.start,
        max: config.max,
        section_size: config.section_size,
        step_min,
        step_max,
    }
}
