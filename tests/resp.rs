//! The interface for Redis clients: the answers to its commands, in their order, from any node, and the answers to bytes
//! that make no sense.

use std::{net::SocketAddr, time::Duration};

use crate::common::{
    cluster::Cluster, eventually, hurried, id, in_time, invoices::create_invoices, is_late,
    other_than, until, with_resp,
};
use ratchet::{
    metrics::Interface,
    node::Config,
    proto::v1::{CreateNamespaceRequest, DeleteNamespaceRequest, KeyKind},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

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
                        ["-CLUSTERDOWN", "-TRYAGAIN"].iter().any(|word| reply.starts_with(word));
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
    // Where a request has little time, a slow machine may not say in time that it is created.
    eventually("a namespace of names", async || {
        match client.admin.create_namespace(names.clone()).await {
            Err(late) if is_late(&late) || late.code() == Code::Unavailable => None,
            Err(there) if there.code() == Code::AlreadyExists => Some(()),
            created => {
                created.expect("created");
                Some(())
            }
        }
    })
    .await;
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
        ("WATCH book:1", "-ERR 'WATCH' is refused"),
        ("EVAL x 0", "there are no scripts"),
        ("CONFIG GET save", "settings are those of `ratchet start`"),
        ("LPUSH book:1 5", "-ERR unknown command 'LPUSH'"),
        ("LPUSH book:1 5", "there are INCR, INCRBY, GET, MGET, SET, SETNX, EXISTS, TYPE and those"),
        ("INCR", "-ERR wrong number of arguments for 'incr' command; see COMMAND DOCS incr"),
        ("INCR book:1 5", "wrong number of arguments"),
        (
            "INCRBY book:1 -1",
            "the increment is -1; it tells how many numbers to take, at most 1000",
        ),
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
        ("AUTH secret", "there are no tokens here"),
        ("HELLO 4", "-NOPROTO"),
        ("HELLO 3 AUTH default secret", "there are no tokens here"),
        ("INCR book:+5", "takes ids from 0 to"),
        ("INCRBY book:1 +5", "the increment is +5"),
        ("INCR a/b:1", "a/b"),
        ("CLIENT KILL 1", "-ERR unknown subcommand"),
        ("COMMAND GETKEYS", "-ERR unknown subcommand 'GETKEYS' of command; there are count, docs"),
        ("SET book:1 5 EX 7", "-ERR syntax error: SET has no option 'EX'"),
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
    assert_eq!(redis.ask("COMMAND COUNT").await, ":27");
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
    until("nothing is held for those who left", || metrics.request_bytes.get() == 0).await;
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
                biased;
                line = endless.line() => break line.expect("it says why"),
                _ = ticks.tick() => {}
            }
            // Once the connection is closed, sending may fail; earlier answers can still be read.
            let _ = endless.stream.write_all(b"x").await;
        }
    };
    let why = in_time("the end of the connection", given_up).await;
    assert!(why.contains("did not arrive within 3000 ms"), "{why}");
    // A slow machine may need more than the three seconds, and then burns a number.
    assert!(idle.number("INCR book:1").await > number, "who has begun nothing may pause");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_ends_each_connection_after_its_last_reply_and_without_an_error() {
    let mut cluster = start(1, |_| {}).await;
    let mut idle = redis(&cluster, 1).await;
    idle.number("INCR book:1").await;
    let mut redis = redis(&cluster, 1).await;
    redis.number("INCR book:1").await;
    let node = cluster.nodes.remove(&1).expect("a node");
    let stopping = tokio::spawn(node.stop());
    assert_eq!(idle.line().await, None, "nothing is under way");
    let asking = async {
        loop {
            // Once the connection is closed, sending may fail.
            let _ = redis.stream.write_all(b"INCR book:1\r\n").await;
            match redis.line().await {
                Some(reply) => assert!(reply.starts_with(':'), "{reply}"),
                None => return,
            }
        }
    };
    in_time("the end of the connection", asking).await;
    in_time("the end of the node", stopping).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_begins_with_another_protocol_takes_no_number_whatever_follows() {
    let cluster = start(1, |_| {}).await;
    let tls = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 32]].concat();
    for (preamble, says) in [
        (&b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "-ERR unknown command 'POST'"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "-ERR wrong number of arguments for 'get'"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "-ERR unknown command 'PRI'"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n", "-ERR unknown command 'PROXY'"),
        (
            b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c",
            "-ERR Protocol error: a line has the byte 0x00",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "-ERR unknown command 'SSH-2.0-OpenSSH_9.2'"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", "-ERR Protocol error: a line has the byte 0x00"),
        (&tls, "-ERR Protocol error: a line has the byte 0x16"),
    ] {
        let mut stranger = redis(&cluster, 1).await;
        stranger.send(preamble).await;
        // The node may have closed the connection by now.
        let _ = stranger.stream.write_all(b"INCR book:42\r\n").await;
        let refused = stranger.line().await.expect("an answer");
        assert!(refused.starts_with(says), "{refused}");
        assert_eq!(stranger.line().await, None, "the connection is closed");
    }
    // A page may choose the first word, and it may be a command.
    let mut page = redis(&cluster, 1).await;
    page.send("HELLO / HTTP/1.1\r\nHost: x\r\n\r\nINCR book:42\r\n").await;
    for begins in ["-NOPROTO", "-ERR unknown command 'Host:'"] {
        let refused = page.line().await.expect("an answer");
        assert!(refused.starts_with(begins), "{refused}");
    }
    assert_eq!(page.line().await, None, "the connection is closed");
    let mut other = redis(&cluster, 1).await;
    other.send("INCR book:42\r\n").await;
    assert_eq!(other.line().await.as_deref(), Some(":1"));
    assert!(other.ask("PROXY TCP4").await.starts_with("-ERR unknown command"));
    assert_eq!(other.ask("INCR book:42").await, ":2", "it began with a command");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_between_multi_and_exec_is_carried_out_at_exec_with_each_commands_own_reply() {
    let cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let mut redis = redis(&cluster, node).await;
        let mut another = self::redis(&cluster, leader).await;
        let last = another.number("INCR book:1").await;
        // As redis-py sends it.
        redis.send("MULTI\r\nINCR book:1\r\nINCRBY book:1 5\r\nINCR nobody\r\n").await;
        redis.send("INCR book:1\r\nGET book:1\r\n").await;
        for expected in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED"] {
            assert_eq!(redis.line().await.as_deref(), Some(expected));
        }
        assert_eq!(another.number("INCR book:1").await, last + 1, "nothing was carried out yet");
        assert_eq!(redis.ask("EXEC").await, "*5");
        assert_eq!(redis.line().await, Some(format!(":{}", last + 2)));
        assert_eq!(redis.line().await, Some(format!(":{}", last + 7)));
        assert!(redis.line().await.expect("an error").starts_with("-ERR key 'nobody'"));
        assert_eq!(redis.line().await, Some(format!(":{}", last + 8)));
        assert!(redis.line().await.expect("a length").starts_with('$'));
        assert_eq!(redis.line().await, Some((last + 8).to_string()));
        // An error before EXEC, and nothing is carried out.
        redis
            .send("MULTI\r\nINCR book:1\r\nDEL book:1\r\nINCR book:1\r\nEXEC\r\nINCR book:1\r\n")
            .await;
        for begins in ["+OK", "+QUEUED", "-ERR 'DEL'", "+QUEUED", "-EXECABORT"] {
            let reply = redis.line().await.expect("a reply");
            assert!(reply.starts_with(begins), "{reply}");
        }
        assert_eq!(redis.line().await, Some(format!(":{}", last + 9)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_within_exec_do_not_make_clients_send_all_of_it_again() {
    let mut cluster = start(3, |config| config.request_timeout_ms = 300).await;
    let leader = cluster.leader().await;
    let mut redis = redis(&cluster, leader).await;
    redis.number("INCR book:1").await;
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.nodes.remove(&id).expect("a node").stop().await;
    }
    let refused = eventually("an error without a majority", async || {
        let reply = redis.ask("INCR book:1").await;
        reply.starts_with('-').then_some(reply)
    });
    let refused = refused.await;
    assert!(refused.starts_with("-CLUSTERDOWN") || refused.starts_with("-TRYAGAIN"), "{refused}");
    // While its lease lasts, a leader on a slow machine may be late with one command, and answer the next.
    eventually("errors within EXEC", async || {
        redis.send("MULTI\r\nINCR book:1\r\nGET book:1\r\nEXEC\r\n").await;
        for expected in ["+OK", "+QUEUED", "+QUEUED", "*2"] {
            assert_eq!(redis.line().await.as_deref(), Some(expected));
        }
        let mut refused = 0;
        for _ in 0..2 {
            let reply = redis.line().await.expect("a reply");
            if reply.starts_with('-') {
                assert!(reply.starts_with("-ERR"), "{reply}");
                refused += 1;
            } else if reply.starts_with('$') && reply != "$-1" {
                redis.line().await.expect("a number");
            }
        }
        (refused == 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_bounded_and_counts_as_the_memory_of_requests() {
    let cluster = start(1, |_| {}).await;
    let metrics = &cluster.nodes[&1].context().metrics;
    let mut redis = redis(&cluster, 1).await;
    let number = redis.number("INCR book:1").await;
    let echo = format!("*2\r\n$4\r\nECHO\r\n$100000\r\n{}\r\n", "x".repeat(100_000));
    redis.send("MULTI\r\nINCR book:1\r\n").await;
    redis.send(echo.repeat(9)).await;
    assert_eq!(redis.line().await.as_deref(), Some("+OK"));
    for _ in 0..10 {
        assert_eq!(redis.line().await.as_deref(), Some("+QUEUED"));
    }
    assert!(metrics.request_bytes.get() > 900_000, "{}", metrics.request_bytes.get());
    redis.send(echo.repeat(2)).await;
    assert_eq!(redis.line().await.as_deref(), Some("+QUEUED"));
    let refused = redis.line().await.expect("an error");
    assert!(refused.contains("more than 1048576 bytes"), "{refused}");
    let is_empty = || metrics.request_bytes.get() == 0;
    until("nothing is kept of what is not carried out", is_empty).await;
    assert!(redis.ask("EXEC").await.starts_with("-EXECABORT"));
    assert_eq!(redis.number("INCR book:1").await, number + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_does_not_end_is_given_up() {
    let cluster = start(1, |config| {
        config.request_timeout_ms = 300;
        config.request_timeout_max_ms = 300;
    })
    .await;
    let mut redis = redis(&cluster, 1).await;
    assert_eq!(redis.ask("MULTI").await, "+OK");
    let given_up = redis.line().await.expect("it says why");
    assert!(given_up.contains("EXEC did not arrive within 300 ms"), "{given_up}");
    assert_eq!(redis.line().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_may_begin_with_zero_and_be_set_if_it_is_new() {
    let cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut admin = cluster.client(leader);
    let create = |name: &str, section_size, start| CreateNamespaceRequest {
        name: name.to_owned(),
        section_size,
        start,
        ..CreateNamespaceRequest::default()
    };
    let fives = CreateNamespaceRequest { increment: Some(5), ..create("fives", None, Some(5)) };
    for namespace in [create("shared", Some(100), None), create("late", None, Some(5)), fives] {
        admin.admin.create_namespace(namespace).await.expect("created");
    }
    // Numbers of the keys that it had are handed out no more.
    admin.admin.create_namespace(create("again", None, None)).await.expect("created");
    admin.try_next("again", id(3), 1).await.expect("a number");
    let (namespace, confirm) = ("again".to_owned(), "again".to_owned());
    let delete = DeleteNamespaceRequest { namespace, confirm, forget: false };
    admin.admin.delete_namespace(delete).await.expect("deleted");
    admin.admin.create_namespace(create("again", None, None)).await.expect("created again");
    for (node, key) in [(leader, 1), (other_than(leader), 2)] {
        let mut redis = redis(&cluster, node).await;
        redis.number(&format!("INCR book:9{key}")).await;
        for (command, reply) in [
            (format!("SETNX book:{key} 0"), ":1"),
            (format!("SET book:{key} 0"), "+OK"),
            (format!("SET book:{key} 0 NX"), "+OK"),
            (format!("INCRBY book:{key} 0"), ":0"),
            (format!("GET book:{key}"), "$-1"),
            (format!("INCR book:{key}"), ":1"),
            (format!("INCRBY book:{key} 0"), ":1"),
            (format!("SETNX book:{key} 0"), ":0"),
            (format!("SETNX book:{key} 100"), ":0"),
            (format!("SET book:{key} 100 nx"), "$-1"),
            (format!("SET book:{key} 0 NX"), "$-1"),
            (format!("INCR book:{key}"), ":2"),
            (format!("SETNX book:1{key} 40000"), ":1"),
            (format!("SETNX book:1{key} 50000"), ":0"),
            (format!("INCR book:1{key}"), ":40001"),
            (format!("SETNX fives:{key} 0"), ":1"),
            (format!("SETNX fives:{key} 5"), ":1"),
            (format!("SETNX fives:{key} 6"), ":0"),
            (format!("SETNX fives:{key} 3"), ":0"),
            (format!("INCR fives:{key}"), ":10"),
            (format!("SETNX again:{key} 0"), ":0"),
            (format!("SETNX again:{key} 5"), ":0"),
            (format!("SETNX again:{key} 900000"), ":1"),
            (format!("SETNX again:{key} 950000"), ":0"),
            (format!("SET again:{key} 950000 NX"), "$-1"),
            (format!("INCR again:{key}"), ":900001"),
        ] {
            assert_eq!(redis.ask(&command).await, reply, "{command}");
        }
        let next = redis.number(&format!("INCR again:{key}8")).await;
        assert!(next > 10_000, "{next} may have been handed out before");
        for (command, says) in [
            (format!("SET book:{key} 0"), "value 0 is below 2"),
            (format!("SET again:{key}9 0"), "numbers only grow"),
            ("SETNX shared:1 0".to_owned(), "share sections (section_size 100)"),
            ("SET shared:1 7 NX".to_owned(), "raise it to 1 or more, whether it is new or not"),
            ("SETNX late:1 0".to_owned(), "begin with start 5"),
            ("SETNX fives:9 3".to_owned(), "raise it to 5 or more"),
        ] {
            let refused = redis.ask(&command).await;
            assert!(refused.starts_with("-ERR") && refused.contains(says), "{command}: {refused}");
        }
        let greatest = format!("book:2{key}");
        assert_eq!(redis.ask(&format!("SET {greatest} 9223372036854775807")).await, "+OK");
        let refused = redis.ask(&format!("INCR {greatest}")).await;
        assert!(refused.contains("go on with another key"), "{refused}");
    }
}

/// The lines of `CLUSTER` about the nodes, once all of them know each other's ports.
async fn told_of(redis: &mut Redis, cluster: &Cluster, subcommand: &str) -> String {
    let all_told = || {
        let nodes = cluster.nodes.values();
        nodes.map(|node| node.context().services.members.resp_nodes().len()).all(|known| known == 3)
    };
    until("all nodes know each other's ports", all_told).await;
    redis.send(format!("CLUSTER {subcommand}\r\nPING\r\n")).await;
    let mut told = String::new();
    loop {
        match redis.line().await.expect("a line") {
            line if line == "+PONG" => return told,
            line => told += &(line + "\n"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_the_leader_does_not_hear_is_no_replica_and_without_a_leader_all_are_told() {
    let mut cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let away = other_than(leader);
    let last = 6 - leader - away;
    let port = |cluster: &Cluster, id: u64| {
        let address = cluster.nodes[&id].addresses().resp.expect("a port");
        format!(":{}\n", address.port())
    };
    let ports = [leader, away, last].map(|id| port(&cluster, id));
    let mut asked = [redis(&cluster, leader).await, redis(&cluster, last).await];
    for redis in &mut asked {
        // On a slow machine the leader may not hear a member for a while.
        eventually("all are told", async || {
            let slots = told_of(redis, &cluster, "SLOTS").await;
            ports.iter().all(|port| slots.contains(port)).then_some(())
        })
        .await;
    }
    cluster.nodes.remove(&away).expect("a node").stop().await;
    for redis in &mut asked {
        // On a slow machine the leader may not hear the other one for a while either.
        eventually("it alone is left out", async || {
            let slots = told_of(redis, &cluster, "SLOTS").await;
            let told = ports.each_ref().map(|port| slots.contains(port));
            (told == [true, false, true]).then_some(())
        })
        .await;
        eventually("it alone is told to fail in shards", async || {
            let shards = told_of(redis, &cluster, "SHARDS").await;
            assert!(ports.iter().all(|port| shards.contains(port)), "{shards}");
            (shards.matches("\nfail\n").count() == 1).then_some(())
        })
        .await;
        eventually("it alone is told to fail in nodes", async || {
            let nodes = told_of(redis, &cluster, "NODES").await;
            let fail = ["slave,fail ", " disconnected"].map(|word| nodes.matches(word).count());
            (fail == [1, 1]).then_some(())
        })
        .await;
    }
    cluster.nodes.remove(&leader).expect("a node").stop().await;
    // The last node may have got the term by the handover. It leads nobody then, and does not hear the others for longer than
    // those that are away are told of.
    let group = &cluster.nodes[&last].context().group;
    let alone = Duration::from_secs(4);
    until("no leader has a majority", || group.leaderless_for().is_some_and(|it| it > alone)).await;
    let [_, redis] = &mut asked;
    eventually("the asked node stands for the leader", async || {
        let slots = told_of(redis, &cluster, "SLOTS").await;
        assert!(ports.iter().all(|port| slots.contains(port)), "{slots}");
        (slots.find(&ports[2]) < slots.find(&ports[0])).then_some(())
    })
    .await;
    let shards = told_of(redis, &cluster, "SHARDS").await;
    assert!(!shards.contains("\nfail\n"), "{shards}");
}

/// The leader of a minority goes on telling whom it does not hear: those who have a majority.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_leader_without_a_majority_tells_redis_clients_of_all_nodes() {
    // Such a leader is quiet for two election timeouts, and tells it again for as long.
    let mut cluster = start(5, hurried).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=5).filter(|id| *id != leader).collect();
    let (follower, away) = others.split_first().expect("others");
    let nodes = cluster.nodes[follower].context().clone();
    let heard = || {
        let nodes = nodes.services.members.resp_nodes();
        (nodes.iter().filter(|node| node.is_heard).count(), nodes.len())
    };
    until("the follower knows the ports of all", || heard() == (5, 5)).await;
    for id in away {
        cluster.crash(*id).await;
    }
    let alone = Duration::from_secs(4);
    let leaderless = || nodes.group.leaderless_for();
    until("no leader has a majority", || leaderless().is_some_and(|it| it > alone)).await;
    assert_eq!(heard(), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_may_answer_with_strings_that_no_client_rounds() {
    let cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut admin = cluster.client(leader);
    let create = |name: &str, format: Option<&str>| CreateNamespaceRequest {
        name: name.to_owned(),
        format: format.map(str::to_owned),
        redis_strings: true,
        ..CreateNamespaceRequest::default()
    };
    for namespace in [create("text", None), create("orders", Some("snowflake"))] {
        admin.admin.create_namespace(namespace).await.expect("created");
    }
    for node in [leader, other_than(leader)] {
        let mut redis = redis(&cluster, node).await;
        let last: u64 = redis.ask_for_text("INCR text:1").await.parse().expect("a number");
        assert_eq!(redis.ask_for_text("INCRBY text:1 5").await, (last + 5).to_string());
        assert_eq!(redis.ask_for_text("INCRBY text:1 0").await, (last + 5).to_string());
        for command in ["INCR id:orders", "INCRBY id:orders 1"] {
            let id = eventually("an id", async || {
                let reply = redis.ask(command).await;
                match reply.starts_with('$') {
                    true => redis.line().await,
                    false => {
                        assert!(reply.starts_with('-'), "{reply}");
                        None
                    }
                }
            });
            assert!(id.await.parse::<u64>().expect("an id") > 1 << 53);
        }
        assert!(redis.ask("INCRBY id:orders 2").await.contains("makes one id"));
    }
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
