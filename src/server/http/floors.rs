//! Floors: raises them, of a key or of many keys, and reads the last numbers of many keys.

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    body,
    number::{Form, Given, Number, SHOWN, Shown},
    numbers::{self, of_keys},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfKey, OfNamespace, Timeout, action, in_path, in_query},
    serve::{key, serve},
};
use crate::{
    node::{Asked, ROUTE_UNWANTED, no_sections, to_key},
    proto::{
        Refusal,
        v1::{CurrentManyRequest, RaiseManyRequest, RaiseRequest, RaiseSectionsRequest},
    },
};

/// What may follow the question mark where a floor is raised.
const ALLOWED: &str = "at_least=N, and numbers=string or numbers=number";

/// What a path ends with that raises floors.
const RAISE: &str = ":raise";
/// What a path ends with that reads many keys.
const CURRENT: &str = ":current";

/// What follows the question mark.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RaiseOptions {
    /// The numbers handed out later are greater.
    #[param(minimum = 1)]
    at_least: u64,
    /// The form of numbers in the answer.
    #[serde(default)]
    numbers: Form,
}

/// The floor of a key.
#[derive(Debug, Serialize, ToSchema)]
pub struct Floor {
    /// Every number that is handed out later is greater.
    floor: Number,
    /// False if the floor was there or higher before.
    raised: bool,
}

/// The keys whose floors are to be raised.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FloorsAsked {
    /// The keys, 1 to 4 096.
    #[schema(min_items = 1, max_items = 4096)]
    keys: Vec<Given>,
    /// What the floor of each key is to be at least.
    #[schema(min_items = 1, max_items = 4096)]
    at_least: Vec<Given>,
    /// Each id stands for all ids that share its section: all of them go on above the floor. In namespaces of shared
    /// sections only.
    #[serde(default)]
    sections: bool,
}

/// The floors of many keys, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub struct Floors {
    floors: Vec<Number>,
}

/// The keys whose last numbers are asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LastAsked {
    /// The keys, 1 to 4 096.
    #[schema(min_items = 1, max_items = 4096)]
    keys: Vec<Given>,
}

/// The last numbers of many keys, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastNumbers {
    /// null before the first one.
    last: Vec<Option<Number>>,
}

/// POST to a key: what its path ends with says what is asked for.
pub async fn of_key(
    context: Node, due: Due, path: InPath<(String, String)>, next: InQuery<numbers::Options>,
    floor: InQuery<RaiseOptions>, headers: HeaderMap,
) -> Response {
    let raises = matches!(&path, Ok(Path((_, key))) if key.ends_with(RAISE));
    match raises {
        true => raise(context, due, path, floor).await.into_response(),
        false => {
            let taken = numbers::next(context, due, path, next, headers).await;
            taken.into_response()
        }
    }
}

/// POST to a namespace: what its path ends with says what is asked for.
pub async fn of_namespace(
    context: Node, due: Due, path: InPath<String>, next: InQuery<numbers::Options>,
    shown: InQuery<Shown>, headers: HeaderMap, body: Body,
) -> Result<Response, Problem> {
    let ends_with = |action| matches!(&path, Ok(Path(written)) if written.ends_with(action));
    if ends_with(RAISE) {
        return raise_many(context, due, path, shown, body).await;
    }
    if ends_with(CURRENT) {
        return current_many(context, due, path, shown, body).await;
    }
    numbers::next_many(context, due, path, next, headers, body).await
}

/// Raises the floor of a key: the numbers handed out later are greater. A floor is never lowered.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}/keys/{key}:raise", tag = "numbers",
    params(OfKey, RaiseOptions, Timeout),
    responses((status = 200, body = Floor), Problems))]
pub async fn raise(
    State(context): Node, due: Due, path: InPath<(String, String)>, options: InQuery<RaiseOptions>,
) -> Result<Json<Floor>, Problem> {
    let (namespace, written) = in_path(path)?;
    let options = in_query(options, ALLOWED)?;
    let written = action(&written, RAISE, "to raise a floor", "GET, HEAD")?;
    let message = RaiseRequest {
        key: to_key(&key(&context, &namespace, written.as_bytes(), due).await?),
        namespace,
        at_least: options.at_least,
        route_version: ROUTE_UNWANTED,
        members_version: None,
    };
    let raised = serve(&context, Asked::new(message)?, due).await?;
    Ok(Json(Floor { floor: Number(raised.floor, options.numbers), raised: raised.raised }))
}

/// Raises the floors of many keys at once. All keys are checked before any floor is raised.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}:raise", tag = "numbers",
    params(OfNamespace, Shown, Timeout),
    request_body = FloorsAsked, responses((status = 200, body = Floors), Problems))]
pub async fn raise_many(
    State(context): Node, due: Due, path: InPath<String>, shown: InQuery<Shown>, body: Body,
) -> Result<Response, Problem> {
    let written = in_path(path)?;
    let form = in_query(shown, SHOWN)?.numbers;
    let to_raise = "to raise floors of many keys";
    let namespace = action(&written, RAISE, to_raise, "GET, HEAD, PATCH, DELETE")?;
    let asked: FloorsAsked = body::json(&context, body, due).await?;
    let at_least = asked.at_least.iter().map(|floor| floor.number("at_least", 1));
    let at_least = at_least.collect::<Result<Vec<u64>, Refusal>>()?;
    let (raised, reservation) = match asked.sections {
        false => {
            let request = |ids, names| {
                Asked::new(RaiseManyRequest {
                    namespace: namespace.to_owned(),
                    ids,
                    names,
                    at_least,
                    route_version: ROUTE_UNWANTED,
                    members_version: None,
                })
            };
            let (request, reservation) =
                of_keys(&context, namespace, &asked.keys, due, request).await?;
            (serve(&context, request, due).await?, reservation)
        }
        true => {
            let request = |ids, names: Vec<Bytes>| match names.is_empty() {
                true => Asked::new(RaiseSectionsRequest {
                    namespace: namespace.to_owned(),
                    ids,
                    at_least,
                    route_version: ROUTE_UNWANTED,
                    members_version: None,
                }),
                false => Err(no_sections(namespace)),
            };
            let (request, reservation) =
                of_keys(&context, namespace, &asked.keys, due, request).await?;
            (serve(&context, request, due).await?, reservation)
        }
    };
    let floors = raised.floors.into_iter();
    let floors = floors.map(|floor| Number(floor, form)).collect();
    body::reserved_json(&Floors { floors }, reservation)
}

/// The last numbers handed out for many keys.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}:current", tag = "numbers",
    params(OfNamespace, Shown, Timeout),
    request_body = LastAsked, responses((status = 200, body = LastNumbers), Problems))]
pub async fn current_many(
    State(context): Node, due: Due, path: InPath<String>, shown: InQuery<Shown>, body: Body,
) -> Result<Response, Problem> {
    let written = in_path(path)?;
    let form = in_query(shown, SHOWN)?.numbers;
    let to_read = "to read the last numbers of many keys";
    let namespace = action(&written, CURRENT, to_read, "GET, HEAD, PATCH, DELETE")?;
    let asked: LastAsked = body::json(&context, body, due).await?;
    let request = |ids, names| {
        Asked::new(CurrentManyRequest {
            namespace: namespace.to_owned(),
            ids,
            names,
            route_version: ROUTE_UNWANTED,
            members_version: None,
        })
    };
    let (request, reservation) = of_keys(&context, namespace, &asked.keys, due, request).await?;
    let last = serve(&context, request, due).await?.last.into_iter();
    let last = last.map(|last| (last > 0).then_some(Number(last, form)));
    let last = last.collect();
    body::reserved_json(&LastNumbers { last }, reservation)
}
