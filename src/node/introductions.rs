//! Where others reach this node, and what the other members told of themselves: which release they run, and where their
//! interfaces are.
//!
//! Invariant: a peer of another release is news once, and again when its release changes.

use std::{collections::BTreeMap, net::SocketAddr};

use parking_lot::Mutex;

use super::{Config, seams::Addresses};
use crate::{proto::v1::Build, sequence::NodeId, version};

/// How many characters of a version, a commit or an address are kept.
const SHOWN_MAX: usize = 256;

/// What a member told of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The release that it runs.
    pub build: Build,
    /// Where Redis clients reach it, "host:port". Empty if it does not serve them.
    pub resp_address: String,
    /// Where HTTP clients reach it, "host:port". Empty if it does not serve them.
    pub http_address: String,
}

/// What the other members told of themselves.
#[derive(Debug, Default)]
pub struct Introductions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What they answered, each at the address that the membership has of it.
    answered: BTreeMap<NodeId, Introduction>,
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
        news
    }

    /// Notes what a request says that names `peer` as its sender. Anybody may have sent it. If it says anything new,
    /// what was known is forgotten, so that the member is asked at its own address. Returns as [`Introductions::note`].
    pub fn note_claim(&self, peer: NodeId, claimed: &Introduction) -> Option<String> {
        let mut known = self.0.lock();
        if known.answered.get(&peer) != Some(claimed) {
            known.answered.remove(&peer);
        }
        known.note_build(peer, &claimed.build)
    }

    /// What `peer` told, if it did.
    pub fn of(&self, peer: NodeId) -> Option<Introduction> {
        self.0.lock().answered.get(&peer).cloned()
    }
}

impl Known {
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
        let door = |at: SocketAddr| door_address(&client, addresses.client, at);
        let peer = config.peer_advertise.clone().or(config.peers.get(&config.node_id).cloned());
        Advertised {
            resp: addresses.resp.map(door).unwrap_or_default(),
            http: addresses.http.map(door).unwrap_or_default(),
            peer: advertised(&peer, addresses.peer),
            client,
        }
    }
}

/// Where clients reach the door that listens at `door`: at the host where they reach the one at `clients`, whose address is
/// `client_address`, if both listen at the same address or the door at all of them. Empty if the door listens on loopback
/// alone, and the other one does not.
fn door_address(client_address: &str, clients: SocketAddr, door: SocketAddr) -> String {
    if door.ip() == clients.ip() || door.ip().is_unspecified() {
        let host = client_address.rsplit_once(':');
        let host = host.map_or(client_address, |(host, _)| host);
        return format!("{host}:{}", door.port());
    }
    match door.ip().is_loopback() {
        true => String::new(),
        false => door.to_string(),
    }
}

/// What this node runs.
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
mod tests {
    use super::*;

    #[test]
    fn a_peer_of_another_release_is_named_once_and_again_when_its_release_changes() {
        let introductions = Introductions::default();
        let told = |version: &str, resp_address: &str| {
            let build = Build { version: version.to_owned(), commit: "c0ffee".to_owned() };
            Introduction::told(Some(build), resp_address, "")
        };
        let news = introductions.note(2, told("9.0.0", "")).expect("news");
        assert!(news.contains("node 2 runs ratchet 9.0.0 (c0ffee)"), "{news}");
        assert!(news.contains(version::LONG), "{news}");
        assert_eq!(introductions.note(2, told("9.0.0", "a:1")), None);
        assert_eq!(introductions.of(2).expect("known").resp_address, "a:1");
        assert!(introductions.note(3, told("9.0.0", "")).is_some(), "another peer");
        assert!(introductions.note(2, told("9.0.1", "")).is_some());
        let same = Introduction::told(Some(this_build()), "", "");
        assert_eq!(introductions.note(2, same.clone()), None, "the same as here");
        assert_eq!(introductions.of(2), Some(same));
        assert!(introductions.note(2, told("9.0.0", "")).is_some(), "changed again");
        let silent = introductions.note(4, Introduction::told(None, "", ""));
        let silent = silent.expect("news");
        assert!(silent.contains("does not say"), "{silent}");
    }

    #[test]
    fn what_a_stranger_says_of_a_member_is_not_believed_and_the_member_is_asked_again() {
        let introductions = Introductions::default();
        let told = |address| Introduction::told(Some(this_build()), address, address);
        introductions.note(2, told("a:1"));
        introductions.note_claim(2, &told("a:1"));
        assert_eq!(introductions.of(2), Some(told("a:1")));
        introductions.note_claim(2, &told("evil:1"));
        assert_eq!(introductions.of(2), None);
    }

    #[test]
    fn of_what_a_peer_tells_printable_characters_are_kept() {
        let told = Introduction::told(None, &format!("a\r\nb {}", "x".repeat(300)), "");
        assert_eq!(told.resp_address, format!("ab{}", "x".repeat(254)));
    }

    #[test]
    fn all_clients_reach_a_node_at_the_same_host() {
        let at = |address: &str| address.parse().expect("an address");
        let door =
            |client_address, clients, door| door_address(client_address, at(clients), at(door));
        let everywhere = door("one.example:7600", "0.0.0.0:7600", "0.0.0.0:7604");
        assert_eq!(everywhere, "one.example:7604");
        assert_eq!(door("[::1]:7600", "[::1]:7600", "[::1]:7604"), "[::1]:7604");
        let elsewhere = door("10.0.0.1:7600", "10.0.0.1:7600", "10.0.0.2:7604");
        assert_eq!(elsewhere, "10.0.0.2:7604");
        let nowhere = door("10.0.0.1:7600", "10.0.0.1:7600", "127.0.0.1:7604");
        assert_eq!(nowhere, "", "others cannot reach it");
    }
}
