//! Which release each member runs: they tell each other.
//!
//! A node greets every member until that one has answered. One that was started again, as after an
//! upgrade, remembers nothing and greets anew: so all know what each runs now.
//!
//! Invariant: a peer of another release is named in the log once, and again when its release changes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;

use super::{Shared, formation::HELLO_TIMEOUT};
use crate::{
    proto::{peer::HelloRequest, v1::Build},
    sequence::NodeId,
    version,
};

/// How soon a member that did not answer is greeted again.
const RETRY: Duration = Duration::from_secs(5);
/// More characters of a version or a commit are not kept.
const SHOWN_MAX: usize = 64;

/// What is known of the others.
#[derive(Debug, Default)]
pub struct Builds(Mutex<BTreeMap<NodeId, Build>>);

impl Builds {
    /// Notes what `peer` runs; what to tell of it, if it is news and not what this node runs.
    fn note(&self, peer: NodeId, build: Build) -> Option<String> {
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

    fn of(&self, peer: NodeId) -> Option<Build> {
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

/// What is kept of a text that another node says of itself, and that operators are shown.
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

impl Shared {
    /// What a member runs, where known.
    pub(super) fn build_of(&self, node: NodeId) -> Option<Build> {
        if node == self.config.node_id {
            return Some(this_build());
        }
        self.builds.of(node)
    }

    /// Notes what `peer` says that it runs; says so in the log if it is not what this node runs.
    pub(super) fn note_build(&self, peer: NodeId, build: Option<Build>) {
        // Whoever is no member could be anybody, with any id.
        if !self.group.members().contains_key(&peer) {
            return;
        }
        let build = build.unwrap_or_default();
        let build = Build {
            version: shown(&build.version),
            commit: shown(&build.commit),
        };
        if let Some(text) = self.builds.note(peer, build) {
            tracing::warn!(peer, "{text}");
        }
    }

    /// Greets all members until they have answered, and those that come later.
    pub(super) async fn greet_members(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let members = self.group.members().into_iter();
            let unknown = members.filter(|(id, _)| self.build_of(*id).is_none());
            let greeted = unknown.map(|(id, (member, _))| {
                let shared = &self;
                async move {
                    let request = HelloRequest::from_node(&shared.config, id);
                    let hello =
                        shared
                            .transport
                            .hello(&member.peer_address, request, HELLO_TIMEOUT);
                    match hello.await {
                        Ok(hello) => shared.note_build(id, hello.build),
                        Err(status) => tracing::debug!(peer = id, %status, "no greeting"),
                    }
                }
            });
            join_all(greeted).await;
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY) => {}
            }
        }
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
