//! Lease arithmetic: which acknowledgements count, and until when they make a lease valid. Pure.
//!
//! A lease of term t lasts until `sent + lease`, where `sent` is the latest instant such that a
//! majority acknowledged, in term t, a message that this node sent at `sent` or later. While a
//! membership change is on its way, the majority of the proposed voters must have done so as well.
//!
//! Invariant: within a term, an acknowledgement never moves back, and neither does the membership
//! in force.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::quorums::Quorums;
use crate::{clock::Instant, sequence::NodeId};

/// The figures that the deadline of a lease is computed from.
pub struct LeaseArithmetic {
    me: NodeId,
    lease: Duration,
    /// The voters of the membership in force, as far as this node has heard.
    in_force: Quorums,
    /// The voters of a membership that was proposed. It may be in force before this node hears of it.
    proposed: Option<BTreeSet<NodeId>>,
    /// The term that `acks` belong to.
    acks_term: u64,
    /// For each peer, when the latest message was sent that it acknowledged.
    acks: BTreeMap<NodeId, Instant>,
}

impl LeaseArithmetic {
    /// Arithmetic for node `me`, whose lease lasts for `lease` from the sending of what was acknowledged.
    pub fn new(me: NodeId, lease: Duration) -> Self {
        LeaseArithmetic {
            me,
            lease,
            in_force: Quorums::default(),
            proposed: None,
            acks_term: 0,
            acks: BTreeMap::new(),
        }
    }

    /// This node begins to lead a term with the membership `in_force`. A membership that was proposed
    /// in an earlier term is either in this node's log, and so in `in_force`, or nowhere.
    pub fn begin_term(&mut self, in_force: Quorums) {
        self.in_force = in_force;
        self.proposed = None;
    }

    /// Follows the membership in force. Within a term it only moves on: a watcher that lags may bring
    /// an earlier one, which is ignored.
    pub fn follow(&mut self, in_force: Quorums) {
        if in_force.log_index() >= self.in_force.log_index() {
            self.in_force = in_force;
        }
    }

    /// The membership `in_force` counts, and from now on the majority of the voters that are `proposed`, too. `None`: it
    /// counts alone.
    pub fn need(&mut self, in_force: Quorums, proposed: Option<BTreeSet<NodeId>>) {
        self.follow(in_force);
        self.proposed = proposed;
    }

    /// The quorums that are needed at present.
    pub fn quorums(&self) -> Quorums {
        self.in_force.and(self.proposed.as_ref())
    }

    /// `peer` acknowledged a message of `term` that was sent at `sent`. An acknowledgement of a term
    /// before the latest one is ignored; one of a later term discards those of earlier terms.
    pub fn record_ack(&mut self, term: u64, peer: NodeId, sent: Instant) {
        if term < self.acks_term {
            return;
        }
        if term > self.acks_term {
            self.acks_term = term;
            self.acks.clear();
        }
        let latest = self.acks.entry(peer).or_insert(sent);
        *latest = sent.max(*latest);
    }

    /// True if `node` is the one whose lease this is about.
    pub fn is_me(&self, node: NodeId) -> bool {
        node == self.me
    }

    /// When the latest message of `term` was sent that `peer` acknowledged.
    pub fn last_ack(&self, term: u64, peer: NodeId) -> Option<Instant> {
        let of_this_term = self.acks_term == term;
        of_this_term.then(|| self.acks.get(&peer).copied()).flatten()
    }

    /// Until when the lease of `term` is valid. `None` before a majority has acknowledged anything in
    /// that term.
    pub fn deadline(&self, term: u64) -> Option<Instant> {
        let acknowledged = |node| {
            if node == self.me {
                // A node's promise to itself does not run out, so a sole voter's lease never ends.
                Some(Instant::NEVER)
            } else {
                self.last_ack(term, node)
            }
        };
        let sent = self.quorums().majority_reached(acknowledged)?;
        Some(sent.after(self.lease))
    }
}
