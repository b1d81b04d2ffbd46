//! Requests may say which cluster they are meant for, and every answer says which one gave it.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::HeaderValue,
    response::Response,
};
use serde_json::{Value, json};

use super::problem::Problem;
use crate::{
    node::NodeContext,
    server::addressee::{CLUSTER_ID, check},
};

/// Lets a request through that is meant for this cluster, or does not say for which.
///
/// # Errors
/// The problem that [`check`] finds.
pub async fn refuse(
    State(context): State<Arc<NodeContext>>, request: Request,
) -> Result<Request, Problem> {
    check(&context, request.headers())?;
    Ok(request)
}

/// Adds the cluster's id to an answer, if this node knows it.
pub async fn name(State(context): State<Arc<NodeContext>>, mut answer: Response) -> Response {
    if let Ok(id) = HeaderValue::try_from(context.services.members.printed_cluster_id())
        && !id.is_empty()
    {
        answer.headers_mut().insert(CLUSTER_ID, id);
    }
    answer
}

/// Describes both for every operation of a description.
pub fn describe(api: &mut Value) {
    let uuid = json!({"type": "string", "format": "uuid"});
    let of_request = json!({
        "name": CLUSTER_ID,
        "in": "header",
        "description": "The cluster that the request is meant for. Every other one refuses it.",
        "schema": uuid,
    });
    let of_answer = json!({"description": "The cluster that answers.", "schema": uuid});
    for operation in members(&mut api["paths"]).flat_map(members) {
        let parameters = operation["parameters"].as_array_mut();
        parameters.into_iter().for_each(|all| all.push(of_request.clone()));
        for answer in members(&mut operation["responses"]) {
            answer["headers"] = json!({CLUSTER_ID: of_answer});
        }
    }
}

fn members(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.as_object_mut().into_iter().flat_map(|members| members.values_mut())
}
