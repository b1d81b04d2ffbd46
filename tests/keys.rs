//! The keys of a cluster, and its knowledge of one: by gRPC, over HTTP, and in a shell, from any node.

use std::process::Command;

use crate::common::{
    cluster::Cluster,
    eventually, http, other_than,
    rust_client::{client_of, staying},
    with_http,
};
use ratchet_client::{
    Client, Code, Error, Key,
    api::{self as v1, key::Kind},
};
use serde_json::{Value, json};

async fn start(n: u64) -> Cluster {
    Cluster::start(n, with_http).await
}

/// Creates a namespace of names, and one whose ids share ceilings in hundreds.
async fn create_namespaces(client: &Client) {
    for request in [
        v1::CreateNamespaceRequest {
            name: "room".into(),
            key_kind: v1::KeyKind::Name.into(),
            start: Some(100),
            increment: Some(100),
            ..Default::default()
        },
        v1::CreateNamespaceRequest {
            name: "shared".into(),
            section_size: Some(100),
            ..Default::default()
        },
    ] {
        client.create_namespace(request).await.expect("created");
    }
}

fn asked(namespace: &str) -> v1::ListKeysRequest {
    v1::ListKeysRequest { namespace: namespace.into(), ..Default::default() }
}

fn id_of(listed: &v1::ListedKey) -> u64 {
    match listed.key.as_ref().and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => *id,
        other => panic!("{other:?} is no id"),
    }
}

fn name_of(listed: &v1::ListedKey) -> Vec<u8> {
    match listed.key.as_ref().and_then(|key| key.kind.as_ref()) {
        Some(Kind::Name(name)) => name.to_vec(),
        other => panic!("{other:?} is no name"),
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, code: Code, says: &[&str]) {
    match result {
        Err(Error::Server { code: found, message, .. }) => {
            assert_eq!(found, code, "{message}");
            for part in says {
                assert!(message.contains(part), "{part:?} is not in: {message}");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_page_by_page_with_what_the_leader_knows() {
    let cluster = start(3).await;
    let other = other_than(cluster.leader().await);
    let client = staying([cluster.address(other)]);
    create_namespaces(&client).await;
    assert_eq!(client.list_keys(asked("room")).await.expect("empty").keys, []);
    // The last key has a number since the cluster was started.
    for id in [3, 700, u64::MAX] {
        client.next_range("book", id, 2).await.expect("numbers");
    }
    let first = v1::ListKeysRequest { page_size: 2, ..asked("book") };
    let page = client.list_keys(first.clone()).await.expect("a page");
    assert!(!page.next_page_token.is_empty());
    let ids: Vec<u64> = page.keys.iter().map(id_of).collect();
    assert_eq!(ids, [3, 700]);
    for listed in &page.keys {
        let expected = (Some(2), 10_000, 10_000, None);
        let seen = (listed.last, listed.ceiling, listed.step, listed.last_id);
        assert_eq!(seen, expected, "{listed:?}");
        assert_eq!(listed.epoch, page.epoch);
    }
    let page_token = page.next_page_token;
    // The token counts where both are there: the other fields are as for the first page.
    let after = Some(Key::from(1).into());
    let next = v1::ListKeysRequest { page_token, after, ..first.clone() };
    let after = page.keys[1].key.clone();
    for next in [next, v1::ListKeysRequest { after, ..first }] {
        let page = client.list_keys(next).await.expect("the next page");
        let ids: Vec<u64> = page.keys.iter().map(id_of).collect();
        assert_eq!((ids, page.next_page_token.as_str()), (vec![u64::MAX], ""));
    }

    for name in [b"lobby".as_slice(), b"log", b"l\xff", b"yard"] {
        client.next("room", name).await.expect("a number");
    }
    let prefix = v1::ListKeysRequest { prefix: b"lo".as_slice().into(), ..asked("room") };
    let page = client.list_keys(prefix).await.expect("a page");
    let names: Vec<Vec<u8>> = page.keys.iter().map(name_of).collect();
    assert_eq!(names, [b"lobby".to_vec(), b"log".to_vec()]);
    assert_eq!(page.keys[0].last, Some(100));

    client.next("shared", 250).await.expect("a number");
    let page = client.list_keys(asked("shared")).await.expect("a page");
    let seen = (id_of(&page.keys[0]), page.keys[0].last_id, page.keys[0].last);
    assert_eq!(seen, (200, Some(299), None), "each id has a last number of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_with_what_to_do() {
    let cluster = start(1).await;
    let client = client_of(&cluster, &[1]);
    create_namespaces(&client).await;
    let refuses = async |request, code, says: &[&str]| {
        refused(client.list_keys(request).await, code, says);
    };
    refuses(asked("nowhere"), Code::NotFound, &["\"nowhere\"", "create"]).await;
    let long = v1::ListKeysRequest { page_size: 1_001, ..asked("book") };
    refuses(long, Code::InvalidArgument, &["page_size is 1001", "at most 1000"]).await;
    let prefix = v1::ListKeysRequest { prefix: b"4\xff".as_slice().into(), ..asked("book") };
    refuses(prefix, Code::InvalidArgument, &["prefix is \"4\\xff\"", "ids", "give after"]).await;
    let after = v1::ListKeysRequest { after: Some(Key::from("x").into()), ..asked("book") };
    refuses(after, Code::InvalidArgument, &["kind name", "give an id"]).await;
    for none in ["?", "xy", "GgA", "CAc="] {
        let page_token = none.to_owned();
        let page = v1::ListKeysRequest { page_token, ..asked("book") };
        refuses(page, Code::InvalidArgument, &["page_token is not"]).await;
    }
    let explained = client.explain("nowhere".into(), 7.into()).await;
    refused(explained, Code::NotFound, &["\"nowhere\""]);
    let explained = client.explain("room".into(), 7.into()).await;
    refused(explained, Code::InvalidArgument, &["kind id", "give a name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_explained_before_its_first_number_and_through_a_leader_change() {
    let mut cluster = start(3).await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let client = staying([cluster.address(other)]);
    let explain = async || client.explain("book".into(), 42.into()).await.expect("told");
    let untouched = explain().await;
    assert_eq!((untouched.stored, untouched.ceiling), (None, 0));
    assert_eq!((untouched.held, untouched.live), (None, false));

    let last = client.next_range("book", 42, 5).await.expect("numbers").last;
    let used = explain().await;
    let (stored, held) = (used.stored.expect("stored"), used.held.expect("held"));
    assert_eq!((stored.ceiling, stored.floor, stored.epoch), (10_000, 0, used.epoch));
    assert_eq!((used.floor, held.last, held.left), (0, last, 10_000 - last));
    assert_eq!((used.ceiling, held.ceiling, used.live), (10_000, 10_000, true));
    assert!(held.granted_ms_ago.is_some());
    assert_eq!((used.first_id, used.last_id), (Some(42), Some(42)));

    cluster.crash(leader).await;
    let changed = eventually("a leader that knows the key's record", async || {
        let known = client.explain("book".into(), 42.into()).await.ok();
        known.filter(|known| known.term > used.term)
    })
    .await;
    // Each epoch gave a chunk, and nobody asked for one yet. On a slow machine there may be more than one new leader.
    let epochs = changed.epoch - used.epoch;
    assert!((1..=changed.term - used.term).contains(&epochs), "{changed:?}");
    assert_eq!((changed.floor, changed.ceiling), (epochs * 10_000, (epochs + 1) * 10_000));
    assert_eq!((changed.held, changed.stored), (None, Some(stored)));
    let next = client.next("book", 42).await.expect("a number");
    assert!(next > changed.floor, "{next}");
    let known = explain().await;
    if known.epoch == changed.epoch {
        let held = known.held.expect("held");
        assert_eq!(next, changed.floor + 1);
        assert_eq!((held.last, held.left), (next, changed.ceiling - next));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_skips_is_in_the_accounts_of_the_key_and_of_the_day() {
    let mut cluster = start(3).await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let client = staying([cluster.address(other)]);
    // One bump brings the numbers of both calls, and a step: then 5 are used, and the others are left.
    client.next_range("book", 42, 20_000).await.expect("numbers");
    client.next_range("book", 42, 5).await.expect("numbers");
    cluster.crash(leader).await;
    let last =
        eventually("a number of the next leader", async || client.next("book", 42).await.ok());
    let last = last.await;
    let known = client.explain("book".into(), 42.into()).await.expect("told");
    let (accounts, held) = (known.accounts.expect("accounts"), known.held.expect("held"));
    let (handed_out, skipped, left) = (accounts.handed_out, accounts.skipped, accounts.left);
    assert_eq!(handed_out + skipped + left, known.ceiling, "{accounts:?}");
    assert_eq!((held.last, left), (last, known.ceiling - last));
    assert!(handed_out <= 20_006, "{accounts:?}");
    assert!(last - 20_006 <= skipped, "{accounts:?}: {} were skipped", last - 20_006);
    assert!(known.stored.expect("stored").written_ms.is_some());

    // The next entry for the section accounts for it.
    client.next_range("book", 42, 20_000).await.expect("numbers");
    let gaps = client.gaps("book".into(), 2).await.expect("the accounts");
    let of = |cause: &str| {
        let skipped = gaps.days.iter().flat_map(|day| &day.skipped);
        let of_cause = skipped.filter(|skipped| skipped.cause == cause);
        of_cause.map(|skipped| skipped.numbers).sum::<u64>()
    };
    assert_eq!(of("leader_change"), skipped, "{gaps:?}");
    let handed_out: u64 = gaps.days.iter().map(|day| day.handed_out).sum();
    assert!((1..=40_006).contains(&handed_out), "{gaps:?}");
    refused(
        client.gaps("book".into(), 32).await,
        Code::InvalidArgument,
        &["days is 32", "31 days are kept"],
    );
    refused(client.gaps("nowhere".into(), 1).await, Code::NotFound, &["\"nowhere\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_page_says_of_the_next_one_shows_it_when_it_is_pasted_into_a_shell() {
    let cluster = start(1).await;
    let client = client_of(&cluster, &[1]);
    create_namespaces(&client).await;
    let text = |name: &'static str| (name.as_bytes(), name);
    let names = [
        text("+7"),
        text("-x"),
        text("42"),
        (b"a\nb", r"a\nb"),
        text("a b"),
        text("it's $HOME"),
        (b"l\xff", r"l\xff"),
        text("room"),
    ];
    for (name, _) in names {
        client.next("room", name).await.expect("a number");
    }
    let list = format!("keys room --limit 1 --server {}", cluster.address(1));
    let mut pasted = Some(String::new());
    for (_, name) in names {
        let more = pasted.expect("more keys follow");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("\"$0\" {list} {more}")]);
        shell.arg(env!("CARGO_BIN_EXE_ratchet"));
        let ended = tokio::task::spawn_blocking(move || shell.output());
        let output = ended.await.expect("no panic").expect("the shell runs");
        assert!(output.status.success(), "{more}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("a text");
        let row = text.lines().nth(1).expect("a key");
        assert!(row.starts_with(&format!("{name} ")), "{name}: {text}");
        let follow = text.lines().find_map(|line| line.strip_prefix("more keys follow: "));
        pasted = follow.map(str::to_owned);
    }
    assert_eq!(pasted, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_and_explained_over_http() {
    let cluster = start(1).await;
    let client = client_of(&cluster, &[1]);
    create_namespaces(&client).await;
    for name in [b"a".as_slice(), b"b\xff", b"c/d"] {
        client.next("room", name).await.expect("a number");
    }
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let get = async |path: &str| {
        let page = http(address, &format!("GET /v1/namespaces/{path}"), "", "").await;
        let body: Value = serde_json::from_str(&page.body).expect("JSON");
        (page.status, body)
    };
    let (status, first) = get("room/keys?page_size=2").await;
    assert_eq!(status, 200, "{first}");
    let key = |key: Value| json!({"key": key, "last": "100", "ceiling": "1000000", "epoch": "1", "step": "10000"});
    assert_eq!(first["keys"], json!([key(json!("a")), key(json!({"base64": "Yv8="}))]));
    let next = first["next_page_token"].as_str().expect("more keys follow");
    let (_, second) = get(&format!("room/keys?page_token={next}")).await;
    let last = json!({"keys": [key(json!("c/d"))], "next_page_token": "", "epoch": "1"});
    assert_eq!(second, last);
    for some in ["prefix=c&after=a", "prefix=c%2F", "after=b", "pageSize=0&prefix=c"] {
        let (_, some) = get(&format!("room/keys?{some}")).await;
        assert_eq!(some["keys"].as_array().and_then(|keys| keys.last()), Some(&key(json!("c/d"))));
    }

    let (_, known) = get("room/keys/c%2Fd/explanation").await;
    assert_eq!((known.get("first_id"), &known["ceiling"]), (None, &json!("1000000")));
    assert_eq!((&known["namespace"], &known["key"]), (&json!("room"), &json!("c/d")));
    assert_eq!((&known["held"]["last"], &known["held"]["left"]), (&json!("100"), &json!("9999")));
    // A key that is written as an id is a name where the keys are names, and the other way round it is none.
    client.next("room", "42").await.expect("a number");
    client.next("book", 42).await.expect("a number");
    for (namespace, first_id) in [("room", None), ("book", Some("42"))] {
        let (status, known) = get(&format!("{namespace}/keys/42/explanation")).await;
        assert_eq!((status, &known["key"]), (200, &json!("42")), "{known}");
        assert_eq!(known.get("first_id").and_then(Value::as_str), first_id, "{known}");
    }
    let (_, known) = get("book/keys/0042/explanation").await;
    assert_eq!(known["key"], json!("42"));
    let (_, after) = get("room/keys?after=41&page_size=1").await;
    assert_eq!(after["keys"][0]["key"], json!("42"));
    for none in ["days=1", "days=0", ""] {
        let (status, gaps) = get(&format!("room/gaps?{none}")).await;
        assert_eq!((status, gaps), (200, json!({"days": []})), "nothing is known to be used");
    }
    // The second entry accounts for the rest of the first one's numbers.
    client.next_range("room", "a", 20_000).await.expect("numbers");
    let (_, gaps) = get("room/gaps").await;
    let day = &gaps["days"][0];
    assert!(day["day"].as_u64() > Some(20_000), "days since 1970: {gaps}");
    assert!(day["handed_out"].as_str().is_some_and(|numbers| numbers != "0"), "{gaps}");
    assert_eq!(day["skipped"][0], json!({"cause": "leader_change", "numbers": "0"}));
    for (path, says) in [
        ("room/keys?page_size=-1", "page_size: "),
        ("room/keys?page_size=1001", "page_size is 1001"),
        ("room/keys?page_token=xy", "page_token is not"),
        ("room/keys?limit=5", "unknown field `limit`"),
        ("room/keys?key=5", "unknown field `key`"),
        ("book/keys?after=x", "takes ids from 0"),
        ("room/keys?after=", "name"),
        ("room/keys/42/explanation?key=43", "duplicate field `key`"),
        ("book/keys?prefix=4", "takes ids as keys"),
        ("book/gaps?days=x", "days: "),
        ("book/gaps?days=32", "days is 32"),
        ("book/keys/x/explanation", "takes ids from 0"),
    ] {
        let (status, problem) = get(path).await;
        let detail = problem["detail"].as_str().expect("a reason");
        assert_eq!(status, 400, "{path}: {problem}");
        assert!(detail.contains(says), "{path}: {detail}");
    }
}
