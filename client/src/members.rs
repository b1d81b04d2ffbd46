//! The list of known servers: the members that servers reported, and the servers that the client was
//! given. Pure.
//!
//! Invariant: the list is never empty; an older membership never replaces a newer one.

use std::sync::Arc;

use rand::seq::SliceRandom;

use crate::{address::is_address, api::Route};

/// The known servers, and which of them to ask next.
#[derive(Debug)]
pub struct Members {
    given: Vec<Arc<str>>,
    version: u64,
    /// The members in a random order, so that clients that lose the same server do not all move to the
    /// same other one. Behind them, the given servers that are no members: they may be names that lead to
    /// members, or the only way in when every member has moved.
    all: Vec<Arc<str>>,
    /// The place in `all` of the server to ask next.
    current: usize,
    /// Servers that are of another cluster. They are not in `all`.
    foreign: Vec<Arc<str>>,
}

impl Members {
    /// Starts with the servers `given` (at least one), in a random order: otherwise all clients that are given the same list
    /// would ask the same server.
    pub fn new(given: &[String]) -> Members {
        let mut given: Vec<Arc<str>> = given.iter().map(|server| server.as_str().into()).collect();
        assert!(!given.is_empty(), "at least one server is given");
        given.shuffle(&mut rand::rng());
        Members { all: given.clone(), given, version: 0, current: 0, foreign: Vec::new() }
    }

    /// The version of the known membership, to send with a request; 0 for none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All servers, in the order in which they are tried.
    pub fn all(&self) -> &[Arc<str>] {
        &self.all
    }

    /// The server to ask next.
    pub fn current(&self) -> &Arc<str> {
        &self.all[self.current]
    }

    /// Moves on to the next server, if `failed` is the current one.
    pub fn advance_past(&mut self, failed: &str) {
        if &**self.current() == failed {
            self.current = (self.current + 1) % self.all.len();
        }
    }

    /// Takes in the members that a server reported, unless they are older than the known ones. True if the
    /// list of servers changes.
    pub fn learn(&mut self, route: &Route) -> bool {
        if route.members_version <= self.version {
            return false;
        }
        self.version = route.members_version;
        // An address that the cluster has given up may be a member's again later.
        self.foreign.retain(|server| {
            let is_named = route.members.iter().any(|member| **member == **server);
            is_named || self.given.contains(server)
        });
        let is_foreign = |server: &str| self.foreign.iter().any(|foreign| **foreign == *server);
        let usable = |member: &&String| is_address(member) && !is_foreign(member);
        let mut members: Vec<Arc<str>> = Vec::with_capacity(route.members.len());
        for member in route.members.iter().filter(usable) {
            if !members.iter().any(|known| **known == **member) {
                members.push(member.as_str().into());
            }
        }
        if members.is_empty() {
            // No member has a usable address. The known servers are better than nothing.
            return false;
        }
        let before = self.current().clone();
        if members.iter().all(|member| self.all.contains(member)) {
            // No member is new: keep the present order.
            members.sort_by_key(|member| self.all.iter().position(|known| known == member));
        } else {
            members.shuffle(&mut rand::rng());
        }
        let place = members.iter().position(|server| *server == before);
        self.current = place.unwrap_or(0);
        let others = self.given.iter();
        let others = others.filter(|server| !members.contains(server) && !is_foreign(server));
        let others: Vec<Arc<str>> = others.cloned().collect();
        members.extend(others);
        let changes = members != self.all;
        self.all = members;
        assert!(self.current < self.all.len(), "a server to ask");
        changes
    }

    /// Drops a server that is of another cluster, unless it is the only one. It comes back once all servers have failed, and
    /// may be a member again once a membership came without it.
    pub fn remove(&mut self, server: &str) {
        let Some(place) = self.all.iter().position(|known| **known == *server) else {
            return;
        };
        if self.all.len() > 1 {
            self.foreign.push(self.all.remove(place));
            self.current -= usize::from(place < self.current);
            self.current %= self.all.len();
        }
    }

    /// Accepts any membership next, even an older one: a cluster that was restored may have lower versions. Servers that were
    /// dropped come back: their addresses may lead to members again.
    pub fn forget_version(&mut self) {
        self.version = 0;
        self.all.append(&mut self.foreign);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn told(version: u64, members: &[&str]) -> Route {
        Route {
            members_version: version,
            members: members.iter().map(ToString::to_string).collect(),
            ..Route::default()
        }
    }

    fn known(servers: &Members) -> BTreeSet<&str> {
        servers.all().iter().map(|server| &**server).collect()
    }

    #[test]
    fn new_members_are_added_and_removed_ones_forgotten() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        assert!(servers.learn(&told(4, &["a:1", "b:1", "c:1"])));
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "b:1", "c:1"]));
        assert_eq!(&**servers.current(), "a:1", "the one in use stays");
        assert!(servers.learn(&told(7, &["c:1", "d:1"])));
        // The given server stays, behind the members.
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "c:1", "d:1"]));
        assert_eq!(servers.all()[2].as_ref(), "a:1");
        assert_ne!(&**servers.current(), "a:1");
        assert!(!servers.learn(&told(6, &["b:1"])), "an older one");
        assert!(!servers.learn(&told(8, &["d:1", "c:1"])), "the same ones");
        assert_eq!(servers.version(), 8);
    }

    #[test]
    fn clients_that_are_given_the_same_servers_do_not_all_ask_the_same_one() {
        let given = ["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()];
        let first = (0..1_000).map(|_| Members::new(&given).current().to_string());
        assert_eq!(first.collect::<BTreeSet<_>>(), BTreeSet::from(given));
    }

    #[test]
    fn when_servers_fail_every_other_one_gets_its_turn() {
        let mut servers = Members::new(&["x:1".to_owned()]);
        servers.learn(&told(1, &["a:1", "b:1", "c:1"]));
        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            let server = servers.current().clone();
            servers.advance_past("elsewhere:1");
            assert_eq!(*servers.current(), server);
            servers.advance_past(&server);
            asked.insert(server);
        }
        assert_eq!(asked.len(), 4);
    }

    #[test]
    fn a_membership_without_a_usable_address_changes_nothing() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        for (version, list) in [(1, vec![]), (2, vec!["", "b", "b:0", "0.0.0.0:1", "[::]:1"])] {
            assert!(!servers.learn(&told(version, &list)));
            assert_eq!(known(&servers), BTreeSet::from(["a:1"]));
        }
        servers.learn(&told(3, &["a:70000", "b c:1", ":1", "[::1]:7600", "node-2:7600"]));
        let all = BTreeSet::from(["[::1]:7600", "node-2:7600", "a:1"]);
        assert_eq!(known(&servers), all);
    }

    #[test]
    fn a_server_that_is_dropped_comes_back_when_all_have_failed_or_it_is_a_member_anew() {
        let mut servers = Members::new(&["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()]);
        while &**servers.current() != "a:1" {
            let server = servers.current().clone();
            servers.advance_past(&server);
        }
        servers.advance_past("a:1");
        let next = servers.current().clone();
        servers.remove("a:1");
        assert_eq!(*servers.current(), next);
        servers.learn(&told(1, &["a:1", "b:1", "d:1"]));
        assert_eq!(known(&servers), BTreeSet::from(["b:1", "c:1", "d:1"]));
        while &**servers.current() != "d:1" {
            let server = servers.current().clone();
            servers.advance_past(&server);
        }
        servers.remove("d:1");
        servers.learn(&told(2, &["b:1", "d:1"]));
        assert_eq!(known(&servers), BTreeSet::from(["b:1", "c:1"]));
        servers.learn(&told(3, &["b:1"]));
        servers.learn(&told(4, &["b:1", "d:1"]));
        assert_eq!(known(&servers), BTreeSet::from(["b:1", "c:1", "d:1"]), "another node there");
        for server in ["b:1", "c:1", "d:1", "e:1"] {
            servers.remove(server);
        }
        assert_eq!(known(&servers), BTreeSet::from(["d:1"]), "the last one stays");
        servers.forget_version();
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "b:1", "c:1", "d:1"]));
    }

    #[test]
    fn after_the_version_is_forgotten_a_lower_one_is_accepted() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        servers.learn(&told(900, &["a:1", "b:1"]));
        servers.forget_version();
        assert!(servers.learn(&told(3, &["c:1"])));
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "c:1"]));
    }
}
