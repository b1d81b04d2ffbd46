//! Logins of Redis clients: in every form, in the middle of a pipeline, and with a token that is revoked meanwhile.

use std::{net::SocketAddr, time::Instant};

use ratchet::{node::KNOWN_WITHIN, proto::v1::RevokeTokenRequest};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::common::{
    closed::{Closed, create, grant, granting, next},
    eventually, in_time, other_than,
};

/// The token of `ci`, which may take numbers of books and read them.
const CI: &str = "of-ci";

/// A connection of a Redis client. Until somebody logs in, it is a stranger's, and on a slow machine the stranger's time may be
/// over before that.
struct Connection {
    stream: BufReader<TcpStream>,
    began: Instant,
}

impl Connection {
    async fn to(address: SocketAddr) -> Connection {
        let began = Instant::now();
        let stream = in_time("a connection", TcpStream::connect(address)).await;
        Connection { stream: BufReader::new(stream.expect("a connection")), began }
    }

    /// A connection over which this login comes first.
    async fn logged_in(address: SocketAddr, login: &str) -> Connection {
        eventually("a login in a stranger's time", async || {
            let mut client = Connection::to(address).await;
            let told = client.try_ask(login).await?;
            assert_eq!(told, "+OK", "{login}");
            Some(client)
        })
        .await
    }

    /// Whether the connection may have ended because it is a stranger's.
    fn is_over(&self) -> bool {
        self.began.elapsed() >= KNOWN_WITHIN
    }

    /// Sends commands in one piece.
    async fn send(&mut self, commands: &[&str]) {
        let text: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
        let sent = in_time("room", self.stream.write_all(text.as_bytes())).await;
        assert!(sent.is_ok() || self.is_over(), "{sent:?}");
    }

    /// The next line; `None` if a stranger's time is over.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = in_time("a line", self.stream.read_line(&mut line)).await;
        if line.ends_with("\r\n") {
            return Some(line.trim_end().to_owned());
        }
        assert!(self.is_over(), "the connection ended: {line:?}, {read:?}");
        None
    }

    /// The next reply: a line, or a text; `None` if a stranger's time is over.
    async fn reply(&mut self) -> Option<String> {
        let line = self.line().await?;
        match line.starts_with('$') {
            true => self.line().await,
            false => Some(line),
        }
    }

    /// The reply to a command; `None` if a stranger's time is over.
    async fn try_ask(&mut self, command: &str) -> Option<String> {
        self.send(&[command]).await;
        self.reply().await
    }

    /// The reply to a command, over a connection that is no stranger's.
    async fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).await.expect("the connection does not end")
    }

    /// As [`Connection::try_ask`], of a login with a token that the node may not know: it is asked again if it could not ask
    /// the leader in time.
    async fn log_in(&mut self, login: &str) -> Option<String> {
        eventually("an answer", async || match self.try_ask(login).await {
            Some(told) if told.starts_with("-CLUSTERDOWN ") => None,
            told => Some(told),
        })
        .await
    }

    /// The lines of the answer to HELLO. An error has one. `None` if a stranger's time is over.
    async fn greet(&mut self, hello: &str) -> Option<Vec<String>> {
        // AUTH without a token is an error for everybody, and none of HELLO's own.
        self.send(&[hello, "AUTH"]).await;
        let mut lines = vec![self.line().await?];
        loop {
            let line = self.line().await?;
            if line.starts_with("-ERR wrong number of arguments") {
                return Some(lines);
            }
            lines.push(line);
        }
    }

    /// Sees that nobody is logged in; `None` if a stranger's time is over.
    async fn is_nobodys(&mut self, when: &str) -> Option<()> {
        for command in ["ACL WHOAMI", "INCR book:1", "GET book:1", "PING"] {
            let told = self.try_ask(command).await?;
            assert!(told.starts_with("-NOAUTH "), "{when}: {command}: {told}");
        }
        Some(())
    }

    /// Sees that nobody is logged in any more.
    async fn assert_nobody(&mut self, when: &str) {
        self.is_nobodys(when).await.expect("the connection does not end");
    }

    /// Sees that `ci` is logged in.
    async fn assert_ci(&mut self, when: &str) {
        assert_eq!(self.ask("ACL WHOAMI").await, "ci", "{when}");
        let number = self.ask("INCR book:1").await;
        assert!(number.starts_with(':'), "{when}: {number}");
        let told = self.ask("INCR other:1").await;
        assert!(told.starts_with("-NOPERM "), "{when}: {told}");
    }
}

/// A closed cluster with the token of `ci`, and the ports for Redis clients of its leader and of a follower, which know it.
async fn with_ci() -> (Closed, [SocketAddr; 2]) {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let grants = vec![grant("next:book"), grant("read:book")];
    create(&mut closed.admin(leader), CI, "ci", grants).await.expect("a token");
    let port = |node: u64| closed.cluster.nodes[&node].addresses().resp.expect("a port");
    let nodes = [leader, other_than(leader)];
    for node in nodes {
        let ci = closed.at(node, CI);
        eventually("the node knows the token", async || next(&ci, "book").await.ok()).await;
    }
    let ports = nodes.map(port);
    (closed, ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_client_logs_in_in_every_form_and_reset_logs_it_out() {
    let (_closed, ports) = with_ci().await;
    for address in ports {
        for login in ["AUTH of-ci", "AUTH ci of-ci", "AUTH default of-ci", "auth ci of-ci"] {
            let mut client = eventually("a login in a stranger's time", async || {
                let mut client = Connection::to(address).await;
                client.is_nobodys("before the login").await?;
                let told = client.try_ask("NOSUCH").await?;
                assert!(told.starts_with("-ERR unknown command 'NOSUCH'"), "{told}");
                assert!(!told.contains(ratchet::version::VERSION), "{told}");
                let told = client.try_ask(login).await?;
                assert_eq!(told, "+OK", "{login}");
                Some(client)
            })
            .await;
            client.assert_ci(login).await;
            assert_eq!(client.ask("RESET").await, "+RESET");
            client.assert_nobody("after RESET").await;
            assert_eq!(client.ask(login).await, "+OK", "{login} again");
            client.assert_ci(login).await;
        }
        for (login, version) in [
            ("HELLO 3 AUTH ci of-ci SETNAME x", "%7"),
            ("HELLO 2 AUTH default of-ci SETNAME x", "*14"),
            ("HELLO 3 SETNAME x AUTH ci of-ci", "%7"),
        ] {
            let mut client = eventually("a login in a stranger's time", async || {
                let mut client = Connection::to(address).await;
                let told = client.greet(login).await?;
                assert_eq!(told[0], version, "{login}: {told:?}");
                Some(client)
            })
            .await;
            client.assert_ci(login).await;
            assert_eq!(client.ask("CLIENT GETNAME").await, "x", "{login}");
            assert_eq!(client.ask("RESET").await, "+RESET");
            client.assert_nobody("after RESET").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_or_token_logs_nobody_in_and_nobody_out() {
    let (_closed, ports) = with_ci().await;
    let wrong = [
        "AUTH wrong",
        "AUTH ci wrong",
        "AUTH default wrong",
        "AUTH other of-ci",
        "AUTH CI of-ci",
        "AUTH anonymous of-ci",
        "HELLO 3 AUTH other of-ci SETNAME y",
        "HELLO 3 AUTH ci wrong SETNAME y",
    ];
    for address in ports {
        for login in wrong {
            eventually("a refusal in a stranger's time", async || {
                let mut client = Connection::to(address).await;
                let told = client.log_in(login).await?;
                assert!(told.starts_with("-WRONGPASS "), "{login}: {told}");
                client.is_nobodys(login).await
            })
            .await;
        }
        let mut client = Connection::logged_in(address, "AUTH ci of-ci").await;
        assert_eq!(client.ask("CLIENT SETNAME x").await, "+OK");
        for login in wrong {
            let told = client.log_in(login).await.expect("the connection does not end");
            assert!(told.starts_with("-WRONGPASS "), "{login}: {told}");
            client.assert_ci(login).await;
            assert_eq!(client.ask("CLIENT GETNAME").await, "x", "{login}");
        }
        // Without a login, HELLO is for nobody here.
        eventually("a refusal in a stranger's time", async || {
            let mut client = Connection::to(address).await;
            let told = client.try_ask("HELLO 3 SETNAME y").await?;
            assert!(told.starts_with("-NOAUTH "), "{told}");
            client.is_nobodys("after HELLO").await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_is_anonymous_until_it_logs_in_where_something_is_granted_to_that() {
    let (closed, ports) = with_ci().await;
    let leader = closed.cluster.leader().await;
    let grants = granting("anonymous", Some("127.0.0.0/8"), &["next:other"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    for address in ports {
        let mut client = eventually("the grant is heard of", async || {
            let mut client = Connection::to(address).await;
            (client.try_ask("ACL WHOAMI").await? == "anonymous").then_some(client)
        })
        .await;
        let told = client.ask("INCR book:1").await;
        assert!(told.starts_with("-NOAUTH "), "{told}");
        assert_eq!(client.ask("AUTH ci of-ci").await, "+OK");
        assert_eq!(client.ask("ACL WHOAMI").await, "ci");
        assert!(client.ask("INCR book:1").await.starts_with(':'));
        assert_eq!(client.ask("RESET").await, "+RESET");
        assert_eq!(client.ask("ACL WHOAMI").await, "anonymous");
        let told = client.ask("INCR book:1").await;
        assert!(told.starts_with("-NOAUTH "), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_within_a_pipeline_is_one_for_what_follows_it_alone() {
    let (closed, ports) = with_ci().await;
    let reader = format!("AUTH {}", closed.token("read"));
    for address in ports {
        let commands = [
            "INCR book:9",
            "INCR book:9",
            "AUTH ci of-ci",
            "INCR book:9",
            "INCR book:9",
            &reader,
            "INCR book:9",
            "GET book:9",
            "AUTH other of-ci",
            "GET book:9",
            "RESET",
            "INCR book:9",
        ];
        let told = eventually("replies in a stranger's time", async || {
            let mut client = Connection::to(address).await;
            client.send(&commands).await;
            let mut told = Vec::new();
            for _ in commands {
                told.push(client.reply().await?);
            }
            Some(told)
        })
        .await;
        let number = |text: &str| text.strip_prefix(':').map(|text| text.parse().expect("digits"));
        let numbers: Vec<u64> = told.iter().filter_map(|text| number(text)).collect();
        let [first, second] = numbers[..] else {
            panic!("{told:?}");
        };
        assert!(second > first, "{told:?}");
        let last = second.to_string();
        let expected = [
            "-NOAUTH ",
            "-NOAUTH ",
            "+OK",
            ":",
            ":",
            "+OK",
            "-NOPERM ",
            &last,
            "-WRONGPASS ",
            &last,
            "+RESET",
            "-NOAUTH ",
        ];
        for (at, (told, expected)) in told.iter().zip(expected).enumerate() {
            assert!(told.starts_with(expected), "{}: {told}", commands[at]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_token_is_revoked_is_nobodys_from_then_on() {
    let (closed, ports) = with_ci().await;
    let leader = closed.cluster.leader().await;
    let mut clients = Vec::new();
    for address in ports {
        let mut client = Connection::logged_in(address, "AUTH ci of-ci").await;
        client.assert_ci("before").await;
        clients.push(client);
    }
    let revoke = RevokeTokenRequest { name: "ci".to_owned(), id: None };
    closed.admin(leader).revoke_token(revoke).await.expect("revoked");
    for node in closed.cluster.nodes.keys() {
        closed.has_no_token(*node, "ci").await;
    }
    for client in &mut clients {
        eventually("the node has heard of it", async || {
            let told = client.ask("INCR book:1").await;
            assert!(told.starts_with(':') || told.starts_with("-NOAUTH "), "{told}");
            told.starts_with('-').then_some(())
        })
        .await;
        client.assert_nobody("once it is revoked").await;
        let told = client.log_in("AUTH ci of-ci").await.expect("the connection does not end");
        assert!(told.starts_with("-WRONGPASS "), "{told}");
        client.assert_nobody("after a login in vain").await;
        // The connection is as good as another one.
        let login = format!("AUTH next {}", closed.token("next"));
        assert_eq!(client.ask(&login).await, "+OK");
        assert_eq!(client.ask("ACL WHOAMI").await, "next");
        assert!(client.ask("INCR book:1").await.starts_with(':'));
    }
    assert!(next(&closed.at(leader, CI), "book").await.is_err());
}
