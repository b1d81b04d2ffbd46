//! Members of different releases notice each other. A target of its own: it reads all that the process logs.

#[allow(dead_code)] // this target uses little of it
mod common;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use common::{cluster::Cluster, until, with_metrics};
use ratchet::{proto::v1::Build, version};
use tracing_subscriber::fmt::MakeWriter;

/// The lines that the nodes log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

impl Log {
    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains(with));
        lines.map(str::to_owned).collect()
    }

    /// Waits for `n` lines.
    async fn wait(&self, with: &str, n: usize) {
        let what = format!("{n} lines with {with:?}");
        until(&what, || self.lines(with).len() >= n).await;
    }
}

/// The peer addresses of nodes of another release, and which release.
type Others = Arc<Mutex<BTreeMap<String, Build>>>;

/// Starts a node among nodes some of which say that they run another release.
async fn start(cluster: &mut Cluster, others: &Others, id: u64) {
    let of = |others: &Others, address: &str| others.lock().unwrap().get(address).cloned();
    let me = cluster.configs[&id].peer_listen.to_string();
    let (here, there) = (others.clone(), others.clone());
    let mut transport = cluster.transport(id);
    transport.on_greeting = Box::new(move |request| {
        request.build = of(&here, &me).or(request.build.take());
    });
    transport.on_answer = Box::new(move |address, response| {
        response.build = of(&there, address).or(response.build.take());
    });
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(id, seams).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_of_another_release_are_named_once_in_the_log_of_both() {
    let log = Log::default();
    let to_log = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    to_log.with_max_level(tracing::Level::INFO).init();
    let mut cluster = Cluster::configured(3, with_metrics);
    let others = Others::default();
    let addresses: BTreeMap<u64, String> = (cluster.configs.iter())
        .map(|(id, config)| (*id, config.peer_listen.to_string()))
        .collect();
    let disguise = |id: u64, version: &str| {
        let build = Build { version: version.to_owned(), commit: "c0ffee".to_owned() };
        others.lock().unwrap().insert(addresses[&id].clone(), build);
    };
    for (id, version) in [(1, "9.9.1"), (2, "9.9.2"), (3, "9.9.3")] {
        disguise(id, version);
    }
    for id in 1..=3 {
        start(&mut cluster, &others, id).await;
    }
    cluster.found().await;
    let runs = |id: u64, version: &str| format!("node {id} runs ratchet {version} (c0ffee)");
    for (id, version) in [(1, "9.9.1"), (2, "9.9.2"), (3, "9.9.3")] {
        log.wait(&runs(id, version), 2).await;
    }
    let leader = cluster.leader().await;
    let status = cluster.client(leader).status().await.unwrap();
    let builds = status.nodes.into_iter().map(|node| (node.id, node.build.unwrap_or_default()));
    for (id, build) in builds {
        let version = format!("9.9.{id}");
        let own = id == leader;
        assert_eq!(build.version, if own { version::VERSION } else { &version });
    }
    cluster.crash(3).await;
    disguise(3, "9.9.33");
    start(&mut cluster, &others, 3).await;
    log.wait(&runs(3, "9.9.33"), 2).await;
    // The one that was started again has forgotten the others, and names them once more.
    log.wait(&runs(1, "9.9.1"), 3).await;
    log.wait(&runs(2, "9.9.2"), 3).await;
    let lines = log.lines(" runs ");
    assert_eq!(lines.len(), 6 + 2 + 2, "each is named once: {lines:#?}");
    for line in lines {
        assert!(line.contains("WARN") && line.contains(version::LONG), "{line}");
    }
    // An optional value is logged as people write it, or left out.
    let listening = log.lines("listening");
    assert!(listening.iter().any(|line| line.contains("metrics=127.")), "{listening:#?}");
    let own = log.lines(" ratchet::");
    assert!(own.iter().all(|line| !line.contains("Some(")), "{own:#?}");
}
