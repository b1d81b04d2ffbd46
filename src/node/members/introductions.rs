//! The introductions of members to each other: the addresses of this node, and the releases and addresses that the others told.
//!
//! Invariant: a peer of another release is news once, and again when its release changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use parking_lot::Mutex;

use crate::{
    node::{Config, seams::Addresses},
    proto::v1::Build,
    sequence::NodeId,
    version,
};

/// How many characters of a version, a commit or an address are kept.
const SHOWN_MAX: usize = 256;

/// The introduction of a member, as it told it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The release that it runs.
    pub build: Build,
    /// Where Redis clients reach it, "host:port". Empty if it does not serve them.
    pub resp_address: String,
    /// Where HTTP clients reach it, "host:port". Empty if it does not serve them.
    pub http_address: String,
}

/// The introductions of the other members.
#[derive(Debug, Default)]
pub struct Introductions(Mutex<KnownNodes>);

#[derive(Debug, Default)]
struct KnownNodes {
    /// Their answers, each at the address that the membership has of it.
    answered: BTreeMap<NodeId, Introduction>,
    /// Those of whom something else was said since: they are to be asked again.
    doubted: BTreeSet<NodeId>,
    /// The releases that were told last.
    builds: BTreeMap<NodeId, Build>,
}

impl Introduction {
    /// As a peer told it. Of its texts, printable characters up to a limit are kept: operators and clients see them.
    pub fn told(build: Option<Build>, resp_address: &str, http_address: &str) -> Self {
        let build = build.unwrap_or_default();
        Introduction {
            build: Build { version: shown(&build.version), commit: shown(&build.commit) },
            resp_address: shown(resp_address),
            http_address: shown(http_address),
        }
    }
}

impl Introductions {
    /// Notes what `peer` answered. Returns what to log if its release is news and differs from what this node runs.
    pub fn note(&self, peer: NodeId, told: Introduction) -> Option<String> {
        let mut known = self.0.lock();
        let news = known.note_build(peer, &told.build);
        known.answered.insert(peer, told);
        known.doubted.remove(&peer);
        news
    }

    /// Notes what a request says that names `peer` as its sender. Anybody may have sent it. If it says anything new, the member
    /// is to be asked at its own address; what it answered last counts until then. Returns as [`Introductions::note`].
    pub fn note_request(&self, peer: NodeId, told: &Introduction) -> Option<String> {
        let mut known = self.0.lock();
        if known.answered.get(&peer) != Some(told) {
            known.doubted.insert(peer);
        }
        known.note_build(peer, &told.build)
    }

    /// True if `peer` is to be asked who it is: it has not told, or somebody has said something else in its name.
    pub fn is_to_be_asked(&self, peer: NodeId) -> bool {
        let known = self.0.lock();
        !known.answered.contains_key(&peer) || known.doubted.contains(&peer)
    }

    /// The introduction of `peer`, if it has told one.
    pub fn of(&self, peer: NodeId) -> Option<Introduction> {
        self.0.lock().answered.get(&peer).cloned()
    }
}

impl KnownNodes {
    fn note_build(&mut self, peer: NodeId, told: &Build) -> Option<String> {
        let mine = this_build();
        let before = self.builds.insert(peer, told.clone());
        (before.as_ref() != Some(told) && *told != mine).then(|| {
            format!(
                "node {peer} runs {}, this node runs {}; let all run the same release soon",
                name(told),
                name(&mine)
            )
        })
    }
}

/// Where others reach this node, each "host:port".
#[derive(Debug)]
pub struct Advertised {
    /// Where clients reach it.
    pub client: String,
    /// Where its peers reach it.
    pub peer: String,
    /// Where Redis clients reach it. Empty if it does not serve them.
    pub resp: String,
    /// Where HTTP clients reach it. Empty if it does not serve them.
    pub http: String,
}

impl Advertised {
    /// Where others reach a node that listens at `addresses`: where the configuration says, or else there.
    pub fn new(config: &Config, addresses: Addresses) -> Self {
        let advertised = |name: &Option<String>, address: SocketAddr| {
            name.clone().unwrap_or_else(|| address.to_string())
        };
        let client = advertised(&config.advertise, addresses.client);
        let interface = |at: SocketAddr| interface_address(&client, addresses.client, at);
        let peer = config.peer_advertise.clone().or(config.peers.get(&config.node_id).cloned());
        Advertised {
            resp: addresses.resp.map(interface).unwrap_or_default(),
            http: addresses.http.map(interface).unwrap_or_default(),
            peer: advertised(&peer, addresses.peer),
            client,
        }
    }
}

/// Where clients reach the interface that listens at `interface`: at the host where they reach the one at `clients`, whose
/// address is `client_address`, if both listen at the same address or the interface at all of them. Empty if the interface
/// listens on loopback alone, and the other one does not.
fn interface_address(client_address: &str, clients: SocketAddr, interface: SocketAddr) -> String {
    if interface.ip() == clients.ip() || interface.ip().is_unspecified() {
        let host = client_address.rsplit_once(':');
        let host = host.map_or(client_address, |(host, _)| host);
        return format!("{host}:{}", interface.port());
    }
    match interface.ip().is_loopback() {
        true => String::new(),
        false => interface.to_string(),
    }
}

/// The release that this node runs.
pub fn this_build() -> Build {
    Build { version: version::VERSION.to_owned(), commit: version::COMMIT.to_owned() }
}

fn shown(text: &str) -> String {
    let printable = text.chars().filter(|letter| letter.is_ascii_graphic());
    printable.take(SHOWN_MAX).collect()
}

fn name(build: &Build) -> String {
    match build.version.as_str() {
        "" => "a release that does not say its version".to_owned(),
        version => format!("ratchet {version} ({})", build.commit),
    }
}

#[cfg(test)]
mod tests;
