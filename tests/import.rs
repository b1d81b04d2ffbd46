//! `ratchet import`: nothing is applied of a file with a fault, and an import that is killed goes on where it was.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::common::{
    eventually, http_get, in_time,
    processes::{Process, Processes, ratchet},
    rust_client,
};
use ratchet_client::{Client, Key, api::CreateNamespaceRequest};

/// The name of the cluster that [`Processes`] start.
const CLUSTER: &str = "test";

/// The command that imports a file.
fn command(processes: &Processes, namespace: &str, file: &Path, more: &[&str]) -> Command {
    let servers: Vec<String> = processes.addresses().iter().map(ToString::to_string).collect();
    let mut command = ratchet();
    command.args(["import", namespace]).arg(file).args(more);
    command.args(["--server", &servers.join(",")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn import(processes: &Processes, namespace: &str, file: &Path, more: &[&str]) -> Output {
    let mut command = command(processes, namespace, file, more);
    let ended = tokio::task::spawn_blocking(move || command.output());
    ended.await.expect("no panic").expect("the command runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many rows the record says are raised.
fn rows_done(record: &Path) -> Option<u64> {
    let text = fs::read(record).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).expect("a whole record");
    record["rows_done"].as_u64()
}

/// Kills imports of a file with `rows` rows, one after the other, until `times` of them in a row have raised more, and not all.
/// Returns how many rows the record says are raised.
async fn kill_midway(import: impl Fn() -> Command, record: &Path, rows: u64, times: u32) -> u64 {
    let killing = async {
        let (mut done, mut kills) = (0, 0);
        while kills < times {
            let mut killed = Process(import().spawn().expect("a process"));
            eventually("more rows, or the end of the import", async || {
                let ended = killed.0.try_wait().expect("a child of this process");
                assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
                let has_more = rows_done(record).is_some_and(|now| now > done);
                (has_more || ended.is_some()).then_some(())
            })
            .await;
            drop(killed);
            (done, kills) = match rows_done(record) {
                Some(now) if now > done && now < rows => (now, kills + 1),
                // On a slow machine it was over before it was killed: then all begins anew. To raise a key twice does no harm.
                _ => {
                    let _ = fs::remove_file(record);
                    (0, 0)
                }
            };
        }
        done
    };
    in_time("imports that are killed midway", killing).await
}

/// Creates the namespace "small", whose sections have ten ids.
async fn create_small(client: &Client) {
    let small = CreateNamespaceRequest {
        name: "small".into(),
        section_size: Some(10),
        ..Default::default()
    };
    client.create_namespace(small).await.expect("a namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_twice_goes_on_where_it_was_and_loses_nothing() {
    const ROWS: u64 = 300_000;
    let processes = Processes::start(3, &[]).await;
    let file = processes.dir.path().join("numbers.csv");
    let mut rows = "key,number\n".to_owned();
    for id in 1..=ROWS {
        writeln!(rows, "{id},{}", id * 7).expect("a row");
    }
    fs::write(&file, rows).expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    let done = kill_midway(|| command(&processes, "book", &file, &[]), &record, ROWS, 2).await;
    let output = import(&processes, "book", &file, &["--json"]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["rows"], ROWS.to_string());
    let resumed_at = told["resumed_at"].as_str().expect("a string").parse().expect("a number");
    assert!((done..ROWS).contains(&resumed_at), "{told}");
    assert!(!record.exists());
    let client = rust_client::staying(processes.addresses());
    for from in (1..=ROWS).step_by(50_000) {
        let ids = from..from + 50_000;
        let last = client.current_many("book", ids.clone().map(Key::Id)).await;
        let expected: Vec<_> = ids.map(|id| Some(id * 7)).collect();
        assert!(last.expect("numbers") == expected, "a key from {from} on");
    }
    assert_eq!(client.next("book", 77).await.expect("a number"), 540);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_faults_is_refused_with_their_lines_and_nothing_is_raised() {
    let processes = Processes::start(1, &[]).await;
    let file = processes.dir.path().join("bad.csv");
    fs::write(&file, "1,5\nx,6\n2,-1\n3,7,8\n1,9\n4,9223372036854775808\n\"5\",1\n")
        .expect("a file");
    let output = import(&processes, "book", &file, &[]).await;
    assert_eq!(output.status.code(), Some(4));
    let text = errors(&output);
    for says in [
        "5 rows are wrong, and nothing was raised",
        "line 2: key 'x' is no id",
        "line 3: number '-1' is none between 0 and 9223372036854775807",
        "line 4: the row has 3 fields; a row is key,number",
        "line 6: number '9223372036854775808'",
        "line 5: key 1 is on line 1 already",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let client = rust_client::staying(processes.addresses());
    assert_eq!(client.current("book", 5).await.expect("an answer"), None);
    let many: String = (0..50).map(|_| "x,1\n").collect();
    fs::write(&file, many).expect("a file");
    let text = errors(&import(&processes, "book", &file, &[]).await);
    assert!(text.contains("50 rows are wrong") && text.contains("and 30 more"), "{text}");
}

/// Creates a namespace of names, whose keys go up by `increment` from `start`.
async fn create_names(client: &Client, name: &str, start: u64, increment: u64) {
    let names = CreateNamespaceRequest {
        name: name.into(),
        key_kind: ratchet_client::api::KeyKind::Name.into(),
        start: Some(start),
        increment: Some(increment),
        ..Default::default()
    };
    client.create_namespace(names).await.expect("a namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_alike_are_told_and_so_is_a_mapped_name_that_never_had_a_number() {
    let tags = "--leaf-tags=order=tags:Order,pay=tags:pay";
    let mut processes = Processes::start(1, &[tags]).await;
    let client = rust_client::client(processes.addresses());
    create_names(&client, "tags", 1, 1).await;
    let file = processes.dir.path().join("leaf.tsv");
    fs::write(&file, "biz_tag\tmax_id\npay\t7\norder\t2001\nPay \t9\n").expect("a file");
    let leaf = ["--format", "leaf"];
    let told = [
        "line 3: key 'order' differs by capitals or blanks at its end alone from 'Order', which leaf_tags maps 'order' to",
        "line 4: key 'Pay ' differs by capitals or blanks at its end alone from 'pay', which leaf_tags maps 'pay' to",
        "line 4: key 'Pay ' differs by capitals or blanks at its end alone from 'pay' on line 2",
    ];
    let output = import(&processes, "tags", &file, &[&leaf[..], &["--dry-run"]].concat()).await;
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(told.iter().all(|told| text.contains(told)), "{text}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 rows are in order"), "{output:?}");
    assert_eq!(client.current("tags", "pay").await.expect("an answer"), None);
    let output = import(&processes, "tags", &file, &leaf).await;
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    for told in told {
        assert_eq!(text.matches(told).count(), 1, "{told}: {text}");
    }
    let output = import(&processes, "tags", &file, &[&leaf[..], &["--json"]].concat()).await;
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["warnings"].as_array().map(Vec::len), Some(3), "{result}");
    let http = processes.places[&1].http_listen;
    for (tag, number) in [("pay", "8"), ("order", "1"), ("order", "2"), ("pay", "9")] {
        let page = http_get(http, &format!("/api/segment/get/{tag}")).await;
        assert_eq!(page.body, number, "{tag}");
    }
    // All its lines are in the log when it has ended.
    assert!(processes.terminate(1).await.success());
    let log = fs::read_to_string(processes.log(1)).expect("a log");
    let first = log.lines().filter(|line| line.contains("the first number of a key"));
    let first: Vec<&str> = first.collect();
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].contains("leaf_tags") && first[0].contains("Order"), "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_each_name_that_is_like_another_one_also_in_json_and_raises_nothing() {
    let tags = "--leaf-tags=order=tags:Order,other=others:PAY";
    let processes = Processes::start(1, &[tags]).await;
    let client = rust_client::client(processes.addresses());
    create_names(&client, "tags", 1, 1).await;
    let file = processes.dir.path().join("names.csv");
    // Of the first, the second has other capitals, and the third one more blank. A key of another namespace is like none.
    fs::write(&file, "pay,7\nPay,8\npay ,9\norder,10\nORDER ,11\nbook,12\n").expect("a file");
    let apart = "differs by capitals or blanks at its end alone from";
    let mapped = format!("{apart} 'Order', which leaf_tags maps 'order' to");
    let mut expected = [
        format!("line 2: key 'Pay' {apart} 'pay' on line 1:"),
        format!("line 3: key 'pay ' {apart} 'pay' on line 1:"),
        format!("line 4: key 'order' {mapped}:"),
        format!("line 5: key 'ORDER ' {apart} 'order' on line 4:"),
        format!("line 5: key 'ORDER ' {mapped}:"),
    ];
    let output = import(&processes, "tags", &file, &["--dry-run"]).await;
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches(apart).count(), expected.len(), "{text}");
    assert!(expected.iter().all(|told| text.contains(told)), "{text}");
    let output = import(&processes, "tags", &file, &["--dry-run", "--json"]).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!errors(&output).contains(apart), "the result has them: {}", errors(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let told = result["warnings"].as_array().expect("a list").iter();
    let mut told: Vec<&str> = told.map(|told| told.as_str().expect("a text")).collect();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(result["rows"], "6");
    assert_eq!(told.len(), expected.len(), "{told:?}");
    assert!(told.iter().zip(&expected).all(|(told, begins)| told.starts_with(begins)), "{told:?}");
    for name in ["pay", "Pay", "pay ", "order", "ORDER ", "book"] {
        assert_eq!(client.current("tags", name).await.expect("an answer"), None, "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_leafs_table_are_imported_also_from_standard_input() {
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    create_names(&client, "tags", 1, 1).await;
    create_names(&client, "odd", 1, 2).await;
    let rows = b"max_id\tbiz_tag\n2001\torder\n7\tpay\n0\tfresh\n";
    let imported = async |namespace: &str| {
        let mut child = command(&processes, namespace, Path::new("-"), &["--format", "leaf"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut input = child.stdin.take().expect("its input");
        input.write_all(rows).expect("written");
        drop(input);
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
        ended.await.expect("no panic").expect("the command runs")
    };
    // Leaf goes up by one.
    let output = imported("odd").await;
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("line 2: leaf_alloc goes up by 1"), "{text}");
    let output = imported("tags").await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(client.next("tags", "order").await.expect("a number"), 2_002);
    assert_eq!(client.next("tags", "pay").await.expect("a number"), 8);
    assert_eq!(client.current("tags", "fresh").await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_tinyids_table_keep_their_delta_and_remainder_or_are_refused() {
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    create_names(&client, "plain", 1, 1).await;
    create_names(&client, "odd", 1, 2).await;
    let file = processes.dir.path().join("tinyid.tsv");
    let tinyid = async |namespace: &str, rows: &str| {
        fs::write(&file, rows).expect("a file");
        import(&processes, namespace, &file, &["--format", "tinyid"]).await
    };
    let header = "id\tbiz_type\tbegin_id\tmax_id\tstep\tdelta\tremainder\tcreate_time\tversion\n";
    let odd = "1\torder\t1\t3000000\t1000\t2\t1\tNULL\t3\n";
    let plain = "2\tpay\t1\t2000\t1000\t1\t0\tNULL\t3\n";
    let refused = async |namespace: &str, rows: &str, says: &str| {
        let output = tinyid(namespace, rows).await;
        let text = errors(&output);
        assert!(!output.status.success(), "{namespace}: {says}");
        assert!(text.contains(says), "{says}: {text}");
    };
    let both = format!("{header}{plain}{odd}");
    let says = "line 3: the row has delta 2 and remainder 1";
    refused("plain", &both, says).await;
    refused("odd", &both, "line 2: the row has delta 1 and remainder 0").await;
    let even = "1\torder\t1\t3000000\t1000\t2\t0\tNULL\t3\n";
    let says = "line 2: the row has delta 2 and remainder 0";
    refused("odd", &format!("{header}{even}"), says).await;
    // A query that leaves the columns out would hide their error.
    let says = "there is no column delta";
    refused("plain", "biz_type\tmax_id\norder\t3000000\n", says).await;
    let dump = "INSERT INTO `tiny_id_info` VALUES (1,'order',1,3000000,1000,1,0,NULL,NULL,3);\n";
    refused("plain", dump, "mysql --batch").await;
    for (namespace, row) in [("odd", odd), ("plain", plain)] {
        let output = tinyid(namespace, &format!("{header}{row}")).await;
        assert!(output.status.success(), "{}", errors(&output));
    }
    for number in [3_000_001, 3_000_003] {
        assert_eq!(client.next("odd", "order").await.expect("a number"), number);
    }
    assert_eq!(client.next("plain", "pay").await.expect("a number"), 2_001);
    assert_eq!(client.current("plain", "order").await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn order_numbers_of_chapters_are_imported_for_each_book_and_none_comes_again() {
    let processes = Processes::start(3, &[]).await;
    let client = rust_client::staying(processes.addresses());
    for name in ["chapters", "others"] {
        let chapters = CreateNamespaceRequest {
            name: name.into(),
            format: Some("yuewen-chapter".into()),
            ..Default::default()
        };
        client.create_namespace(chapters).await.expect("a namespace");
    }
    let chapter = ratchet_ids::Format::parse("yuewen-chapter").expect("a format");
    let order = async |namespace: &str, book: u64| {
        let parameters = [("table", 0), ("database", 0)];
        let made = client.next_ids(namespace, Some(Key::Id(book)), 1, &parameters).await;
        let made = made.expect("an id");
        chapter.decode(&made[0]).expect("an id").parts().sequence
    };
    assert_eq!(order("chapters", 47).await, 100);
    let file = processes.dir.path().join("chapters.csv");
    let orders = async |namespace: &str, rows: &str| {
        fs::write(&file, rows).expect("a file");
        import(&processes, namespace, &file, &[]).await
    };
    let refused = async |namespace: &str, rows: &str, says: &str| {
        let output = orders(namespace, rows).await;
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains(says), "{says}: {text}");
    };
    // 12 is the order 1200 as export writes it, and 1200 as ids have it.
    refused("chapters", "42,1200\n", "line 1: begin with a row that says what the numbers are")
        .await;
    refused(
        "chapters",
        "key,order\n42,999901\n",
        "line 2: order '999901' is none between 0 and 999900",
    )
    .await;
    refused("chapters", "key,order\n42,x\n", "line 2: order 'x'").await;
    refused("book", "key,order\n42,100\n", "namespace \"book\" hands out plain numbers").await;
    let rows = "key,order\n42,1200\n43,1250\n44,50\n45,0\n46,999900\n47,100\n";
    let output = orders("chapters", rows).await;
    assert!(output.status.success(), "{}", errors(&output));
    for (book, next) in [(42, 1_300), (43, 1_300), (44, 100), (45, 100), (47, 200), (48, 100)] {
        assert_eq!(order("chapters", book).await, next, "book {book}");
    }
    let parameters = [("table", 0), ("database", 0)];
    let full = client.next_ids("chapters", Some(Key::Id(46)), 1, &parameters).await;
    assert!(
        full.expect_err("a refusal").to_string().contains("has 0 of its 9999 order numbers left")
    );
    // The export is imported elsewhere.
    let servers: Vec<String> = processes.addresses().iter().map(ToString::to_string).collect();
    let mut export = ratchet();
    export.args(["export", "chapters", "--server", &servers.join(","), "--output"]).arg(&file);
    let exported = tokio::task::spawn_blocking(move || export.output());
    let exported = exported.await.expect("no panic").expect("the command runs");
    assert!(exported.status.success(), "{}", errors(&exported));
    let output = import(&processes, "others", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert!(order("others", 42).await >= 1_400);
    assert_eq!(order("others", 99).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_another_file_is_refused() {
    let processes = Processes::start(1, &[]).await;
    let file = processes.dir.path().join("numbers.csv");
    fs::write(&file, "1,5\n").expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    let of = |cluster: &str, bytes: u64, checksum: u32| {
        serde_json::json!({
            "cluster": cluster, "namespace": "book", "format": "csv", "bytes": bytes, "checksum": checksum, "rows_done": 1,
        })
        .to_string()
    };
    let same = crc32fast::hash(b"1,5\n");
    for (other, says) in [
        (of(CLUSTER, 9, 1), "is the record of another import: of 9 bytes"),
        (of("elsewhere", 4, same), "of cluster \"elsewhere\", and"),
    ] {
        fs::write(&record, other).expect("a record");
        let output = import(&processes, "book", &file, &[]).await;
        assert_eq!(output.status.code(), Some(4));
        let text = errors(&output);
        assert!(text.contains(says), "{text}");
    }
    fs::remove_file(&record).expect("removed");
    let output = import(&processes, "book", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_skips_rows_which_are_not_raised_is_removed_and_the_next_import_begins_anew()
{
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    create_small(&client).await;
    let file = processes.dir.path().join("numbers.csv");
    fs::write(&file, "1,50\n12,60\n23,70\n").expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    let bytes = fs::read(&file).expect("the file");
    // As an import leaves it that was killed after two rows. Then the namespace was deleted, and created again.
    let killed = serde_json::json!({
        "cluster": CLUSTER, "namespace": "small", "format": "csv", "bytes": bytes.len(),
        "checksum": crc32fast::hash(&bytes), "rows_done": 2,
    });
    fs::write(&record, killed.to_string()).expect("a record");
    let output = import(&processes, "small", &file, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let text = errors(&output);
    for says in [
        "2 keys are lower than their rows say",
        "line 1: key 1 is at 0, not at 50",
        "had raised 2 rows",
        "import again: it begins with the first row",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!text.contains("bug"), "{text}");
    assert!(!record.exists());
    let output = import(&processes, "small", &file, &["--json"]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["resumed_at"], "0");
    assert_eq!(client.next("small", 1).await.expect("a number"), 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_from_one_cluster_is_imported_into_another_and_no_number_comes_again() {
    let (from, to) = (Processes::start(3, &[]).await, Processes::start(1, &[]).await);
    let client = rust_client::staying(from.addresses());
    let raised = (1..=10_000).map(|id| (Key::Id(id), id * 5));
    client.raise_many("book", raised).await.expect("floors");
    let used = client.next("book", 20_000).await.expect("a number");
    let leader = from.leader().await;
    let servers = from.places[&(leader % 3 + 1)].listen.to_string();
    let file = from.dir.path().join("out.csv");
    let exported = async |namespace: &str| {
        let mut command = ratchet();
        command.args(["export", namespace, "--server", &servers, "--output"]).arg(&file);
        let ended = tokio::task::spawn_blocking(move || command.output());
        ended.await.expect("no panic").expect("the command runs")
    };
    let output = exported("book").await;
    assert!(output.status.success(), "{}", errors(&output));
    let output = import(&to, "book", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let other = rust_client::staying(to.addresses());
    for id in [1, 77, 10_000] {
        assert_eq!(other.next("book", id).await.expect("a number"), id * 5 + 1);
    }
    assert!(other.next("book", 20_000).await.expect("a number") > used);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_ids_that_are_no_whole_sections_or_come_twice_are_refused_with_their_lines() {
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    create_small(&client).await;
    let tags = CreateNamespaceRequest {
        name: "tags".into(),
        key_kind: ratchet_client::api::KeyKind::Name.into(),
        ..Default::default()
    };
    client.create_namespace(tags).await.expect("a namespace");
    let file = processes.dir.path().join("bad.csv");
    let refused = async |namespace: &str, rows: &str| {
        fs::write(&file, rows).expect("a file");
        let output = import(&processes, namespace, &file, &[]).await;
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("nothing was raised"), "{text}");
        text
    };
    let rows = "ids,number\n0-9,5\n20-,6\n29-20,7\n30-38,8\n31-40,9\n40-59,10\n50-59,11\n45,12\n0-9,13\n77,14\n77,15\n\
                60-69,x\n0-99999999,1\n";
    let text = refused("small", rows).await;
    for says in [
        "10 rows are wrong",
        "line 3: key '20-' is no id; namespace \"small\" takes integers",
        "line 4: the range 29-20 begins after its end",
        "line 5: the range 30-38 has 9 ids, which are no whole sections of namespace \"small\": its sections have 10 ids, and begin at multiples of that; create it with a --section-size that divides 30 and 39",
        "line 6: the range 31-40 has 10 ids, which are no whole sections",
        "line 8: the range 50-59 overlaps 40-59, which is on line 7",
        "line 9: key 45 is within 40-59, which is on line 7",
        "line 10: the range 0-9 overlaps 0-9, which is on line 2",
        "line 12: key 77 is on line 11 already",
        "line 13: number 'x' is none between 0 and",
        "line 14: the range 0-99999999 has 10000000 sections of namespace \"small\"; a row has 1000000 at most",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let text = refused("book", "0-99,5\n").await;
    let says =
        "each key of namespace \"book\" has a section of its own; create it with --section-size N";
    assert!(text.contains(says), "{text}");
    let text = refused("tags", "ids,number\n0-99,5\n").await;
    assert!(text.contains("line 1: the rows are of ranges of ids"), "{text}");
    // Without that header it is a name.
    fs::write(&file, "0-99,5\n").expect("a file");
    let output = import(&processes, "tags", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(client.next("tags", "0-99").await.expect("a number"), 6);
    assert_eq!(client.current("small", 5).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_many_sections_and_keys_that_is_killed_goes_on_where_it_was() {
    const SECTIONS: u64 = 200_000;
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    create_small(&client).await;
    let file = processes.dir.path().join("numbers.csv");
    let mut rows = "ids,number\n".to_owned();
    for section in 0..SECTIONS {
        let (first, number) = (section * 10, section + 7);
        match section % 4 {
            // One section in four begins a row of two sections, and one has two rows of keys.
            0 => writeln!(rows, "{first}-{},{number}", first + 19).expect("a row"),
            1 => {}
            2 => writeln!(rows, "{first}-{},{number}", first + 9).expect("a row"),
            _ => writeln!(rows, "{first},{number}\n{},{number}", first + 5).expect("rows"),
        }
    }
    fs::write(&file, rows).expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    kill_midway(|| command(&processes, "small", &file, &[]), &record, SECTIONS, 1).await;
    let output = import(&processes, "small", &file, &["--json"]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["rows"], SECTIONS.to_string());
    for section in (0..SECTIONS).step_by(1_001) {
        let (of_row, keys) = match section % 4 {
            1 => (section - 1, [0, 3, 9]),
            3 => (section, [0, 5, 5]),
            _ => (section, [0, 3, 9]),
        };
        let keys = keys.map(|key| Key::Id(section * 10 + key));
        let last = client.current_many("small", keys).await.expect("numbers");
        assert_eq!(last, [Some(of_row + 7); 3], "section {section}");
    }
    assert_eq!(client.next("small", 8).await.expect("a number"), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_keys_that_share_sections_are_imported_and_their_neighbours_stay() {
    let processes = Processes::start(1, &[]).await;
    let client = rust_client::staying(processes.addresses());
    assert_eq!(client.next("uid", 7).await.expect("a number"), 1);
    let file = processes.dir.path().join("uids.csv");
    let ids = (0..3_000).map(|row| row * 100 + 50);
    let rows: String = ids.clone().map(|id| format!("{id},{}\n", id + 9)).collect();
    fs::write(&file, rows).expect("a file");
    let output = import(&processes, "uid", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let last = client.current_many("uid", ids.clone().map(Key::Id)).await;
    let expected: Vec<_> = ids.map(|id| Some(id + 9)).collect();
    assert_eq!(last.expect("numbers"), expected);
    assert_eq!(client.next("uid", 7).await.expect("a number"), 2);
}
