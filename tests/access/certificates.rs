//! The certificate of a client as a principal, over each interface, at the leader and at a follower, which tells the leader.

use std::net::SocketAddr;

use ratchet::{
    node::{Config, settings::ClientTls},
    sequence::PrincipalKey,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tonic::Code;

use crate::common::{
    certificates::Certificates,
    closed::{Closed, asking_over, create, grant, granting, next, told},
    eventually, in_time, other_than,
};

const BILLING: &str = "ratchet://test/client/billing";
/// A caller to whose certificate nothing is granted.
const STRANGER: &str = "ratchet://test/client/stranger";

/// A closed cluster whose ports for clients take TLS, too, from callers that show a certificate of this CA.
async fn with_certificates(certificates: &Certificates) -> Closed {
    let closed = Closed::with(|config: &mut Config| {
        let id = config.node_id;
        certificates.node(id, &config.listen.ip().to_string(), &[]);
        let path = |name: &str| Some(certificates.path(name).into());
        config.tls = ClientTls::Accept;
        config.tls_cert = path(&format!("node-{id}.crt"));
        config.tls_key = path(&format!("node-{id}.key"));
        config.tls_client_ca = path("ca.crt");
    })
    .await;
    for name in ["billing", "stranger"] {
        certificates.client(name);
    }
    closed
}

/// The leader and a follower.
async fn both(closed: &Closed) -> [u64; 2] {
    let leader = closed.cluster.leader().await;
    [leader, other_than(leader)]
}

/// The status of the answer over HTTP to a caller that shows a certificate, and perhaps a token.
async fn over_http(
    certificates: &Certificates, address: SocketAddr, shown: &str, token: Option<&str>, what: &str,
) -> u16 {
    let header = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let header = header.unwrap_or_default();
    let asked = format!(
        "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n{header}\r\n"
    );
    let mut stream = certificates.connect(address, shown, &[]).await.expect("a handshake");
    let asking = async {
        stream.write_all(asked.as_bytes()).await?;
        let mut answer = Vec::new();
        // To the end of the connection, which may come without TLS's own.
        while !answer.contains(&b'\n') && stream.read_buf(&mut answer).await? > 0 {}
        Ok::<_, std::io::Error>(answer)
    };
    let answer = in_time(what, asking).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{what}: {answer}"))
}

/// The replies to these commands, each of one line or of one text, over a connection that shows a certificate.
async fn over_redis(
    certificates: &Certificates, address: SocketAddr, shown: &str, commands: &[&str],
) -> Vec<String> {
    let stream = certificates.connect(address, shown, &[]).await.expect("a handshake");
    let mut stream = BufReader::new(stream);
    let asking = async {
        let mut replies = Vec::new();
        for command in commands {
            stream.write_all(format!("{command}\r\n").as_bytes()).await?;
            stream.flush().await?;
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.starts_with('$') {
                line.clear();
                stream.read_line(&mut line).await?;
            }
            replies.push(line.trim_end().to_owned());
        }
        Ok::<_, std::io::Error>(replies)
    };
    in_time("replies", asking).await.expect("replies")
}

const NEXT: &str = "POST /v1/namespaces/book/keys/1:next";

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_to_which_something_is_granted_lets_in_for_that_and_for_nothing_else() {
    let certificates = Certificates::new();
    let closed = with_certificates(&certificates).await;
    let [leader, follower] = both(&closed).await;
    let grants = granting(BILLING, None, &["next:book"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    let mut last = 0;
    for node in [leader, follower] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let channel = certificates.channel(closed.cluster.address(node), Some("client-billing"));
        let billing = asking_over(channel, None);
        eventually("the grant is heard of", async || next(&billing, "book").await.ok()).await;
        let number = next(&billing, "book").await.expect("a number");
        assert!(number > last, "{number} after {last}");
        last = number;
        assert_eq!(next(&billing, "order").await, Err(Code::PermissionDenied), "node {node}");

        let http = addresses.http.expect("a port");
        for (what, status) in [
            (NEXT, 200),
            ("POST /v1/namespaces/order/keys/1:next", 403),
            ("GET /v1/namespaces/book/keys/1", 403),
            ("GET /v1/status", 403),
            ("GET /openapi.json", 200),
        ] {
            let told = over_http(&certificates, http, "client-billing", None, what).await;
            assert_eq!(told, status, "{what} at node {node}");
        }

        let redis = addresses.resp.expect("a port");
        let commands = ["ACL WHOAMI", "INCR book:1", "INCR order:1", "GET book:1"];
        let told = over_redis(&certificates, redis, "client-billing", &commands).await;
        assert_eq!(told[0], BILLING, "node {node}");
        assert!(told[1].starts_with(':'), "node {node}: {told:?}");
        assert!(told[2].starts_with("-NOPERM ") && told[3].starts_with("-NOPERM "), "{told:?}");
    }
    // A grant that is taken back is in force no more.
    let grants = granting(BILLING, None, &[]);
    closed.admin(leader).set_grants(grants).await.expect("taken back");
    for node in [leader, follower] {
        let channel = certificates.channel(closed.cluster.address(node), Some("client-billing"));
        let billing = asking_over(channel, None);
        let is_refused = async || next(&billing, "book").await.is_err().then_some(());
        eventually("the node has heard of it", is_refused).await;
        assert_eq!(next(&billing, "book").await, Err(Code::PermissionDenied), "node {node}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_to_which_nothing_is_granted_is_known_and_refused() {
    let certificates = Certificates::new();
    let closed = with_certificates(&certificates).await;
    // Something is granted to another one.
    let [leader, follower] = both(&closed).await;
    let grants = granting(BILLING, None, &["next:book"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    for node in [leader, follower] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let channel = certificates.channel(closed.cluster.address(node), Some("client-stranger"));
        let stranger = asking_over(channel, None);
        assert_eq!(next(&stranger, "book").await, Err(Code::PermissionDenied), "node {node}");
        let http = addresses.http.expect("a port");
        let told = over_http(&certificates, http, "client-stranger", None, NEXT).await;
        assert_eq!(told, 403, "node {node}");
        let redis = addresses.resp.expect("a port");
        let told = over_redis(&certificates, redis, "client-stranger", &["INCR book:1"]).await;
        assert!(told[0].starts_with("-NOPERM "), "node {node}: {told:?}");
    }
    // A grant to anonymous is a grant to everybody.
    let grants = granting("anonymous", Some("127.0.0.0/8"), &["next:book"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    for node in [leader, follower] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let channel = certificates.channel(closed.cluster.address(node), Some("client-stranger"));
        let stranger = asking_over(channel, None);
        eventually("the grant is heard of", async || next(&stranger, "book").await.ok()).await;
        let redis = addresses.resp.expect("a port");
        let commands = ["ACL WHOAMI", "INCR book:1"];
        let told = over_redis(&certificates, redis, "client-stranger", &commands).await;
        assert_eq!(told[0], STRANGER, "node {node}");
        assert!(told[1].starts_with(':'), "node {node}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_beside_a_certificate_counts_more_than_that() {
    let certificates = Certificates::new();
    let closed = with_certificates(&certificates).await;
    let [leader, follower] = both(&closed).await;
    let mut admin = closed.admin(leader);
    admin.set_grants(granting(BILLING, None, &["next:book"])).await.expect("granted");
    create(&mut admin, "of-ci", "ci", vec![grant("next:order")]).await.expect("a token");
    for node in [leader, follower] {
        let address = closed.cluster.address(node);
        let shown = |name, token| asking_over(certificates.channel(address, Some(name)), token);
        let alone = shown("client-billing", None);
        eventually("the grant is heard of", async || next(&alone, "book").await.ok()).await;
        for (token, expected) in [
            (closed.token("next"), None),
            ("of-ci", Some(Code::PermissionDenied)),
            (closed.token("read"), Some(Code::PermissionDenied)),
            ("it is not known", Some(Code::Unauthenticated)),
        ] {
            let told = told(&shown("client-billing", Some(token)), "book").await;
            assert_eq!(told.err(), expected, "{token} at node {node}");
            let http = closed.cluster.nodes[&node].addresses().http.expect("a port");
            // It may not have been able to ask the leader about a token.
            let told = eventually("an answer", async || {
                let asking = over_http(&certificates, http, "client-billing", Some(token), NEXT);
                Some(asking.await).filter(|status| *status != 503)
            })
            .await;
            let expected = match expected {
                None => 200,
                Some(Code::PermissionDenied) => 403,
                Some(_) => 401,
            };
            assert_eq!(told, expected, "{token} at node {node}");
        }
        // The token is known here by now.
        let with_token = shown("client-stranger", Some(closed.token("next")));
        next(&with_token, "book").await.expect("a number");

        let redis = closed.cluster.nodes[&node].addresses().resp.expect("a port");
        let login = "AUTH of-ci";
        let commands = [login, "ACL WHOAMI", "INCR book:1", "RESET", "ACL WHOAMI", "INCR book:1"];
        let told = over_redis(&certificates, redis, "client-billing", &commands).await;
        assert_eq!(told[..2], ["+OK", "ci"], "node {node}");
        assert!(told[2].starts_with("-NOPERM "), "node {node}: {told:?}");
        assert_eq!(told[3..5], ["+RESET", BILLING], "node {node}");
        assert!(told[5].starts_with(':'), "node {node}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_shows_a_certificate_is_no_strangers_before_anything_is_asked_over_it() {
    let certificates = Certificates::new();
    let closed = with_certificates(&certificates).await;
    let node = other_than(closed.cluster.leader().await);
    closed.admin(node).set_grants(granting(BILLING, None, &["next:book"])).await.expect("granted");
    let view = closed.cluster.nodes[&node].context().group.view.clone();
    let key = PrincipalKey::Certificate(BILLING.to_owned());
    in_time("the node has heard of it", view.until_principals(|known| known.get(&key).is_some()))
        .await;
    let at = closed.cluster.nodes[&node].addresses();
    let (http, redis) = (at.http.expect("a port"), at.resp.expect("a port"));
    let mut known = Vec::new();
    for (address, asks, answer) in [
        (http, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", &b"HTTP/1.1 200"[..]),
        (redis, "PING\r\n", b"+PONG"),
    ] {
        let stream =
            certificates.connect(address, "client-billing", &[]).await.expect("a handshake");
        known.push((stream, asks, answer));
    }
    for address in [http, redis] {
        let mut stranger = TcpStream::connect(address).await.expect("a connection");
        let ended = async { while stranger.read(&mut [0]).await.is_ok_and(|read| read > 0) {} };
        in_time("the end of a stranger's connection", ended).await;
    }
    for (mut stream, asks, answer) in known {
        stream.write_all(asks.as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        let mut told = vec![0; answer.len()];
        in_time("an answer", stream.read_exact(&mut told)).await.expect("an answer");
        assert_eq!(told, answer);
    }
}
