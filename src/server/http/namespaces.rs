//! Namespaces: listed, read, created and changed.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State, http::StatusCode, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    body,
    number::{Form, Given, Number, SHOWN, Shown},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfNamespace, Timeout, in_path, in_query},
};
use crate::{
    node::NodeContext,
    proto::{Refusal, peer::administer_request::Request as Administer, v1},
    server::administer::administer,
};

/// The kind of a namespace's keys.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Unsigned 64-bit integers.
    #[default]
    Id,
    /// Byte strings.
    Name,
}

impl Kind {
    fn on_the_wire(self) -> v1::KeyKind {
        match self {
            Kind::Id => v1::KeyKind::Id,
            Kind::Name => v1::KeyKind::Name,
        }
    }
}

/// A namespace.
#[derive(Debug, Serialize, ToSchema)]
pub struct Namespace {
    /// The namespace's name.
    name: String,
    /// The kind of its keys.
    key_kind: Kind,
    /// By how many numbers a section's ceiling is raised, to begin with.
    step: Number,
    /// The smallest step that is used.
    step_min: Number,
    /// The largest step that is used.
    step_max: Number,
    /// The distance between two neighbouring numbers of a key.
    increment: Number,
    /// The first number of a key.
    start: Number,
    /// The greatest number of a key.
    max: Number,
    /// How many neighbouring ids share a ceiling.
    section_size: Number,
    /// Whether every number is committed before it is answered, so that none is skipped.
    gapless: bool,
    /// Whether numbers may be taken without a request id, though it is gapless.
    request_id_optional: bool,
    /// What it is for.
    description: String,
    /// The most numbers of a key in one request; null: the node's own limit.
    count_max: Option<Number>,
    /// How many keys may get numbers, in whole sections; null: any number.
    keys_max: Option<Number>,
    /// The format of its ids, written in full; null: it hands out plain numbers.
    format: Option<String>,
}

/// What a namespace is created with. What is left out is as `ratchet namespace create` has it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// The namespace's name: 1 to 64 of A-Z a-z 0-9 . _ -
    name: String,
    /// The kind of its keys.
    #[serde(default)]
    key_kind: Kind,
    /// By how many numbers a section's ceiling is raised, to begin with.
    step: Option<Given>,
    /// The smallest step that is used.
    step_min: Option<Given>,
    /// The largest step that is used.
    step_max: Option<Given>,
    /// The distance between two neighbouring numbers of a key.
    increment: Option<Given>,
    /// The first number of a key.
    start: Option<Given>,
    /// The greatest number of a key.
    max: Option<Given>,
    /// How many neighbouring ids share a ceiling.
    section_size: Option<Given>,
    /// Whether every number is committed before it is answered, so that none is skipped.
    #[serde(default)]
    gapless: bool,
    /// Whether numbers may be taken without a request id, though it is gapless.
    #[serde(default)]
    request_id_optional: bool,
    /// What it is for, in at most 256 characters.
    #[serde(default)]
    description: String,
    /// The most numbers of a key in one request.
    count_max: Option<Given>,
    /// How many keys may get numbers, in whole sections.
    keys_max: Option<Given>,
    /// The format of its ids: the name of one, such as snowflake, or its fields.
    format: Option<String>,
}

/// What is changed of a namespace.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// By how many numbers a section's ceiling is raised, to begin with.
    step: Option<Given>,
    /// The smallest step that is used.
    step_min: Option<Given>,
    /// The largest step that is used.
    step_max: Option<Given>,
    /// The greatest number of a key.
    max: Option<Given>,
    /// What it is for, in at most 256 characters.
    description: Option<String>,
    /// The most numbers of a key in one request; 0: the node's own limit.
    count_max: Option<Given>,
    /// How many keys may get numbers, in whole sections; 0: any number.
    keys_max: Option<Given>,
    /// The distance between two neighbouring numbers of a key; until the first number.
    increment: Option<Given>,
    /// The first number of a key; until the first number.
    start: Option<Given>,
    /// How many neighbouring ids share a ceiling; until the first number.
    section_size: Option<Given>,
    /// The kind of its keys; until the first number.
    key_kind: Option<Kind>,
    /// Whether numbers of a gapless namespace may be taken without a request id.
    request_id_optional: Option<bool>,
}

/// All namespaces.
#[derive(Debug, Serialize, ToSchema)]
pub struct Namespaces {
    /// In the order of their names.
    namespaces: Vec<Namespace>,
}

/// All namespaces.
#[utoipa::path(get, path = "/v1/namespaces", tag = "namespaces", params(Shown, Timeout),
    responses((status = 200, body = Namespaces), Problems))]
pub async fn list(
    State(context): Node, due: Due, shown: InQuery<Shown>,
) -> Result<Response, Problem> {
    let form = in_query(shown, SHOWN)?.numbers;
    let request = Administer::ListNamespaces(v1::ListNamespacesRequest {});
    let (list, reserved): (v1::ListNamespacesResponse, _) =
        administer(&context, request, due.deadline).await?;
    let namespaces = list.namespaces.into_iter().map(|one| shown_as(one, form)).collect();
    body::reserved_json(&Namespaces { namespaces }, reserved)
}

/// One namespace.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    params(OfNamespace, Shown, Timeout),
    responses((status = 200, body = Namespace), Problems))]
pub async fn get(
    State(context): Node, due: Due, path: InPath<String>, shown: InQuery<Shown>,
) -> Result<Json<Namespace>, Problem> {
    let form = in_query(shown, SHOWN)?.numbers;
    let name = in_path(path)?;
    let request = Administer::GetNamespace(v1::GetNamespaceRequest { name });
    namespace(&context, due, request, form).await
}

/// Creates a namespace. What is left out is as `ratchet namespace create` has it.
#[utoipa::path(post, path = "/v1/namespaces", tag = "namespaces", params(Shown, Timeout),
    request_body = Create, responses((status = 201, body = Namespace), Problems))]
pub async fn create(
    State(context): Node, due: Due, shown: InQuery<Shown>, body: Body,
) -> Result<(StatusCode, Json<Namespace>), Problem> {
    let form = in_query(shown, SHOWN)?.numbers;
    let given: Create = body::json(&context, body, due).await?;
    let request = Administer::CreateNamespace(v1::CreateNamespaceRequest {
        name: given.name,
        key_kind: given.key_kind.on_the_wire().into(),
        step: number("step", given.step)?,
        step_min: number("step_min", given.step_min)?,
        step_max: number("step_max", given.step_max)?,
        increment: number("increment", given.increment)?,
        start: number("start", given.start)?,
        max: number("max", given.max)?,
        section_size: number("section_size", given.section_size)?,
        gapless: given.gapless,
        request_id_optional: given.request_id_optional,
        description: given.description,
        count_max: number("count_max", given.count_max)?,
        keys_max: number("keys_max", given.keys_max)?,
        format: given.format,
    });
    let created = namespace(&context, due, request, form).await?;
    Ok((StatusCode::CREATED, created))
}

/// Changes a namespace. What is left out stays.
#[utoipa::path(patch, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    params(OfNamespace, Shown, Timeout),
    request_body = Update, responses((status = 200, body = Namespace), Problems))]
pub async fn update(
    State(context): Node, due: Due, path: InPath<String>, shown: InQuery<Shown>, body: Body,
) -> Result<Json<Namespace>, Problem> {
    let form = in_query(shown, SHOWN)?.numbers;
    let name = in_path(path)?;
    let given: Update = body::json(&context, body, due).await?;
    let request = Administer::UpdateNamespace(v1::UpdateNamespaceRequest {
        name,
        step: number("step", given.step)?,
        step_min: number("step_min", given.step_min)?,
        step_max: number("step_max", given.step_max)?,
        max: number("max", given.max)?,
        description: given.description,
        count_max: number("count_max", given.count_max)?,
        keys_max: number("keys_max", given.keys_max)?,
        increment: number("increment", given.increment)?,
        start: number("start", given.start)?,
        section_size: number("section_size", given.section_size)?,
        key_kind: (given.key_kind).map_or(v1::KeyKind::Unspecified, Kind::on_the_wire).into(),
        request_id_optional: given.request_id_optional,
    });
    namespace(&context, due, request, form).await
}

async fn namespace(
    context: &Arc<NodeContext>, due: Due, request: Administer, form: Form,
) -> Result<Json<Namespace>, Problem> {
    let (namespace, _) = administer(context, request, due.deadline).await?;
    Ok(Json(shown_as(namespace, form)))
}

/// A setting of a namespace, if it was given.
fn number(name: &str, given: Option<Given>) -> Result<Option<u64>, Refusal> {
    given.map(|given| given.number(name, 0)).transpose()
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
        gapless: namespace.gapless,
        request_id_optional: namespace.request_id_optional,
        description: namespace.description,
        count_max: namespace.count_max.map(number),
        keys_max: namespace.keys_max.map(number),
        format: namespace.format,
        name: namespace.name,
    }
}
