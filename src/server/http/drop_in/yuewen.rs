//! Clients of Yuewen's id generator: `GET /?type=N`, with the parameters that the type's row names, answered in JSON.

use std::sync::Arc;

use axum::{
    Json,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{mapped::Mapped, parameters::Parameters};
use crate::{
    node::{Config, NodeContext},
    proto::{Code, refusal},
    sequence::Wanted,
    server::{
        http::{bodies::uncacheable, headers::Due, problem::Problem},
        written::shown,
    },
};

/// The parameter that names the type.
const TYPE: &str = "type";

/// The answer if a type or a parameter is missing, repeated or wrong, or if nobody reads a parameter. Its HTTP status is 400.
const BAD_REQUEST: Failed<'static> = Failed { error: 412, error_message: "Bad Request" };

/// A number.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NumberAnswer {
    error: u16,
    error_message: &'static str,
    result: u64,
}

/// The reason why there is no number.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed<'a> {
    error: u16,
    error_message: &'a str,
}

/// Whether these clients are served at all.
pub fn is_on(config: &Config) -> bool {
    !config.yuewen_types.is_empty()
}

/// Whether such clients are served, and a request for `/` comes from one.
pub fn answers(context: &NodeContext, uri: &Uri) -> bool {
    is_on(&context.config) && Parameters::of(uri).has(TYPE)
}

/// The next number of a type.
pub async fn next(context: &Arc<NodeContext>, due: &Due, uri: &Uri) -> Response {
    let taken = async {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
        let parameters = Parameters::of(uri);
        let of_type = parameters.one(TYPE)?.unwrap_or_default();
        let names = context.config.yuewen_names();
        let mapped = Mapped::find(names, &of_type, Some(&parameters))?;
        // A client that means one book must not be given the number of another.
        if let Some(unread) = parameters.other_than(|name| name == TYPE || mapped.asks_for(name)) {
            let unread = shown(unread.as_bytes());
            return Err(mapped.warn_operator(refusal!(
                InvalidRequest,
                "nobody reads the parameter '{unread}'; leave it out, or let the row of the type name it in braces, as in \
                 book:{{bookid}}"
            )));
        }
        mapped.next_number(context, due).await
    };
    uncacheable(match taken.await.map_err(Problem::from) {
        Ok(number) => Json(NumberAnswer { error: 0, error_message: "success", result: number })
            .into_response(),
        Err(problem) => failed(&problem),
    })
}

fn failed(problem: &Problem) -> Response {
    let status = match problem.code() {
        Code::InvalidArgument => {
            return problem.told_as((StatusCode::BAD_REQUEST, Json(BAD_REQUEST)));
        }
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable | Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let failed = Failed { error: status.as_u16(), error_message: problem.detail() };
    problem.told_as((status, Json(failed)))
}
