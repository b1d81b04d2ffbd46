//! The namespaces and verbs that a grant may name: a namespace that does not exist is allowed and told, and a verb that
//! nobody knows is refused by its name.

use std::fs;

use ratchet::{
    node::hash_of,
    proto::v1::{
        CreateNamespaceRequest, CreateTokenRequest, Grant, ListPrincipalsRequest,
        RevokeTokenRequest, Verb, access_client::AccessClient, admin_client::AdminClient,
    },
};
use serde_json::json;
use tonic::{Code, Request};

use crate::common::{
    PATIENCE,
    closed::{ADMIN, Asking, Closed, asking, create, everything, grant, granting},
    cluster::Cluster,
    http, other_than,
    processes::{Processes, ratchet},
};

/// The namespaces that the list of principals tells as missing, of the caller of this name.
async fn listed(access: &mut AccessClient<Asking>, name: &str) -> Vec<String> {
    let listed = access.list_principals(ListPrincipalsRequest {}).await.expect("a list");
    let principals = listed.into_inner().principals;
    let found = principals.into_iter().find(|principal| principal.name == name);
    found.expect("a principal").missing_namespaces
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_on_a_namespace_that_does_not_exist_is_allowed_and_told_until_it_exists() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let missing = format!("nowhere-{node}");
        let mut access = closed.admin(node);
        let on_missing = format!("next:{missing}");
        let name = format!("ci-{node}");
        // One that exists, and names that begin so, are not missing.
        let grants = [&*on_missing, "read:book", "raise:none*", "read:*"];
        let granted = grants.iter().map(|text| grant(text)).collect();
        let made = create(&mut access, &name, &name, granted).await.expect("a token");
        assert_eq!(made.missing_namespaces, [&*missing]);
        let set = granting("anonymous", Some("10.7.0.0/16"), &grants);
        let set = access.set_grants(set).await.expect("granted").into_inner();
        assert_eq!(set.missing_namespaces, [&*missing]);
        assert_eq!(listed(&mut access, &name).await, [&*missing]);
        let namespace =
            CreateNamespaceRequest { name: missing, ..CreateNamespaceRequest::default() };
        let mut admin = AdminClient::new(closed.at(node, ADMIN));
        admin.create_namespace(namespace).await.expect("created");
        assert_eq!(listed(&mut access, &name).await, [""; 0], "it exists now");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_tells_of_a_grant_on_a_namespace_that_does_not_exist_and_succeeds() {
    let cluster = Processes::start(1, &[]).await;
    let file = cluster.dir.path().join("admin.token");
    fs::write(&file, ADMIN).expect("written");
    let mut access = AccessClient::new(asking(cluster.places[&1].listen, None));
    create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
    let run = async |line: &str| {
        let mut command = ratchet();
        command.args(line.split(' ')).arg("--token-file").arg(&file);
        command.env("RATCHET_SERVER", cluster.places[&1].listen.to_string());
        let running = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
        let done = running.await.expect("no panic");
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stderr).expect("text")
    };
    let told = run("token create ci --grant next:nowhere --grant read:book").await;
    assert!(told.contains("granted on what does not exist now: nowhere"), "{told}");
    let told = run("grant anonymous next:nowhere --addresses 10.7.0.0/16").await;
    assert!(told.contains("granted on what does not exist now: nowhere"), "{told}");
    let told = run("grant anonymous next:book --addresses 10.7.0.0/16").await;
    assert!(!told.contains("does not exist"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_that_nobody_knows_is_named_in_the_refusal_and_nothing_is_granted() {
    const FLY: i32 = 99;
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let unknown = |verb| Grant { verb, namespaces: "book".to_owned() };
        for (verb, named) in [(FLY, "verb 99"), (Verb::Unspecified.into(), "verb 0")] {
            let made = CreateTokenRequest {
                name: "flies".to_owned(),
                sha256: hash_of(b"flies").0.to_vec().into(),
                grants: vec![grant("next:book"), unknown(verb)],
                expires_ms: None,
            };
            let mut access = closed.admin(node);
            let refused = access.create_token(made).await.expect_err("an unknown verb");
            let mut set = granting("anonymous", Some("10.7.0.0/16"), &["next:book"]);
            set.grants.push(unknown(verb));
            let not_set = access.set_grants(set).await.expect_err("an unknown verb");
            for refused in [refused, not_set] {
                assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
                let told = refused.message();
                assert!(told.contains(named) && told.contains("next, read, raise"), "{told}");
            }
        }
        let at = closed.cluster.nodes[&node].addresses().http.expect("a port");
        let header = format!("Authorization: Bearer {ADMIN}\r\n");
        let body = json!({
            "principal": "anonymous",
            "addresses": "10.7.0.0/16",
            "grants": [{"verb": "VERB_FLY", "namespaces": "book"}],
        });
        let refused = http(at, "POST /v1/grants", &header, &body.to_string()).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("VERB_FLY"), "{}", refused.body);
        let listed = closed.admin(node).list_principals(ListPrincipalsRequest {}).await;
        let principals = listed.expect("a list").into_inner().principals;
        let is_new =
            |name: &str, addresses: &Option<String>| name == "flies" || addresses.is_some();
        assert!(!principals.iter().any(|one| is_new(&one.name, &one.addresses)), "{principals:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_administrators_that_revoke_one_another_at_a_time_leave_one() {
    let cluster = Cluster::start(1, |_| {}).await;
    let by = |token: Option<&str>| AccessClient::new(asking(cluster.address(1), token));
    create(&mut by(None), ADMIN, ADMIN, everything()).await.expect("a token");
    by(Some(ADMIN)).set_grants(granting("anonymous", None, &[])).await.expect("closed");
    let revoke = |name: &str| {
        let mut call = Request::new(RevokeTokenRequest { name: name.to_owned(), id: None });
        call.set_timeout(PATIENCE);
        call
    };
    let mut last = ADMIN.to_owned();
    for round in 0..20 {
        let [one, other] = ["one", "other"].map(|name| format!("{name}-{round}"));
        for token in [&one, &other] {
            create(&mut by(Some(&last)), token, token, everything()).await.expect("a token");
        }
        let (mut by_one, mut by_other) = (by(Some(&one)), by(Some(&other)));
        by_one.revoke_token(revoke(&last)).await.expect("there are two others");
        let revoked =
            tokio::join!(by_one.revoke_token(revoke(&other)), by_other.revoke_token(revoke(&one)),);
        last = match revoked {
            (Ok(_), Err(_)) => one,
            (Err(_), Ok(_)) => other,
            both => panic!("one of them is left: {both:?}"),
        };
    }
    create(&mut by(Some(&last)), "next", "next", everything()).await.expect("a token");
}
