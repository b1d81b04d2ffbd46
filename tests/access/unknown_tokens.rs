//! Tokens that a follower does not know: it asks the leader, and not more often than fifty times a second, however many are
//! shown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use ratchet::node::Seams;
use tokio::task::JoinSet;
use tonic::Code;

use super::{http::reflection, leader::KNOWS_TOKEN};
use crate::common::{
    closed::{ADMIN, Closed, asking, create, grant, next},
    eventually, in_time, other_than,
};

/// How much time lies between two questions at least.
const EVERY: Duration = Duration::from_millis(20);
/// How many tokens strangers make up.
const TOKENS: usize = 200;

/// Starts a follower again, and counts from then on how often it asks the leader whether that knows a token.
async fn count_questions(closed: &mut Closed, follower: u64) -> Arc<AtomicU64> {
    let asked = Arc::new(AtomicU64::new(0));
    let mut transport = closed.cluster.transport(follower);
    let counted = asked.clone();
    transport.on_administer = Box::new(move |request| {
        if request.method == KNOWS_TOKEN {
            counted.fetch_add(1, SeqCst);
        }
    });
    let seams: Seams = closed.cluster.seams_with(transport);
    closed.cluster.crash(follower).await;
    closed.cluster.start_node_with(follower, seams).await;
    let admin = closed.at(follower, ADMIN);
    eventually("the follower answers", async || next(&admin, "book").await.ok()).await;
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_asks_the_leader_for_tokens_at_most_fifty_times_a_second() {
    let mut closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    let asked = count_questions(&mut closed, follower).await;
    let address = closed.cluster.address(follower);
    let before = asked.load(SeqCst);
    // The first question is asked after this, and the last one before they are counted.
    let began = Instant::now();
    let mut strangers = JoinSet::new();
    for made_up in 0..TOKENS {
        strangers.spawn(async move {
            let stranger = asking(address, Some(&format!("made-up-{made_up}")));
            let asking = async {
                loop {
                    match next(&stranger, "book").await {
                        Err(Code::Unauthenticated) => return,
                        Ok(number) => panic!("a stranger got {number}"),
                        // The leader could not be asked in time, or no connection was free.
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            };
            in_time("a refusal", asking).await;
        });
    }
    while let Some(refused) = strangers.join_next().await {
        refused.expect("no panic");
    }
    let questions = asked.load(SeqCst) - before;
    let took = began.elapsed();
    println!("{questions} questions in {took:?} for {TOKENS} tokens");
    assert!(questions >= TOKENS as u64, "only {questions} questions: nobody else knows the tokens");
    let at_most = 1 + took.as_millis() / EVERY.as_millis();
    assert!(u128::from(questions) <= at_most, "{questions} questions in {took:?}");

    // One that the leader knows is learned of all the same.
    let token = "made-at-the-leader";
    create(&mut closed.admin(leader), token, "ci", vec![grant("next:book")]).await.expect("made");
    let ci = closed.at(follower, token);
    eventually("the new token is good", async || next(&ci, "book").await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_asks_the_leader_for_no_token_that_it_knows() {
    let mut closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    let asked = count_questions(&mut closed, follower).await;
    let before = asked.load(SeqCst);
    for verb in ["next", "read"] {
        let shows = closed.at(follower, closed.token(verb));
        for _ in 0..20 {
            // Whether it may do this or not.
            let told = next(&shows, "book").await;
            assert_eq!(told.is_ok(), verb == "next", "{told:?}");
        }
    }
    assert_eq!(asked.load(SeqCst), before, "it knows both");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_asks_the_leader_before_it_refuses_a_token_that_is_shown_to_reflection() {
    let mut closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    let asked = count_questions(&mut closed, follower).await;
    let before = asked.load(SeqCst);
    let stranger = asking(closed.cluster.address(follower), Some("made-up"));
    assert_eq!(reflection(&stranger).await, Some(Code::Unauthenticated));
    assert!(asked.load(SeqCst) > before, "it has refused the token by what it knows alone");
}
