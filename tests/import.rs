//! `ratchet import`: nothing is applied of a file with a fault, and an import that is killed goes on where it was.

mod common;

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use common::{
    UNHURRIED, eventually,
    processes::{Process, Processes, ratchet},
    rust_client,
};
use ratchet_client::{Key, api::CreateNamespaceRequest};

/// The command that imports a file.
fn command(processes: &Processes, namespace: &str, file: &Path, more: &[&str]) -> Command {
    let servers: Vec<String> = processes
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut command = ratchet();
    command.args(["import", namespace]).arg(file).args(more);
    command.args(["--timeout-ms", "20000", "--server", &servers.join(",")]);
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

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_twice_goes_on_where_it_was_and_loses_nothing() {
    const ROWS: u64 = 300_000;
    let processes = Processes::start(3, &UNHURRIED).await;
    let file = processes.dir.path().join("numbers.csv");
    let mut rows = "key,number\n".to_owned();
    for id in 1..=ROWS {
        writeln!(rows, "{id},{}", id * 7).expect("a row");
    }
    fs::write(&file, rows).expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    let mut done = 0;
    for _ in 0..2 {
        let child: Child = command(&processes, "book", &file, &[])
            .spawn()
            .expect("a process");
        let killed = Process(child);
        done = eventually("more rows", async || {
            rows_done(&record).filter(|now| *now > done)
        })
        .await;
        drop(killed);
    }
    assert!(done < ROWS, "the import was over before it was killed");
    let output = import(&processes, "book", &file, &["--json"]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["rows"], ROWS);
    let resumed_at = told["resumed_at"].as_u64().expect("a number");
    assert!((done..ROWS).contains(&resumed_at), "{told}");
    assert!(!record.exists());
    let client = rust_client::client(processes.addresses());
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
    let processes = Processes::start(1, &UNHURRIED).await;
    let file = processes.dir.path().join("bad.csv");
    fs::write(
        &file,
        "1,5\nx,6\n2,0\n3,7,8\n1,9\n4,9223372036854775808\n\"5\",1\n",
    )
    .expect("a file");
    let output = import(&processes, "book", &file, &[]).await;
    assert_eq!(output.status.code(), Some(4));
    let text = errors(&output);
    for says in [
        "5 rows are wrong, and nothing was raised",
        "line 2: key 'x' is no id",
        "line 3: number '0' is none between 1 and 9223372036854775807",
        "line 4: the row has 3 fields; a row is key,number",
        "line 6: number '9223372036854775808'",
        "line 5: key 1 is on line 1 already",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let client = rust_client::client(processes.addresses());
    assert_eq!(client.current("book", 5).await.expect("an answer"), None);
    let many: String = (0..50).map(|_| "x,1\n").collect();
    fs::write(&file, many).expect("a file");
    let text = errors(&import(&processes, "book", &file, &[]).await);
    assert!(
        text.contains("50 rows are wrong") && text.contains("and 30 more"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_leafs_table_is_imported_also_from_standard_input() {
    let processes = Processes::start(1, &UNHURRIED).await;
    let client = rust_client::client(processes.addresses());
    let tags = CreateNamespaceRequest {
        name: "tags".into(),
        key_kind: ratchet_client::api::KeyKind::Name.into(),
        ..Default::default()
    };
    client.create_namespace(tags).await.expect("a namespace");
    let mut child = command(&processes, "tags", Path::new("-"), &["--format", "leaf"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut input = child.stdin.take().expect("its input");
    input
        .write_all(
            b"INSERT INTO `leaf_alloc` VALUES ('order',2001,2000,'d','t'),('pay',7,1,NULL,NULL);\n",
        )
        .expect("written");
    drop(input);
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = ended.await.expect("no panic").expect("the command runs");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(client.next("tags", "order").await.expect("a number"), 2_002);
    assert_eq!(client.next("tags", "pay").await.expect("a number"), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_another_file_is_refused() {
    let processes = Processes::start(1, &UNHURRIED).await;
    let file = processes.dir.path().join("numbers.csv");
    fs::write(&file, "1,5\n").expect("a file");
    let record = processes.dir.path().join("numbers.csv.ratchet-import");
    let other = r#"{"namespace":"book","format":"csv","bytes":9,"checksum":1,"rows_done":1}"#;
    fs::write(&record, other).expect("a record");
    let output = import(&processes, "book", &file, &[]).await;
    assert_eq!(output.status.code(), Some(4));
    let text = errors(&output);
    assert!(
        text.contains("is the record of another import: of 9 bytes"),
        "{text}"
    );
    fs::remove_file(&record).expect("removed");
    let output = import(&processes, "book", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_from_one_cluster_is_imported_into_another_and_no_number_comes_again() {
    let (from, to) = (
        Processes::start(3, &UNHURRIED).await,
        Processes::start(1, &UNHURRIED).await,
    );
    let client = rust_client::client(from.addresses());
    let raised = (1..=10_000).map(|id| (Key::Id(id), id * 5));
    client.raise_many("book", raised).await.expect("floors");
    let used = client.next("book", 20_000).await.expect("a number");
    let leader = from.leader().await;
    let servers = from.places[&(leader % 3 + 1)].listen.to_string();
    let file = from.dir.path().join("out.csv");
    let exported = async |namespace: &str| {
        let mut command = ratchet();
        command
            .args(["export", namespace, "--server", &servers, "--output"])
            .arg(&file);
        let ended = tokio::task::spawn_blocking(move || command.output());
        ended.await.expect("no panic").expect("the command runs")
    };
    let output = exported("book").await;
    assert!(output.status.success(), "{}", errors(&output));
    let output = import(&to, "book", &file, &[]).await;
    assert!(output.status.success(), "{}", errors(&output));
    let other = rust_client::client(to.addresses());
    for id in [1, 77, 10_000] {
        assert_eq!(other.next("book", id).await.expect("a number"), id * 5 + 1);
    }
    assert!(other.next("book", 20_000).await.expect("a number") > used);
    let output = exported("uid").await;
    assert_eq!(output.status.code(), Some(4));
    assert!(
        errors(&output).contains("share sections of 100000 ids"),
        "{}",
        errors(&output)
    );
}
