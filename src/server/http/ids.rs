//! Ids with a shape: the next ones of a namespace.

use std::collections::{BTreeMap, HashMap};

use axum::{body::Body, extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    body,
    number::Given,
    problem::{Problem, Problems},
    request::{Due, InPath, Node, OfNamespace, Timeout, in_path},
    serve::key,
};
use crate::{
    node::to_key,
    proto::{Refusal, v1::NextIdsRequest},
};

/// Which ids are asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdsAsked {
    /// How many; 1 unless given.
    #[schema(minimum = 1, maximum = 10000)]
    count: Option<u32>,
    /// The key whose ids they are, if the format has no worker: an integer from 0 to 2^64 - 1 as a string, or a name.
    #[schema(value_type = Option<String>)]
    key: Option<Given>,
    /// A value for each parameter of the namespace's format.
    #[serde(default)]
    parameters: BTreeMap<String, Given>,
}

/// Ids, as their format writes them.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ids {
    /// The ids.
    ids: Vec<String>,
}

/// Makes the next ids of a namespace that has a format. No other id of the namespace is equal.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}/ids:next", tag = "ids",
    params(OfNamespace, Timeout),
    request_body = IdsAsked, responses((status = 200, body = Ids), Problems))]
pub async fn next(
    State(context): Node, due: Due, path: InPath<String>, body: Body,
) -> Result<Response, Problem> {
    let namespace = in_path(path)?;
    let asked: IdsAsked = body::json(&context, body, due).await?;
    let key = match asked.key {
        Some(given) => {
            let written = match given {
                Given::Number(id) => id.to_string(),
                Given::Text(text) => text,
            };
            to_key(&key(&context, &namespace, written.as_bytes(), due).await?)
        }
        None => None,
    };
    let request = NextIdsRequest {
        namespace,
        count: asked.count,
        key,
        parameters: parameters(asked.parameters)?,
        ..NextIdsRequest::default()
    };
    let made = context.ids.next(&request, due.deadline).await;
    let (made, reservation) = made?;
    let ids = made.texts().collect();
    body::reserved_json(&Ids { ids }, reservation)
}

fn parameters(given: BTreeMap<String, Given>) -> Result<HashMap<String, u64>, Refusal> {
    let parameters = given.into_iter().map(|(name, value)| {
        let value = value.number(format_args!("parameter {name:?}"), 0)?;
        Ok((name, value))
    });
    parameters.collect()
}
