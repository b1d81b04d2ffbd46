//! Tokens are told to nobody: whatever a cluster, its logs, its disks and its command show, no token is there.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Output, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use ratchet::{
    node::hash_of,
    proto::v1::{
        ListPrincipalsRequest, RevokeTokenRequest, StatusRequest, access_client::AccessClient,
        admin_client::AdminClient,
    },
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

use crate::common::{
    closed::{asking, create, grant, next},
    eventually, http, http_get, in_time,
    processes::{Place, Processes, ratchet},
};

/// How many digits of a token's hash are its id. More of them stand nowhere.
const ID_DIGITS: usize = 12;

/// What was printed and answered: where it was, and its bytes.
#[derive(Default)]
struct Seen(Vec<(String, Vec<u8>)>);

impl Seen {
    fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((place.into(), bytes.into()));
    }

    fn add_page(&mut self, what: &str, page: &crate::common::Page) {
        self.add(format!("the answer to {what}"), format!("{}\n{}", page.head, page.body));
    }
}

/// All files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        // A socket cannot be read.
        false => vec![path].into_iter().filter(|path| path.is_file()).collect(),
    };
    paths.flat_map(below).collect()
}

/// What may stand nowhere: the secrets, each as text and as the numbers of its bytes; and what `further` adds.
fn forbidden(secrets: &BTreeSet<String>, further: impl Fn(&str) -> Option<String>) -> Vec<Vec<u8>> {
    let as_numbers = |secret: &str| {
        let numbers: Vec<String> = secret.bytes().map(|byte| byte.to_string()).collect();
        numbers.join(", ")
    };
    let forms = |secret: &String| [Some(secret.clone()), Some(as_numbers(secret)), further(secret)];
    secrets.iter().flat_map(forms).flatten().map(String::into_bytes).collect()
}

/// Which of the forbidden texts, of eight bytes at least, stand in `bytes`.
fn found<'a>(bytes: &[u8], forbidden: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    // Those that end with the same eight bytes are compared in full.
    let end = |text: &[u8]| text.iter().fold(0u64, |last, byte| last << 8 | u64::from(*byte));
    let mut ends: Vec<(u64, &[u8])> = forbidden.iter().map(|text| (end(text), &**text)).collect();
    ends.sort_unstable();
    let (mut last, mut found) = (0u64, Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        last = last << 8 | u64::from(*byte);
        let from = ends.partition_point(|(end, _)| *end < last);
        let same = ends[from..].iter().take_while(|(end, _)| *end == last);
        found.extend(same.map(|(_, text)| *text).filter(|text| bytes[..=at].ends_with(text)));
    }
    found
}

/// What everybody on the machine may read of a process: how it was started.
fn command_line(process: &Child) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", process.id())).unwrap_or_default()
}

/// A command that asks the cluster, and where its tokens are.
struct Shell {
    servers: String,
    tokens: TempDir,
}

impl Shell {
    fn file(&self, name: &str) -> PathBuf {
        self.tokens.path().join(name)
    }

    /// The token in a file.
    fn token(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect(name).trim_end().to_owned()
    }

    /// Runs a command line, in which `@NAME` stands for the path of that file, to its end. What it prints was seen.
    async fn run(&self, line: &str, seen: &mut Seen) -> Output {
        let words = line.split(' ').map(|word| match word.strip_prefix('@') {
            Some(name) => self.file(name).display().to_string(),
            None => word.to_owned(),
        });
        let mut command = ratchet();
        command.args(words).env("RATCHET_SERVER", &self.servers);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().expect("it runs");
        // Nothing, if it has ended by now.
        seen.add(format!("what others see of ratchet {line}"), command_line(&running));
        let running = tokio::task::spawn_blocking(|| running.wait_with_output().expect("its end"));
        let output = in_time(line, running).await.expect("no panic");
        seen.add(
            format!("the output of ratchet {line}"),
            [&*output.stdout, &output.stderr].concat(),
        );
        output
    }

    /// As [`Shell::run`], of a command that must succeed.
    async fn done(&self, line: &str, seen: &mut Seen) {
        let output = self.run(line, seen).await;
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

/// The subcommands that a help names.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let named = lines.filter(|line| !line.starts_with("   "));
    let words = named.filter_map(|line| line.split_whitespace().next());
    words.filter(|word| *word != "help").map(str::to_owned).collect()
}

/// Has every subcommand tell its help. Returns how many did.
async fn ask_for_help(shell: &Shell, seen: &mut Seen) -> usize {
    let mut left = vec![String::new()];
    let mut count = 0;
    while let Some(command) = left.pop() {
        let help = shell.run(format!("{command} --help").trim_start(), seen).await;
        assert!(help.status.success(), "{command} --help: {help:?}");
        count += 1;
        let help = String::from_utf8(help.stdout).expect("text");
        left.extend(subcommands(&help).iter().map(|word| match command.as_str() {
            "" => word.clone(),
            command => format!("{command} {word}"),
        }));
    }
    count
}

/// Sends lines over one connection of a Redis client, which then ends it. Returns all replies.
async fn redis(address: SocketAddr, lines: &[String]) -> Vec<u8> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{}\r\nQUIT\r\n", lines.join("\r\n")).as_bytes()).await?;
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies).await?;
        Ok::<_, std::io::Error>(replies)
    };
    in_time("replies", asking).await.expect("replies")
}

/// Asks a node over gRPC, with one token that is good and one that is not.
async fn over_grpc(at: SocketAddr, good: &str, wrong: &str, seen: &mut Seen) {
    eventually("a number", async || next(&asking(at, Some(good)), "book").await.ok()).await;
    let refused = async || {
        let told = next(&asking(at, Some(wrong)), "book").await;
        (told == Err(Code::Unauthenticated)).then_some(())
    };
    eventually("the token is refused", refused).await;
    for token in [good, wrong] {
        let mut admin = AdminClient::new(asking(at, Some(token)));
        let told = admin.status(StatusRequest {}).await;
        seen.add("the status over gRPC", format!("{told:?}"));
        let mut access = AccessClient::new(asking(at, Some(token)));
        let told = access.list_principals(ListPrincipalsRequest {}).await;
        seen.add("a list over gRPC", format!("{told:?}"));
        let revoke = RevokeTokenRequest { name: "nobody".to_owned(), id: None };
        let told = access.revoke_token(revoke).await;
        seen.add("a refusal over gRPC", format!("{told:?}"));
    }
}

/// Asks a node over HTTP: each page with every token, and malformed headers.
async fn over_http(place: &Place, tokens: &[&str], seen: &mut Seen) {
    let address = place.http_listen;
    for what in [
        "POST /v1/namespaces/book/keys/1:next",
        "GET /v1/status",
        "GET /v1/namespaces",
        "GET /v1/principals",
        "GET /openapi.json",
        "GET /",
        "GET /nothing",
        "DELETE /v1/tokens/nobody",
    ] {
        for token in tokens {
            let header = format!("Authorization: Bearer {token}\r\n");
            seen.add_page(what, &http(address, what, &header, "").await);
            let twice = format!("{header}authorization: bearer  {token}\r\n");
            seen.add_page(what, &http(address, what, &twice, "").await);
        }
    }
    // Clients of Tinyid send a token in the address of what they ask for.
    for token in tokens {
        for path in ["nextId", "nextIdSimple", "nextSegmentId", "nothing"] {
            for of_type in ["test", "none"] {
                let query = format!("bizType={of_type}&token={token}");
                for what in ["GET", "PUT"] {
                    let page = format!("{what} /tinyid/id/{path}?{query}");
                    let told = http(address, &page, "", "").await;
                    seen.add_page(&format!("{what} /tinyid/id/{path}"), &told);
                }
            }
        }
    }
    for page in ["/metrics", "/livez", "/readyz"] {
        seen.add_page(page, &http_get(place.metrics_listen, page).await);
    }
}

/// Logs in as a browser, looks at the pages, and logs out. Returns the id of the session.
async fn in_browser(place: &Place, token: &str, wrong: &str, seen: &mut Seen) -> String {
    let address = place.http_listen;
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    // A node that could not ask the leader about a token in time is asked again.
    eventually("a login is refused", async || {
        let refused = http(address, "POST /login", form, &format!("token={wrong}")).await;
        seen.add_page("POST /login", &refused);
        (refused.status == 401).then_some(())
    })
    .await;
    let page = http(address, "POST /login", form, &format!("token={token}")).await;
    assert_eq!(page.status, 303, "{}", page.body);
    // The one place where the id is told: nothing else may have it.
    let cookie = page.head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then_some(value)
    });
    let pair = cookie.and_then(|cookie| cookie.split(';').next()).expect("a cookie");
    let (_, id) = pair.split_once('=').expect("an id");
    assert!(id.len() >= 32, "{} characters", id.len());
    seen.add("the answer to POST /login", page.head.replace(id, "ID"));
    let header = format!("Cookie: {pair}\r\n");
    let shown = http(address, "GET /", &header, "").await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    seen.add_page("GET / in a session", &shown);
    for what in [
        "GET /login",
        "GET /nothing",
        "GET /v1/status",
        "POST /v1/namespaces/book/keys/1:next",
        "POST /logout",
        "GET /",
        "POST /logout",
    ] {
        seen.add_page(what, &http(address, what, &header, "").await);
    }
    id.to_owned()
}

/// Logs in at a node as a Redis client, in every form, and asks for things.
async fn over_redis(place: &Place, tokens: &[&str], seen: &mut Seen) {
    for token in tokens {
        for login in [
            format!("AUTH {token}"),
            format!("AUTH default {token}"),
            format!("AUTH ci {token}"),
            format!("AUTH a b {token}"),
            format!("HELLO 3 AUTH ci {token}"),
            format!("HELLO 3 AUTH {token}"),
            format!("MULTI\r\nAUTH {token}\r\nEXEC"),
        ] {
            let lines = [login, "ACL WHOAMI".to_owned(), "INCR book:7".to_owned()];
            let lines = [&lines[..], &["INFO".to_owned(), "CLIENT ID".to_owned()]].concat();
            seen.add("replies to a Redis client", redis(place.resp_listen, &lines).await);
        }
    }
}

/// Has a token made over HTTP, by its hash.
async fn create_over_http(place: &Place, admin: &str, token: &str, seen: &mut Seen) {
    let sha256 = BASE64_STANDARD.encode(hash_of(token.as_bytes()).0);
    let grants = r#"[{"verb":"VERB_READ","namespaces":"*"}]"#;
    let sha256 = format!(r#"{{"base64":"{sha256}"}}"#);
    let body = format!(r#"{{"name":"http","sha256":{sha256},"grants":{grants}}}"#);
    let header = format!("Authorization: Bearer {admin}\r\n");
    let made = http(place.http_listen, "POST /v1/tokens", &header, &body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    seen.add_page("POST /v1/tokens", &made);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_printed_logged_or_stored() {
    // The file that is kept for a full disk holds nothing, and is large.
    let flags = ["--log", "trace", "--disk-reserve-mb", "0"];
    let tinyid = ["--tinyid-types", "test=book:1", "--tinyid-tokens", "test=of-the-type"];
    let mut cluster = Processes::unfounded(3, &[flags, tinyid].concat());
    let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let tokens = TempDir::new().expect("a temporary directory");
    let shell = Shell { servers: servers.join(","), tokens };
    let mut seen = Seen::default();

    let found = "found --admin-token-file @admin";
    eventually("the cluster is founded", async || {
        shell.run(found, &mut seen).await.status.success().then_some(())
    })
    .await;
    shell.done("found --admin-token-file @admin --token-file @admin", &mut seen).await;
    let admin = shell.token("admin");
    shell
        .done(
            "token create ci --grant next:book --grant read:* --file @ci --token-file @admin",
            &mut seen,
        )
        .await;
    let ci = shell.token("ci");
    let [over_http_made, over_grpc_made] =
        ["a-token-that-is-made-over-http", "a-token-that-is-made-over-grpc"];
    create_over_http(&cluster.places[&1], &admin, over_http_made, &mut seen).await;
    let mut access = AccessClient::new(asking(cluster.places[&2].listen, Some(&admin)));
    let made = create(&mut access, over_grpc_made, "grpc", vec![grant("next:book")]).await;
    seen.add("a token made over gRPC", format!("{:?}", made.expect("a token")));
    // The one place where a token is printed: nothing else may have it.
    let mut only_here = Seen::default();
    let printed = "token create printed --grant read:* --token-file @admin";
    let output = shell.run(printed, &mut only_here).await;
    let printed = String::from_utf8(output.stdout).expect("text").trim_end().to_owned();
    assert!(printed.starts_with("ratchet_"), "{:?}", output.status);
    let wrong = ["grpc", "http", "redis", "command"].map(|at| format!("a-token-unknown-at-{at}"));

    let mut sessions = Vec::new();
    for place in cluster.places.values() {
        over_grpc(place.listen, &ci, &wrong[0], &mut seen).await;
        let tokens = [&admin, &ci, over_http_made, &*printed, &*wrong[1]];
        over_http(place, &tokens, &mut seen).await;
        over_redis(place, &[&ci, over_grpc_made, &wrong[2]], &mut seen).await;
        sessions.push(in_browser(place, &ci, &wrong[1], &mut seen).await);
    }
    for (id, process) in &cluster.running {
        let line = command_line(&process.0);
        assert!(!line.is_empty(), "node {id} runs");
        seen.add(format!("what others see of node {id}"), line);
    }

    fs::write(shell.file("wrong"), &wrong[3]).expect("a file");
    fs::write(shell.file("two-lines"), format!("{0}\n{0}\n", wrong[3])).expect("a file");
    for line in [
        "next book 42 --token-file @ci",
        "status --token-file @ci",
        "status --json --token-file @ci",
        "token list --token-file @admin",
        "token list --json --token-file @admin",
        "grant anonymous next:nothing --token-file @admin",
        "token create ci --grant next:book --grant read:* --file @ci --token-file @admin",
    ] {
        shell.done(line, &mut seen).await;
    }
    for line in [
        "next book 42",
        "next book 42 --token-file @wrong",
        "next other 42 --token-file @ci --json",
        "status --token-file @wrong --json",
        "token list --token-file @two-lines",
        "token create again --grant nxt:book --file @ci --token-file @admin",
        "token create ci --grant all --file @ci --token-file @admin",
        "found --admin-token-file @wrong --token-file @admin",
    ] {
        let output = shell.run(line, &mut seen).await;
        assert!(!output.status.success(), "{line}: {output:?}");
    }
    shell.done("token revoke grpc --token-file @admin", &mut seen).await;
    assert!(ask_for_help(&shell, &mut seen).await > 20);

    // With two others a leader hands over. Alone it would wait for them.
    assert!(cluster.terminate(1).await.success());
    for id in 1..=3 {
        cluster.kill(id);
        let log = fs::metadata(cluster.log(id)).expect("a log");
        assert!(log.len() > 100_000, "node {id} hardly logs");
    }
    let secrets = [admin, ci, printed, over_http_made.to_owned(), over_grpc_made.to_owned()];
    let secrets: BTreeSet<String> = secrets.into_iter().chain(wrong).chain(sessions).collect();
    check(&seen, &secrets, cluster.dir.path());
}

/// Sees that no secret is in what was seen, or in a file below `dir`, nor more digits of a hash than its id has.
fn check(seen: &Seen, secrets: &BTreeSet<String>, dir: &Path) {
    let more_than_id = |secret: &str| {
        let digits: String =
            hash_of(secret.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(digits[..=ID_DIGITS].to_owned())
    };
    let forbidden = forbidden(secrets, more_than_id);
    let check = |place: &str, bytes: &[u8]| {
        let found = found(bytes, &forbidden);
        let found: Vec<_> = found.iter().map(|text| String::from_utf8_lossy(text)).collect();
        assert!(found.is_empty(), "{place} has {found:?}");
    };
    assert!(seen.0.len() > 100, "only {} things were seen", seen.0.len());
    seen.0.iter().for_each(|(place, bytes)| check(place, bytes));
    let files = files(dir);
    // At least a log of the database's own and a table, or what becomes one, of each node.
    assert!(files.len() > 3 * 3, "only {} files were found", files.len());
    for file in files {
        check(&file.display().to_string(), &fs::read(&file).expect("a file"));
    }
}

#[test]
fn a_secret_is_found_wherever_it_stands_and_as_numbers() {
    let secrets = BTreeSet::from(["ratchet_one".to_owned(), "another_one".to_owned()]);
    let forbidden = forbidden(&secrets, |secret| secret.get(..9).map(str::to_uppercase));
    let count = |text: &[u8]| found(text, &forbidden).len();
    for clean in [&b""[..], b"ratchet_on", b"atchet_one", b"RATCHET_", b"one", b"\x00\xff"] {
        assert_eq!(count(clean), 0, "{clean:?}");
    }
    for text in [&b"ratchet_one"[..], b"\xffratchet_one\x00", b"xRATCHET_Ox", b"aanother_oneone"] {
        assert_eq!(count(text), 1, "{text:?}");
    }
    let numbers = b"[114, 97, 116, 99, 104, 101, 116, 95, 111, 110, 101]";
    assert_eq!(count(numbers), 1);
}

#[test]
fn subcommands_are_read_from_a_help() {
    let help = "About\n\nCommands:\n  next  Take\n        more\n  token Make\n  help  Print\n\nOptions:\n  -h\n";
    assert_eq!(subcommands(help), ["next", "token"]);
}
