//! How many numbers of a namespace were handed out and skipped, day by day.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    body,
    number::{Form, Number},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfNamespace, Timeout, in_path, in_query},
};
use crate::{
    proto::{Refusal, peer::administer_request::Request as Administer, refusal, v1},
    sequence::DAYS_KEPT,
    server::administer::administer,
};

/// What may follow the question mark.
const ALLOWED: &str = "days=N, and numbers=string or numbers=number";

// The description of `days` below must be a literal.
const _: () = assert!(DAYS_KEPT == 31);

/// What follows the question mark.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many days back, today included; all that are kept unless given.
    #[param(minimum = 1, maximum = 31)]
    days: Option<u32>,
    /// The form of numbers in the answer.
    #[serde(default)]
    numbers: Form,
}

/// The books of a namespace.
#[derive(Debug, Serialize, ToSchema)]
pub struct Gaps {
    /// The days on which something was booked, in order.
    days: Vec<Day>,
}

/// The books of a day, in UTC.
#[derive(Debug, Serialize, ToSchema)]
pub struct Day {
    /// Days since 1970-01-01.
    day: u32,
    /// At least so many numbers were handed out, as far as the log tells. Those that were skipped by `fence`, `deadline` and
    /// `floor` are among them.
    handed_out: Number,
    /// Numbers that nobody will get, by cause.
    skipped: BTreeMap<String, Number>,
}

/// Tells how many numbers of a namespace were handed out and skipped, day by day.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/gaps", tag = "namespaces",
    params(OfNamespace, Options, Timeout),
    responses((status = 200, body = Gaps), Problems))]
pub async fn gaps(
    State(context): Node, due: Due, path: InPath<String>, options: InQuery<Options>,
) -> Result<Response, Problem> {
    let (namespace, options) = (in_path(path)?, in_query(options, ALLOWED)?);
    let days = match options.days {
        Some(0) => return Err(none_asked().into()),
        days => days.unwrap_or_default(),
    };
    let request = Administer::Gaps(v1::GapsRequest { namespace, days });
    let (gaps, reserved) = administer(&context, request, due.deadline).await?;
    body::reserved_json(&shown(gaps, options.numbers), reserved)
}

fn none_asked() -> Refusal {
    refusal!(InvalidRequest, "days is 0; give 1 to {DAYS_KEPT}")
}

fn shown(gaps: v1::GapsResponse, form: Form) -> Gaps {
    let days = gaps.days.into_iter().map(|day| Day {
        day: day.day,
        handed_out: Number(day.handed_out, form),
        skipped: (day.skipped.into_iter())
            .map(|skipped| (skipped.cause, Number(skipped.numbers, form)))
            .collect(),
    });
    Gaps { days: days.collect() }
}
