//! The headers of a call over gRPC or HTTP at a node that wants a token: a call is let in by one header that shows it, and by
//! nothing else, and no answer has it.
//!
//! An input is lines. Each is a header, as `authorization: Bearer TOKEN`, of any bytes that a header may have.
#![no_main]

use std::sync::LazyLock;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header::AUTHORIZATION},
};
use libfuzzer_sys::fuzz_target;
use ratchet::{node::Asker, server::fuzzing};
use ratchet_fuzz::node::{FuzzedNode, TOKEN};
use tower::ServiceExt;

/// The most headers of an input.
const HEADERS_MAX: usize = 16;

/// A shorter text may stand in an answer for another reason.
const SECRET_BYTES_MIN: usize = 8;

static NODE: LazyLock<FuzzedNode> = LazyLock::new(FuzzedNode::start_closed);
static ROUTES: LazyLock<Router> = LazyLock::new(|| fuzzing::http_routes(NODE.context()));

/// The answers to a token without a secret, to two such tokens, and to no token.
static SAID: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let one = (AUTHORIZATION, HeaderValue::from_static("Bearer a"));
    let mut several = vec![one.clone(), one.clone()];
    let mut said = answer(HeaderMap::from_iter([one])).1;
    said.extend(answer(several.drain(..).fold(HeaderMap::new(), with)).1);
    said.extend(answer(HeaderMap::new()).1);
    said
});

fuzz_target!(
    init: {
        LazyLock::force(&SAID);
    },
    |input: &[u8]| {
        if let Some(headers) = headers(input) {
            check(headers);
        }
    }
);

fn with(mut headers: HeaderMap, (name, value): (HeaderName, HeaderValue)) -> HeaderMap {
    headers.append(name, value);
    headers
}

/// `None` if they are no headers: those the HTTP library refuses.
fn headers(input: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(HEADERS_MAX) {
        let at = line.windows(2).position(|two| two == b": ")?;
        let name = HeaderName::from_bytes(&line[..at]).ok()?;
        headers.append(name, HeaderValue::from_bytes(&line[at + 2..]).ok()?);
    }
    Some(headers)
}

/// The tokens in headers, by another way than the node's.
fn shown(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let is_space = |byte: &u8| matches!(*byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r');
    let tokens = headers.get_all("authorization").iter().filter_map(|value| {
        let bytes = value.as_bytes();
        let is_token = bytes.len() >= 7 && bytes[..7].eq_ignore_ascii_case(b"bearer ");
        let mut token = bytes.get(7..).filter(|_| is_token)?;
        while let [first, rest @ ..] = token
            && is_space(first)
        {
            token = rest;
        }
        while let [rest @ .., last] = token
            && is_space(last)
        {
            token = rest;
        }
        Some(token.to_vec())
    });
    tokens.collect()
}

/// The status of the answer to a request for a number with these headers, and all that the answer says.
fn answer(headers: HeaderMap) -> (StatusCode, Vec<u8>) {
    let mut request =
        Request::post("/v1/namespaces/book/keys/1:next").body(Body::empty()).expect("a request");
    *request.headers_mut() = headers;
    NODE.run(async {
        let Ok(answered) = ROUTES.clone().oneshot(request).await;
        let (head, body) = answered.into_parts();
        let mut said = format!("{:?}", head.headers).into_bytes();
        said.extend(to_bytes(body, usize::MAX).await.expect("a body from memory"));
        (head.status, said)
    })
}

/// The asker of a call with these headers.
fn asker(headers: &HeaderMap) -> Result<Asker, String> {
    fuzzing::asks_with(headers).map_err(|refused| refused.to_string())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn check(headers: HeaderMap) {
    let shown = shown(&headers);
    let nobody = asker(&HeaderMap::new()).expect("nobody asks");
    // As gRPC does it.
    let by = asker(&headers);
    let mut said = Vec::new();
    match (&shown[..], by) {
        ([], by) => assert_eq!(by, Ok(nobody)),
        ([token], by) => assert_eq!(by, Ok(nobody.with_token(token))),
        (several, Ok(by)) => panic!("{by:?} shows {} tokens", several.len()),
        (_, Err(refused)) => said.extend(refused.into_bytes()),
    }
    let is_good = matches!(&shown[..], [token] if token == TOKEN.as_bytes());
    let is_alone = headers.keys().all(|name| name == AUTHORIZATION);
    let (status, answered) = answer(headers);
    let is_let_in = status == StatusCode::OK;
    assert!(is_good || !is_let_in, "{status} with {} tokens", shown.len());
    if !is_alone {
        return;
    }
    assert_eq!(is_let_in, is_good, "{status} with {} tokens", shown.len());
    // The node looks at fifty tokens a second that it does not know.
    let refused = [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE];
    assert!(is_good || refused.contains(&status), "{status} with {} tokens", shown.len());
    said.extend(answered);
    for token in shown.iter().filter(|token| token.len() >= SECRET_BYTES_MIN) {
        let is_said = contains(&said, token) && !contains(&SAID, token);
        assert!(!is_said, "the answer has a token: {}", said.escape_ascii());
    }
}
