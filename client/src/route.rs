//! Who leads, as answers told. Pure: time is an argument.
//!
//! Invariant: an older route never replaces a newer one.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{address::is_address, api as v1};

/// For how long a leader that could not be reached is not tried again; the others forward meanwhile.
const SHUNNED: Duration = Duration::from_secs(1);

/// Who leads.
#[derive(Debug, Default)]
pub struct Route {
    version: u64,
    leader: Option<Arc<str>>,
    /// Until when no leader of this version is wanted: it could not be reached.
    shunned_until: Option<Instant>,
}

impl Route {
    /// The version to ask with: 0 where the leader is to be told again.
    pub fn version(&self, now: Instant) -> u64 {
        if self.is_wanted(now) { 0 } else { self.version }
    }

    /// The leader's address.
    pub fn leader(&self) -> Option<&Arc<str>> {
        self.leader.as_ref()
    }

    /// Learns what an answer told.
    pub fn learn(&mut self, route: &v1::Route, now: Instant) {
        if route.version < self.version || (route.version == self.version && !self.is_wanted(now)) {
            return;
        }
        self.version = route.version;
        self.leader = is_address(&route.address).then(|| route.address.as_str().into());
        self.shunned_until = self.leader.is_none().then(|| now + SHUNNED);
    }

    /// Forgets the leader if it is `server`, which could not be reached or no longer leads.
    pub fn lost(&mut self, server: &str, now: Instant) {
        if self.leader.take_if(|leader| &**leader == server).is_some() {
            self.shunned_until = Some(now + SHUNNED);
        }
    }

    /// Lets any route replace the one that is known: a cluster that was restored may have a lower one.
    pub fn expect_any(&mut self) {
        *self = Route::default();
    }

    fn is_wanted(&self, now: Instant) -> bool {
        self.leader.is_none() && self.shunned_until.is_none_or(|until| until <= now)
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
            ..v1::Route::default()
        }
    }

    fn leader(known: &Route) -> Option<&str> {
        known.leader().map(|leader| &**leader)
    }

    #[test]
    fn the_newest_route_counts_and_a_leader_that_was_lost_is_tried_again_after_a_while() {
        let (mut known, now) = (Route::default(), Instant::now());
        known.learn(&route(3, "a:1"), now);
        known.learn(&route(2, "b:1"), now);
        assert_eq!((known.version(now), leader(&known)), (3, Some("a:1")));
        known.learn(&route(4, "b:1"), now);
        known.lost("a:1", now);
        assert_eq!((known.version(now), leader(&known)), (4, Some("b:1")));
        known.lost("b:1", now);
        known.learn(&route(4, "b:1"), now);
        // Not asked for again at once: each answer would carry it.
        assert_eq!((known.version(now), leader(&known)), (4, None));
        known.learn(&route(5, "c:1"), now);
        assert_eq!(leader(&known), Some("c:1"), "another leader");
        known.lost("c:1", now);
        let later = now + SHUNNED;
        assert_eq!(known.version(later), 0);
        known.learn(&route(4, "b:1"), later);
        assert_eq!(leader(&known), None, "a deposed leader's");
        known.learn(&route(5, "c:2"), later);
        assert_eq!((known.version(later), leader(&known)), (5, Some("c:2")));
    }

    #[test]
    fn an_address_that_cannot_be_one_is_no_leader() {
        let (mut known, now) = (Route::default(), Instant::now());
        known.learn(&route(3, "0.0.0.0:7600"), now);
        assert_eq!((known.version(now), leader(&known)), (3, None));
    }

    #[test]
    fn a_cluster_that_was_restored_may_begin_with_a_lower_version() {
        let (mut known, now) = (Route::default(), Instant::now());
        known.learn(&route(9, "a:1"), now);
        known.expect_any();
        known.learn(&route(2, "a:1"), now);
        assert_eq!((known.version(now), leader(&known)), (2, Some("a:1")));
    }
}
