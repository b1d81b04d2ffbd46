//! Clients of Tinyid: `nextId` and `nextSegmentId` in JSON, and `nextIdSimple` and `nextSegmentIdSimple` as text. A
//! failure has the HTTP status 200 and a code, or an empty text. A parameter that cannot be read is status 400.
//!
//! Invariant: without the token of a type nobody learns whether the type exists.

use std::{borrow::Cow, convert::Infallible, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use serde::Serialize;

use super::{mapped::Mapped, parameters::Parameters};
use crate::{
    node::{Config, NodeContext, hash_of, row_of},
    proto::{Code, Refusal, refusal},
    sequence::{Range, Wanted},
    server::{
        http::{
            problem::Problem,
            request::{Due, Node, uncacheable},
        },
        written::shown,
    },
};

/// The most numbers of one answer. A request for more gets so many, as from Tinyid.
const BATCH_MAX: u64 = 100_000;

/// The codes of answers.
const SUCCESS: u16 = 200;
const TOKEN_ERROR: u16 = 5;
const SYSTEM_ERROR: u16 = 6;

/// An answer in JSON.
#[derive(Debug, Serialize)]
struct Reply<'a, T> {
    data: Option<T>,
    code: u16,
    message: &'a str,
}

/// `nextId`: numbers, in JSON.
pub async fn next_id(State(context): Node, due: Due, request: Request) -> Response {
    let (before, after) = ("{\"data\":[", "],\"code\":200,\"message\":\"\"}");
    let list = |range| Listed { media_type: "application/json", before, range, after };
    uncacheable(batch(&context, &due, request).await.map(list).map_err(failed))
}

/// `nextIdSimple`: numbers, as text.
pub async fn next_id_simple(State(context): Node, due: Due, request: Request) -> Response {
    let media_type = "text/plain; charset=utf-8";
    let list = |range| Listed { media_type, before: "", range, after: "" };
    uncacheable(batch(&context, &due, request).await.map(list).map_err(failed_simply))
}

/// `nextSegmentId`: a segment, in JSON.
pub async fn next_segment_id(State(context): Node, due: Due, request: Request) -> Response {
    let reply = |segment| Json(Reply { data: Some(segment), code: SUCCESS, message: "" });
    uncacheable(segment(&context, &due, request).await.map(reply).map_err(failed))
}

/// `nextSegmentIdSimple`: a segment, as text.
pub async fn next_segment_id_simple(State(context): Node, due: Due, request: Request) -> Response {
    let write = |segment| {
        let Segment { current_id, loading_id, max_id, delta, remainder } = segment;
        format!("{current_id},{loading_id},{max_id},{delta},{remainder}")
    };
    uncacheable(segment(&context, &due, request).await.map(write).map_err(failed_simply))
}

/// The numbers that a request asks for; `None` if it asks for none.
async fn batch(
    context: &Arc<NodeContext>, due: &Due, request: Request,
) -> Result<Option<Range>, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let count = batch_size(&parameters)?.min(context.config.count_max);
    let (of_type, due) = type_of(&parameters, context, due).await?;
    if count == 0 {
        return Ok(None);
    }
    let mapped = Mapped::find(context.config.tinyid_names(), &of_type, None)?;
    Ok(Some(mapped.next(context, count, &due).await?))
}

/// The segment that a request asks for.
async fn segment(
    context: &Arc<NodeContext>, due: &Due, request: Request,
) -> Result<Segment, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let (of_type, due) = type_of(&parameters, context, due).await?;
    let mapped = Mapped::find(context.config.tinyid_names(), &of_type, None)?;
    let count = segment_size(&context.config, &of_type);
    let unfit = |why| mapped.warn_operator(refusal!(WrongState, "{why}"));
    if let Some(increment) = mapped.increment(context) {
        check_increment(increment).map_err(unfit)?;
    }
    let range = mapped.next(context, count, &due).await?;
    Ok(Segment::of(range).map_err(|why| {
        mapped.skip(context, count);
        unfit(why)
    })?)
}

/// How many numbers a segment of a type has. There is a row for any type ([`Segments`](crate::node::settings::Segments)); a
/// segment without one would have a number.
fn segment_size(config: &Config, of_type: &str) -> u64 {
    row_of(&config.tinyid_segment, config.tinyid_names().parameter, of_type)
        .map_or(1, |(numbers, _)| *numbers)
}

/// How many numbers a request asks for. As with Tinyid it is 1 if it says nothing, and none if it asks for less.
fn batch_size(parameters: &Parameters) -> Result<u64, Refusal> {
    let given = parameters.one("batchSize")?.unwrap_or_default();
    let given = given.trim();
    if given.is_empty() {
        return Ok(1);
    }
    let size: i32 = given.parse().map_err(|_| {
        refusal!(
            InvalidRequest,
            "batchSize is '{}'; give an integer, or leave it out for 1",
            shown(given.as_bytes())
        )
    })?;
    Ok(u64::try_from(size).unwrap_or(0).min(BATCH_MAX))
}

/// The type that a request asks for, if it has one of the type's tokens, or one of the cluster's, which then asks.
async fn type_of<'a>(
    parameters: &'a Parameters, context: &NodeContext, due: &Due,
) -> Result<(Cow<'a, str>, Due), Refusal> {
    let config = &context.config;
    let of_type = parameters.one("bizType")?.unwrap_or_default();
    let token = parameters.one("token")?.unwrap_or_default();
    let known = row_of(&config.tinyid_tokens, config.tinyid_names().parameter, &of_type);
    if known.is_some_and(|(known, _)| is_among(known, &token)) {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
        return Ok((of_type, due.clone()));
    }
    if !token.is_empty() {
        context.services.access.check_shows_no_token(&due.by)?;
    }
    // Whatever else is wrong with it, Tinyid's own answer tells it.
    let with_token = due.by.with_token(token.as_bytes());
    match context.admission.admit(&with_token, Wanted::Anything, due.deadline).await {
        Ok(()) => Ok((of_type, Due { by: with_token, ..due.clone() })),
        Err(refusal) if refusal.code() != Code::Unauthenticated => Err(refusal),
        Err(_) => Err(refusal!(
            Unauthenticated,
            "there is no such bizType, or the token is not one of its tokens"
        )),
    }
}

/// Whether a token is one of those in a text. Their hashes are compared: how long that takes tells nothing of the tokens.
fn is_among(known: &str, token: &str) -> bool {
    let token = hash_of(token.as_bytes());
    known.split_whitespace().any(|one| hash_of(one.as_bytes()) == token)
}

/// A failure in JSON.
fn failed(problem: Problem) -> Response {
    let code = match problem.code() {
        Code::Unauthenticated => TOKEN_ERROR,
        _ => SYSTEM_ERROR,
    };
    let reply: Reply<()> = Reply { data: None, code, message: problem.detail() };
    problem.told_as((status(&problem), Json(reply)))
}

/// A failure as text: there is none.
fn failed_simply(problem: Problem) -> Response {
    problem.told_as((status(&problem), ""))
}

fn status(problem: &Problem) -> StatusCode {
    match problem.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

// A range of numbers as a segment that clients of Tinyid share out themselves.
//
// Of a segment they hand out the numbers above `currentId`, up to `maxId`, whose remainder of a division by `delta` is
// `remainder`: first the smallest of these, then each one `delta` above the last. Those are the range's numbers, and no
// others, if `currentId` lies right below the first one.

/// The greatest `maxId`. The clients compute with signed 64-bit integers, and notice the end of a segment only once they
/// are beyond it: each call adds `delta` again. From here they cannot get to a number that does not fit.
const MAX_ID_MAX: u64 = 1 << 62;

/// The greatest `delta`: the clients read it as a signed 32-bit integer.
const DELTA_MAX: u64 = i32::MAX as u64;

/// The part of a segment that is used when a client asks for the next one: a fifth, as Tinyid has it.
const LOADING_PART: u64 = 5;

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Right below the first number.
    pub current_id: u64,
    /// From this number on a client asks for the next segment.
    pub loading_id: u64,
    /// The last number.
    pub max_id: u64,
    /// The distance between two numbers.
    pub delta: u64,
    /// What is left of each number when it is divided by `delta`.
    pub remainder: u64,
}

impl Segment {
    /// The segment of a range.
    ///
    /// # Errors
    /// A text that says why the clients cannot compute with it.
    pub fn of(range: Range) -> Result<Segment, String> {
        let Range { first, last, increment } = range;
        check_increment(increment)?;
        if last > MAX_ID_MAX {
            return Err(format!(
                "the segment ends at {last}; clients that take segments compute with numbers up to {MAX_ID_MAX}: use a \
                 key with smaller numbers"
            ));
        }
        let current_id = first.saturating_sub(1);
        Ok(Segment {
            current_id,
            loading_id: current_id + (last - current_id) / LOADING_PART,
            max_id: last,
            delta: increment,
            remainder: first % increment,
        })
    }
}

/// Checks that clients can compute with an increment.
///
/// # Errors
/// A text that says why not.
fn check_increment(increment: u64) -> Result<(), String> {
    match increment > DELTA_MAX {
        true => Err(format!(
            "the namespace's increment is {increment}; clients that take segments compute with at most {DELTA_MAX}: use a \
             namespace with a smaller one"
        )),
        false => Ok(()),
    }
}

// Many numbers in one answer, written piece by piece as the caller reads it: 100 000 of them have 2 MB.

/// How many numbers are written at a time.
const PIECE: usize = 512;

/// The numbers of a range between two texts, separated by commas.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    pub media_type: &'static str,
    pub before: &'static str,
    /// `None` for no numbers.
    pub range: Option<Range>,
    pub after: &'static str,
}

impl Listed {
    fn numbers(&self) -> impl Iterator<Item = u64> + Send + use<> {
        self.range.into_iter().flat_map(|range| {
            let count = (range.last - range.first) / range.increment + 1;
            (0..count).map(move |step| range.first + step * range.increment)
        })
    }

    /// How many bytes it has.
    fn length(&self) -> usize {
        let digits = |number: u64| number.ilog10() as usize + 1;
        let numbers: usize = self.numbers().map(|number| digits(number) + 1).sum();
        self.before.len() + numbers.saturating_sub(1) + self.after.len()
    }

    fn pieces(self) -> impl Iterator<Item = String> + Send {
        let (mut left, mut separator) = (self.numbers(), "");
        let numbers = std::iter::from_fn(move || {
            let mut piece = String::new();
            for number in left.by_ref().take(PIECE) {
                piece.push_str(separator);
                piece.push_str(itoa::Buffer::new().format(number));
                separator = ",";
            }
            (!piece.is_empty()).then_some(piece)
        });
        let before = std::iter::once(self.before.to_owned());
        let after = std::iter::once(self.after.to_owned());
        before.chain(numbers).chain(after).filter(|piece| !piece.is_empty())
    }
}

impl IntoResponse for Listed {
    fn into_response(self) -> Response {
        let head = [
            (header::CONTENT_TYPE, self.media_type.to_owned()),
            (header::CONTENT_LENGTH, self.length().to_string()),
        ];
        let pieces = self.pieces().map(Ok::<_, Infallible>);
        (head, Body::from_stream(stream::iter(pieces))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, count: u64, increment: u64) -> Range {
        Range { first, last: first + (count - 1) * increment, increment }
    }

    /// What a client of Tinyid hands out of a segment. It goes up from `current_id` one by one until the remainder fits,
    /// unless it fits at once, and takes a step back so that the step of its first number leads there.
    fn shared_out(segment: Segment) -> Vec<u64> {
        let signed = |number: u64| i64::try_from(number).expect("a signed number");
        let (delta, remainder) = (signed(segment.delta), signed(segment.remainder));
        let mut at = signed(segment.current_id);
        if at % delta != remainder {
            let fits = (1..=delta + 1).find(|up| (at + up) % delta == remainder);
            at += fits.expect("one of delta neighbours fits") - delta;
        }
        let mut numbers = Vec::new();
        loop {
            at += delta;
            if at > signed(segment.max_id) {
                return numbers;
            }
            numbers.push(u64::try_from(at).expect("not below 0"));
        }
    }

    #[test]
    fn a_client_hands_out_the_numbers_of_the_range_and_no_others() {
        for increment in [1, 2, 3, 10, 1_000] {
            for first in [1, 2, 5, 9, 10, 11, 999, 1_000, 1_001, 12_345] {
                for count in [1, 2, 7, 100] {
                    let range = range(first, count, increment);
                    let segment = Segment::of(range).unwrap();
                    let expected: Vec<u64> =
                        (0..count).map(|step| first + step * increment).collect();
                    assert_eq!(shared_out(segment), expected, "{segment:?}");
                    assert!(segment.current_id <= segment.loading_id, "{segment:?}");
                    assert!(segment.loading_id <= segment.max_id, "{segment:?}");
                }
            }
        }
    }

    #[test]
    fn what_a_client_cannot_compute_with_is_refused_with_its_value() {
        let at_most = Segment::of(range(MAX_ID_MAX, 1, DELTA_MAX)).unwrap();
        assert_eq!(at_most.max_id, MAX_ID_MAX);
        let refused = Segment::of(range(MAX_ID_MAX, 2, 1)).unwrap_err();
        assert!(refused.contains("4611686018427387905"), "{refused}");
        let refused = Segment::of(range(1, 1, DELTA_MAX + 1)).unwrap_err();
        assert!(refused.contains("2147483648"), "{refused}");
    }

    #[test]
    fn a_token_is_compared_with_each_of_a_type_as_a_whole() {
        assert!(["one", "two"].iter().all(|token| is_among(" one  two ", token)));
        for token in ["", "one two", "on", "onet", "One", " one"] {
            assert!(!is_among("one two", token), "{token:?}");
        }
        assert!(!is_among("", ""));
    }

    #[test]
    fn numbers_are_written_in_pieces_and_their_length_is_known_before() {
        for (first, count, increment) in [(1, 1, 1), (9, 3, 1), (5, 2_000, 10), (1, 512, 1)] {
            let numbers: Vec<u64> = (0..count).map(|step| first + step * increment).collect();
            let listed = Listed {
                media_type: "text/plain",
                before: "[",
                range: Some(Range { first, last: first + (count - 1) * increment, increment }),
                after: "]",
            };
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let expected = format!("[{}]", numbers.join(","));
            let pieces: Vec<String> = listed.pieces().collect();
            assert_eq!(pieces.concat(), expected);
            assert_eq!(listed.length(), expected.len());
            assert!(pieces.iter().all(|piece| piece.len() < PIECE * 21));
        }
    }

    #[test]
    fn no_numbers_are_an_empty_list() {
        let listed =
            |before, after| Listed { media_type: "text/plain", before, range: None, after };
        let written = |listed: Listed| (listed.pieces().collect::<String>(), listed.length());
        assert_eq!(written(listed("[", "]")), ("[]".to_owned(), 2));
        assert_eq!(written(listed("", "")), (String::new(), 0));
    }
}
