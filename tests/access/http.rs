//! The requests over HTTP beside the methods: exports and the description of the API. And gRPC's reflection, which is one,
//! too.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use crate::common::{
    Page,
    closed::{ADMIN, Asking, Closed, VERBS, asking, create, grant, granting, next},
    eventually, http, in_time, other_than,
};

fn shown(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The answer of a node. The node is asked again if it could not ask the leader about a token in time.
async fn told(address: SocketAddr, what: &str, headers: &str) -> Page {
    eventually("an answer", async || {
        Some(http(address, what, headers, "").await).filter(|page| page.status != 503)
    })
    .await
}

/// Deno, PowerShell and Apple's URLSession say of themselves what browsers say.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_looks_like_a_browser_may_ask_by_any_name_if_it_shows_a_token() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let address = closed.cluster.nodes[&leader].addresses().http.expect("a port");
    let status = async |headers: &str| {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!(
            "POST /v1/namespaces/book/keys/7:next HTTP/1.1\r\nHost: ids.internal\r\nConnection: close\r\n\
             Content-Length: 0\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut status = [0; 12];
        in_time("an answer", stream.read_exact(&mut status)).await.expect("an answer");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let known = shown(closed.token("next"));
    let unknown = shown("it is not known");
    for looks in ["Accept-Language: *\r\n", "User-Agent: Mozilla/5.0 (PowerShell)\r\n"] {
        let with = async |token: &str| status(&format!("{looks}{token}")).await;
        assert_eq!(with(&known).await, "200", "{looks}");
        let from_elsewhere = format!("Origin: https://app.example\r\n{known}");
        assert_eq!(with(&from_elsewhere).await, "200", "{looks}");
        // A page whose name was made to lead here can set a token that it has made up.
        for token in [String::new(), unknown.clone(), unknown.clone() + &known] {
            assert_eq!(with(&token).await, "403", "{looks}{token}");
        }
    }
    // Now a page that has any token could do what its reader may do without one.
    let anybody = granting("anonymous", None, &["next:uid"]);
    closed.admin(leader).set_grants(anybody).await.expect("granted");
    assert_eq!(status(&format!("Accept-Language: *\r\n{known}")).await, "403");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_for_those_who_may_read_the_namespace() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let last = next(&closed.at(leader, ADMIN), "book").await.expect("a number");
    create(&mut closed.admin(leader), "of-uid", "of-uid", vec![grant("read:uid")])
        .await
        .expect("a token");
    let what = "GET /v1/namespaces/book/export";
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().http.expect("a port");
        let export = async |headers: &str| http(address, what, headers, "").await;
        for headers in [String::new(), shown("it is not known")] {
            let page = told(address, what, &headers).await;
            assert_eq!(page.status, 401, "node {node}: {}", page.body);
            assert!(!page.body.contains("key,number"), "node {node}: {}", page.body);
        }
        for verb in VERBS.into_iter().filter(|verb| *verb != "read") {
            let page = export(&shown(closed.token(verb))).await;
            assert_eq!(page.status, 403, "{verb} at node {node}: {}", page.body);
            assert!(!page.body.contains("key,number"), "{verb} at node {node}: {}", page.body);
        }
        // A request without a grant is refused, whether it exists or not.
        let page = told(address, what, &shown("of-uid")).await;
        assert_eq!(page.status, 403, "node {node}: {}", page.body);
        let what = "GET /v1/namespaces/nowhere/export";
        let page = told(address, what, &shown("of-uid")).await;
        assert_eq!(page.status, 403, "node {node}: {}", page.body);
        let page = export(&shown(closed.token("read"))).await;
        match node == leader {
            true => {
                assert_eq!(page.status, 200, "{}", page.body);
                let row = |line: &str| {
                    let (key, number) = line.trim().split_once(',')?;
                    Some((key.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
                };
                let found = page.body.lines().find_map(row).expect("a row");
                assert!(found.0 == 1 && found.1 >= last, "{found:?}");
            }
            // It may be told to ask the leader.
            false => assert!(![401, 403].contains(&page.status), "{}", page.body),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_the_api_is_for_whoever_is_known() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().http.expect("a port");
        let document = async |headers: &str| told(address, "GET /openapi.json", headers).await;
        let is_one = |page: &Page| page.body.contains("\"openapi\"");
        for headers in [String::new(), shown("it is not known"), shown("")] {
            let page = document(&headers).await;
            assert!(page.status == 401 && !is_one(&page), "{headers}: {}", page.body);
        }
        for verb in VERBS {
            let page = document(&shown(closed.token(verb))).await;
            assert!(page.status == 200 && is_one(&page), "{verb}: {}", page.body);
        }
    }
    let grants = granting("anonymous", Some("127.0.0.0/8"), &["next:other"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().http.expect("a port");
        eventually("whoever is granted anything is known", async || {
            let page = http(address, "GET /openapi.json", "", "").await;
            (page.status == 200).then_some(())
        })
        .await;
    }
}

/// The code with which reflection is refused. A node that could not ask the leader about a token in time is asked again.
pub(super) async fn reflection(asking: &Asking) -> Option<Code> {
    eventually("an answer", async || {
        let told = reflection_once(asking.clone()).await;
        (told != Some(Code::Unavailable)).then_some(told)
    })
    .await
}

async fn reflection_once(asking: Asking) -> Option<Code> {
    let services = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let mut client = ServerReflectionClient::new(asking);
    let asking = client.server_reflection_info(tokio_stream::once(services));
    let first = async { asking.await?.into_inner().message().await };
    match in_time("an answer", first).await {
        Ok(answer) => {
            answer.expect("an answer");
            None
        }
        Err(status) => Some(status.code()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_is_for_whoever_is_known() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.address(node);
        for token in [None, Some("it is not known")] {
            let told = reflection(&asking(address, token)).await;
            assert_eq!(told, Some(Code::Unauthenticated), "{token:?} at node {node}");
        }
        for verb in VERBS {
            assert_eq!(reflection(&closed.at(node, closed.token(verb))).await, None, "{verb}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_two_tokens_is_refused_whatever_they_are() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().http.expect("a port");
        for what in [
            "POST /v1/namespaces/book/keys/1:next",
            "GET /v1/namespaces/book/keys/1",
            "GET /v1/namespaces/book/export",
            "GET /v1/status",
            "GET /openapi.json",
            "GET /",
            "GET /events",
        ] {
            for second in [ADMIN, closed.token("next"), "it is not known"] {
                let headers = [shown(ADMIN), shown(second)].concat();
                let page = http(address, what, &headers, "").await;
                assert_eq!(page.status, 401, "{what} with {second}: {}", page.body);
            }
        }
        // A header for a proxy before the node is no second token.
        let headers = ["Authorization: Basic eDp5\r\n", &shown(ADMIN)].concat();
        let page = http(address, "GET /v1/status", &headers, "").await;
        assert_eq!(page.status, 200, "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_ask_for_a_key_is_told_so_whatever_is_wrong_with_the_request() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    next(&closed.at(leader, ADMIN), "book").await.expect("a number");
    let long = format!("Idempotency-Key: {}\r\n", "7".repeat(65));
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.nodes[&node].addresses().http.expect("a port");
        for (what, headers, wrong) in [
            ("POST /v1/namespaces/book/keys/a-name:next", "", 400),
            ("POST /v1/namespaces/book/keys/1:next", long.as_str(), 400),
            ("POST /v1/namespaces/book/keys/:next", "", 400),
            ("POST /v1/namespaces/nowhere/keys/1:next", "", 404),
            ("GET /v1/namespaces/book/keys/a-name", "", 400),
            ("POST /v1/namespaces/book/keys/a-name:raise?atLeast=5", "", 400),
        ] {
            let ask = async |token: &str| {
                told(address, what, &[shown(token).as_str(), headers].concat()).await
            };
            for (token, status) in [("it is not known", 401), (ADMIN, wrong)] {
                let page = ask(token).await;
                assert_eq!(page.status, status, "{what} at node {node}: {}", page.body);
            }
            let other = closed.token("namespaces");
            let page = ask(other).await;
            assert_eq!(page.status, 403, "{what} at node {node}: {}", page.body);
        }
    }
}
