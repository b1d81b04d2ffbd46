//! The leader and its term, as far as this node knows them, and how they are published.
//!
//! Invariant: what is published is ordered by term, and a term has one leader. Only the end of Raft takes all of it back.

use std::sync::Arc;

use crate::{consensus::lease::TermLease, ordered_watch, sequence::NodeId, storage::Member};

/// The leader and its term, as far as this node knows them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The leader of the term, if it is known.
    pub leader: Option<(NodeId, Member)>,
    /// This node's lease. It is there if this node leads, has applied an entry of its term (so that it
    /// knows all that its predecessors committed), and has not given the term up.
    pub own: Option<Arc<TermLease>>,
}

impl Leadership {
    /// Whether the leader of `term` is known, or a later term.
    fn is_known(&self, term: u64) -> bool {
        self.term > term || self.term == term && self.leader.is_some()
    }
}

/// Publishes the leadership.
#[derive(Default)]
pub struct PublishedLeadership(ordered_watch::Sender<Leadership>);

impl PublishedLeadership {
    /// The leadership, now and from now on.
    pub fn subscribe(&self) -> ordered_watch::Receiver<Leadership> {
        self.0.subscribe()
    }

    /// The leadership. Drop it soon: a change waits for that.
    pub fn borrow(&self) -> ordered_watch::Ref<'_, Leadership> {
        self.0.borrow()
    }

    /// True if the leader of `term` is news.
    pub fn lacks_leader_of(&self, term: u64) -> bool {
        !self.0.borrow().is_known(term)
    }

    /// `leader` leads `term`, as it says itself. Ignored if that is no news.
    pub fn hear_of(&self, term: u64, leader: (NodeId, Member)) {
        self.0.send_if_modified(|known| {
            let is_news = !known.is_known(term);
            if is_news {
                *known = Leadership { term, leader: Some(leader), own: None };
            }
            is_news
        });
    }

    /// Publishes what Raft says `now`. Ignored if a later term is known.
    pub fn follow(&self, mut now: Leadership) {
        self.0.send_if_modified(|before| {
            // A leader that was heard is known before Raft follows it (`hear_of`). A term has one leader.
            if before.term > now.term {
                return false;
            }
            if before.term == now.term && now.leader.is_none() {
                now.leader = before.leader.clone();
            }
            let changed = *before != now;
            if changed {
                *before = now;
            }
            changed
        });
    }

    /// Raft has stopped: nothing is known from now on.
    pub fn end(&self) {
        self.0.send_replace(Leadership::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(id: NodeId) -> (NodeId, Member) {
        (id, Member::default())
    }

    fn published(leadership: &PublishedLeadership) -> (u64, Option<NodeId>) {
        let now = leadership.borrow();
        (now.term, now.leader.as_ref().map(|(id, _)| *id))
    }

    #[test]
    fn a_leader_that_was_heard_stays_known_until_raft_follows_it_or_a_later_term() {
        let leadership = PublishedLeadership::default();
        leadership.hear_of(3, leader(1));
        assert!(!leadership.lacks_leader_of(3));
        leadership.follow(Leadership { term: 2, leader: Some(leader(2)), own: None });
        assert_eq!(published(&leadership), (3, Some(1)));
        leadership.follow(Leadership { term: 3, leader: None, own: None });
        assert_eq!(published(&leadership), (3, Some(1)));
        leadership.follow(Leadership { term: 4, leader: None, own: None });
        assert_eq!(published(&leadership), (4, None));
        assert!(leadership.lacks_leader_of(4));
    }

    #[test]
    fn a_leader_of_an_earlier_term_is_no_news() {
        let leadership = PublishedLeadership::default();
        leadership.follow(Leadership { term: 4, leader: None, own: None });
        leadership.hear_of(3, leader(1));
        assert_eq!(published(&leadership), (4, None));
        leadership.hear_of(4, leader(2));
        leadership.hear_of(4, leader(3));
        assert_eq!(published(&leadership), (4, Some(2)));
        leadership.end();
        assert_eq!(published(&leadership), (0, None));
    }
}
