//! Requests to the routes of the port for HTTP.
//!
//! An input is text: one or more requests, with a line `---` between them. A request is the method and the path with its
//! query in one line, headers, an empty line, and the body.
#![no_main]

use std::sync::LazyLock;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header},
};
use libfuzzer_sys::fuzz_target;
use ratchet::server::fuzzing;
use ratchet_fuzz::node::FuzzedNode;
use serde_json::{Map, Value};
use tower::ServiceExt;

/// The most requests of an input.
const REQUESTS_MAX: usize = 8;
/// The most bytes of a problem's text.
const DETAIL_BYTES_MAX: usize = 1_024;

static NODE: LazyLock<FuzzedNode> = LazyLock::new(FuzzedNode::start);
static ROUTES: LazyLock<Router> = LazyLock::new(|| fuzzing::http_routes(NODE.context()));

fuzz_target!(
    init: {
        LazyLock::force(&ROUTES);
    },
    |input: &[u8]| {
        for written in requests(input) {
            if let Some(asked) = Asked::parse(written) {
                check(&asked);
            }
        }
    }
);

/// A request.
#[derive(Clone)]
struct Asked {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
}

/// The answer to a request.
struct Answer {
    status: StatusCode,
    kind: Option<HeaderValue>,
    body: Vec<u8>,
}

impl Asked {
    /// `None` if it is no request: those the HTTP library refuses.
    fn parse(written: &[u8]) -> Option<Asked> {
        let (head, body) = cut(written, b"\n\n").unwrap_or((written, b""));
        let mut lines = head.split(|byte| *byte == b'\n');
        let (method, target) = cut(lines.next()?, b" ")?;
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = cut(line, b": ")?;
            let name = HeaderName::from_bytes(name).ok()?;
            headers.push((name, HeaderValue::from_bytes(value).ok()?));
        }
        Some(Asked {
            method: Method::from_bytes(method).ok()?,
            uri: Uri::try_from(target).ok()?,
            headers,
            body: body.to_vec(),
        })
    }

    fn answer(self) -> Answer {
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        request.headers_mut().extend(self.headers);
        NODE.run(async {
            let Ok(answered) = ROUTES.clone().oneshot(request).await;
            let (head, body) = answered.into_parts();
            let kind = head.headers.get(header::CONTENT_TYPE).cloned();
            // Server-sent events do not end.
            let is_endless = kind.as_ref().is_some_and(|kind| kind == "text/event-stream");
            let body = match is_endless {
                true => Vec::new(),
                false => to_bytes(body, usize::MAX).await.expect("a body from memory").to_vec(),
            };
            Answer { status: head.status, kind, body }
        })
    }

    /// True if the node would connect to an address that the input names.
    fn reaches_out(&self) -> bool {
        let changes = [Method::POST, Method::PATCH].contains(&self.method);
        changes && self.uri.path().starts_with("/v1/nodes")
    }

    fn is_timed(&self) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|name| name == "ratchet-timeout-ms")
    }
}

fn requests(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(input);
    let requests = std::iter::from_fn(move || {
        let (request, after) = match cut(rest?, b"\n---\n") {
            Some((request, after)) => (request, Some(after)),
            None => (rest?, None),
        };
        rest = after;
        Some(request)
    });
    requests.take(REQUESTS_MAX)
}

/// The bytes before and after the first `mark`.
fn cut<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|part| part == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

fn check(asked: &Asked) {
    if asked.reaches_out() {
        return;
    }
    let answer = asked.clone().answer();
    let status = answer.status;
    if !asked.uri.path().starts_with("/v1/") {
        // The endpoints of other generators answer in forms of their own, and Leaf has the status 500 for any failure.
        return;
    }
    let to = format!("{} {}: {status}", asked.method, asked.uri);
    assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{to}");
    assert!(status != StatusCode::GATEWAY_TIMEOUT || asked.is_timed(), "{to}");
    if asked.method == Method::HEAD && answer.body.is_empty() {
        return;
    }
    if answer.kind.as_ref().is_some_and(|kind| kind == "text/csv") {
        assert!(asked.uri.path().ends_with("/export"), "{to}");
        // A namespace's own keys, or the sections of one whose keys share them.
        let heads = [&b"key,number\n"[..], b"ids,number\n"];
        let has_head = heads.iter().any(|head| answer.body.starts_with(head));
        assert!(has_head, "{to}");
        return;
    }
    let body: Value = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|error| panic!("{to}: the body is no JSON: {error}"));
    let kind = answer.kind.as_ref().map(HeaderValue::as_bytes);
    if !status.is_success() {
        assert_eq!(kind, Some(&b"application/problem+json"[..]), "{to}");
        return check_problem(&body, status, &to);
    }
    assert_eq!(kind, Some(&b"application/json"[..]), "{to}");
    let path = asked.uri.path();
    if ["/keys", "/explanation", "/gaps", "/workers"].iter().any(|end| path.ends_with(end)) {
        // A key may have such a name.
    } else if path.starts_with("/v1/formats/") {
        // The parts of an id have small numbers as well, which are JSON's.
    } else if path.ends_with("/ids:next") && !path.contains("/keys/") {
        // A key may have the name "ids:next".
        let count = |name: &str| body[name].as_array().map_or(0, Vec::len);
        assert!(count("numbers") + count("texts") > 0, "{to}: {body}");
        check_list(&body["numbers"], &to);
        check_list(&body["texts"], &to);
    } else if path.contains('%') {
        // The action may be encoded.
    } else if asked.method == Method::POST && path.starts_with("/v1/namespaces/") {
        check_numbers(path, &body, &to);
    } else if asked.method == Method::GET && path.contains("/keys/") {
        let last = body.get("last");
        assert!(last.is_none_or(|last| number(last).is_some()), "{to}: {body}");
    } else {
        // Numbers are strings.
        assert_eq!(body, with_strings(body.clone()), "{to}");
    }
}

/// Checks the answer to a request for numbers or floors. A key that ends as an action does is written with an action
/// after it.
fn check_numbers(path: &str, body: &Value, to: &str) {
    let is_of_one = path.contains("/keys/");
    match path.rsplit_once(':').map(|(_, action)| action) {
        Some("current") => check_list(&body["last"], to),
        Some("raise") if is_of_one => assert!(number(&body["floor"]).is_some(), "{to}: {body}"),
        Some("raise") => check_list(&body["floors"], to),
        _ if is_of_one => check_range(body, to),
        _ => {
            check_list(&body["firsts"], to);
            assert!(
                number(&body["increment"]).is_some_and(|increment| increment > 0),
                "{to}: {body}"
            );
        }
    }
}

fn check_problem(body: &Value, status: StatusCode, to: &str) {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let more = ["retry_after_ms", "request_clock_ms"].map(|name| body.get(name));
    assert!(more.iter().flatten().all(|more| more.is_u64()), "{to}: {body}");
    let fields = 6 + more.iter().flatten().count();
    assert_eq!(body.as_object().map(Map::len), Some(fields), "{to}: {body}");
    assert_eq!(body["status"], status.as_u16(), "{to}: {body}");
    for name in ["title", "code", "reason", "outcome"] {
        assert!(!text(name).is_empty(), "{to}: {body}");
    }
    let detail = text("detail");
    assert!((1..=DETAIL_BYTES_MAX).contains(&detail.len()), "{to}: {body}");
}

/// Checks that the numbers of a range fit together.
fn check_range(range: &Value, to: &str) {
    let part = |name: &str| {
        let number = number(&range[name]);
        number.unwrap_or_else(|| panic!("{to}: {name} in {range}"))
    };
    let (first, last, increment) = (part("first"), part("last"), part("increment"));
    assert!(0 < first && first <= last && increment > 0, "{to}: {range}");
    assert_eq!((last - first) % increment, 0, "{to}: {range}");
}

/// Numbers, or texts, all of them strings.
fn check_list(list: &Value, to: &str) {
    let items = list.as_array().unwrap_or_else(|| panic!("{to}: {list} is no list"));
    assert!(items.iter().all(Value::is_string), "{to}: {list}");
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

/// The value with strings in place of its numbers.
fn with_strings(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(items) => Value::Array(items.into_iter().map(with_strings).collect()),
        Value::Object(fields) => Value::Object(
            (fields.into_iter()).map(|(name, value)| (name, with_strings(value))).collect(),
        ),
        other => other,
    }
}
