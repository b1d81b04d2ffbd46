//! What the other members told of themselves: which release they run, and where their doors are.
//!
//! Invariant: a peer of another release is news once, and again when its release changes.

use std::collections::BTreeMap;

use parking_lot::Mutex;

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
pub struct Introductions(Mutex<BTreeMap<NodeId, Introduction>>);

impl Introduction {
    /// As a peer told it. Of its texts, printable characters up to a limit are kept: operators and clients see them.
    pub fn told(build: Option<Build>, resp_address: &str, http_address: &str) -> Self {
        let build = build.unwrap_or_default();
        Introduction {
            build: Build {
                version: shown(&build.version),
                commit: shown(&build.commit),
            },
            resp_address: shown(resp_address),
            http_address: shown(http_address),
        }
    }
}

impl Introductions {
    /// Notes what `peer` told. Returns what to log if its release is news and differs from what this node runs.
    pub fn note(&self, peer: NodeId, told: Introduction) -> Option<String> {
        let mine = this_build();
        let differs = told.build != mine;
        let text = format!(
            "node {peer} runs {}, this node runs {}; let all run the same release soon",
            name(&told.build),
            name(&mine)
        );
        let mut known = self.0.lock();
        let before = known.insert(peer, told);
        let is_news = before.is_none_or(|before| before.build != known[&peer].build);
        (is_news && differs).then_some(text)
    }

    /// What `peer` told, if it did.
    pub fn of(&self, peer: NodeId) -> Option<Introduction> {
        self.0.lock().get(&peer).cloned()
    }
}

/// Where clients reach a door of this node: at the host of its address for clients, on the door's port.
pub fn door_address(client_address: &str, port: u16) -> String {
    let host = client_address.rsplit_once(':');
    format!("{}:{port}", host.map_or(client_address, |(host, _)| host))
}

/// What this node runs.
pub fn this_build() -> Build {
    Build {
        version: version::VERSION.to_owned(),
        commit: version::COMMIT.to_owned(),
    }
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
            let build = Build {
                version: version.to_owned(),
                commit: "c0ffee".to_owned(),
            };
            Introduction::told(Some(build), resp_address, "")
        };
        let news = introductions.note(2, told("9.0.0", "")).expect("news");
        assert!(
            news.contains("node 2 runs ratchet 9.0.0 (c0ffee)"),
            "{news}"
        );
        assert!(news.contains(version::LONG), "{news}");
        assert_eq!(introductions.note(2, told("9.0.0", "a:1")), None);
        assert_eq!(introductions.of(2).expect("known").resp_address, "a:1");
        assert!(
            introductions.note(3, told("9.0.0", "")).is_some(),
            "another peer"
        );
        assert!(introductions.note(2, told("9.0.1", "")).is_some());
        let same = Introduction::told(Some(this_build()), "", "");
        assert_eq!(
            introductions.note(2, same.clone()),
            None,
            "the same as here"
        );
        assert_eq!(introductions.of(2), Some(same));
        assert!(
            introductions.note(2, told("9.0.0", "")).is_some(),
            "changed again"
        );
        let silent = introductions.note(4, Introduction::told(None, "", ""));
        let silent = silent.expect("news");
        assert!(silent.contains("does not say"), "{silent}");
    }

    #[test]
    fn of_what_a_peer_tells_printable_characters_are_kept() {
        let told = Introduction::told(None, &format!("a\r\nb {}", "x".repeat(300)), "");
        assert_eq!(told.resp_address, format!("ab{}", "x".repeat(254)));
    }

    #[test]
    fn all_clients_reach_a_node_at_the_same_host() {
        assert_eq!(door_address("one.example:7600", 7604), "one.example:7604");
        assert_eq!(door_address("[::1]:7600", 7604), "[::1]:7604");
    }
}
