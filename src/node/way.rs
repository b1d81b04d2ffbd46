//! The way to the leader, whichever node that is: who leads, ask here, forward, repeat what may be repeated, until the
//! deadline.
//!
//! `search` is the loop, and `attempt` what comes of each turn of it. `origin` is where a request came from, and `effect` what
//! it changes. `patience` says how long is waited. `forward` carries requests to another node, and `operation` says what comes
//! of operations that were sent. A service that answers a request here implements [`for_leader::ForLeader`] for it: the way
//! knows none of them.

pub(super) mod attempt;
pub(super) mod effect;
pub(super) mod for_leader;
pub(super) mod forward;
pub(super) mod operation;
pub(super) mod origin;
pub(super) mod patience;
pub(super) mod search;

use std::sync::Arc;

use self::forward::Forwarder;
use super::{Config, common::Common, stopping::Stopping, terms::LedTerms};
use crate::{
    clock::Clock,
    consensus::{Group, Transport},
};

/// The way from this node to the leader of a Raft group.
pub struct Way {
    config: Arc<Config>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    stopping: Stopping,
    led: Arc<LedTerms>,
    forwarder: Forwarder,
}

impl Way {
    /// The way to the leader of the node's group, whose nodes are reached over `transport`.
    pub(super) fn new(common: &Common, led: Arc<LedTerms>, transport: Arc<dyn Transport>) -> Self {
        let sender = common.group.sender().clone();
        Way {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            stopping: common.stopping.clone(),
            led,
            forwarder: Forwarder::new(sender, transport, common.metrics.clone()),
        }
    }

    /// The forwarder, which carries requests to other nodes.
    pub(super) fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }
}
