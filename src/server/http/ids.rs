//! Ids with a shape: the next ones of a namespace, and what is in one.

use std::collections::{BTreeMap, HashMap};

use axum::{Json, body::Body, extract::State, response::Response};
use ratchet_ids::{Decoded, Format};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    body,
    number::{Given, Number, SHOWN, Shown},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfNamespace, Timeout, in_path, in_query},
    serve::key,
};
use crate::{
    node::to_key,
    proto::{Refusal, refusal, v1::NextIdsRequest},
    server::written,
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

/// What is in an id.
#[derive(Debug, Serialize, ToSchema)]
pub struct IdParts {
    /// When it was made.
    time: String,
    /// The same in milliseconds since 1970.
    time_ms: Number,
    /// The fields, by name.
    fields: BTreeMap<String, Number>,
}

/// A format of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct IdFormat {
    /// The name of a built-in one.
    name: Option<String>,
    /// The format in full.
    format: String,
    /// The first time of an id.
    first: String,
    /// The last time of an id.
    last: String,
}

/// The formats that have a name.
#[derive(Debug, Serialize, ToSchema)]
pub struct IdFormats {
    /// The formats.
    formats: Vec<IdFormat>,
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
    let made = context.next_ids(&request, due.deadline).await;
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

/// Takes an id apart.
#[utoipa::path(get, path = "/v1/formats/{format}/ids/{id}", tag = "ids",
    params(
        ("format" = String, Path, description = "The format: the name of a built-in one, or its text."),
        ("id" = String, Path, description = "The id, as it is written."),
        Shown,
        Timeout,
    ),
    responses((status = 200, body = IdParts), Problems))]
pub async fn decode(
    _due: Due, path: InPath<(String, String)>, shown: InQuery<Shown>,
) -> Result<Json<IdParts>, Problem> {
    let (format, id) = in_path(path)?;
    let form = in_query(shown, SHOWN)?.numbers;
    let format = parsed(&format)?;
    let decoded = format.decode(&id).map_err(|error| {
        let id = written::shown(id.as_bytes());
        refusal!(InvalidRequest, "'{id}' is no id of this format: {error}")
    })?;
    let number = |value| Number(value, form);
    Ok(Json(parts(&decoded, number)))
}

fn parts(decoded: &Decoded<'_>, number: impl Fn(u64) -> Number) -> IdParts {
    let fields = decoded.fields();
    IdParts {
        time: decoded.date_time().to_string(),
        time_ms: number(decoded.parts().time_ms),
        fields: fields.map(|(field, value)| (field.name().to_owned(), number(value))).collect(),
    }
}

/// Tells what a format is, and when it ends.
#[utoipa::path(get, path = "/v1/formats/{format}", tag = "ids",
    params(
        ("format" = String, Path, description = "The format: the name of a built-in one, or its text."),
        Timeout,
    ),
    responses((status = 200, body = IdFormat), Problems))]
pub async fn explain(_due: Due, path: InPath<String>) -> Result<Json<IdFormat>, Problem> {
    Ok(Json(told(&parsed(&in_path(path)?)?)))
}

/// Lists the formats that have a name.
#[utoipa::path(get, path = "/v1/formats", tag = "ids", params(Timeout),
    responses((status = 200, body = IdFormats), Problems))]
pub async fn formats(_due: Due) -> Result<Json<IdFormats>, Problem> {
    let formats = Format::built_in().map(|(name, _)| Ok(told(&parsed(name)?)));
    let formats = formats.collect::<Result<_, Refusal>>()?;
    Ok(Json(IdFormats { formats }))
}

fn told(format: &Format) -> IdFormat {
    let explanation = format.explain();
    IdFormat {
        name: format.name().map(str::to_owned),
        format: format.to_string(),
        first: explanation.first().to_string(),
        last: explanation.last().to_string(),
    }
}

fn parsed(text: &str) -> Result<Format, Refusal> {
    Format::parse(text).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}
