//! The members tell each other which release they run, and where their doors are.
//!
//! A node greets every member until that member has answered. A node that was started again, as after an
//! upgrade, remembers nothing and greets anew. So all know what each runs now.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;

use super::{
    NodeContext,
    hello::HELLO_TIMEOUT,
    introductions::{Introduction, this_build},
};
use crate::sequence::NodeId;

/// How soon a member that did not answer is greeted again.
const RETRY: Duration = Duration::from_secs(5);

impl NodeContext {
    /// What a member told of itself, if it did.
    pub fn introduction_of(&self, node: NodeId) -> Option<Introduction> {
        if node != self.config.node_id {
            return self.introductions.of(node);
        }
        Some(Introduction {
            build: this_build(),
            resp_address: self.resp_address.clone(),
            http_address: self.http_address.clone(),
        })
    }

    /// Notes what a request says that names `peer` as its sender, and logs it if that node runs another release.
    pub(super) fn note_claim(&self, peer: NodeId, claimed: &Introduction) {
        // A stranger may claim any id.
        if self.group.members().contains_key(&peer) {
            warn_of(peer, self.introductions.note_claim(peer, claimed));
        }
    }

    /// Greets every member until it has answered, also members that are added later.
    pub(super) async fn greet_members(self: Arc<Self>) {
        let mut changes = self.leadership_changes.subscribe();
        loop {
            changes.borrow_and_update();
            let members = self.group.members().into_iter();
            let unknown = members.filter(|(id, _)| self.introduction_of(*id).is_none());
            let greeted = unknown.map(async |(id, (member, _))| {
                let request = self.greeting_to(id);
                match self.transport.hello(&member.peer_address, request, HELLO_TIMEOUT).await {
                    Ok(hello) => {
                        let (resp, http) = (&hello.resp_address, &hello.http_address);
                        let told = Introduction::told(hello.build, resp, http);
                        warn_of(id, self.introductions.note(id, told));
                    }
                    Err(refusal) => tracing::debug!(peer = id, %refusal, "no greeting"),
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

/// Logs that a member runs another release.
fn warn_of(peer: NodeId, news: Option<String>) {
    if let Some(text) = news {
        tracing::warn!(peer, "{text}");
    }
}
