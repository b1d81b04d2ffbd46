//! Secrets are told to nobody: a cluster, its logs, its disks and its command show no token, no private key, and no id of a
//! session.

mod search;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Output, Stdio},
    sync::Arc,
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
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::rustls::ALL_VERSIONS;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

use self::search::{Seen, check_files, check_seen, of_key, of_token};
use crate::common::{
    certificates::{Certificates, connect_with},
    channel,
    closed::{asking_over, create, grant, next},
    eventually, free_ports, http, http_get, in_time,
    processes::{Place, Processes, ratchet},
};

/// The command line of a process, which everybody on the machine may read.
fn command_line(process: &Child) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", process.id())).unwrap_or_default()
}

/// A command that asks the cluster, and where its tokens and its certificates are.
struct Shell {
    servers: String,
    tokens: TempDir,
    certificates: Certificates,
}

impl Shell {
    fn file(&self, name: &str) -> PathBuf {
        self.tokens.path().join(name)
    }

    /// The token in a file.
    fn token(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect(name).trim_end().to_owned()
    }

    /// Runs a command line to its end, in which `@NAME` stands for the path of a token's file, and `%NAME` for the path of a
    /// certificate or of its key. Adds its output to `seen`.
    async fn run(&self, line: &str, seen: &mut Seen) -> Output {
        let words = line.split(' ').map(|word| match word.split_at_checked(1) {
            Some(("@", name)) => self.file(name).display().to_string(),
            Some(("%", name)) => self.certificates.path(name),
            _ => word.to_owned(),
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

    /// As [`Shell::run`], of a command that must fail.
    async fn fails(&self, line: &str, seen: &mut Seen) {
        let output = self.run(line, seen).await;
        assert!(!output.status.success(), "{line}: {output:?}");
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

/// Asks a node over gRPC with a token.
async fn ask_over_grpc(at: Channel, token: &str, seen: &mut Seen) {
    let asking = asking_over(at, Some(token));
    let told = next(&asking, "other").await;
    seen.add("a number over gRPC", format!("{told:?}"));
    let mut admin = AdminClient::new(asking.clone());
    let told = admin.status(StatusRequest {}).await;
    seen.add("the status over gRPC", format!("{told:?}"));
    let mut access = AccessClient::new(asking);
    let told = access.list_principals(ListPrincipalsRequest {}).await;
    seen.add("a list over gRPC", format!("{told:?}"));
    let revoke = RevokeTokenRequest { name: "nobody".to_owned(), id: None };
    let told = access.revoke_token(revoke).await;
    seen.add("a refusal over gRPC", format!("{told:?}"));
}

/// Asks a node over gRPC, with one token that is good and one that is not.
async fn over_grpc(at: Channel, good: &str, wrong: &str, seen: &mut Seen) {
    let shows = |token| asking_over(at.clone(), Some(token));
    eventually("a number", async || next(&shows(good), "book").await.ok()).await;
    let refused = async || {
        let told = next(&shows(wrong), "book").await;
        (told == Err(Code::Unauthenticated)).then_some(())
    };
    eventually("the token is refused", refused).await;
    for token in [good, wrong] {
        ask_over_grpc(at.clone(), token, seen).await;
    }
}

/// Asks a node over its local socket, where a user that may open it is let in.
async fn over_socket(socket: &str, tokens: &[&str], seen: &mut Seen) {
    for token in tokens {
        let at = Endpoint::from_shared(socket.to_owned()).expect("an address").connect_lazy();
        let asking = asking_over(at.clone(), Some(token));
        eventually("a number", async || next(&asking, "book").await.ok()).await;
        ask_over_grpc(at, token, seen).await;
    }
}

/// All that comes over a connection which says this first, until it has `enough`, or ends.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin, says: &str, enough: &str,
) -> Vec<u8> {
    let mut told = Vec::new();
    let exchanging = async {
        stream.write_all(says.as_bytes()).await?;
        stream.flush().await?;
        let has_enough = |told: &[u8]| {
            !enough.is_empty() && told.windows(enough.len()).any(|part| part == enough.as_bytes())
        };
        while !has_enough(&told) && stream.read_buf(&mut told).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // A connection may be cut off at its end.
    let _ = in_time("an answer", exchanging).await;
    told
}

/// Watches the status page with these headers until the first event comes, or the refusal. `let_in` says which.
async fn watch(place: &Place, headers: &str, let_in: bool, seen: &mut Seen) {
    let stream = TcpStream::connect(place.http_listen).await.expect("a connection");
    let says = format!("GET /events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
    let told = exchange(stream, &says, "\ndata: ").await;
    let text = String::from_utf8_lossy(&told).into_owned();
    assert_eq!(text.starts_with("HTTP/1.1 200"), let_in, "{text}");
    assert_eq!(text.contains("\ndata: "), let_in, "{text}");
    seen.add("what is told at /events", told);
}

/// Asks a node over TLS at each of its ports for clients, with a certificate and a token.
async fn over_tls(certificates: &Certificates, place: &Place, token: &str, seen: &mut Seen) {
    let at = certificates.channel(place.listen, Some("client-billing"));
    ask_over_grpc(at, token, seen).await;
    let connect = async |address: SocketAddr| {
        certificates.connect(address, "client-billing", &[]).await.expect("a handshake")
    };
    for what in ["GET /v1/status", "GET /", "POST /v1/namespaces/book/keys/1:next"] {
        let says = format!(
            "{what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        let told = exchange(connect(place.http_listen).await, &says, "").await;
        assert!(told.starts_with(b"HTTP/1.1 "), "{}", told.escape_ascii());
        seen.add(format!("the answer to {what} over TLS"), told);
    }
    let says = format!("AUTH {token}\r\nACL WHOAMI\r\nINCR book:1\r\nQUIT\r\n");
    let told = exchange(connect(place.resp_listen).await, &says, "").await;
    assert!(told.starts_with(b"+OK") || told.starts_with(b"-"), "{}", told.escape_ascii());
    seen.add("replies to a Redis client over TLS", told);
    // One caller shows a certificate of another CA, and one speaks no TLS to the peers.
    let others = Certificates::new();
    others.client("billing");
    for address in [place.listen, place.http_listen, place.resp_listen, place.peer_listen] {
        let config = others.client_config(Some("client-billing"), ALL_VERSIONS);
        if let Err(refused) = connect_with(&Arc::new(config), address).await {
            seen.add("a refusal over TLS", refused.to_string());
        }
    }
    let plain = TcpStream::connect(place.peer_listen).await.expect("a connection");
    seen.add("what peers say without TLS", exchange(plain, &format!("{token}\r\n"), "").await);
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
    // Clients of Tinyid send a token in the address of their requests.
    for token in tokens.iter().copied().chain([OF_TYPE]) {
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
    watch(place, &header, true, seen).await;
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
    // It has logged out.
    watch(place, &header, false, seen).await;
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
    // A node that could not ask the leader about a token in time is asked again.
    let made = eventually("an answer", async || {
        let made = http(place.http_listen, "POST /v1/tokens", &header, &body).await;
        (made.status != 503).then_some(made)
    })
    .await;
    assert_eq!(made.status, 201, "{}", made.body);
    seen.add_page("POST /v1/tokens", &made);
}

/// Which node has a port for administrators.
const WITH_ADMIN_PORT: u64 = 3;
/// The token of a type that clients of Tinyid ask for.
const OF_TYPE: &str = "a-token-of-the-type";

/// A cluster that is not founded, whose nodes have TLS at every port, and the command that asks it.
fn start() -> (Processes, Shell) {
    let tokens = TempDir::new().expect("a temporary directory");
    let file = tokens.path().join("ratchet.toml");
    fs::write(&file, format!("[tinyid_tokens]\ntest = \"{OF_TYPE}\"\n")).expect("written");
    // The file that is kept for a full disk holds nothing, and is large.
    let flags = ["--log", "trace", "--disk-reserve-mb", "0", "--tinyid-types", "test=book:1"];
    let config = ["--config", file.to_str().expect("a path")];
    let mut cluster = Processes::configured(3, &[&flags[..], &config].concat());
    let certificates = Certificates::new();
    certificates.client("billing");
    let [admin] = free_ports(cluster.places[&WITH_ADMIN_PORT].listen.ip());
    for id in 1..=3 {
        certificates.node(id, &cluster.places[&id].listen.ip().to_string(), &[]);
        let mut flags = [
            certificates.client_flags(id, "accept"),
            certificates.peer_flags(id, "require"),
            vec![format!("--tls-client-ca={}", certificates.path("ca.crt"))],
        ]
        .concat();
        if id == WITH_ADMIN_PORT {
            flags.push(format!("--admin-listen={admin}"));
        }
        cluster.own_flags.insert(id, flags);
        cluster.spawn(id);
    }
    // At that port all is served, and a client that asks there stays there.
    (cluster, Shell { servers: admin.to_string(), tokens, certificates })
}

/// All private keys in the directory of the certificates, as PEM.
fn keys(certificates: &Certificates) -> Vec<String> {
    let dir = PathBuf::from(certificates.path("."));
    let is_key = |file: &PathBuf| file.extension().is_some_and(|end| end == "key");
    let keys = search::files(&dir).into_iter().filter(is_key);
    keys.map(|file| fs::read_to_string(file).expect("PEM")).collect()
}

/// Has a node, and the command, read files in which a key is broken, or stands in the wrong place.
async fn with_broken_files(cluster: &Processes, shell: &Shell, seen: &mut Seen) {
    let certificates = &shell.certificates;
    let [certificate, key] = ["node-1.crt", "node-1.key"].map(|name| certificates.read(name));
    let text = String::from_utf8(key.clone()).expect("PEM");
    let lines: Vec<&str> = text.lines().collect();
    let broken = [
        ("node-1.key", text[..text.len() - 40].to_owned()),
        // A line that is taken for the beginning of something.
        ("node-1.key", format!("-----BEGIN {}{}\n", lines[1], lines[2])),
        ("node-1.key", format!("{}\n{}!\n{}\n", lines[0], lines[1], lines[lines.len() - 1])),
        ("node-1.key", lines[1..].join("\n")),
        ("node-1.crt", text.clone()),
        ("node-1.crt", format!("-----BEGIN {}{}\n", lines[1], lines[2])),
    ];
    let server = cluster.socket(1);
    let dir = shell.tokens.path().join("data").display().to_string();
    for (file, content) in broken {
        fs::write(certificates.path(file), content).expect("written");
        for json in ["", " --json"] {
            shell.fails(&format!("reload --server {server}{json}"), seen).await;
        }
        // A node that begins with these files, and a caller that shows them.
        let pair = "-cert %node-1.crt --tls-key %node-1.key";
        for line in [
            format!("start --dev --data-dir {dir} --log trace --tls accept --tls{pair}"),
            format!("status --tls-ca %ca.crt --tls{pair} --token-file @ci"),
        ] {
            let output = shell.run(&line, seen).await;
            let told = String::from_utf8_lossy(&output.stderr);
            // A caller has one of each, which its flags name.
            let is_named = told.contains("/node-1.") || told.contains("the client's ");
            assert!(!output.status.success() && is_named, "{line}: {told}");
        }
        fs::write(certificates.path("node-1.crt"), &certificate).expect("written");
        fs::write(certificates.path("node-1.key"), &key).expect("written");
    }
    for json in ["", " --json"] {
        shell.done(&format!("reload --server {server}{json}"), seen).await;
    }
}

/// Has the command make certificates, and refuse to.
async fn make_certificates(shell: &Shell, seen: &mut Seen) {
    let node = "cert node --cluster test --node-id 9 --host localhost --dir %.";
    let client = "cert client --cluster test --name other --dir %.";
    for line in [node, client] {
        shell.done(line, seen).await;
        shell.fails(line, seen).await;
    }
    shell.fails("cert ca --dir %.", seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_printed_logged_or_stored() {
    let (mut cluster, shell) = start();
    let mut seen = Seen::default();
    make_certificates(&shell, &mut seen).await;

    // Only a caller with a certificate founds it over the network.
    let found = format!("found --admin-token-file @admin --server {}", cluster.socket(1));
    eventually("the cluster is founded", async || {
        shell.run(&found, &mut seen).await.status.success().then_some(())
    })
    .await;
    shell.done(&format!("{found} --token-file @admin"), &mut seen).await;
    eventually("the node with the port for administrators knows the token", async || {
        let listed = shell.run("token list --token-file @admin", &mut seen).await;
        listed.status.success().then_some(())
    })
    .await;
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
    let at = channel(cluster.places[&2].listen);
    let mut access = AccessClient::new(asking_over(at, Some(&admin)));
    let made = eventually("an answer", async || {
        match create(&mut access, over_grpc_made, "grpc", vec![grant("next:book")]).await {
            Err(again) if again.code() == Code::Unavailable => None,
            made => Some(made.expect("a token")),
        }
    })
    .await;
    seen.add("a token made over gRPC", format!("{made:?}"));
    // The one place where a token is printed: nothing else may have it.
    let mut only_here = Seen::default();
    let printed = "token create printed --grant read:* --token-file @admin";
    let output = shell.run(printed, &mut only_here).await;
    let printed = String::from_utf8(output.stdout).expect("text").trim_end().to_owned();
    assert!(printed.starts_with("ratchet_"), "{:?}", output.status);
    let wrong = ["grpc", "http", "redis", "command"].map(|at| format!("a-token-unknown-at-{at}"));

    let mut sessions = Vec::new();
    for (id, place) in &cluster.places {
        over_grpc(channel(place.listen), &ci, &wrong[0], &mut seen).await;
        let tokens = [&admin, &ci, over_http_made, &*printed, &*wrong[1]];
        over_http(place, &tokens, &mut seen).await;
        for (token, let_in) in [(&ci, true), (&wrong[1], false)] {
            let header = format!("Authorization: Bearer {token}\r\n");
            watch(place, &header, let_in, &mut seen).await;
        }
        over_redis(place, &[&ci, over_grpc_made, &wrong[2]], &mut seen).await;
        sessions.push(in_browser(place, &ci, &wrong[1], &mut seen).await);
        over_socket(&cluster.socket(*id), &[&admin, &ci, &wrong[0]], &mut seen).await;
        for token in [&ci, &wrong[0]] {
            over_tls(&shell.certificates, place, token, &mut seen).await;
        }
    }
    let admin_port: SocketAddr = shell.servers.parse().expect("an address");
    over_grpc(channel(admin_port), &ci, &wrong[0], &mut seen).await;
    let at = shell.certificates.channel(admin_port, Some("client-billing"));
    for token in [&admin, &ci, &wrong[0]] {
        ask_over_grpc(channel(admin_port), token, &mut seen).await;
        ask_over_grpc(at.clone(), token, &mut seen).await;
    }
    for (id, process) in &cluster.running {
        let line = command_line(&process.0);
        assert!(!line.is_empty(), "node {id} runs");
        seen.add(format!("what others see of node {id}"), line);
    }

    fs::write(shell.file("wrong"), &wrong[3]).expect("a file");
    let broken = format!("[tinyid_tokens]\ntest = \"{}\" {0}\n", wrong[3]);
    fs::write(shell.file("broken.toml"), broken).expect("a file");
    fs::write(shell.file("two-lines"), format!("{0}\n{0}\n", wrong[3])).expect("a file");
    let socket = cluster.socket(2);
    let shows = "--tls-ca %ca.crt --tls-cert %client-billing.crt --tls-key %client-billing.key";
    for line in [
        "next book 42 --token-file @ci",
        &format!("next book 42 --token-file @ci {shows}"),
        "status --token-file @ci",
        "status --json --token-file @ci",
        &format!("status --token-file @ci {shows}"),
        &format!("status --token-file @wrong --server {socket}"),
        "token list --token-file @admin",
        "token list --json --token-file @admin",
        &format!("token list --token-file @admin --server {socket}"),
        "grant anonymous next:nothing --token-file @admin",
        "token create ci --grant next:book --grant read:* --file @ci --token-file @admin",
    ] {
        shell.done(line, &mut seen).await;
    }
    for line in [
        "next book 42",
        "next book 42 --token-file @wrong",
        &format!("next book 42 --token-file @wrong {shows}"),
        "next other 42 --token-file @ci --json",
        "status --token-file @wrong --json",
        "status --tls-ca %ca.crt --tls-cert %client-billing.key --tls-key %client-billing.crt",
        "status --tls-ca %client-billing.key --token-file @ci",
        "token list --token-file @two-lines",
        "start --config @broken.toml",
        "token create again --grant nxt:book --file @ci --token-file @admin",
        "token create ci --grant all --file @ci --token-file @admin",
        "found --admin-token-file @wrong --token-file @admin",
    ] {
        shell.fails(line, &mut seen).await;
    }
    with_broken_files(&cluster, &shell, &mut seen).await;
    shell.done("token revoke grpc --token-file @admin", &mut seen).await;
    assert!(ask_for_help(&shell, &mut seen).await > 20);

    // With two others a leader hands over. Alone it would wait for them.
    assert!(cluster.terminate(1).await.success());
    for id in 1..=3 {
        cluster.kill(id);
        let log = fs::metadata(cluster.log(id)).expect("a log");
        assert!(log.len() > 100_000, "node {id} hardly logs");
    }
    let keys = keys(&shell.certificates);
    // The keys are of the CA, of three nodes and a client, and two that the command has made.
    assert_eq!(keys.len(), 1 + 3 + 1 + 2);
    let given = [over_http_made, over_grpc_made, OF_TYPE].map(str::to_owned);
    let tokens = [admin, ci, printed].into_iter().chain(given).chain(wrong).chain(sessions);
    let forbidden: Vec<Vec<u8>> = tokens
        .flat_map(|token| of_token(&token))
        .chain(keys.iter().flat_map(|key| of_key(key)))
        .collect();
    check_seen(&seen, &forbidden);
    // At least a log of the database's own and a table, or a file that becomes one, of each node.
    assert!(check_files(cluster.dir.path(), &forbidden, |_| false) > 3 * 3);
    // A key stands in its own file, and in none that everybody gets.
    let is_key = |file: &Path| file.extension().is_some_and(|end| end == "key");
    let dir = PathBuf::from(shell.certificates.path("."));
    assert_eq!(check_files(&dir, &forbidden, is_key), keys.len());
}

#[test]
fn subcommands_are_read_from_a_help() {
    let help = "About\n\nCommands:\n  next  Take\n        more\n  token Make\n  help  Print\n\nOptions:\n  -h\n";
    assert_eq!(subcommands(help), ["next", "token"]);
}
