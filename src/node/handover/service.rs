//! The service that hands the leadership of a Raft group over, and the parts that it is made of. Its methods are in the other
//! files of this folder.

use std::sync::Arc;

use super::under_way::CurrentHandover;
use crate::{
    clock::Clock,
    consensus::Group,
    metrics::Metrics,
    node::{Config, common::Common, members::Members, terms::LedTerms},
};

/// The handovers of a Raft group's leadership to other nodes.
///
/// No field is replaced after the start. The only state of this service that changes is in `under_way.rs`: the handover that is
/// under way. Only this folder sees the fields: each of its files has the methods for one part of a handover. The type does not
/// stand in `handover.rs`, which uses those files: they and it would use each other.
pub struct Handovers {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) led: Arc<LedTerms>,
    pub(super) members: Arc<Members>,
    /// The one that is under way, or was last.
    pub(super) current: CurrentHandover,
}

impl Handovers {
    /// None yet.
    pub(in crate::node) fn new(common: &Common, led: Arc<LedTerms>, members: Arc<Members>) -> Self {
        Handovers {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            led,
            members,
            current: CurrentHandover::default(),
        }
    }
}
