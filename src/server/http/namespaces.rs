//! Namespaces, and the status of the cluster.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use tonic::Status;

use super::{
    body,
    number::{Form, Given, Number, SHOWN, Shown},
    problem::Problem,
    request::{Due, InPath, InQuery, Node, in_path, in_query},
};
use crate::{
    node::{NodeContext, Origin},
    proto::{
        peer::{administer_reply::Reply, administer_request::Request as Administer},
        v1,
    },
    server::errors::to_client,
};

/// The kind of a namespace's keys.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Unsigned 64-bit integers.
    #[default]
    Id,
    /// Byte strings.
    Name,
}

/// A namespace.
#[derive(Debug, Serialize)]
pub struct Namespace {
    name: String,
    key_kind: Kind,
    step: Number,
    step_min: Number,
    step_max: Number,
    increment: Number,
    start: Number,
    max: Number,
    section_size: Number,
}

/// What a namespace is created with. What is left out is as `ratchet namespace create` has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    #[serde(default)]
    key_kind: Kind,
    step: Option<Given>,
    step_min: Option<Given>,
    step_max: Option<Given>,
    increment: Option<Given>,
    start: Option<Given>,
    max: Option<Given>,
    section_size: Option<Given>,
}

/// What is changed of a namespace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    step: Option<Given>,
    step_min: Option<Given>,
    step_max: Option<Given>,
    max: Option<Given>,
}

/// All namespaces.
#[derive(Debug, Serialize)]
pub struct Namespaces {
    namespaces: Vec<Namespace>,
}

/// The leader's view of the cluster, or what the asked node last knew.
#[derive(Debug, Serialize)]
pub struct ClusterStatus {
    cluster: String,
    node: u64,
    leader: Option<u64>,
    term: u64,
    serving: bool,
    nodes: Vec<NodeStatus>,
}

/// A member.
#[derive(Debug, Serialize)]
struct NodeStatus {
    id: u64,
    role: &'static str,
    voter: bool,
    address: String,
    peer_address: String,
    log_index: Option<u64>,
    applied_index: Option<u64>,
    lag: Option<u64>,
    silent_ms: Option<u64>,
    missing: bool,
    version: Option<String>,
}

/// `GET /v1/namespaces`.
pub async fn list(
    State(context): Node,
    due: Due,
    shown: InQuery<Shown>,
) -> Result<Json<Namespaces>, Problem> {
    let listing = async {
        let form = in_query(shown, SHOWN)?.numbers;
        let request = Administer::ListNamespaces(v1::ListNamespacesRequest {});
        match administer(&context, due, request).await? {
            Reply::Namespaces(list) => Ok(Json(Namespaces {
                namespaces: (list.namespaces.into_iter())
                    .map(|one| shown_as(one, form))
                    .collect(),
            })),
            _ => Err(another_reply()),
        }
    };
    Problem::of(&context, listing).await
}

/// `GET /v1/namespaces/{namespace}`.
pub async fn get(
    State(context): Node,
    due: Due,
    path: InPath<String>,
    shown: InQuery<Shown>,
) -> Result<Json<Namespace>, Problem> {
    let getting = async {
        let form = in_query(shown, SHOWN)?.numbers;
        let name = in_path(path)?;
        let request = Administer::GetNamespace(v1::GetNamespaceRequest { name });
        namespace(&context, due, request, form).await
    };
    Problem::of(&context, getting).await
}

/// `POST /v1/namespaces`.
pub async fn create(
    State(context): Node,
    due: Due,
    shown: InQuery<Shown>,
    body: Body,
) -> Result<(StatusCode, Json<Namespace>), Problem> {
    let creating = async {
        let form = in_query(shown, SHOWN)?.numbers;
        let given: Create = body::json(&context, body, due).await?;
        let request = Administer::CreateNamespace(v1::CreateNamespaceRequest {
            name: given.name,
            key_kind: match given.key_kind {
                Kind::Id => v1::KeyKind::Id.into(),
                Kind::Name => v1::KeyKind::Name.into(),
            },
            step: number("step", given.step)?,
            step_min: number("step_min", given.step_min)?,
            step_max: number("step_max", given.step_max)?,
            increment: number("increment", given.increment)?,
            start: number("start", given.start)?,
            max: number("max", given.max)?,
            section_size: number("section_size", given.section_size)?,
        });
        let created = namespace(&context, due, request, form).await?;
        Ok((StatusCode::CREATED, created))
    };
    Problem::of(&context, creating).await
}

/// `PATCH /v1/namespaces/{namespace}`.
pub async fn update(
    State(context): Node,
    due: Due,
    path: InPath<String>,
    shown: InQuery<Shown>,
    body: Body,
) -> Result<Json<Namespace>, Problem> {
    let updating = async {
        let form = in_query(shown, SHOWN)?.numbers;
        let name = in_path(path)?;
        let given: Update = body::json(&context, body, due).await?;
        let request = Administer::UpdateNamespace(v1::UpdateNamespaceRequest {
            name,
            step: number("step", given.step)?,
            step_min: number("step_min", given.step_min)?,
            step_max: number("step_max", given.step_max)?,
            max: number("max", given.max)?,
        });
        namespace(&context, due, request, form).await
    };
    Problem::of(&context, updating).await
}

/// `GET /v1/status`.
pub async fn status(State(context): Node, due: Due) -> Result<Json<ClusterStatus>, Problem> {
    let asking = async {
        let request = Administer::Status(v1::StatusRequest {});
        match administer(&context, due, request).await? {
            Reply::Status(status) => Ok(Json(status.into())),
            _ => Err(another_reply()),
        }
    };
    Problem::of(&context, asking).await
}

async fn namespace(
    context: &Arc<NodeContext>,
    due: Due,
    request: Administer,
    form: Form,
) -> Result<Json<Namespace>, Status> {
    match administer(context, due, request).await? {
        Reply::Namespace(namespace) => Ok(Json(shown_as(namespace, form))),
        _ => Err(another_reply()),
    }
}

async fn administer(
    context: &Arc<NodeContext>,
    due: Due,
    request: Administer,
) -> Result<Reply, Status> {
    let administering = context.administer(request, Origin::Client, due.deadline);
    administering.await.map_err(to_client)
}

fn another_reply() -> Status {
    Status::internal("the leader's reply does not match the request")
}

/// A setting of a namespace, if it was given.
fn number(name: &str, given: Option<Given>) -> Result<Option<u64>, Status> {
    let number = given.as_ref().map(Given::number).transpose();
    number.map_err(|text| {
        Status::invalid_argument(format!("{name} is {text:?}; give an integer from 0 on"))
    })
}

fn shown_as(namespace: v1::Namespace, form: Form) -> Namespace {
    let number = |number| Number(number, form);
    Namespace {
        key_kind: match namespace.key_kind() {
            v1::KeyKind::Name => Kind::Name,
            v1::KeyKind::Id | v1::KeyKind::Unspecified => Kind::Id,
        },
        step: number(namespace.step),
        step_min: number(namespace.step_min),
        step_max: number(namespace.step_max),
        increment: number(namespace.increment),
        start: number(namespace.start),
        max: number(namespace.max),
        section_size: number(namespace.section_size),
        name: namespace.name,
    }
}

impl From<v1::StatusResponse> for ClusterStatus {
    fn from(status: v1::StatusResponse) -> Self {
        ClusterStatus {
            cluster: status.cluster,
            node: status.node,
            leader: status.leader,
            term: status.term,
            serving: status.serving,
            nodes: status.nodes.into_iter().map(NodeStatus::from).collect(),
        }
    }
}

impl From<v1::NodeStatus> for NodeStatus {
    fn from(node: v1::NodeStatus) -> Self {
        NodeStatus {
            id: node.id,
            role: match node.role() {
                v1::Role::Leader => "leader",
                v1::Role::Follower => "follower",
                v1::Role::Candidate => "candidate",
                v1::Role::Learner => "learner",
                v1::Role::Unspecified => "unknown",
            },
            voter: node.voter,
            log_index: node.log_index,
            applied_index: node.applied_index,
            lag: node.lag,
            silent_ms: node.silent_ms,
            missing: node.missing,
            version: node.build.map(|build| build.version),
            address: node.address,
            peer_address: node.peer_address,
        }
    }
}
