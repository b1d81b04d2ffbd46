//! docs/certificates.md: certificates are made, TLS is turned on, certificates are renewed, and the CA is changed, in a living
//! cluster.

use std::{collections::BTreeMap, fs, path::PathBuf};

use ratchet::{consensus::Transport, proto::peer::HelloRequest, server::GrpcTransport};
use ratchet_client::{Client, Tls};
use tonic::Code;

use super::{
    page::{Here, Page},
    shell::{Shell, copy, without},
};
use crate::common::{
    HURRIED, PATIENCE,
    closed::{asking, next},
    eventually,
    links::listening_at,
    processes::Processes,
    rust_client::{Load, builder, client},
    until,
};

const MAKE: &str = "Make certificates";
const TURN_ON: &str = "Turn TLS on";
const NEW: &str = "In a new cluster";
const RENEW: &str = "Renew one";
const CHANGE: &str = "Change the CA";

const REFUSES_CERTIFICATE: &str =
    "the server refuses this client's certificate, or the lack of one";

/// A text of the page about node 1, as it is for another node: "and so on".
pub fn of_node(said: &str, id: u64) -> String {
    [
        ("--node-id 1 ", format!("--node-id {id} ")),
        ("node-1.", format!("node-{id}.")),
        ("db-1.", format!("db-{id}.")),
        ("10.0.0.1,", format!("10.0.0.{id},")),
        // All nodes are on one machine here.
        ("/etc/ratchet/", format!("/etc/ratchet-{id}/")),
        ("/etc/ratchet &&", format!("/etc/ratchet-{id} &&")),
    ]
    .iter()
    .fold(said.to_owned(), |said, (one, other)| said.replace(one, other))
}

/// Settings of the page so far, by name.
#[derive(Default)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Sets the values in these lines.
    pub fn set(&mut self, lines: &str) {
        for line in lines.lines() {
            let (name, value) = line.split_once(" = ").expect(line);
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Has a node read them at its next start.
    pub fn give(&self, cluster: &mut Processes, here: &Here, id: u64) {
        let lines = self.0.iter().map(|(name, value)| format!("{name} = {value}\n"));
        let file = cluster.dir.path().join(format!("{id}.toml"));
        let text = here.read(&of_node(&lines.collect::<String>(), id));
        fs::write(&file, text).expect("written");
        let flags = vec!["--config".to_owned(), file.display().to_string()];
        cluster.own_flags.insert(id, flags);
    }
}

/// A living cluster that becomes as the page says.
struct Living {
    page: Page,
    here: Here,
    shell: Shell,
    cluster: Processes,
    settings: Settings,
    load: Load,
}

impl Living {
    async fn start(page: Page) -> Living {
        let cluster = Processes::start(3, &HURRIED).await;
        let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
        let shell = Shell::new(&servers.join(",")).with_sudo().with_hosts();
        let mut here = Here::default();
        here.put("--cluster orders ", "--cluster test ");
        // There is no user of that name.
        here.put("-o root -g ratchet ", "");
        here.put("-o ratchet ", "");
        for (id, place) in &cluster.places {
            here.put(&format!("10.0.0.{id}"), place.listen.ip());
            here.put(&format!("db-{id}.example.org:7600"), place.listen);
            here.put(&format!("/etc/ratchet-{id}"), etc(&shell, *id).display());
        }
        let load = Load::start(client(cluster.addresses()), "book");
        Living { page, here, shell, cluster, settings: Settings::default(), load }
    }

    async fn play(&self, commands: &str) -> String {
        self.shell.play(&self.here.read(commands)).await
    }

    /// A client over TLS that shows its certificate.
    fn tls_client(&self) -> Client {
        let read = |name: &str| fs::read(self.shell.file(name)).expect(name);
        let (certificate, key) = (read("client-billing.crt"), read("client-billing.key"));
        let tls = Tls::new(read("ca.crt")).identity(certificate, key);
        builder(self.cluster.addresses()).tls(tls).build().expect("a client")
    }

    /// Gives the client its files in `certs`, and starts it again.
    async fn give_client(&mut self) {
        let names = ["ca.crt", "client-billing.crt", "client-billing.key"];
        copy(&self.shell.file("certs"), &self.shell.file("."), &names);
        self.load.with(self.tls_client()).await;
    }

    /// Starts all nodes again with the settings so far, one after the other. Numbers are taken meanwhile.
    async fn start_again(&mut self) {
        for id in 1..=3 {
            self.settings.give(&mut self.cluster, &self.here, id);
            assert!(self.cluster.terminate(id).await.success());
            let before = self.cluster.said(id, "listening");
            self.cluster.spawn(id);
            until("the node listens", || self.cluster.said(id, "listening") > before).await;
            // The exit code is 0 once all voters are there.
            let is_well =
                async || self.shell.run("ratchet status").await.status.success().then_some(());
            eventually("all nodes are there", is_well).await;
            self.load.goes_on().await;
        }
    }

    /// Copies the files in `certs` to these nodes, and waits until they use them.
    async fn copy_to_nodes(&mut self, commands: &Commands, nodes: &[u64]) {
        let in_use = |id: u64| self.cluster.said(id, "changed files are in use");
        let before: Vec<usize> = nodes.iter().map(|id| in_use(*id)).collect();
        for id in nodes {
            self.play(&of_node(&commands.copy_to_node, *id)).await;
        }
        for (id, before) in nodes.iter().zip(before) {
            until("the changed files are in use", || in_use(*id) > before).await;
            // The files for clients and the files for nodes are read by themselves: both are in use after this.
            self.play(&of_node(&commands.reload, *id)).await;
        }
        self.load.goes_on().await;
    }

    /// Sees that a client without these variables is refused, and gets the error that the page shows.
    async fn assert_refused_without(&self, variables: &[&str], told: &str) {
        let unset: String =
            variables.iter().map(|name| format!("-u RATCHET_CLIENT_{name} ")).collect();
        self.assert_refused(&format!("env {unset}ratchet status"), told).await;
    }

    /// Sees that a command is refused, and tells why. Each server refuses it at once.
    async fn assert_refused(&self, command: &str, told: &str) {
        let refused = self.shell.run(command).await;
        let complained = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && complained.contains(told), "{complained}");
    }
}

/// The place of the files that the page copies to `/etc/ratchet` of a node.
fn etc(shell: &Shell, id: u64) -> PathBuf {
    shell.beside(&format!("etc-{id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_about_certificates_says_is_done_in_a_living_cluster_while_numbers_are_taken()
{
    let page = Page::read("certificates.md", &[MAKE, TURN_ON, NEW, RENEW, CHANGE]);
    let mut living = Living::start(page).await;
    let commands = make(&mut living).await;
    turn_on_for_clients(&mut living).await;
    turn_on_between_nodes(&mut living).await;
    renew_one(&mut living, &commands).await;
    change_the_ca(&mut living, &commands).await;
    living.load.stop().await;
    living.page.end();
    living.here.end();
    living.shell.end();
}

/// The commands that are run again later.
struct Commands {
    copy_to_node: String,
    make_client: String,
    renew: String,
    reload: String,
}

async fn make(living: &mut Living) -> Commands {
    let [ca, nodes, copy_to_node, make_client] = [(); 4].map(|()| living.page.next(MAKE));
    for command in [&ca, &nodes] {
        living.play(command).await;
    }
    for id in 1..=3 {
        living.play(&of_node(&copy_to_node, id)).await;
        let files: Vec<_> = fs::read_dir(etc(&living.shell, id)).expect("a directory").collect();
        assert_eq!(files.len(), 3, "{files:?}");
    }
    living.play(&make_client).await;
    // Files that are there are kept.
    let again = living.shell.run(&living.here.read(&make_client)).await;
    assert_eq!(again.status.code(), Some(4), "{again:?}");
    let renew = living.page.next(RENEW);
    let reload = living.page.spans(RENEW, "ratchet reload")[0].to_owned();
    Commands { copy_to_node, make_client, renew, reload }
}

async fn turn_on_for_clients(living: &mut Living) {
    let (accept, speak) = (living.page.next(TURN_ON), living.page.next(TURN_ON));
    let require = living.page.spans(TURN_ON, "tls = ")[0].to_owned();
    let only_known = living.page.spans(TURN_ON, "tls_client_ca = ")[0].to_owned();
    living.settings.set(&accept);
    living.start_again().await;
    living.give_client().await;
    // Of the others there is a test of its own.
    let speak = ["curl", "redis-cli", "grpcurl"]
        .iter()
        .fold(speak, |commands, program| without(program, &commands));
    living.play(&speak).await;
    living.settings.set(&require);
    living.start_again().await;
    let (own, ca) = (["TLS_CERT", "TLS_KEY"], ["TLS_CERT", "TLS_KEY", "TLS_CA"]);
    living.assert_refused_without(&ca, "the connection broke").await;
    let by_certificate = "env -u RATCHET_CLIENT_TLS_CERT -u RATCHET_CLIENT_TLS_KEY ratchet status";
    living.play(by_certificate).await;
    living.settings.set(&only_known);
    living.start_again().await;
    living.assert_refused_without(&own, REFUSES_CERTIFICATE).await;
}

async fn turn_on_between_nodes(living: &mut Living) {
    let (files, found) = (living.page.next(TURN_ON), living.page.next(NEW));
    let rounds = living.page.steps(TURN_ON, "peer_tls = ");
    let rounds: Vec<String> = rounds.into_iter().map(str::to_owned).collect();
    living.settings.set(&files);
    for round in &rounds {
        living.settings.set(round);
        living.start_again().await;
    }
    let peer = living.cluster.places[&1].peer_listen.to_string();
    let greeting = HelloRequest { from: 2, to: 1, ..HelloRequest::default() };
    let told = GrpcTransport::default().hello(listening_at(&peer), greeting, PATIENCE).await;
    told.expect_err("it speaks no TLS");
    // A new cluster begins with the last round. The page about tokens is played with that of clients, too.
    let mut settings = Settings::default();
    settings.set(&files);
    settings.set(rounds.last().expect("a round"));
    let mut new = Processes::configured(3, &HURRIED);
    living.here.put("unix:/var/lib/ratchet/", format!("unix:{}/1/", new.dir.path().display()));
    for id in 1..=3 {
        settings.give(&mut new, &living.here, id);
        new.spawn(id);
    }
    let found = living.here.read(&found);
    // Nodes may not listen yet.
    let is_founded = async || living.shell.run(&found).await.status.success().then_some(());
    eventually("the cluster is founded", is_founded).await;
    let token = living.shell.token("admin.token");
    for address in new.addresses() {
        let admin = asking(address, Some(&token));
        eventually("a number", async || next(&admin, "book").await.ok()).await;
        assert_eq!(next(&asking(address, None), "book").await, Err(Code::Unauthenticated));
    }
}

async fn renew_one(living: &mut Living, commands: &Commands) {
    let read = |living: &Living| fs::read(living.shell.file("certs/node-1.crt")).expect("a file");
    let before = read(living);
    living.play(&commands.renew).await;
    assert_ne!(read(living), before);
    living.copy_to_nodes(commands, &[1]).await;
}

async fn change_the_ca(living: &mut Living, commands: &Commands) {
    let add = living.page.next(CHANGE);
    living.play(&add).await;
    let certs = living.shell.file("certs");
    let read = || fs::read_to_string(certs.join("ca.crt")).expect("PEM");
    assert!(certs.join("ca.key.old-1").exists());
    living.copy_to_nodes(commands, &[1, 2, 3]).await;
    living.give_client().await;
    let old = ["client-billing.crt", "client-billing.key"].map(|name| living.shell.file(name));
    for (old, kept) in old.iter().zip(["old.crt", "old.key"]) {
        fs::copy(old, living.shell.file(kept)).expect("copied");
    }

    for id in 1..=3 {
        living.play(&of_node(&commands.renew, id)).await;
    }
    living.play(&format!("{} --replace", commands.make_client.trim_end())).await;
    living.copy_to_nodes(commands, &[1, 2, 3]).await;
    living.give_client().await;

    let end = "-----END CERTIFICATE-----\n";
    let both = read();
    let new = both.split_inclusive(end).next().expect("a certificate");
    assert!(both.starts_with("-----BEGIN CERTIFICATE-----") && new.len() < both.len());
    fs::write(certs.join("ca.crt"), new).expect("written");
    living.copy_to_nodes(commands, &[1, 2, 3]).await;
    living.give_client().await;
    living.shell.play("rm certs/ca.key.old-*").await;
    living.start_again().await;
    // A certificate that the old CA has signed is worth nothing.
    let of_old =
        "env RATCHET_CLIENT_TLS_CERT=old.crt RATCHET_CLIENT_TLS_KEY=old.key ratchet status";
    living.assert_refused(of_old, REFUSES_CERTIFICATE).await;
    living.play("ratchet status").await;
}
