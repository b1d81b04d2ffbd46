//! Leaders that are asked to hand over, or told to stop, and the observations of it.
//!
//! A term counts as handed over if its leader said that it led it just before, and then handed over or
//! stopped as it was asked. The next leader change is a graceful one: it may skip nothing.

use std::time::Duration;

use super::{injector::Injector, retry::CHANGE_MAX};
use crate::{monitor::says_it_leads, network::Port, proto::TransferLeadershipRequest};

impl Injector {
    /// Asks the node `asked` for a handover to `to`. Returns the term in which `to` leads.
    ///
    /// # Errors
    /// The node's message if the handover failed.
    pub(super) async fn hand_over_to(&mut self, to: Port, asked: Port) -> Result<u64, String> {
        let leader = self.leader();
        let (before_ns, led) = (self.recorder.now(), self.term_led_by(leader).await);
        let to = u64::from(to);
        let request = TransferLeadershipRequest { to: Some(to) };
        let mut client = self.cluster.client(asked);
        let answer = tokio::time::timeout(CHANGE_MAX, client.admin().transfer_leadership(request));
        let now = match answer.await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return Err(status.message().to_owned()),
            Err(_) => return Err("no answer".to_owned()),
        };
        // Otherwise another fault was active, and somebody else may have led in between.
        let at_once = led.filter(|term| (now.leader, now.term) == (to, term + 1));
        self.handed_over.extend(at_once.map(|term| (term, before_ns)));
        Ok(now.term)
    }

    /// Tells a node to stop, and kills it if it has not ended within `limit`. Returns the failure, if there
    /// was one.
    pub(super) async fn stop(&mut self, id: Port, limit: Duration) -> Option<String> {
        let (before_ns, led) = (self.recorder.now(), self.term_led_by(id).await);
        self.cluster.terminate(id);
        match self.cluster.wait_for_exit(id, limit).await {
            Some(status) if status.success() => {
                self.handed_over.extend(led.map(|term| (term, before_ns)));
                None
            }
            Some(status) => Some(format!("node {id} was told to stop and ended with {status}")),
            None => {
                self.cluster.kill(id);
                let limit = limit.as_secs();
                Some(format!("node {id} was told to stop and did not end within {limit} s"))
            }
        }
    }

    /// The term that a node says it leads.
    pub(super) async fn term_led_by(&self, id: Port) -> Option<u64> {
        let status = self.cluster.client(id).status().await.ok()?;
        says_it_leads(&status, u64::from(id)).then_some(status.term)
    }
}
