//! The leader, as servers reported it. Pure: time is an argument.
//!
//! Invariant: an older route never replaces a newer one.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{address::is_address, api as v1};

/// How long to wait before a leader that could not be reached is tried again. Other servers forward
/// meanwhile.
const LEADER_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The leader, and the version (the term) of that knowledge.
#[derive(Debug, Default)]
pub struct LeaderCache {
    version: u64,
    leader: Option<Arc<str>>,
    /// The leader of this version could not be reached; do not ask for it before this time.
    not_before: Option<Instant>,
}

impl LeaderCache {
    /// The version to send with a request; 0 if servers should report the leader again.
    pub fn version(&self, now: Instant) -> u64 {
        if self.is_wanted(now) { 0 } else { self.version }
    }

    /// The leader's address, if it is known and can be reached.
    pub fn leader(&self) -> Option<&Arc<str>> {
        self.leader.as_ref()
    }

    /// Takes in a route that a server reported, unless it is older than the known one.
    pub fn learn(&mut self, route: &v1::Route, now: Instant) {
        if route.version < self.version || (route.version == self.version && !self.is_wanted(now)) {
            return;
        }
        self.version = route.version;
        self.leader = is_address(&route.address).then(|| route.address.as_str().into());
        self.not_before = self.leader.is_none().then(|| now + LEADER_RETRY_AFTER);
    }

    /// Forgets the leader if it is `server`. Call this if `server` cannot be reached or no longer leads.
    pub fn forget(&mut self, server: &str, now: Instant) {
        if self.leader.take_if(|leader| &**leader == server).is_some() {
            self.not_before = Some(now + LEADER_RETRY_AFTER);
        }
    }

    /// Accepts any route next, even an older one: a cluster that was restored may have lower versions.
    pub fn reset(&mut self) {
        *self = LeaderCache::default();
    }

    /// True if servers should report the leader.
    fn is_wanted(&self, now: Instant) -> bool {
        self.leader.is_none() && self.not_before.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(version: u64, address: &str) -> v1::Route {
        v1::Route { version, leader: 1, address: address.to_owned(), ..v1::Route::default() }
    }

    fn leader(known: &LeaderCache) -> Option<&str> {
        known.leader().map(|leader| &**leader)
    }

    #[test]
    fn the_newest_route_wins_and_an_unreachable_leader_is_tried_again_after_a_while() {
        let (mut known, now) = (LeaderCache::default(), Instant::now());
        known.learn(&route(3, "a:1"), now);
        known.learn(&route(2, "b:1"), now);
        assert_eq!((known.version(now), leader(&known)), (3, Some("a:1")));
        known.learn(&route(4, "b:1"), now);
        known.forget("a:1", now);
        assert_eq!((known.version(now), leader(&known)), (4, Some("b:1")));
        known.forget("b:1", now);
        known.learn(&route(4, "b:1"), now);
        // The leader is not requested again at once: each answer would carry it.
        assert_eq!((known.version(now), leader(&known)), (4, None));
        known.learn(&route(5, "c:1"), now);
        assert_eq!(leader(&known), Some("c:1"), "another leader");
        known.forget("c:1", now);
        let later = now + LEADER_RETRY_AFTER;
        assert_eq!(known.version(later), 0);
        known.learn(&route(4, "b:1"), later);
        assert_eq!(leader(&known), None, "a deposed leader's");
        known.learn(&route(5, "c:2"), later);
        assert_eq!((known.version(later), leader(&known)), (5, Some("c:2")));
    }

    #[test]
    fn a_route_with_an_unusable_address_gives_no_leader() {
        let (mut known, now) = (LeaderCache::default(), Instant::now());
        known.learn(&route(3, "0.0.0.0:7600"), now);
        assert_eq!((known.version(now), leader(&known)), (3, None));
    }

    #[test]
    fn after_a_reset_a_lower_version_is_accepted() {
        let (mut known, now) = (LeaderCache::default(), Instant::now());
        known.learn(&route(9, "a:1"), now);
        known.reset();
        known.learn(&route(2, "a:1"), now);
        assert_eq!((known.version(now), leader(&known)), (2, Some("a:1")));
    }
}
