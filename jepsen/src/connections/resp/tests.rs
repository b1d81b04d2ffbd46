//! Outcomes that replies of the Redis interface give, also errors and pipelines that break.

use tokio::net::TcpListener;

use super::*;
use crate::history::Outcome;

const NEXT: Action = Action::Next { count: 3 };

fn keys(ids: std::ops::Range<u64>) -> Vec<Target> {
    let namespace = "own";
    ids.map(|id| Target { namespace, id }).collect()
}

/// The results that the replies of a node stand for.
async fn judged(action: Action, replies: &str) -> Vec<Result<FirstAndLast, Failure>> {
    let mut from = replies.as_bytes();
    let mut answers = Vec::new();
    while !from.is_empty() {
        let reply = read_reply(&mut from).await;
        answers.push(reply.map_or_else(
            |error| Err(Failure::unknown(error.to_string())),
            |reply| judge(action, reply),
        ));
    }
    answers
}

#[test]
fn a_pipeline_has_a_command_for_each_key() {
    let mut pipeline = Vec::new();
    write_command(&mut pipeline, &keys(7..8)[0], NEXT);
    write_command(&mut pipeline, &keys(10..11)[0], Action::Current);
    let expected =
        "*3\r\n$6\r\nINCRBY\r\n$5\r\nown:7\r\n$1\r\n3\r\n*2\r\n$3\r\nGET\r\n$6\r\nown:10\r\n";
    assert_eq!(String::from_utf8(pipeline).unwrap(), expected);
}

#[tokio::test]
async fn the_reply_is_the_last_number_of_a_range_and_a_key_without_any_reads_as_0() {
    assert_eq!(judged(NEXT, ":12\r\n").await, [Ok((10, 12))]);
    // Too low for three numbers: the checker refuses a range that begins with 0.
    assert_eq!(judged(NEXT, ":2\r\n").await, [Ok((0, 2))]);
    let read = judged(Action::Current, "$2\r\n42\r\n$-1\r\n").await;
    assert_eq!(read, [Ok((42, 42)), Ok((0, 0))]);
}

#[tokio::test]
async fn every_error_and_every_reply_that_cannot_be_read_is_of_unknown_outcome() {
    for reply in [
        "-LOADING no leader\r\n",
        "-TRYAGAIN later\r\n",
        "-CLUSTERDOWN no leader\r\n",
        "-ERR why\r\n",
        "+OK\r\n",
        ":-1\r\n",
        ":1",
        "$3\r\n12",
        "$99999999999\r\n",
        "\r\n",
    ] {
        let answers = judged(NEXT, reply).await;
        let outcomes: Vec<_> =
            answers.into_iter().map(|answer| answer.unwrap_err().outcome).collect();
        assert_eq!(outcomes, [Outcome::Info], "{reply:?}");
    }
}

#[tokio::test]
async fn what_was_read_before_a_pipeline_broke_is_answered_and_the_rest_is_of_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        for replies in [":3\r\n-LOADING why\r\n:1", ":6\r\n:3\r\n:3\r\n"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut pipeline = Vec::new();
            while !pipeline.ends_with(b"own:3\r\n$1\r\n3\r\n") {
                pipeline.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(replies.as_bytes()).await.unwrap();
        }
    });
    let mut resp = RespConnection::new(address);
    let mut outcomes = Vec::new();
    for answer in resp.ask(&keys(1..4), NEXT).await {
        outcomes.push(answer.map_err(|failure| failure.outcome));
    }
    assert_eq!(outcomes, [Ok((1, 3)), Err(Outcome::Info), Err(Outcome::Info)]);
    // The connection is new: its replies are not taken for those of the connection before.
    let answers = resp.ask(&keys(1..4), NEXT).await;
    assert_eq!(answers, [Ok((4, 6)), Ok((1, 3)), Ok((1, 3))]);
    serving.await.unwrap();
    // The connection is over, and so is the node.
    resp.connection = None;
    for answer in resp.ask(&keys(1..4), NEXT).await {
        assert_eq!(answer.unwrap_err().outcome, Outcome::Fail);
    }
}
