//! Which release each member runs, as far as this node was told.
//!
//! Invariant: a peer of another release is news once, and again when its release changes.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{proto::v1::Build, sequence::NodeId, version};

/// How many characters of a version or a commit are kept.
const SHOWN_MAX: usize = 64;

/// The releases of the other members.
#[derive(Debug, Default)]
pub struct Builds(Mutex<BTreeMap<NodeId, Build>>);

impl Builds {
    /// Notes what `peer` runs. Returns what to log if that is news and differs from what this node runs.
    pub fn note(&self, peer: NodeId, build: Build) -> Option<String> {
        let mine = this_build();
        let differs = build != mine;
        let text = format!(
            "node {peer} runs {}, this node runs {}; let all run the same release soon",
            name(&build),
            name(&mine)
        );
        let mut known = self.0.lock();
        if known.get(&peer) == Some(&build) {
            return None;
        }
        known.insert(peer, build);
        differs.then_some(text)
    }

    /// What `peer` runs, if it has said so.
    pub fn of(&self, peer: NodeId) -> Option<Build> {
        self.0.lock().get(&peer).cloned()
    }
}

/// What this node runs.
pub fn this_build() -> Build {
    Build {
        version: version::VERSION.to_owned(),
        commit: version::COMMIT.to_owned(),
    }
}

/// The part of another node's text that is kept and shown to operators: printable characters, up to a limit.
pub fn shown(text: &str) -> String {
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
        let builds = Builds::default();
        let build = |version: &str| Build {
            version: version.to_owned(),
            commit: "c0ffee".to_owned(),
        };
        let told = builds.note(2, build("9.0.0")).expect("news");
        assert!(
            told.contains("node 2 runs ratchet 9.0.0 (c0ffee)"),
            "{told}"
        );
        assert!(told.contains(version::LONG), "{told}");
        assert_eq!(builds.note(2, build("9.0.0")), None);
        assert!(builds.note(3, build("9.0.0")).is_some(), "another peer");
        assert!(builds.note(2, build("9.0.1")).is_some());
        assert_eq!(builds.note(2, this_build()), None, "the same as here");
        assert_eq!(builds.of(2), Some(this_build()));
        assert!(builds.note(2, build("9.0.0")).is_some(), "changed again");
        let silent = builds.note(4, Build::default()).expect("news");
        assert!(silent.contains("does not say"), "{silent}");
    }
}
