//! The members tell each other which release they run.
//!
//! A node greets every member until that member has answered. A node that was started again, as after an
//! upgrade, remembers nothing and greets anew. So all know what each runs now.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;

use super::{
    NodeContext,
    builds::{shown, this_build},
    hello::HELLO_TIMEOUT,
};
use crate::{
    proto::{peer::HelloRequest, v1::Build},
    sequence::NodeId,
};

/// How soon a member that did not answer is greeted again.
const RETRY: Duration = Duration::from_secs(5);

impl NodeContext {
    /// The release that a member runs, if it has told.
    pub(super) fn build_of(&self, node: NodeId) -> Option<Build> {
        if node == self.config.node_id {
            return Some(this_build());
        }
        self.builds.of(node)
    }

    /// Notes the release that `peer` says it runs, and logs it if this node runs another.
    pub(super) fn note_build(&self, peer: NodeId, build: Option<Build>) {
        // A stranger may claim any id.
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

    /// Greets every member until it has answered, also members that are added later.
    pub(super) async fn greet_members(self: Arc<Self>) {
        let mut changes = self.leadership_changes.subscribe();
        loop {
            changes.borrow_and_update();
            let members = self.group.members().into_iter();
            let unknown = members.filter(|(id, _)| self.build_of(*id).is_none());
            let greeted = unknown.map(|(id, (member, _))| {
                let context = &self;
                async move {
                    let request = HelloRequest::from_node(&context.config, id);
                    let hello =
                        context
                            .transport
                            .hello(&member.peer_address, request, HELLO_TIMEOUT);
                    match hello.await {
                        Ok(hello) => context.note_build(id, hello.build),
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
