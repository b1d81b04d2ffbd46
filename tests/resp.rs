//! The interface for Redis clients: what its commands are answered, in their order, by whichever node is asked, and what it
//! does with bytes that make no sense.

use std::{net::SocketAddr, time::Duration};

use crate::common::{
    cluster::Cluster, eventually, in_time, invoices::create_invoices, other_than, until, with_resp,
};
use ratchet::{
    metrics::Interface,
    node::Config,
    proto::v1::{CreateNamespaceRequest, KeyKind},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A connection of a Redis client.
struct Redis {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Redis {
    async fn connect(address: SocketAddr) -> Redis {
        Redis { stream: TcpStream::connect(address).await.expect("a connection"), read: Vec::new() }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// The next line of the replies, without its end. `None` once the node has closed the connection.
    async fn line(&mut self) -> Option<String> {
        let reading = async {
            loop {
                if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                    let line: Vec<u8> = self.read.drain(..end + 2).collect();
                    return Some(String::from_utf8_lossy(&line[..end]).into_owned());
                }
                if self.stream.read_buf(&mut self.read).await.ok()? == 0 {
                    return None;
                }
            }
        };
        in_time("a reply", reading).await
    }

    /// Sends a command in one line. Returns its reply, if that has one line.
    async fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n")).await;
        self.line().await.expect("a reply")
    }

    /// As [`Redis::ask`], for a reply of a text or bytes.
    async fn ask_for_text(&mut self, command: &str) -> String {
        let head = self.ask(command).await;
        assert!(head.starts_with('$') && head != "$-1", "{command}: {head}");
        let length: usize = head[1..].parse().expect("a length");
        let reading = async {
            while self.read.len() < length + 2 {
                assert_ne!(self.stream.read_buf(&mut self.read).await.expect("bytes"), 0);
            }
        };
        in_time("a text", reading).await;
        let mut text: Vec<u8> = self.read.drain(..length + 2).collect();
        text.truncate(length);
        String::from_utf8(text).expect("a text")
    }

    /// Takes a number; asks again while the node cannot answer yet.
    async fn number(&mut self, command: &str) -> u64 {
        eventually("a number", async || {
            let reply = self.ask(command).await;
            match reply.strip_prefix(':') {
                Some(number) => Some(number.parse().expect("a number")),
                None => {
                    let again =
                        ["-LOADING", "-TRYAGAIN"].iter().any(|word| reply.starts_with(word));
                    assert!(again, "{command}: {reply}");
                    None
                }
            }
        })
        .await
    }
}

/// A cluster of `n` nodes with a namespace of names beside "book".
async fn start(n: u64, change: impl Fn(&mut Config)) -> Cluster {
    let cluster = Cluster::start(n, |config| {
        with_resp(config);
        change(config);
    })
    .await;
    let names = CreateNamespaceRequest {
        name: "chat".to_owned(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    let mut client = cluster.client(cluster.leader().await);
    client.admin.create_namespace(names).await.expect("created");
    cluster
}

async fn redis(cluster: &Cluster, node: u64) -> Redis {
    let address = cluster.nodes[&node].addresses().resp.expect("a port");
    Redis::connect(address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_answered_in_its_order_whatever_it_asks() {
    let cluster = start(1, |_| {}).await;
    let mut redis = redis(&cluster, 1).await;
    let first = redis.number("INCR book:7").await;
    redis
        .send("INCR book:7\r\nINCR book:8\r\nINCRBY book:7 10\r\nGET book:7\r\nINCR nobody\r\nINCR chat:room\r\nINCR book:x\r\nINCR book:7\r\nPING\r\n")
        .await;
    let mut replies = Vec::new();
    while replies.last().is_none_or(|last| last != "+PONG") {
        replies.push(redis.line().await.expect("a reply"));
    }
    let expected = [
        format!(":{}", first + 1),
        ":1".to_owned(),
        format!(":{}", first + 11),
        format!("${}", (first + 11).to_string().len()),
        (first + 11).to_string(),
        "-ERR key 'nobody' names no namespace; write it as namespace:key, as in INCR book:42"
            .to_owned(),
        ":1".to_owned(),
        format!("-ERR namespace 'book' takes ids from 0 to {} as keys, not 'x'", u64::MAX),
        format!(":{}", first + 12),
        "+PONG".to_owned(),
    ];
    assert_eq!(replies, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_commands_of_one_write_get_as_many_numbers_without_a_gap() {
    let cluster = start(1, |_| {}).await;
    let mut redis = redis(&cluster, 1).await;
    let last = redis.number("INCR book:1").await;
    let command = "*2\r\n$4\r\nINCR\r\n$6\r\nbook:1\r\n";
    let (mut reading, mut writing) = redis.stream.into_split();
    let sending = tokio::spawn(async move {
        writing.write_all(command.repeat(10_000).as_bytes()).await.expect("sent");
        writing
    });
    let expected: String = (1..=10_000).map(|more| format!(":{}\r\n", last + more)).collect();
    let mut replies = vec![0; expected.len()];
    in_time("all replies", reading.read_exact(&mut replies)).await.expect("replies");
    assert!(replies == expected.as_bytes(), "some reply is wrong");
    drop(sending.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_and_reads_tell_what_was_handed_out() {
    let cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let (mut here, mut there) =
        (redis(&cluster, leader).await, redis(&cluster, other_than(leader)).await);
    let one = here.number("INCR chat:room").await;
    let two = there.number("INCR chat:room").await;
    assert!(two > one, "{two} after {one}");
    assert_eq!(here.ask_for_text("GET chat:room").await, two.to_string());
    assert_eq!(there.ask_for_text("get chat:room").await, two.to_string());
    assert_eq!(there.ask("GET chat:empty").await, "$-1");
    assert_eq!(there.ask("TYPE chat:room").await, "+string");
    assert_eq!(there.ask("TYPE chat:empty").await, "+none");
    assert_eq!(there.ask("EXISTS chat:room chat:empty chat:room").await, ":2");
    assert_eq!(there.ask("MGET chat:room chat:empty").await, "*2");
    assert_eq!(there.line().await.unwrap(), format!("${}", two.to_string().len()));
    assert_eq!(there.line().await.unwrap(), two.to_string());
    assert_eq!(there.line().await.unwrap(), "$-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_says_why_and_what_to_do() {
    let cluster = start(1, |config| config.count_max = 1_000).await;
    let mut redis = redis(&cluster, 1).await;
    redis.number("INCR book:1").await;
    let most = i64::MAX;
    for (command, says) in [
        ("DEL book:1", "-ERR 'DEL' is refused: numbers only grow"),
        ("DEL book:1", "take the next with INCR or INCRBY"),
        ("DECR book:1", "numbers only grow"),
        ("EXPIRE book:1 5", "they do not expire"),
        ("MULTI", "there are no transactions"),
        ("CONFIG GET save", "settings are those of `ratchet start`"),
        ("LPUSH book:1 5", "-ERR unknown command 'LPUSH'"),
        ("INCR", "-ERR wrong number of arguments for 'incr'; see COMMAND DOCS incr"),
        ("INCR book:1 5", "wrong number of arguments"),
        (
            "INCRBY book:1 0",
            "the increment is 0; it tells how many numbers to take, between 1 and 1000",
        ),
        ("INCRBY book:1 -1", "the increment is -1"),
        ("INCRBY book:1 1001", "the increment is 1001"),
        ("INCRBY book:1 9223372036854775808", "the increment is 9223372036854775808"),
        ("INCRBY book:1 ten", "-ERR value is not an integer or out of range: the increment is ten"),
        ("INCR book:-1", "takes ids from 0 to"),
        ("INCR book:", "takes ids from 0 to"),
        ("INCR chat:", "the key is empty"),
        ("INCR no_such:1", "create it with: ratchet namespace create no_such"),
        ("GET no_such:1", "create it with: ratchet namespace create no_such"),
        ("GET book", "names no namespace"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("AUTH secret", "there are no passwords"),
        ("HELLO 4", "-NOPROTO"),
        ("HELLO 3 AUTH default secret", "there are no passwords"),
        ("INCR book:+5", "takes ids from 0 to"),
        ("INCRBY book:1 +5", "the increment is +5"),
        ("INCR a/b:1", "a/b"),
        ("CLIENT KILL 1", "-ERR unknown subcommand"),
        ("COMMAND GETKEYS", "-ERR unknown subcommand 'GETKEYS'"),
    ] {
        let reply = redis.ask(command).await;
        assert!(reply.starts_with('-') && reply.contains(says), "{command}: {reply}");
    }
    let name = "x".repeat(300);
    let reply = redis.ask(&format!("CLIENT SETNAME {name}")).await;
    assert!(reply.contains("give at most 256 bytes"), "{reply}");
    assert!(redis.number("INCR book:1").await < most as u64, "the connection still serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_used_up_are_refused_one_by_one() {
    let cluster = start(1, |_| {}).await;
    let short = CreateNamespaceRequest {
        name: "short".to_owned(),
        max: Some(3),
        ..CreateNamespaceRequest::default()
    };
    cluster.client(1).admin.create_namespace(short).await.expect("created");
    let mut redis = redis(&cluster, 1).await;
    redis.number("INCR short:1").await;
    redis.send("INCRBY short:1 2\r\nINCR short:1\r\nINCR short:2\r\n").await;
    assert_eq!(redis.line().await.unwrap(), ":3");
    let refused = redis.line().await.unwrap();
    assert!(refused.contains("max 3 of namespace \"short\""), "{refused}");
    assert_eq!(redis.line().await.unwrap(), ":1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_out_what_it_talks_to_in_both_versions_of_the_protocol() {
    let cluster = start(1, |_| {}).await;
    let mut redis = redis(&cluster, 1).await;
    assert_eq!(redis.ask("PING").await, "+PONG");
    assert_eq!(redis.ask_for_text("PING hello").await, "hello");
    assert_eq!(redis.ask_for_text("ECHO hello").await, "hello");
    assert_eq!(redis.ask("SELECT 0").await, "+OK");
    assert_eq!(redis.ask("CLIENT SETINFO lib-name test").await, "+OK");
    assert_eq!(redis.ask("CLIENT GETNAME").await, "$-1");
    assert_eq!(redis.ask("CLIENT SETNAME me").await, "+OK");
    assert_eq!(redis.ask_for_text("CLIENT GETNAME").await, "me");
    assert!(redis.ask("CLIENT ID").await.starts_with(':'));
    let info = redis.ask_for_text("INFO").await;
    let id = cluster.nodes[&1].context().services.members.cluster_id().expect("it has one");
    assert!(info.contains(&format!("ratchet_cluster_id:{id}\r\n")), "{info}");
    for line in ["redis_version:7.0.0", "role:master", "ratchet_node:1"] {
        assert!(info.lines().any(|found| found == line), "{line} is not in {info}");
    }
    assert_eq!(redis.ask("COMMAND COUNT").await, ":20");
    // RESP3: maps, and another null.
    assert_eq!(redis.ask("HELLO 3").await, "%7");
    for _ in 0..25 {
        redis.line().await.expect("a line of the greeting");
    }
    assert_eq!(redis.ask("GET book:5").await, "_");
    assert_eq!(redis.ask("RESET").await, "+RESET");
    assert_eq!(redis.ask("GET book:5").await, "$-1");
    assert_eq!(redis.ask("QUIT").await, "+OK");
    assert_eq!(redis.line().await, None, "the connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_command_are_named_and_end_the_connection_and_no_other() {
    let cluster = start(1, |_| {}).await;
    let mut other = redis(&cluster, 1).await;
    let number = other.number("INCR book:1").await;
    for (bytes, says) in [
        (&b"*1\r\n$1000000000\r\n"[..], "1000000000 bytes are too many"),
        (b"*1000000000\r\n", "1000000000 arguments are too many"),
        (b"*1\r\n:1\r\n", "expected '$'"),
        (b"*2\r\n$4\r\nINCR\r\n$-5\r\n", "'-5' is no number of bytes"),
        (&[b'x'; 2_000], "a line has more than 1024 bytes"),
    ] {
        let mut redis = redis(&cluster, 1).await;
        redis.send(b"INCR book:2\r\n").await;
        redis.send(bytes).await;
        let first = redis.line().await.unwrap();
        assert!(first.starts_with(':'), "{first}");
        let refused = redis.line().await.unwrap();
        assert!(refused.starts_with("-ERR Protocol error") && refused.contains(says), "{refused}");
        assert_eq!(redis.line().await, None, "{says}");
    }
    assert_eq!(other.number("INCR book:1").await, number + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_not_read_either_and_one_that_does_nothing_is_let_go() {
    let cluster = start(1, |config| config.connection_idle_ms = 2_000).await;
    let metrics = &cluster.nodes[&1].context().metrics;
    let mut deaf = redis(&cluster, 1).await;
    let command = "COMMAND DOCS\r\n".repeat(1_000);
    in_time("the end of the connection of a client that does not read", async {
        // Much more than both ends' buffers hold.
        while deaf.stream.write_all(command.as_bytes()).await.is_ok() {}
    })
    .await;
    let half = redis(&cluster, 1).await;
    let _silent = redis(&cluster, 1).await;
    let mut half = half;
    half.send("*2\r\n$4\r\nINCR\r\n").await;
    assert_eq!(half.line().await, None, "half a command, then silence");
    until("places are free again", || metrics.client_connections.of(Interface::redis).get() <= 1)
        .await;
    assert_eq!(metrics.request_bytes.get(), 0, "nothing is held for those who left");
}

/// Keeps asking for long replies, without reading, until the node does not read any more.
async fn until_deaf(redis: &mut Redis) {
    let command = "COMMAND DOCS\r\n".repeat(1_000);
    let nothing_is_taken = async |redis: &mut Redis| {
        // Nothing announces that both ends' buffers are full.
        let sending = redis.stream.write_all(command.as_bytes());
        tokio::time::timeout(Duration::from_millis(500), sending).await.is_err()
    };
    in_time("full buffers", async { while !nothing_is_taken(redis).await {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_does_not_wait_for_a_client_that_does_not_read() {
    let mut cluster = start(1, |config| config.shutdown_timeout_ms = 600_000).await;
    let mut deaf = redis(&cluster, 1).await;
    until_deaf(&mut deaf).await;
    let node = cluster.nodes.remove(&1).expect("a node");
    in_time("the end of the node", node.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_end_is_given_up_though_more_of_it_comes() {
    let cluster = start(1, |config| {
        config.request_timeout_ms = 3_000;
        config.request_timeout_max_ms = 3_000;
    })
    .await;
    let mut idle = redis(&cluster, 1).await;
    let number = idle.number("INCR book:1").await;
    let mut endless = redis(&cluster, 1).await;
    endless.send("*2\r\n$4\r\nECHO\r\n$1000000\r\n").await;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let given_up = async {
        loop {
            tokio::select! {
                line = endless.line() => break line.expect("it says why"),
                _ = ticks.tick() => {}
            }
            endless.send("x").await;
        }
    };
    let why = in_time("the end of the connection", given_up).await;
    assert!(why.contains("did not arrive within 3000 ms"), "{why}");
    assert_eq!(idle.number("INCR book:1").await, number + 1, "who has begun nothing may pause");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_refuses_with_what_clients_try_again_after() {
    // A command that waits for a leader holds its connection for so long.
    let mut cluster = start(1, |config| config.request_timeout_ms = 5_000).await;
    let mut redis = redis(&cluster, 1).await;
    redis.number("INCR book:1").await;
    let node = cluster.nodes.remove(&1).expect("a node");
    let stopping = tokio::spawn(node.stop());
    let mut last = String::new();
    let asking = async {
        loop {
            // Once the connection is closed, sending fails.
            if redis.stream.write_all(b"INCR book:1\r\n").await.is_err() {
                return;
            }
            match redis.line().await {
                Some(reply) if reply.starts_with(':') => {}
                Some(reply) => last = reply,
                None => return,
            }
        }
    };
    in_time("the end of the connection", asking).await;
    assert!(last.starts_with("-LOADING") || last.is_empty(), "{last}");
    in_time("the end of the node", stopping).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_http_takes_no_number_whatever_its_body_holds() {
    let cluster = start(1, |_| {}).await;
    let mut browser = redis(&cluster, 1).await;
    browser.send("POST / HTTP/1.1\r\nHost: x\r\n\r\nINCR book:42\r\n").await;
    let refused = browser.line().await.expect("an answer");
    assert!(refused.starts_with("-ERR"), "{refused}");
    assert_eq!(browser.line().await, None, "the connection is closed");
    let mut other = redis(&cluster, 1).await;
    other.send("INCR book:42\r\n").await;
    assert_eq!(other.line().await.as_deref(), Some(":1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gapless_key_counts_as_a_redis_client_expects_through_any_node() {
    let cluster = Cluster::start(3, with_resp).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    for (node, last) in [(1, 0), (2, 6), (3, 12)] {
        let address = cluster.nodes[&node].addresses().resp.expect("a port");
        let mut redis = Redis::connect(address).await;
        let pipeline = "INCR invoice:7\r\nINCRBY invoice:7 4\r\nINCR invoice:7\r\n";
        redis.send(pipeline).await;
        for more in [1, 5, 6] {
            let expected = Some(format!(":{}", last + more));
            assert_eq!(redis.line().await, expected);
        }
        redis.send("GET invoice:7\r\n").await;
        assert!(redis.line().await.is_some_and(|length| length.starts_with('$')));
        assert_eq!(redis.line().await, Some((last + 6).to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_refused_before_a_number_is_asked_for_is_among_those_that_were_timed() {
    let cluster = start(1, |_| {}).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let timed = || metrics.request_seconds.of(Interface::redis).count();
    let mut redis = redis(&cluster, 1).await;
    redis.number("INCR book:1").await;
    for command in
        ["INCR none:1", "INCR book:x", "GET none:1", "SET none:1 5", "SET book:1 x", "INCR id:none"]
    {
        let before = timed();
        let refused = redis.ask(command).await;
        assert!(refused.starts_with("-ERR"), "{command}: {refused}");
        assert_eq!(timed(), before + 1, "{command}");
    }
}
