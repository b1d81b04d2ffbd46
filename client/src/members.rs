//! Which servers there are: those that answers told of, and those that the client was given. Pure.
//!
//! Invariant: there always is a server to ask; an older membership never replaces a newer one.

use std::sync::Arc;

use crate::{address::is_address, api::Route};

/// The servers that are known.
#[derive(Debug)]
pub struct Members {
    given: Vec<Arc<str>>,
    version: u64,
    /// The members in an order of this client's own, so that clients that lose the same server do not
    /// all go to the same other one. Behind them those that were given and are no members: they may be
    /// names that lead to members, or all that is left when every member has moved.
    all: Vec<Arc<str>>,
    /// The one to ask.
    current: usize,
}

impl Members {
    /// The servers `given` (at least one), to be asked in their order.
    pub fn new(given: &[String]) -> Members {
        let given: Vec<Arc<str>> = given.iter().map(|server| server.as_str().into()).collect();
        Members {
            all: given.clone(),
            given,
            version: 0,
            current: 0,
        }
    }

    /// The version to ask with; 0 for none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All servers, in the order in which they are asked.
    pub fn all(&self) -> &[Arc<str>] {
        &self.all
    }

    /// The one to ask.
    pub fn current(&self) -> &Arc<str> {
        &self.all[self.current]
    }

    /// Has another one be asked than `failed`.
    pub fn pass_over(&mut self, failed: &str) {
        if &**self.current() == failed {
            self.current = (self.current + 1) % self.all.len();
        }
    }

    /// Learns what an answer told; true if that changes which servers there are.
    pub fn learn(&mut self, route: &Route) -> bool {
        if route.members_version <= self.version {
            return false;
        }
        self.version = route.members_version;
        let mut members: Vec<Arc<str>> = Vec::with_capacity(route.members.len());
        for member in route.members.iter().filter(|member| is_address(member)) {
            if !members.iter().any(|known| **known == **member) {
                members.push(member.as_str().into());
            }
        }
        if members.is_empty() {
            // None of them can be asked: those that are known are better than nothing.
            return false;
        }
        let before = self.current().clone();
        if members.iter().all(|member| self.all.contains(member)) {
            // Nobody is new: the order that there is stays.
            members.sort_by_key(|member| self.all.iter().position(|known| known == member));
        } else {
            shuffle(&mut members);
        }
        let place = members.iter().position(|server| *server == before);
        self.current = place.unwrap_or(0);
        let others = self.given.iter().filter(|server| !members.contains(server));
        let others: Vec<Arc<str>> = others.cloned().collect();
        members.extend(others);
        let changes = members != self.all;
        self.all = members;
        changes
    }

    /// Lets any membership replace the one that is known: a cluster that was restored may have a lower
    /// version.
    pub fn expect_any(&mut self) {
        self.version = 0;
    }
}

fn shuffle(servers: &mut [Arc<str>]) {
    for last in (1..servers.len()).rev() {
        servers.swap(last, (rand::random::<u64>() % (last as u64 + 1)) as usize);
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
    fn members_are_learnt_and_those_that_were_removed_forgotten() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        assert!(servers.learn(&told(4, &["a:1", "b:1", "c:1"])));
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "b:1", "c:1"]));
        assert_eq!(&**servers.current(), "a:1", "the one in use stays");
        assert!(servers.learn(&told(7, &["c:1", "d:1"])));
        // The one that was given is asked once no member answers.
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "c:1", "d:1"]));
        assert_eq!(servers.all()[2].as_ref(), "a:1");
        assert_ne!(&**servers.current(), "a:1");
        assert!(!servers.learn(&told(6, &["b:1"])), "an older one");
        assert!(!servers.learn(&told(8, &["d:1", "c:1"])), "the same ones");
        assert_eq!(servers.version(), 8);
    }

    #[test]
    fn every_server_gets_its_turn() {
        let mut servers = Members::new(&["x:1".to_owned()]);
        servers.learn(&told(1, &["a:1", "b:1", "c:1"]));
        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            let server = servers.current().clone();
            servers.pass_over("elsewhere:1");
            assert_eq!(*servers.current(), server);
            servers.pass_over(&server);
            asked.insert(server);
        }
        assert_eq!(asked.len(), 4);
    }

    #[test]
    fn a_list_without_an_address_changes_nothing() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        for (version, list) in [
            (1, vec![]),
            (2, vec!["", "b", "b:0", "0.0.0.0:1", "[::]:1"]),
        ] {
            assert!(!servers.learn(&told(version, &list)));
            assert_eq!(known(&servers), BTreeSet::from(["a:1"]));
        }
        servers.learn(&told(
            3,
            &["a:70000", "b c:1", ":1", "[::1]:7600", "node-2:7600"],
        ));
        let all = BTreeSet::from(["[::1]:7600", "node-2:7600", "a:1"]);
        assert_eq!(known(&servers), all);
    }

    #[test]
    fn a_cluster_that_was_restored_may_begin_with_a_lower_version() {
        let mut servers = Members::new(&["a:1".to_owned()]);
        servers.learn(&told(900, &["a:1", "b:1"]));
        servers.expect_any();
        assert!(servers.learn(&told(3, &["c:1"])));
        assert_eq!(known(&servers), BTreeSet::from(["a:1", "c:1"]));
    }
}
