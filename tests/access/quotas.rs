//! How much a principal may use: calls beyond it are refused, and calls of others are not.

use std::{pin::pin, time::Duration};

use ratchet::{
    node::{Asker, CheckedRequest, Origin, hash_of},
    proto::v1::{
        CreateNamespaceRequest, NextIdsRequest, NextManyRequest, NextRequest, Quota, Reason,
        SetQuotasRequest, admin_client::AdminClient, ids_client::IdsClient,
        sequencer_client::SequencerClient,
    },
    proto::{reason_of, retry_after_ms},
    sequence::{Credential, NO_NETWORK},
};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::methods::{Case, cases};
use crate::common::{
    PATIENCE,
    closed::{ADMIN, Asking, Closed, asking, create, grant, granting, told},
    eventually, id, in_time, other_than, own_ip, until,
};

const DAY_MS: u64 = 86_400_000;

fn quotas(principal: &str, quotas: &[Quota]) -> SetQuotasRequest {
    SetQuotasRequest {
        principal: principal.to_owned(),
        quotas: quotas.to_vec(),
        ..SetQuotasRequest::default()
    }
}

fn on(namespaces: &str) -> Quota {
    Quota { namespaces: namespaces.to_owned(), ..Quota::default() }
}

/// Takes so many numbers of a key.
async fn take(asking: &Asking, namespace: &str, count: u64) -> Result<u64, Status> {
    let asked = NextRequest {
        namespace: namespace.to_owned(),
        key: id(1),
        count: Some(count),
        ..NextRequest::default()
    };
    Ok(SequencerClient::new(asking.clone()).next(asked).await?.into_inner().last)
}

/// A closed cluster in which two tokens may take numbers, and the first has these quotas; known by every node.
async fn limited(limits: &[Quota]) -> (Closed, u64) {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    for name in ["limited", "free"] {
        create(&mut admin, name, name, vec![grant("next:*")]).await.expect("a token");
    }
    let set = admin.set_quotas(quotas("limited", limits)).await.expect("set").into_inner();
    assert_eq!(set.principals.len(), 1);
    for node in 1..=3 {
        let view = closed.cluster.nodes[&node].context().group.view.clone();
        until("the node has heard of it", || view.principals().has_quotas()).await;
    }
    (closed, leader)
}

fn assert_used_up(refused: &Status, says: &str) -> u64 {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert_eq!(reason_of(refused).0, Reason::CallerQuota, "{refused:?}");
    for part in ["limited", says, "ratchet quota"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused:?}");
    }
    retry_after_ms(refused).expect("a time to come again")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_a_quota_are_refused_at_the_node_that_is_asked_and_others_are_not() {
    // So few that a slow machine does not wait until there is room.
    let limit = Quota { calls_per_second: Some(1), ..on("book*") };
    let (closed, leader) = limited(&[limit]).await;
    for node in [leader, other_than(leader)] {
        let asking = closed.at(node, "limited");
        let refused = eventually("a refusal", async || take(&asking, "book", 1).await.err()).await;
        let again_ms = assert_used_up(&refused, "1 calls a second");
        assert!((1..=1_001).contains(&again_ms), "{again_ms}");
        // Neither another namespace nor another token is limited.
        for _ in 0..20 {
            let other = take(&asking, "other", 1).await.expect_err("it does not exist");
            assert_eq!(other.code(), Code::NotFound);
            take(&closed.at(node, "free"), "book", 1).await.expect("a number");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_that_names_a_namespace_counts_and_what_names_none_does_not() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    let grants = ["next:*", "read:*", "raise:*"].map(grant).to_vec();
    create(&mut admin, "limited", "limited", grants).await.expect("a token");
    let limit = Quota { calls_per_second: Some(1), ..on("book") };
    admin.set_quotas(quotas("limited", &[limit])).await.expect("set");
    let mut counted = 0;
    for node in [leader, other_than(leader)] {
        let view = closed.cluster.nodes[&node].context().group.view.clone();
        until("the node has heard of it", || view.principals().has_quotas()).await;
        let addresses = closed.cluster.nodes[&node].addresses();
        let (grpc, http) = (closed.cluster.address(node), addresses.http.expect("a port"));
        let told = async |case: &Case| case.over_grpc(grpc, Some("limited")).await;
        for case in cases() {
            match case.verb.as_deref() {
                Some("namespaces" | "admin") => {}
                Some(_) if case.is_on_one => {
                    let is_refused =
                        async || (told(&case).await == Code::ResourceExhausted).then_some(());
                    eventually(&case.name, is_refused).await;
                    counted += 1;
                }
                _ => {
                    for _ in 0..5 {
                        let told = told(&case).await;
                        assert_ne!(told, Code::ResourceExhausted, "{} counts", case.name);
                    }
                }
            }
        }
        let what = "GET /v1/namespaces/book/export";
        let header = "authorization: Bearer limited\r\n";
        eventually("an export is refused", async || {
            let page = crate::common::http(http, what, header, "").await;
            (page.status == 429 && page.body.contains("CALLER_QUOTA")).then_some(())
        })
        .await;
    }
    assert!(counted > 30, "{counted} were counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_beyond_a_quota_are_refused_by_the_leader_whichever_node_is_asked() {
    let limit = Quota { numbers_per_second: Some(100), ..on("*") };
    let (closed, leader) = limited(&[limit]).await;
    for node in [leader, other_than(leader)] {
        let asking = closed.at(node, "limited");
        let refused = take(&asking, "book", 101).await.expect_err("more than the quota ever has");
        assert_eq!(reason_of(&refused).0, Reason::CountTooLarge, "{refused:?}");
        assert!(refused.message().contains("100 numbers a second"), "{refused:?}");
        let refused =
            eventually("a refusal", async || take(&asking, "book", 100).await.err()).await;
        assert_used_up(&refused, "100 numbers a second");
        take(&closed.at(node, "free"), "book", 1_000).await.expect("numbers");
        // A stream is told so for the message, and goes on.
        let many = NextManyRequest {
            namespace: "book".to_owned(),
            ids: vec![1, 2],
            counts: vec![60, 60],
            ..NextManyRequest::default()
        };
        let few = NextManyRequest { id: 2, counts: Vec::new(), ..many.clone() };
        let mut sequencer = SequencerClient::new(asking.clone());
        let mut answers = sequencer
            .next_many(tokio_stream::iter([many, few]))
            .await
            .expect("a stream")
            .into_inner();
        for _ in 0..2 {
            let answer = answers.message().await.expect("an answer").expect("the stream goes on");
            let why = answer.failure.map(|why| why.reason());
            match answer.id {
                2 => assert!(matches!(why, None | Some(Reason::CallerQuota)), "{why:?}"),
                _ => assert_eq!(why, Some(Reason::CountTooLarge)),
            }
        }
    }
}

/// The next leader counts it, too. On one thread, so that no bump comes before the call waits for it.
#[tokio::test]
async fn a_call_that_comes_after_its_term_was_closed_is_counted_by_the_next_leader_alone() {
    let limit = Quota { numbers_per_second: Some(100), ..on("*") };
    let (closed, leader) = limited(&[limit]).await;
    let here = closed.cluster.nodes[&leader].context().clone();
    let deadline = Instant::now() + PATIENCE;
    let asked = |token: &str, key: u64, count: u64| {
        let by = Asker::caller(Credential::Token(hash_of(token.as_bytes())), NO_NETWORK);
        let next = NextRequest {
            namespace: "book".to_owned(),
            key: id(key),
            count: Some(count),
            ..NextRequest::default()
        };
        CheckedRequest::new(next, by).expect("a request")
    };
    let (first, late) = (asked("free", 1_000, 1), asked("limited", 1, 100));
    // Its key is new, so it waits for a step. As long as nobody polls it, it stays inside the term, which is not handed off.
    let mut inside = Box::pin(here.numbers.serve(&first, Origin::Client, deadline));
    assert!(futures::poll!(&mut inside).is_pending(), "it waits for a step");
    let handovers = here.services.of_group.handovers();
    let mut handing = pin!(handovers.hand_over(None, deadline));
    tokio::select! {
        biased;
        () = until("the term is closed", || here.services.status.now().memory.is_none()) => {}
        ended = &mut handing => panic!("a call is inside the term: {ended:?}"),
    }
    let mut waiting = pin!(here.numbers.serve(&late, Origin::Client, deadline));
    assert!(futures::poll!(&mut waiting).is_pending(), "it waits for the next leader");
    drop(inside);
    let led_on = async { tokio::join!(handing, waiting) };
    let (handed, answered) = in_time("the next leader", led_on).await;
    handed.expect("handed over");
    answered.expect("as many numbers as the quota has");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_calls_burn_are_counted_and_then_there_are_none_for_the_rest_of_the_day() {
    let limit = Quota { burnt_per_day: Some(50), ..on("*") };
    let (closed, leader) = limited(&[limit]).await;
    let by = Asker::caller(Credential::Token(hash_of(b"limited")), NO_NETWORK);
    let mut key = 1_000;
    for node in [leader, other_than(leader)] {
        let asking = closed.at(node, "limited");
        let here = closed.cluster.nodes[&node].context().clone();
        take(&asking, "book", 1).await.expect("nothing is burnt yet at this node");
        // The caller leaves while its keys, which are new, wait for their first step. It may leave too early or too late.
        let burning = async {
            for patience_ms in (0..10).cycle() {
                key += 2;
                let many = NextManyRequest {
                    namespace: "book".to_owned(),
                    ids: vec![key, key + 1],
                    counts: vec![30, 30],
                    ..NextManyRequest::default()
                };
                let many = CheckedRequest::new(many, by.clone()).expect("a request");
                let serving = here.numbers.serve(&many, Origin::Client, Instant::now() + PATIENCE);
                let patience = Duration::from_millis(patience_ms);
                if let Ok(Err(_)) = tokio::time::timeout(patience, serving).await {
                    break;
                }
            }
            take(&asking, "book", 1).await.expect_err("as many are burnt as may be")
        };
        let refused = in_time("a refusal", burning).await;
        let again_ms = assert_used_up(&refused, "may be burnt by failed calls");
        assert!((DAY_MS / 2..=DAY_MS + 1).contains(&again_ms), "{again_ms}");
        take(&closed.at(node, "free"), "book", 1).await.expect("a number");
        // A quota that is changed begins anew.
        let more = Quota { burnt_per_day: Some(50 + node), ..on("*") };
        closed.admin(leader).set_quotas(quotas("limited", &[more])).await.expect("set");
        eventually("a number", async || take(&asking, "book", 1).await.ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_counted_where_they_are_made() {
    let limit = Quota { numbers_per_second: Some(10), ..on("ids") };
    let (closed, leader) = limited(&[limit]).await;
    let ids = CreateNamespaceRequest {
        name: "ids".to_owned(),
        format: Some("snowflake".to_owned()),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = AdminClient::new(closed.at(leader, ADMIN));
    admin.create_namespace(ids).await.expect("created");
    let asked = |count| NextIdsRequest {
        namespace: "ids".to_owned(),
        count: Some(count),
        ..NextIdsRequest::default()
    };
    let mut limited = IdsClient::new(closed.at(other_than(leader), "limited"));
    let refused = limited.next(asked(11)).await.expect_err("more than the quota ever has");
    assert_eq!(reason_of(&refused).0, Reason::CountTooLarge, "{refused:?}");
    let refused = eventually("a refusal", async || match limited.next(asked(10)).await {
        Err(refused) if reason_of(&refused).0 == Reason::CallerQuota => Some(refused),
        _ => None,
    })
    .await;
    assert_used_up(&refused, "10 numbers a second");
    let mut free = IdsClient::new(closed.at(other_than(leader), "free"));
    free.next(asked(1_000)).await.expect("ids");
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_and_tokens_of_one_name_have_quotas_of_their_own_and_what_is_nobody_has_none() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    let once = Quota { calls_per_second: Some(1), ..on("*") };
    for token in ["first", "second"] {
        create(&mut admin, token, "ci", vec![grant("next:*")]).await.expect("a token");
    }
    let both = admin
        .set_quotas(quotas("ci", std::slice::from_ref(&once)))
        .await
        .expect("set")
        .into_inner();
    assert_eq!(both.principals.len(), 2);
    let ids: Vec<_> = both.principals.iter().map(|one| one.id.clone().expect("an id")).collect();
    let freed = SetQuotasRequest { id: Some(ids[0].clone()), ..quotas("ci", &[]) };
    let freed = admin.set_quotas(freed).await.expect("set").into_inner();
    assert!(freed.principals.len() == 1 && freed.principals[0].quotas.is_empty(), "{freed:?}");
    let known = admin.list_principals(ratchet::proto::v1::ListPrincipalsRequest {}).await;
    let known = known.expect("listed").into_inner().principals;
    let of_ci = known.iter().filter(|one| one.name == "ci").map(|one| one.quotas.len());
    assert_eq!(of_ci.sum::<usize>(), 1);

    // A grant leaves quotas alone.
    admin.set_grants(granting("anonymous", None, &["next:book"])).await.expect("granted");
    admin.set_quotas(quotas("anonymous", std::slice::from_ref(&once))).await.expect("set");
    admin.set_grants(granting("anonymous", None, &["next:*"])).await.expect("granted");
    let nobody = asking(closed.cluster.address(leader), None);
    let refused = eventually("a refusal", async || take(&nobody, "book", 1).await.err()).await;
    assert_eq!(reason_of(&refused).0, Reason::CallerQuota, "{refused:?}");
    // A caller that shows a token does not use up the quota of anonymous.
    told(&closed.at(leader, closed.token("next")), "book").await.expect("a number");

    for (wrong, code) in [
        (quotas("nobody", std::slice::from_ref(&once)), Code::NotFound),
        (quotas("ratchet://test/client/nobody", std::slice::from_ref(&once)), Code::NotFound),
        (
            SetQuotasRequest { id: Some("ba7816bf8f01".to_owned()), ..quotas("ci", &[]) },
            Code::NotFound,
        ),
        (
            SetQuotasRequest {
                addresses: Some(format!("{}/32", own_ip())),
                ..quotas("anonymous", &[])
            },
            Code::NotFound,
        ),
        (
            SetQuotasRequest { id: Some(ids[0].clone()), ..quotas("anonymous", &[]) },
            Code::InvalidArgument,
        ),
        (quotas("ci", &[Quota { calls_per_second: Some(0), ..on("*") }]), Code::InvalidArgument),
        (
            quotas("ci", &[Quota { numbers_per_second: Some(100_000_001), ..on("*") }]),
            Code::InvalidArgument,
        ),
        (quotas("ci", &[Quota { burnt_per_day: Some(0), ..on("*") }]), Code::InvalidArgument),
        (quotas("ci", &[on("a*b")]), Code::InvalidArgument),
        (quotas("ci", &vec![once; 17]), Code::InvalidArgument),
    ] {
        let refused = admin.set_quotas(wrong.clone()).await.expect_err("it is wrong");
        assert_eq!(refused.code(), code, "{wrong:?}: {refused:?}");
    }
}
