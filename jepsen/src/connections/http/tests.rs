//! Outcomes that answers over HTTP give, also those that break off or cannot be read.

use expect_test::{Expect, expect};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::history::Outcome;

const NEXT: Action = Action::Next { count: 3 };
const KEY: Target = Target { namespace: "own", id: 7 };

fn check(action: Action, status: u16, body: &str, expected: Expect) {
    let status = StatusCode::from_u16(status).unwrap();
    let judged = judge(action, status, body.as_bytes());
    let shown = match judged {
        Ok((first, last)) => format!("{first} to {last}"),
        Err(failure) => format!("{:?}: {}", failure.outcome, failure.note),
    };
    expected.assert_eq(&shown);
}

#[test]
fn numbers_are_strings_and_a_key_without_any_reads_as_0() {
    let range = r#"{"first":"9007199254740993","last":"9007199254740995","increment":"1"}"#;
    check(NEXT, 200, range, expect!["9007199254740993 to 9007199254740995"]);
    check(Action::Current, 200, r#"{"last":"12"}"#, expect!["12 to 12"]);
    check(Action::Current, 200, "{}", expect!["0 to 0"]);
}

#[test]
fn a_request_failed_only_if_its_code_says_that_it_was_not_acted_upon() {
    let problem = |code| format!(r#"{{"title":"","status":0,"code":"{code}","detail":"why"}}"#);
    for code in ["INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED"] {
        let judged = judge(NEXT, StatusCode::BAD_REQUEST, problem(code).as_bytes());
        assert_eq!(judged, Err(Failure::refused(format!("{code}: why"))));
    }
    for code in [
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "INTERNAL",
        "FAILED_PRECONDITION",
        "ABORTED",
        "another",
    ] {
        let judged = judge(NEXT, StatusCode::BAD_REQUEST, problem(code).as_bytes());
        assert_eq!(judged, Err(Failure::unknown(format!("{code}: why"))));
    }
}

#[test]
fn a_node_that_says_that_nothing_was_done_may_have_skipped_numbers_where_the_namespace_has_gaps() {
    let problem =
        r#"{"code":"UNAVAILABLE","reason":"NO_LEADER","outcome":"NOT_DONE","detail":"why"}"#;
    let judged = judge(NEXT, StatusCode::SERVICE_UNAVAILABLE, problem.as_bytes());
    assert_eq!(judged, Err(Failure::not_done("UNAVAILABLE: why")));
}

#[test]
fn an_answer_that_cannot_be_read_is_of_unknown_outcome() {
    check(NEXT, 200, r#"{"first":"x","last":"2"}"#, expect![[r#"Info: "x" is no number"#]]);
    check(
        NEXT,
        400,
        "",
        expect![[
            r#"Info: 400 Bad Request with the body "": EOF while parsing a value at line 1 column 0"#
        ]],
    );
}

#[tokio::test]
async fn a_request_says_what_it_asks_for_and_one_that_breaks_is_of_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heads = Vec::new();
        let body = r#"{"first":"4","last":"6","increment":"1"}"#;
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        // The connection breaks in the middle of the second answer.
        for sent in [answer.as_bytes(), &answer.as_bytes()[..answer.len() - 5]] {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            heads.push(String::from_utf8(head).unwrap());
            stream.write_all(sent).await.unwrap();
        }
        heads
    });
    let mut http = HttpConnection::new(address);
    assert_eq!(http.ask(&KEY, NEXT).await, Ok((4, 6)));
    let broke = http.ask(&KEY, Action::Current).await;
    assert_eq!(broke.unwrap_err().outcome, Outcome::Info);
    let heads = serving.await.unwrap();
    for (head, begins) in heads
        .iter()
        .zip(["POST /v1/namespaces/own/keys/7:next?count=3 ", "GET /v1/namespaces/own/keys/7 "])
    {
        assert!(head.starts_with(begins), "{head}");
        assert!(head.contains("ratchet-timeout-ms: 1000\r\n"), "{head}");
    }
    // Nobody listens any more, so that nothing is sent.
    let refused = http.ask(&KEY, NEXT).await;
    assert_eq!(refused.unwrap_err().outcome, Outcome::Fail);
}
