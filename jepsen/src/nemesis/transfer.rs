//! Leaders that hand over.

use std::time::Duration;

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
    links::no_faulty_links,
};
use crate::network::Link;

/// Longer than the election of a leader that was told to stand, shorter than a message may take.
const SLOW: Link =
    Link { loss: 0.0, duplicates: 0.0, delay: Duration::from_millis(25), jitter: Duration::ZERO };

impl Injector {
    pub(super) async fn transfer(&mut self) -> ActiveFault {
        let (leader, to) = (self.leader(), self.random_follower());
        let asked = self.random_member();
        let (done, result) = match self.hand_over_to(to, asked).await {
            Ok(term) => (true, format!("done in term {term}")),
            // Another fault may be active.
            Err(why) => (false, why),
        };
        let description = format!("transfer from {leader} to {to}, asked at {asked}: {result}");
        ActiveFault::new(description, Repair::Nothing, done)
    }

    /// The old leader hears of its successor later than clients do.
    pub(super) async fn transfer_slowly(&mut self) -> ActiveFault {
        let leader = self.leader();
        let Some(before) = self.packets_delayed() else {
            return no_faulty_links();
        };
        for other in self.members_except(leader) {
            self.set_link(other, leader, SLOW);
        }
        let mut fault = self.transfer().await;
        fault.description.push_str(", while the old leader's links are slow");
        fault.repair = Repair::HealLinks;
        fault.took_effect &= self.packets_delayed() > Some(before);
        fault
    }

    fn packets_delayed(&self) -> Option<u64> {
        let network = self.cluster.network.as_ref()?;
        Some(network.counts().delayed)
    }
}
