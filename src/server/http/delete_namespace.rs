//! Namespaces: deleted.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    number::{Form, Number},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfNamespace, Timeout, in_path, in_query},
};
use crate::{
    proto::{peer::administer_request::Request as Administer, v1},
    server::administer::administer,
};

/// What a deletion must say.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// The namespace's name again.
    confirm: Option<String>,
    /// Forget which numbers were handed out: a namespace that is created under the name again may hand out the same ones.
    #[serde(default)]
    forget: bool,
    /// How numbers are written.
    #[serde(default)]
    numbers: Form,
}

/// What remains of a deleted namespace.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deleted {
    /// A namespace that is created under the name again begins above this number; null: at its start.
    floor: Option<Number>,
    /// Its ids have later times than this one, in milliseconds since 1970; null: no worker id was ever leased.
    ids_after_ms: Option<u64>,
}

/// Deletes a namespace and all its keys.
#[utoipa::path(delete, path = "/v1/namespaces/{namespace}", tag = "namespaces",
    params(OfNamespace, Deletion, Timeout),
    responses((status = 200, body = Deleted), Problems))]
pub async fn delete(
    State(context): Node, due: Due, path: InPath<String>, given: InQuery<Deletion>,
) -> Result<Json<Deleted>, Problem> {
    let name = in_path(path)?;
    let given = in_query(given, "confirm=NAME, forget=true and numbers=number")?;
    let request = Administer::DeleteNamespace(v1::DeleteNamespaceRequest {
        name,
        confirm: given.confirm.unwrap_or_default(),
        forget: given.forget,
    });
    let (deleted, _): (v1::DeleteNamespaceResponse, _) =
        administer(&context, request, due.deadline).await?;
    Ok(Json(Deleted {
        floor: deleted.floor.map(|floor| Number(floor, given.numbers)),
        ids_after_ms: deleted.ids_after_ms,
    }))
}
