//! Ids of formats without a worker: they come from a key's sequence, in order for each key among all callers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use crate::common::{
    cluster::Cluster,
    http, http_get, in_time, other_than, others,
    rust_client::{self, create_with_format},
    until, with_http, with_resp,
    wrong_clock::{off_ms, restart_with_clock},
};
use parking_lot::Mutex;
use ratchet::{
    clock::{BootClock, Clock},
    node::Config,
};
use ratchet_client::{Client, Code, Error, Key};
use ratchet_ids::{Decoded, Format};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

const DAY_MS: u64 = 86_400_000;
/// Ten ids a second for each key.
const SLOW: &str = "digits epoch=2020-01-01 time-s:10 sequence:1 key:2";

fn format(text: &str) -> Format {
    Format::parse(text).expect("a format")
}

/// Takes one id.
async fn id(
    client: &Client, namespace: &str, key: u64, parameters: &[(&str, u64)],
) -> Result<String, Error> {
    let ids = client.next_ids(namespace, Some(Key::Id(key)), 1, parameters);
    Ok(ids.await?.remove(0))
}

/// Takes an id of RongCloud's format, which must have the key. Answers it as a number, and its time.
async fn rongcloud(client: &Client, key: u64) -> (u128, u64) {
    let format = format("rongcloud");
    let text = id(client, "chat", key, &[("type", 1)]).await.expect("an id");
    let decoded: Decoded<'_> = format.decode(&text).expect("an id of the format");
    assert_eq!((decoded.value("key"), decoded.value("type")), (Some(key), Some(1)));
    let fixed = format.fixed(&[("type", 1)], Some(key)).expect("fits");
    let id = format.encode(&decoded.parts(), fixed).expect("an id");
    (id, decoded.parts().time_ms)
}

/// Leaders' clocks are believed that are days apart.
fn any_clock(config: &mut Config) {
    config.clock_apart_max_ms = 7 * DAY_MS;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_a_key_increase_whichever_node_is_asked_and_hold_the_time_also_after_a_crash() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let any = rust_client::client_of(&cluster, &[1, 2, 3]);
    create_with_format(&any, "chat", "rongcloud").await;
    // The greatest id that anyone has of each key.
    let greatest: Arc<Mutex<BTreeMap<u64, u128>>> = Arc::default();
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    for round in 0..2 {
        let mut callers = Vec::new();
        let nodes: Vec<u64> = cluster.nodes.keys().copied().collect();
        for caller in 0..6 {
            let client = rust_client::staying_at(&cluster, nodes[caller % nodes.len()]);
            let (greatest, all) = (greatest.clone(), all.clone());
            callers.push(tokio::spawn(async move {
                for turn in 0..100 {
                    let key = turn % 3;
                    let before = greatest.lock().get(&key).copied().unwrap_or(0);
                    let began_ms = BootClock.wall_ms();
                    let (id, time_ms) = rongcloud(&client, key).await;
                    assert!(id > before, "{id} of key {key} after {before}");
                    assert!(all.lock().insert(id), "{id} was made twice");
                    let mut greatest = greatest.lock();
                    let last = greatest.entry(key).or_default();
                    *last = id.max(*last);
                    // A crash leaves a key at most three seconds ahead.
                    let distance = off_ms(time_ms, began_ms);
                    assert!(distance < 1_500 + round * 3_000, "{distance} ms from the time");
                }
            }));
        }
        for caller in callers {
            caller.await.expect("ids");
        }
        if round == 0 {
            let leader = cluster.leader().await;
            cluster.crash(leader).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_that_is_used_up_is_waited_out_and_its_counter_never_laps() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::client_of(&cluster, &[1]);
    create_with_format(&client, "slow", SLOW).await;
    let slow = format(SLOW);
    let mut callers = Vec::new();
    for _ in 0..5 {
        let client = client.clone();
        callers.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..5 {
                ids.push(id(&client, "slow", 7, &[]).await.expect("an id"));
                let decoded = format(SLOW);
                let time_ms = decoded.decode(&ids[ids.len() - 1]).expect("an id");
                assert!(time_ms.parts().time_ms <= BootClock.wall_ms(), "{ids:?} is early");
            }
            assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
            ids
        }));
    }
    let mut all = BTreeSet::new();
    for caller in callers {
        for id in caller.await.expect("ids") {
            assert!(all.insert(id.clone()), "{id} was made twice");
        }
    }
    assert_eq!(all.len(), 25);
    let times: BTreeSet<u64> =
        all.iter().map(|id| slow.decode(id).expect("an id").parts().time_ms).collect();
    assert!(times.len() >= 3, "25 ids in {} seconds", times.len());

    // A caller that cannot wait so long is told when to come again.
    let impatient = Client::builder()
        .servers([cluster.address(1).to_string()])
        .timeout(Duration::from_millis(200))
        .build()
        .expect("a client");
    // On a busy machine it may give up before it is told.
    let refused = in_time("a refusal", async {
        loop {
            match id(&impatient, "slow", 8, &[]).await {
                Err(error) if error.code() == Some(Code::ResourceExhausted) => break error,
                _ => {}
            }
        }
    });
    let refused = refused.await;
    assert!(
        refused.to_string().contains("the ids of key 8 until the deadline are used up"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_wait_for_one_key_hold_up_neither_other_keys_nor_leases_nor_administration() {
    // More than a connection has streams. Each wants 2 ids of a key that has 100 a second, which takes half a minute.
    const CALLERS: u64 = 1_500;
    const BUSY: &str = "digits epoch=2020-01-01 time-s:10 sequence:2 key:3";
    let cluster = Cluster::start(3, |_| {}).await;
    let follower = other_than(cluster.leader().await);
    let client = || rust_client::staying_at(&cluster, follower);
    let other = client();
    create_with_format(&other, "busy", BUSY).await;
    create_with_format(&other, "orders", "snowflake").await;
    id(&other, "busy", 7, &[]).await.expect("an id");
    let waits = cluster.nodes[&follower].context().metrics.id_waits.clone();
    let before = waits.get();
    let mut callers = JoinSet::new();
    for connection in [client(), client(), client()] {
        for _ in 0..CALLERS / 3 {
            let client = connection.clone();
            let ids = async move { client.next_ids("busy", Some(Key::Id(7)), 2, &[]).await };
            callers.spawn(ids);
        }
    }
    // On a busy machine some are served before others come.
    until("they wait", || waits.get() > before + CALLERS / 4).await;
    for key in 100..110 {
        id(&other, "busy", key, &[]).await.expect("another key's id");
    }
    let order = other.next_ids("orders", None, 1, &[]).await;
    order.expect("an id under a worker id that was just leased");
    other.status().await.expect("a status");
    let mut served = 0;
    while let Some(ids) = callers.try_join_next() {
        ids.expect("no panic").expect("ids");
        served += 1;
    }
    assert!(served < CALLERS, "the others had to wait for all of them");
    // In the order of their arrival, so that nobody waits for ever: the first of them have theirs.
    for _ in 0..30 {
        let served = in_time("an id", callers.join_next()).await;
        served.expect("a caller").expect("no panic").expect("ids");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_use_costs_a_log_entry_now_and_then_and_not_one_for_each_millisecond() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::client_of(&cluster, &[1]);
    create_with_format(&client, "chat", "rongcloud").await;
    let entries = async || {
        let status = client.status().await.expect("a status");
        status.nodes[0].log_index.expect("a log")
    };
    rongcloud(&client, 5).await;
    let (before, began) = (entries().await, BootClock.now());
    let mut times = BTreeSet::new();
    while times.len() < 1_000 {
        times.insert(rongcloud(&client, 5).await.1);
    }
    let entries = entries().await - before;
    // On a busy machine they lie farther apart.
    let seconds = BootClock.now().since(began).as_secs();
    assert!(entries < 8 + seconds, "{entries} log entries for ids of 1000 ms within {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_on_at_once_under_a_leader_whose_clock_is_an_hour_behind() {
    let mut cluster = Cluster::start(3, any_clock).await;
    let [ahead, _] = others(cluster.leader().await);
    let off = Arc::new(AtomicI64::new(3_600_000));
    restart_with_clock(&mut cluster, ahead, &off).await;
    let any = rust_client::client_of(&cluster, &[1, 2, 3]);
    create_with_format(&any, "chat", "rongcloud").await;
    cluster.lead(ahead).await;
    let (before, before_ms) = rongcloud(&any, 5).await;
    assert!(before_ms > BootClock.wall_ms() + 3_000_000);
    cluster.lead(other_than(ahead)).await;
    // More than one millisecond has, so that the time must go on.
    let ids = any.next_ids("chat", Some(Key::Id(5)), 9_000, &[("type", 1)]);
    let ids = in_time("ids", ids).await.expect("ids");
    let times: Vec<u64> = ids
        .iter()
        .map(|id| format("rongcloud").decode(id).expect("an id").parts().time_ms)
        .collect();
    assert!(times.is_sorted() && times[0] >= before_ms, "{before_ms} {}", times[0]);
    assert!(times[8_999] < before_ms + 60_000, "{before_ms} {}", times[8_999]);
    let (after, _) = rongcloud(&any, 5).await;
    assert!(after > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_never_goes_back_and_order_numbers_grow_in_steps() {
    let mut cluster = Cluster::start(3, any_clock).await;
    let [ahead, _] = others(cluster.leader().await);
    let off = Arc::new(AtomicI64::new(2 * DAY_MS as i64));
    restart_with_clock(&mut cluster, ahead, &off).await;
    // A follower that is asked is told the leader's time, and goes on from there when it leads.
    let client = rust_client::staying_at(&cluster, ahead);
    create_with_format(&client, "chapters", "yuewen-chapter").await;
    create_with_format(&client, "others", "yuewen-chapter").await;
    let chapter = format("yuewen-chapter");
    let parameters = [("table", 4), ("database", 5)];
    let take = async |namespace: &str, key: u64| {
        let text = id(&client, namespace, key, &parameters).await.expect("an id");
        let decoded = chapter.decode(&text).expect("an id");
        assert_eq!(&text[9..15], "004-05", "{text}");
        (decoded.parts().time_ms, decoded.parts().sequence)
    };
    let today = || chapter.day_of(BootClock.wall_ms());
    let (before, order) = (today(), take("chapters", 42).await);
    assert!([before, today()].contains(&order.0), "{order:?}");
    assert_eq!(order.1, 100);
    cluster.lead(ahead).await;
    let later = chapter.day_of(BootClock.wall_ms() + 2 * DAY_MS);
    let (date, order) = take("chapters", 42).await;
    assert!(date >= later, "{date} after {later}");
    assert_eq!(order, 200);
    // Back under a leader whose clock is right, the date stays. Another namespace has its own.
    cluster.lead(other_than(ahead)).await;
    assert_eq!(take("chapters", 42).await, (date, 300));
    assert_eq!(take("chapters", 43).await, (date, 100));
    assert!(take("others", 42).await.0 < later);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_field_of_ids_of_a_key_is_random() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::client_of(&cluster, &[1]);
    let text = "bits text=uuid time-ms:48 version:4=7 sequence:12 variant:2=2 random:62";
    create_with_format(&client, "secret", text).await;
    let mut values = BTreeSet::new();
    for _ in 0..5 {
        let id = id(&client, "secret", 1, &[]).await.expect("an id");
        values.insert(format(text).decode(&id).expect("an id").value("random"));
    }
    assert_eq!(values.len(), 5, "{values:?}");
}

fn interfaces(config: &mut Config) {
    with_http(config);
    with_resp(config);
    let to = "strict:key=7,machine=1,database=3".to_owned();
    config.yuewen_types = [("7".to_owned(), to)].into();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_interface_makes_ids_of_a_key() {
    let cluster = Cluster::start(3, interfaces).await;
    let node = other_than(cluster.leader().await);
    let client = rust_client::staying_at(&cluster, node);
    create_with_format(&client, "chat", SLOW).await;
    create_with_format(&client, "strict", "yuewen-strict").await;
    let addresses = cluster.nodes[&node].addresses();
    let at = addresses.http.expect("a port");
    let first = id(&client, "chat", 42, &[]).await.expect("an id");

    let ask = json!({"key": "42", "count": 2}).to_string();
    let page = http(at, "POST /v1/namespaces/chat/ids:next", "", &ask).await;
    assert_eq!(page.status, 200, "{}", page.body);
    let body: Value = serde_json::from_str(&page.body).expect("JSON");
    let second = body["numbers"][1].as_str().expect("a text").to_owned();
    assert!(second > first, "{second} after {first}");

    let mut redis =
        TcpStream::connect(addresses.resp.expect("a port")).await.expect("a connection");
    let reply = in_time("a reply", async {
        redis.write_all(b"INCR id:chat:42\r\n").await.expect("sent");
        let mut reply = [0; 64];
        let length = redis.read(&mut reply).await.expect("a reply");
        String::from_utf8_lossy(&reply[..length]).into_owned()
    });
    let third: u64 = (reply.await.trim_start_matches(':').trim()).parse().expect("a number");
    assert!(third > second.parse().expect("a number"), "{third} after {second}");

    let mut last = 0;
    for _ in 0..3 {
        let page = http_get(at, "/?type=7").await;
        let body: Value = serde_json::from_str(&page.body).expect("JSON");
        let number = body["result"].as_u64().expect("a number");
        assert!(number > last);
        last = number;
        let strict = format("yuewen-strict");
        let decoded = strict.decode_number(number.into()).expect("an id");
        let fields = ["key", "machine", "database"].map(|name| decoded.value(name));
        assert_eq!(fields, [Some(7), Some(1), Some(3)]);
    }
}
