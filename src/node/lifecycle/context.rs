//! The parts of a node: each service is made of those below it. The interfaces hold this, and call the services in it. It is
//! the one place where all services are made.

use std::sync::Arc;

use crate::{
    consensus::{Group, RpcHandler, ThisNode},
    metrics::Metrics,
    node::{
        Access, Addresses, Asker, Callers, Config, RequestMemory, Seams,
        admission::Admission,
        callers::Caller,
        common::Common,
        grants::Grants,
        handover::Handovers,
        ids::Ids,
        known_namespaces::KnownNamespaces,
        leader_ids::LeaderIds,
        members::{Members, formation::Formation},
        namespaces::{Namespaces, export::Exports},
        numbers::Numbers,
        operations::{
            Operations,
            services::{GroupServices, OperationServices},
        },
        requests::counted::CallCounts,
        status::{Status, readiness::Readiness},
        stopping::Stopping,
        terms::LedTerms,
        traces::Traces,
        wall_clock::ids_time::IdsTime,
        way::Way,
    },
    tasks::Fault,
};

/// The parts of a node that the interfaces to callers use.
pub struct NodeContext {
    /// The configuration.
    pub config: Arc<Config>,
    /// The parts that the node has once, however many Raft groups run on it.
    pub this_node: Arc<ThisNode>,
    /// Whether the node stops.
    pub(in crate::node) stopping: Stopping,
    /// The Raft group.
    pub group: Arc<Group>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// The memory of waiting requests and unsent answers.
    pub request_memory: Arc<RequestMemory>,
    /// Which calls are traced.
    pub traces: Traces,
    /// The callers, and the bounds on each.
    pub callers: Arc<Callers>,
    /// The service that lets callers in.
    pub admission: Arc<Admission>,
    /// The counts of each namespace.
    pub counts: Arc<CallCounts>,
    /// The service that answers requests for numbers.
    pub numbers: Arc<Numbers>,
    /// The service that has operations carried out.
    pub operations: Arc<Operations>,
    /// The namespaces, as this node knows them.
    pub namespaces: Arc<KnownNamespaces>,
    /// The ids that this node makes.
    pub ids: Arc<Ids>,
    /// The service that exports namespaces.
    pub exports: Arc<Exports>,
    /// Whether the node is ready.
    pub readiness: Arc<Readiness>,
    /// The services that carry operations out.
    pub services: Arc<OperationServices>,
}

impl NodeContext {
    pub(in crate::node) fn new(
        config: Config, seams: Seams, group: Arc<Group>, metrics: Arc<Metrics>,
        addresses: Addresses,
    ) -> NodeContext {
        let common = Common::new(config, seams.clock, group, metrics);
        let Common { config, group, clock, metrics, .. } = &common;
        let transport = seams.transport;
        let time = IdsTime::new(
            config.node_id,
            clock.clone(),
            group.clone(),
            config.clock_apart_max_ms,
            metrics.clone(),
            group.set_metrics.clone(),
        );
        let access = Arc::new(Access::new(config.clone(), group.clone(), metrics.clone()));
        let rpc_handler = Arc::new(RpcHandler::new(group.clone()));
        let led = Arc::new(LedTerms::new(&common, rpc_handler.clone()));
        let way = Arc::new(Way::new(&common, led.clone(), transport.clone()));
        let admission = Arc::new(Admission::new(&common, access.clone(), led.clone(), way.clone()));
        let members = Arc::new(Members::new(&common, transport, addresses));
        let listens = seams.listens_before_founding;
        let formation = Arc::new(Formation::new(&common, members.clone(), listens));
        let of_group = GroupServices {
            rpc_handler,
            handovers: Arc::new(Handovers::new(&common, led.clone(), members.clone())),
            leader_ids: LeaderIds::new(&common, time.clone()),
            namespaces: Namespaces::new(&common, access.clone(), time.clone()),
            grants: Grants::new(&common, members.clone()),
            led: led.clone(),
            way: way.clone(),
        };
        let status = Status::new(&common, led.clone(), members.clone(), time.clone());
        let services = Arc::new(OperationServices {
            access: access.clone(),
            of_group,
            status: Arc::new(status),
            formation: formation.clone(),
            members: members.clone(),
            certificates: seams.certificates,
        });
        let counts = Arc::new(CallCounts::new(&common));
        let numbers = Arc::new(Numbers::new(
            &common,
            admission.clone(),
            led.clone(),
            members,
            way,
            counts.clone(),
        ));
        let operations = Arc::new(Operations::new(&common, admission.clone(), services.clone()));
        let namespaces =
            Arc::new(KnownNamespaces::new(&common, admission.clone(), operations.clone()));
        let ids = Arc::new(Ids::new(
            &common,
            (led.clone(), time),
            admission.clone(),
            operations.clone(),
            namespaces.clone(),
            counts.clone(),
        ));
        NodeContext {
            traces: Traces::new(&common.config, common.metrics.clone()),
            exports: Arc::new(Exports::new(&common, admission.clone(), access, led.clone())),
            readiness: Arc::new(Readiness::new(&common, led, formation)),
            config: common.config,
            this_node: common.this_node,
            stopping: common.stopping,
            group: common.group,
            metrics: common.metrics,
            request_memory: common.request_memory,
            callers: common.callers,
            admission,
            counts,
            numbers,
            operations,
            namespaces,
            ids,
            services,
        }
    }

    /// The caller to whom a request that a peer passes on is charged: its principal, if this node knows that, or else the one
    /// that the peer has `told`. `None` if it is a node's own.
    pub fn caller_of(&self, by: &Asker, told: Option<u64>) -> Option<Arc<Caller>> {
        let id = self.services.access.id_of(by).or(told);
        id.map(|id| self.callers.caller(id))
    }

    /// Stops the node: it cannot go on.
    pub fn fail(&self, reason: String) {
        self.this_node.tasks.fail(Fault::CannotGoOn(reason));
    }

    /// Why the node must stop, once it must.
    pub fn fault(&self) -> Option<Fault> {
        self.this_node.tasks.failed().borrow().clone()
    }
}
