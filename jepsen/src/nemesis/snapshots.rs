//! Followers that fall far behind.

use std::io;

use tonic::Status;

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    members::CHANGING,
};
use crate::{network::Port, proto::TransferLeadershipRequest};

impl Stage {
    pub(super) async fn fall_behind(&mut self) -> io::Result<Begun> {
        let victim = self.follower();
        let killed = self.cluster.kill(victim);
        self.hold().await;
        self.hold().await;
        self.cluster.spawn(victim)?;
        let leader = self.leader();
        let mut client = self.cluster.client(leader);
        let caught_up = self
            .until("the follower catches up", || {
                let mut client = client.clone();
                async move {
                    let status = client.status().await?;
                    let node = status
                        .nodes
                        .iter()
                        .find(|node| node.id == u64::from(victim));
                    match node.and_then(|node| node.lag) {
                        Some(lag) if lag < 100 => Ok(()),
                        lag => Err(Status::unavailable(format!("lag is {lag:?}"))),
                    }
                }
            })
            .await;
        let logged = client.status().await.ok();
        let index = logged.and_then(|status| status.nodes.iter().find_map(|node| node.log_index));
        let snapshots = self.snapshots_received(victim);
        let what = format!(
            "node {victim} was away while the log grew to {index:?}, then caught up; snapshots \
             received so far: {snapshots}"
        );
        let bit = killed && snapshots > 0;
        // What it got it must also be able to lead with.
        let request = TransferLeadershipRequest {
            to: Some(u64::from(victim)),
        };
        let led = tokio::time::timeout(CHANGING, client.admin().transfer_leadership(request)).await;
        let led = matches!(led, Ok(Ok(_)));
        self.handed_over += u64::from(led);
        let what = if led {
            format!("{what}; it leads now")
        } else {
            what
        };
        Ok(Begun::new(what, Wound::Healed, bit && led).broken(caught_up.err()))
    }

    /// What the node itself says in its log.
    pub(super) fn snapshots_received(&self, id: Port) -> usize {
        let log = std::fs::read_to_string(self.cluster.log(id)).unwrap_or_default();
        log.matches("snapshot installed").count()
    }
}
