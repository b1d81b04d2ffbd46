//! Ids with a shape: unique among all makers, and in order for each maker, under any jumps of its clock.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use crate::common::{
    Page, channel,
    cluster::Cluster,
    http, http_get, in_time, is_late, other_than, others, rust_client, with_http, with_resp,
    wrong_clock::{off_ms, restart_with_clock},
};
use ratchet::{
    clock::{BootClock, Clock},
    node::Config,
    proto::v1::{NextIdsRequest, ids_client::IdsClient},
};
use ratchet_client::{Client, Code, api::CreateNamespaceRequest};
use ratchet_ids::Format;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// No id lies so far from the time. A maker whose clock is wrong knows the time to within the span of its question to the
/// leader, which is some seconds on a slow machine. The clocks here are an hour wrong.
const FAR_MS: u64 = 30_000;

fn interfaces(config: &mut Config) {
    with_http(config);
    with_resp(config);
    config.leaf_snowflake = "orders".to_owned();
    let types = [("7", "route:type=7,database=3"), ("8", "route:type=8,database=3")];
    config.yuewen_types = types.map(|(name, to)| (name.to_owned(), to.to_owned())).into();
}

async fn create(client: &Client, name: &str, format: &str) {
    let request = CreateNamespaceRequest {
        name: name.to_owned(),
        format: Some(format.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    let created = client.create_namespace(request).await.expect("a namespace");
    let full = Format::parse(format).expect("a format").to_string();
    assert_eq!(created.format, Some(full));
}

/// Takes ids from one node, as numbers.
async fn ids_of(client: &Client, namespace: &str, count: u32) -> Vec<u64> {
    let texts = client.next_ids(namespace, None, count, &[]).await.expect("ids");
    texts.iter().map(|id| id.parse().expect("a number")).collect()
}

fn assert_all_differ(ids: &[u64]) {
    let all: HashSet<u64> = ids.iter().copied().collect();
    assert_eq!(all.len(), ids.len(), "an id was made twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_all_nodes_and_clients_differ_and_those_of_each_maker_increase() {
    let cluster = Cluster::start(3, |_| {}).await;
    let any = rust_client::client_of(&cluster, &[1, 2, 3]);
    create(&any, "orders", "snowflake").await;
    let mut makers = Vec::new();
    for node in 1..=3 {
        let client = rust_client::staying_at(&cluster, node);
        makers.push(tokio::spawn(async move {
            let mut made = Vec::new();
            for _ in 0..20 {
                made.extend(ids_of(&client, "orders", 1_000).await);
            }
            made
        }));
    }
    // Kept until the end: one that is dropped releases its worker id.
    let mut holders = Vec::new();
    for _ in 0..2 {
        let ids = any.ids("orders").await.expect("a worker id");
        holders.push(ids.clone());
        makers.push(tokio::spawn(async move {
            let mut made = Vec::new();
            for _ in 0..20_000 {
                let id = ids.next().await.expect("an id");
                made.push(id.as_u64().expect("64 bits"));
            }
            made
        }));
    }
    let mut all = Vec::new();
    for maker in makers {
        let made = maker.await.expect("ids");
        assert!(made.is_sorted_by(|a, b| a < b));
        all.extend(made);
    }
    assert_all_differ(&all);
    let workers = any.list_workers("orders".to_owned()).await.expect("a list");
    assert_eq!(workers.workers.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_makes_ids_up_to_its_ceiling_and_none_beyond() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let alone = other_than(leader);
    let client = rust_client::staying_at(&cluster, alone);
    create(&client, "orders", "snowflake").await;
    ids_of(&client, "orders", 1).await;
    cluster.cut_off(alone);
    let mut last = 0;
    // The Rust client would ask another node.
    let mut one = IdsClient::new(channel(cluster.address(alone)));
    let mut ask_alone = async || {
        let asked = NextIdsRequest { namespace: "orders".to_owned(), ..NextIdsRequest::default() };
        let mut asked = tonic::Request::new(asked);
        asked.set_timeout(Duration::from_secs(1));
        one.next(asked).await.map(|answer| answer.into_inner().numbers[0])
    };
    let error = in_time("the end of the lease", async {
        loop {
            match ask_alone().await {
                Ok(id) => last = id,
                Err(late) if is_late(&late) => {}
                Err(error) => break error,
            }
        }
    });
    let error = error.await;
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    assert!(error.message().contains("no worker id was leased"), "{error}");
    let held = rust_client::staying_at(&cluster, leader);
    let workers = held.list_workers("orders".to_owned()).await.expect("a list");
    let ceiling_ms = workers.workers[0].ceiling_ms;
    let format = Format::parse("snowflake").expect("a format");
    let last_ms = format.decode_number(last.into()).expect("an id").parts().time_ms;
    assert!(last_ms <= ceiling_ms, "{last_ms} above {ceiling_ms}");
    // The next holder of that worker id is above.
    cluster.mend();
    let next = in_time("a further id", async {
        loop {
            if let Ok(id) = ask_alone().await {
                break id;
            }
        }
    });
    assert!(next.await > last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_jumps_keeps_order_and_stays_near_the_time() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [wrong, other] = others(leader);
    let off = Arc::new(AtomicI64::new(0));
    restart_with_clock(&mut cluster, wrong, &off).await;
    let client = rust_client::staying_at(&cluster, wrong);
    create(&client, "orders", "snowflake").await;
    let elsewhere = rust_client::staying_at(&cluster, other);
    let format = Format::parse("snowflake").expect("a format");
    let (mut last, mut all) = (0, Vec::new());
    let hour = 3_600_000;
    for jump in [0, -hour, hour, -100, 100, 0] {
        off.store(jump, Ordering::SeqCst);
        let until = std::time::Instant::now() + Duration::from_millis(400);
        while std::time::Instant::now() < until {
            let began_ms = BootClock.wall_ms();
            for id in ids_of(&client, "orders", 50).await {
                assert!(id > last, "{id} after {last}, {jump} ms off");
                last = id;
                all.push(id);
            }
            all.extend(ids_of(&elsewhere, "orders", 5).await);
            let time_ms = format.decode_number(last.into()).expect("an id").parts().time_ms;
            let distance = off_ms(time_ms, began_ms);
            assert!(distance < FAR_MS, "{distance} ms from the time, {jump} ms off");
        }
    }
    assert_all_differ(&all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_with_a_clock_an_hour_off_takes_the_leaders_time() {
    let cluster = Cluster::start(3, |config| {
        // No two clocks agree in the end.
        config.clock_apart_max_ms = 3 * 3_600_000;
    });
    let mut cluster = cluster.await;
    let leader = cluster.leader().await;
    let format = Format::parse("snowflake").expect("a format");
    let client = rust_client::staying_at(&cluster, leader);
    create(&client, "orders", "snowflake").await;
    for (node, hours) in others(leader).into_iter().zip([-1, 1]) {
        let off = Arc::new(AtomicI64::new(hours * 3_600_000));
        restart_with_clock(&mut cluster, node, &off).await;
        let client = rust_client::staying_at(&cluster, node);
        let began_ms = BootClock.wall_ms();
        let id = ids_of(&client, "orders", 1).await[0];
        let time_ms = format.decode_number(id.into()).expect("an id").parts().time_ms;
        let distance = off_ms(time_ms, began_ms);
        assert!(distance < FAR_MS, "{distance} ms from the time, {hours} h off");
    }
}

fn body(page: &Page) -> Value {
    serde_json::from_str(&page.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_interface_makes_ids_and_takes_them_apart() {
    let cluster = Cluster::start(3, interfaces).await;
    let node = other_than(cluster.leader().await);
    let client = rust_client::staying_at(&cluster, node);
    create(&client, "orders", "snowflake").await;
    create(&client, "route", "yuewen-route").await;
    create(&client, "events", "uuid7").await;
    let addresses = cluster.nodes[&node].addresses();
    let at = addresses.http.expect("a port");

    let ask = json!({"count": 3}).to_string();
    let page = http(at, "POST /v1/namespaces/orders/ids:next", "", &ask).await;
    assert_eq!(page.status, 200, "{}", page.body);
    let ids = body(&page)["numbers"].as_array().expect("ids").clone();
    assert_eq!(ids.len(), 3);
    let id = ids[2].as_str().expect("a text");
    let page = http_get(at, &format!("/v1/formats/snowflake/ids/{id}")).await;
    assert_eq!(body(&page)["fields"]["zero"], "0", "{}", page.body);
    let page = http_get(at, &format!("/decodeSnowflakeId?snowflakeId={id}")).await;
    assert_eq!(body(&page)["sequenceId"], "2", "{}", page.body);

    let page = http_get(at, "/api/snowflake/get/whichever").await;
    assert_eq!(page.status, 200, "{}", page.body);
    let leaf: u64 = page.body.parse().expect("a number");
    assert!(leaf > id.parse().expect("a number"));

    let page = http_get(at, "/?type=7").await;
    let number = body(&page)["result"].as_u64().expect("a number");
    let format = Format::parse("yuewen-route").expect("a format");
    let decoded = format.decode_number(number.into()).expect("an id");
    assert_eq!((decoded.value("type"), decoded.value("database")), (Some(7), Some(3)));

    let ask = json!({"parameters": {"type": "1", "database": 0}, "as_text": true}).to_string();
    let page = http(at, "POST /v1/namespaces/route/ids:next", "", &ask).await;
    let id = body(&page)["texts"][0].as_str().expect("a text").to_owned();
    assert_eq!(id.split('-').count(), 5, "{id}");

    let page = http(at, "POST /v1/namespaces/events/ids:next", "", "{}").await;
    let id = body(&page)["texts"][0].as_str().expect("a text").to_owned();
    assert_eq!((id.len(), &id[14..15]), (36, "7"), "{id}");

    let mut redis =
        TcpStream::connect(addresses.resp.expect("a port")).await.expect("a connection");
    let reply = in_time("a reply", async {
        redis.write_all(b"INCR id:orders\r\n").await.expect("sent");
        let mut reply = [0; 64];
        let length = redis.read(&mut reply).await.expect("a reply");
        String::from_utf8_lossy(&reply[..length]).into_owned()
    });
    let reply = reply.await;
    let number: u64 = reply.trim_start_matches(':').trim().parse().expect("a number");
    assert!(number > leaf, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counter_of_each_yuewen_type_runs_on_over_the_seconds() {
    let cluster = Cluster::start(1, interfaces).await;
    let client = rust_client::staying_at(&cluster, 1);
    create(&client, "route", "yuewen-route").await;
    let at = cluster.nodes[&1].addresses().http.expect("a port");
    let format = Format::parse("yuewen-route").expect("a format");
    let take = async |of_type: u64| {
        let page = http_get(at, &format!("/?type={of_type}")).await;
        let number = body(&page)["result"].as_u64().expect("a number");
        let decoded = format.decode_number(number.into()).expect("an id");
        (decoded.parts().time_ms, decoded.parts().sequence)
    };
    let mut last = [take(7).await.1, take(8).await.1];
    let mut seconds = HashSet::new();
    while seconds.len() < 4 {
        // Type 7 is asked for three times as often as type 8.
        for (place, of_type) in [(0, 7), (0, 7), (1, 8), (0, 7)] {
            let (second, counter) = take(of_type).await;
            assert_eq!(counter, (last[place] + 1) % 10_000, "type {of_type} at {second}");
            last[place] = counter;
            seconds.insert(second);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_is_refused_with_what_to_do() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::staying_at(&cluster, 1);
    create(&client, "orders", "snowflake").await;
    create(&client, "route", "yuewen-route").await;
    let refused = async |namespace: &str, count, parameters: &[(&str, u64)]| {
        let error = client.next_ids(namespace, None, count, parameters).await;
        let error = error.expect_err("a refusal");
        (error.code().expect("a code"), error.to_string())
    };
    let (code, text) = refused("nowhere", 1, &[]).await;
    assert_eq!(code, Code::NotFound);
    assert!(text.contains("namespace \"nowhere\" does not exist"), "{text}");
    let (code, text) = refused("book", 1, &[]).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("namespace \"book\" hands out plain numbers"), "{text}");
    for count in [0, 10_001] {
        let (code, text) = refused("orders", count, &[]).await;
        assert_eq!(code, Code::InvalidArgument);
        assert!(
            text.contains(&format!("count is {count}; namespace \"orders\" gives 1 to 10000")),
            "{text}"
        );
    }
    let (code, text) = refused("route", 1, &[("type", 1)]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("the parameter database is missing"), "{text}");
    let (_, text) = refused("route", 1, &[("type", 100), ("database", 0)]).await;
    assert!(text.contains("type 100 does not fit: the greatest value is 99"), "{text}");
    let (_, text) = refused("orders", 1, &[("type", 1)]).await;
    assert!(text.contains("there is no parameter \"type\""), "{text}");
    let error = client.next("orders", 1).await.expect_err("a refusal");
    assert!(error.to_string().contains("hands out ids of format snowflake"), "{error}");
}
