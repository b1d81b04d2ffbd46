//! Clients of Leaf: `GET /api/segment/get/{tag}` and `GET /api/snowflake/get/{key}`, answered with the number as plain text. A
//! failure has the status 500 and a text that is no number.

use std::collections::{BTreeMap, HashMap};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use ratchet_ids::Format;
use serde::Serialize;

use super::{
    mapped::{Mapped, ids::one_id},
    parameters::Parameters,
};
use crate::{
    node::{NodeContext, id_format},
    proto::{Refusal, refusal},
    sequence::Wanted,
    server::{
        http::{
            bodies::uncacheable,
            headers::{ContextState, Due},
            path::{PagePath, in_path},
            problem::Problem,
        },
        written::shown,
    },
};

/// The setting that names the namespace of snowflake ids.
const SNOWFLAKE: &str = "leaf_snowflake";

/// The next number of a tag.
pub async fn next(State(context): ContextState, due: Due, path: PagePath<String>) -> Response {
    let taken = async {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
        let tag = in_path(path)?;
        let mapped = Mapped::find(context.config.leaf_names(), &tag, None)?;
        Ok(mapped.next_number(&context, &due).await?)
    };
    as_text(taken.await)
}

/// The next snowflake id. The key is ignored, as Leaf ignores it.
pub async fn next_id(State(context): ContextState, due: Due, _key: PagePath<String>) -> Response {
    let namespace = &context.config.leaf_snowflake;
    let made = one_id(&context, SNOWFLAKE, (namespace, None), HashMap::new(), &due);
    as_text(made.await.map_err(Problem::from))
}

/// The parts of a snowflake id.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeafParts {
    timestamp: String,
    worker_id: String,
    sequence_id: String,
}

/// `GET /decodeSnowflakeId?snowflakeId=N`: the parts of an id in the format of the namespace that is set. An error has the
/// status 200, too, as with Leaf.
pub async fn decode(State(context): ContextState, due: Due, uri: Uri) -> Response {
    let decoding = async {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
        let parameters = Parameters::of(&uri);
        let id = parameters.one("snowflakeId")?.unwrap_or_default();
        let format = format_of(&context)?;
        let decoded = format
            .decode(&id)
            .map_err(|error| refusal!(InvalidRequest, "'{}': {error}", shown(id.as_bytes())))?;
        let parts = decoded.parts();
        // The time is written as Leaf writes it, but in UTC.
        let time = decoded.date_time().to_string().replace('T', " ");
        Ok(LeafParts {
            timestamp: format!("{}({})", parts.time_ms, time.trim_end_matches('Z')),
            worker_id: parts.worker.to_string(),
            sequence_id: parts.sequence.to_string(),
        })
    };
    let decoded: Result<LeafParts, Problem> = decoding.await;
    uncacheable(match decoded {
        Ok(decoded) => Json(decoded).into_response(),
        Err(problem) => problem.told_as(Json(BTreeMap::from([("errorMsg", problem.detail())]))),
    })
}

/// The format of the namespace of snowflake ids.
fn format_of(context: &NodeContext) -> Result<Format, Refusal> {
    let name = &context.config.leaf_snowflake;
    let namespaces = context.group.view.namespaces();
    let format = namespaces.by_name(name).and_then(|namespace| id_format(namespace).ok());
    format.ok_or_else(|| {
        refusal!(
            WrongState,
            "{SNOWFLAKE} names {name:?}, which is no namespace with a format; create it with: ratchet namespace create \
             {name} --format snowflake"
        )
    })
}

fn as_text(answer: Result<u64, Problem>) -> Response {
    uncacheable(match answer {
        Ok(number) => number.to_string().into_response(),
        Err(problem) => {
            let text = problem.detail().to_owned();
            problem.told_as((StatusCode::INTERNAL_SERVER_ERROR, text))
        }
    })
}
