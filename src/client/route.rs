//! Who leads, as answers told. Pure: time is an argument.
//!
//! Invariant: an older route never replaces a newer one, but for one whose leader could not be reached.

use std::time::Duration;

use tokio::time::Instant;

use crate::proto::v1;

/// For how long a leader that could not be reached is not tried again; the others forward meanwhile.
const SHUNNED: Duration = Duration::from_secs(1);

/// Who leads.
#[derive(Debug, Default)]
pub struct Route {
    version: u64,
    leader: Option<String>,
    /// A version whose leader could not be reached, and until when it is not tried again.
    shunned: Option<(u64, Instant)>,
}

impl Route {
    /// The version that is known; 0 for none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The leader's address.
    pub fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// Learns what an answer told; true if that changes who is to be asked.
    pub fn learn(&mut self, route: v1::Route, now: Instant) -> bool {
        let shunned = self
            .shunned
            .is_some_and(|(version, until)| route.version <= version && now < until);
        if route.version <= self.version || shunned {
            return false;
        }
        self.version = route.version;
        let leader = Some(route.address);
        let changes = leader != self.leader;
        self.leader = leader;
        changes
    }

    /// Forgets the leader if it is `server`, which could not be reached or no longer leads.
    pub fn lost(&mut self, server: &str, now: Instant) {
        if self.leader.take_if(|leader| leader == server).is_some() {
            self.shunned = Some((self.version, now + SHUNNED));
            self.version = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(version: u64, address: &str) -> v1::Route {
        v1::Route {
            version,
            leader: 1,
            address: address.to_owned(),
        }
    }

    #[test]
    fn the_newest_route_counts_and_a_leader_that_was_lost_is_tried_again_after_a_while() {
        let (mut known, now) = (Route::default(), Instant::now());
        assert!(known.learn(route(3, "a:1"), now));
        assert!(!known.learn(route(2, "b:1"), now));
        assert!(!known.learn(route(4, "a:1"), now), "the same leader");
        known.lost("b:1", now);
        assert_eq!((known.version(), known.leader()), (4, Some("a:1")));
        known.lost("a:1", now);
        assert_eq!((known.version(), known.leader()), (0, None));
        assert!(!known.learn(route(4, "a:1"), now));
        assert!(known.learn(route(5, "b:1"), now), "another leader");
        known.lost("b:1", now);
        assert!(known.learn(route(5, "b:1"), now + SHUNNED));
    }
}
