//! Followers that fall so far behind that they need a snapshot.

use std::io;

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
    recovery::follow,
    retry::retry,
};
use crate::network::Port;

impl Injector {
    pub(super) async fn make_snapshot_needed(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let killed = self.cluster.kill(victim);
        self.wait_fault_duration().await;
        self.wait_fault_duration().await;
        self.cluster.spawn(victim)?;
        let leader = self.leader();
        let mut client = self.cluster.client(leader);
        let caught_up = retry("catching up", || follow(client.clone(), vec![victim])).await;
        let status = client.status().await.ok();
        let index = status.and_then(|status| status.nodes.iter().find_map(|node| node.log_index));
        let snapshots = self.snapshots_received(victim);
        let mut description = format!(
            "node {victim} was away while the log grew to {index:?}, then caught up; snapshots \
             received so far: {snapshots}"
        );
        // It must also be able to lead with the table that it received.
        let leads = self.hand_over_to(victim, leader).await.is_ok();
        if leads {
            description.push_str("; it leads now");
        }
        let took_effect = killed && snapshots > 0 && leads;
        let fault = ActiveFault::new(description, Repair::Nothing, took_effect);
        Ok(fault.with_violation(caught_up.err()))
    }

    /// How many snapshots a node says in its log that it installed.
    fn snapshots_received(&self, id: Port) -> usize {
        let log = std::fs::read_to_string(self.cluster.log(id)).unwrap_or_default();
        log.matches("snapshot installed").count()
    }
}
