//! Worker ids against real processes: leased through any node, through kills, deletions and losses.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::common::{
    cluster::Cluster,
    eventually, http_get, other_than,
    processes::{Processes, run},
    rust_client::builder,
    until,
};
use futures::{StreamExt, stream};
use ratchet::sequence::WORKERS_MAX;
use ratchet_client::{
    Client, Code, Error,
    api::{CreateNamespaceRequest, HeldWorker, WorkerLease},
};

/// How far a lease reaches above the leader's time at most, and so how long a worker id may take until it is free.
const AHEAD_MS: u64 = 10_000;

/// A format with two worker ids.
const TWO_WORKERS: &str = "bits zero:1=0 time-ms:48 worker:1 sequence:12";

/// A client that asks this node alone.
fn client_at(address: SocketAddr) -> Client {
    let at_node = builder([address]).follow_leader(false);
    at_node.build().expect("a client")
}

fn client_of(cluster: &Processes, id: u64) -> Client {
    client_at(cluster.places[&id].listen)
}

/// Namespace "orders", whose ids have `format`.
async fn create_orders(client: &Client, format: &str) {
    let orders = CreateNamespaceRequest {
        name: "orders".to_owned(),
        format: Some(format.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    client.create_namespace(orders).await.expect("created");
}

fn held(lease: &WorkerLease) -> HeldWorker {
    HeldWorker { worker: lease.worker, token: lease.token }
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Error>, code: Code, says: &[&str]) {
    let error = answer.expect_err("it is refused");
    assert_eq!(error.code(), Some(code), "{error}");
    for text in says {
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

/// Leases worker ids until `fits`, and answers that lease.
async fn lease_that(
    client: &Client, holder: &str, fits: impl Fn(&WorkerLease) -> bool,
) -> WorkerLease {
    eventually("a lease that fits", async || {
        let lease = client.lease_worker("orders", holder).await.ok()?;
        fits(&lease).then_some(lease)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_its_leader_and_whoever_gets_the_worker_id_next_is_above_it() {
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let client = client_of(&cluster, follower);
    create_orders(&client, TWO_WORKERS).await;
    let first = client.lease_worker("orders", "a").await.expect("a lease");
    let other = client.lease_worker("orders", "b").await.expect("a lease");
    assert_eq!(BTreeSet::from([first.worker, other.worker]), BTreeSet::from([0, 1]));
    assert_eq!(first.format, TWO_WORKERS);
    assert!(first.from_ms < first.ceiling_ms && first.ceiling_ms <= first.now_ms + AHEAD_MS);
    let says = ["all 2 worker ids", "\"orders\"", "may be free in"];
    assert_refused(client.lease_worker("orders", "c").await, Code::ResourceExhausted, &says);

    cluster.kill(leader);
    // The holder goes on with its lease, at another leader.
    let renewed = eventually("a renewal", async || {
        let renewed = client.renew_worker("orders", "a", held(&first)).await;
        renewed.ok()
    });
    let renewed = renewed.await;
    assert_eq!((renewed.token, renewed.from_ms), (first.token, first.from_ms));
    assert!(renewed.ceiling_ms >= first.ceiling_ms);
    // It releases it, and the next holder is above the time that it used.
    let used_ms = renewed.now_ms;
    let released = client.release_worker("orders", held(&first), used_ms);
    assert!(released.await.expect("released"));
    let next = lease_that(&client, "c", |lease| lease.worker == first.worker).await;
    assert!(next.token > first.token);
    assert_eq!(next.from_ms, used_ms.clamp(first.from_ms, renewed.ceiling_ms));
    // The first holder has lost it.
    let says = ["worker id", "was lost", "lease a worker id again"];
    assert_refused(
        client.renew_worker("orders", "a", held(&first)).await,
        Code::FailedPrecondition,
        &says,
    );
    let released = client.release_worker("orders", held(&first), u64::MAX);
    assert!(!released.await.expect("an answer"));

    // The leader is killed again, with another majority, and nobody releases: the ceiling alone counts.
    cluster.spawn(leader);
    cluster.client(leader).next_at_last(7).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let client = client_of(&cluster, other_than(leader));
    let after = lease_that(&client, "d", |lease| lease.worker == next.worker).await;
    assert!(after.token > next.token, "{after:?} after {next:?}");
    assert!(after.from_ms >= next.ceiling_ms, "{after:?} after {next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_holders_as_there_are_worker_ids_get_one_each_and_the_next_one_a_clear_error() {
    // On a slow machine leases may end before all is seen: then other holders begin again.
    eventually("leases that last", all_are_leased).await;
}

/// Has all worker ids of a cluster leased, and asks for one more. `None` if that took longer than the leases last.
async fn all_are_leased() -> Option<()> {
    let cluster = Processes::start(1, &[]).await;
    let client = client_of(&cluster, 1);
    create_orders(&client, "snowflake").await;
    let began = Instant::now();
    let all_last = || (began.elapsed() < Duration::from_millis(AHEAD_MS)).then_some(());
    let leases = stream::iter(0..WORKERS_MAX).map(|number| {
        let client = client.clone();
        async move {
            let holder = format!("host-{number}");
            client.lease_worker("orders", &holder).await
        }
    });
    let leases: Vec<_> = leases.buffer_unordered(WORKERS_MAX as usize).collect().await;
    let leases: Vec<_> = leases.into_iter().map(|lease| lease.expect("a lease")).collect();
    all_last()?;
    let workers: BTreeSet<u32> = leases.iter().map(|lease| lease.worker).collect();
    assert_eq!(workers, (0..WORKERS_MAX).collect());
    let says = ["all 1024 worker ids", "\"orders\"", " s"];
    let refused = client.lease_worker("orders", "one more").await;
    all_last()?;
    assert_refused(refused, Code::ResourceExhausted, &says);

    let list = client.list_workers("orders".to_owned()).await.expect("a list");
    assert_eq!((list.workers.len(), list.workers_max), (1_024, 1_024));
    let last = &list.workers[1_023];
    let lease = leases.iter().find(|lease| lease.worker == 1_023);
    let lease = lease.expect("it is leased");
    assert_eq!(last.worker, 1_023);
    assert_eq!((last.from_ms, last.ceiling_ms), (lease.from_ms, lease.ceiling_ms));

    // One worker id is released unused, and the holder that was refused gets it.
    assert!(client.release_worker("orders", held(lease), 0).await.expect("an answer"));
    let given = client.lease_worker("orders", "one more").await;
    all_last()?;
    let given = given.expect("a lease");
    assert_eq!((given.worker, given.from_ms), (1_023, lease.from_ms));
    assert!(given.token > lease.token);

    let server = cluster.places[&1].listen.to_string();
    let shown = run(&["worker", "list", "orders", "--server", &server]);
    all_last()?;
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("0 of 1024 worker ids are free"), "{shown}");
    assert!(shown.contains("one more"), "{shown}");
    let shown = run(&["worker", "list", "orders", "--server", &server, "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["workers"][1_023]["holder"], "one more");
    assert_eq!(shown["workers"][1_023]["worker"], 1_023);
    assert_eq!(shown["workers"][1_023]["from_ms"], lease.from_ms.to_string());
    assert_eq!(shown["workers_max"], 1_024);
    let path = "/v1/namespaces/orders/workers";
    let page = http_get(cluster.places[&1].http_listen, path).await.body;
    let told: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(told["workers"], shown["workers"]);
    // Many asks share an entry.
    let page = http_get(cluster.places[&1].metrics_listen, "/metrics").await.body;
    let count = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in:\n{page}"));
        line.trim().parse::<u64>().expect("a count")
    };
    assert_eq!(count("ratchet_worker_leases_total{set=\"1\"} "), 1_025);
    assert_eq!(count("ratchet_worker_leases_refused_total{set=\"1\"} "), 1);
    let entries = count("ratchet_worker_entries_total{set=\"1\"} ");
    assert!(entries < 1_026, "{entries} entries for 1026 asks");
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_comes_back_gets_its_worker_id_and_ids_of_a_namespace_created_again_are_later()
 {
    let cluster = Processes::start(1, &[]).await;
    let client = client_of(&cluster, 1);
    create_orders(&client, "snowflake").await;
    for holder in ["a", "b"] {
        let lease = client.lease_worker("orders", holder).await.expect("a lease");
        assert!(client.release_worker("orders", held(&lease), 0).await.expect("an answer"));
    }
    let again = client.lease_worker("orders", "b").await.expect("a lease");
    assert_eq!(again.worker, 1);

    let deleted = client.delete_namespace("orders".into(), "orders".into(), false);
    let deleted = deleted.await.expect("deleted");
    assert_eq!((deleted.floor, deleted.ids_after_ms), (None, Some(again.ceiling_ms)));
    create_orders(&client, "snowflake").await;
    let refused = client.renew_worker("orders", "b", held(&again)).await;
    assert_refused(refused, Code::FailedPrecondition, &["was lost"]);
    let later = client.lease_worker("orders", "b").await.expect("a lease");
    assert!(later.from_ms >= again.ceiling_ms, "{later:?} after {again:?}");
    assert!(later.token > again.token);
    // The old lease is not the new one, even with the same worker id.
    let stale = HeldWorker { worker: later.worker, token: again.token };
    let released = client.release_worker("orders", stale, 0).await;
    assert!(!released.expect("an answer"));

    let forgotten = client.delete_namespace("orders".into(), "orders".into(), true);
    assert_eq!(forgotten.await.expect("deleted").ids_after_ms, None);
    create_orders(&client, "snowflake").await;
    let first = client.lease_worker("orders", "b").await.expect("a lease");
    assert_eq!(first.from_ms, 0);
    // The holder of a lease that was forgotten cannot renew this one.
    assert!(first.token > later.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_with_what_to_do() {
    let cluster = Processes::start(1, &[]).await;
    let client = client_of(&cluster, 1);
    create_orders(&client, "snowflake").await;
    let orders = client.get_namespace("orders".into()).await.expect("it is there");
    let full = "bits epoch=1288834974657 zero:1=0 time-ms:41 worker:10 sequence:12";
    assert_eq!(orders.format.as_deref(), Some(full));

    let lease = |namespace: &'static str, holder: String| {
        let client = client.clone();
        async move { client.lease_worker(namespace, &holder).await }
    };
    let (no, bad) = (Code::FailedPrecondition, Code::InvalidArgument);
    assert_refused(lease("nothing", "a".into()).await, Code::NotFound, &["\"nothing\""]);
    assert_refused(lease("book", "a".into()).await, no, &["\"book\"", "plain numbers", "--format"]);
    assert_refused(lease("orders", String::new()).await, bad, &["0 characters"]);
    assert_refused(lease("orders", "x".repeat(65)).await, bad, &["65 characters", "1 to 64"]);
    assert_refused(lease("orders", "a\nb".into()).await, bad, &["'\\n'", "one line"]);
    let far = HeldWorker { worker: 1_024, token: 1 };
    let refused = client.renew_worker("orders", "a", far).await;
    assert_refused(refused, bad, &["worker is 1024", "0 to 1023"]);
    let never = HeldWorker { worker: 1_023, token: 1 };
    assert_refused(client.renew_worker("orders", "a", never).await, no, &["was lost"]);

    // Ids are not numbers: each way to take or raise one is refused, and reading goes on.
    let says = ["\"orders\" hands out ids of format snowflake", "ratchet id next orders"];
    assert_refused(client.next("orders", 42).await, no, &says);
    assert_refused(client.next_range("orders", 42, 3).await, no, &says);
    assert_refused(client.next_once("orders", 42, 1, "x").await, no, &says);
    assert_refused(client.raise("orders", 42, 7).await, no, &says);
    assert_eq!(client.current("orders", 42).await.expect("read"), None);

    let create = |change: fn(&mut CreateNamespaceRequest)| {
        let mut request = CreateNamespaceRequest {
            name: "parcels".to_owned(),
            format: Some("snowflake".to_owned()),
            ..CreateNamespaceRequest::default()
        };
        change(&mut request);
        client.create_namespace(request)
    };
    assert_refused(create(|r| r.gapless = true).await, bad, &["gapless is true"]);
    assert_refused(create(|r| r.section_size = Some(2)).await, bad, &["section_size is 2"]);
    assert_refused(create(|r| r.increment = Some(5)).await, bad, &["increment is 5"]);
    let future = create(|r| r.format = Some("snowflake epoch=2090-01-01".to_owned()));
    assert_refused(future.await, bad, &["2090-01-01"]);
    let unknown = create(|r| r.format = Some("snowfall".to_owned()));
    assert_refused(unknown.await, bad, &["snowfall"]);
    let names = create(|r| r.set_key_kind(ratchet_client::api::KeyKind::Name));
    assert_refused(names.await, bad, &["key_kind is name"]);
    let without_worker = create(|r| r.format = Some("rongcloud".to_owned()));
    without_worker.await.expect("its ids come from keys");
    assert_refused(
        lease("parcels", "a".into()).await,
        no,
        &["\"parcels\" has no worker", "ratchet id next parcels 42"],
    );

    let server = cluster.places[&1].listen.to_string();
    let shown = run(&["namespace", "list", "--server", &server]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("snowflake"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_got_the_leases_in_a_snapshot_goes_on_with_them() {
    let short_log = |config: &mut ratchet::node::Config| {
        config.log_keep_bytes = 1_000;
    };
    let mut cluster = Cluster::start(3, short_log).await;
    let peer_address = cluster.start_joining(4, short_log).await;
    cluster.client(1).add_node_at_last(4, peer_address).await;
    let leader = cluster.leader().await;
    // Before it has anything of the log, a crash would make it another node.
    cluster.caught_up(leader, 4).await;
    cluster.crash(4).await;
    let client = client_at(cluster.address(leader));
    create_orders(&client, TWO_WORKERS).await;
    let lease = client.lease_worker("orders", "a").await.expect("a lease");
    for key in 0..200 {
        cluster.client(leader).next(key).await.expect("a number");
    }
    let group = cluster.nodes[&leader].context().group.clone();
    let purged =
        eventually("the log is purged", async || group.purged_index().filter(|index| *index > 100));
    let purged = purged.await;
    cluster.start_node(4).await;
    let learner = cluster.nodes[&4].context().group.clone();
    let has_snapshot = || learner.purged_index() >= Some(purged);
    until("node 4 catches up by snapshot", has_snapshot).await;
    cluster.client(1).promote_node(4).await.expect("promoted");
    cluster.client(1).transfer(4).await.expect("handed over");
    let client = client_at(cluster.address(4));
    let list = client.list_workers("orders".to_owned()).await.expect("a list");
    let kept = &list.workers[0];
    assert_eq!((list.workers.len(), kept.ceiling_ms, &kept.holder[..]), (1, lease.ceiling_ms, "a"));
    let renewed = client.renew_worker("orders", "a", held(&lease)).await;
    assert_eq!(renewed.expect("renewed").from_ms, lease.from_ms);
}
