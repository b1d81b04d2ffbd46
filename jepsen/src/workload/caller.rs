//! One caller: the interface through which it asks, and the node that it asks.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    Workload, config::WorkloadConfig, product_client::ProductClient, recorded::Invocation,
};
use crate::{
    address::Address,
    client::FirstAndLast,
    connections::{Connection, Failure},
    history::{Action, Interface, Outcome},
    nodes::KnownNodes,
    record::Recorder,
    target::{SHARED, Target},
};

/// The node under which calls of the product's client are recorded: it chooses the node itself.
pub const PRODUCT_CLIENT_NODE: u64 = 0;

/// For how many calls a roaming caller stays at a node, so that connections are reused.
const CALLS_PER_NODE: u64 = 8;

/// A caller: one operation at a time, or one for each key of a message.
pub struct Caller {
    config: WorkloadConfig,
    recorder: Arc<Recorder>,
    nodes: KnownNodes,
    interface: Interface,
    product: Arc<ProductClient>,
    /// One for each key of a message.
    processes: Vec<u64>,
    /// Its place among the callers. It stays at one node if that is odd.
    place: usize,
    /// The node that it asks now.
    connection: Option<(u64, Connection)>,
    rng: StdRng,
    calls: u64,
    /// The last numbers of keys whose floors it raises, as it was answered.
    seen: HashMap<u64, u64>,
}

impl Caller {
    /// A caller that has not asked yet. Its place among the callers decides the interface.
    pub fn new(
        config: WorkloadConfig, place: usize, nodes: KnownNodes, product: Arc<ProductClient>,
        recorder: Arc<Recorder>,
    ) -> Caller {
        let processes = 0..config.message_keys();
        Caller {
            config,
            nodes,
            interface: config.interface_of(place),
            product,
            processes: processes.map(|_| recorder.new_process()).collect(),
            place,
            connection: None,
            rng: StdRng::seed_from_u64(config.seed.wrapping_add(place as u64)),
            calls: 0,
            seen: HashMap::new(),
            recorder,
        }
    }

    /// Makes one call, as soon as the bound of the history allows.
    pub async fn call(&mut self) {
        self.config.hold_back(&self.recorder).await;
        let (target, drawn) = self.config.workload.draw(self.config.keys, &mut self.rng);
        let action = match drawn {
            // The floor lies above the last answer to this caller.
            Action::Raise { floor } => {
                Action::Raise { floor: floor + self.seen.get(&target.id).copied().unwrap_or(0) }
            }
            other => other,
        };
        let interface = interface_for(self.interface, action);
        let targets = self.targets(interface, target, action);
        let (node, invoked_ns, answers) = self.ask(interface, &targets, action).await;
        let mut all_answered = true;
        let asked = self.processes.iter_mut().zip(&targets);
        for ((process, target), answer) in asked.zip(answers) {
            let invocation =
                Invocation { invoked_ns, node, interface, process: *process, target, action };
            if let Ok((_, last)) = &answer
                && self.config.workload == Workload::Floors
            {
                self.seen.insert(target.id, *last);
            }
            let outcome = invocation.complete(&self.recorder, answer);
            if outcome == Outcome::Info {
                // A process whose operation has an unknown outcome retires.
                *process = self.recorder.new_process();
            }
            all_answered &= outcome == Outcome::Ok;
        }
        if !all_answered {
            // A node that is down refuses thousands of times a second. That would only use up the CPU.
            let pause_ms = self.rng.random_range(5..20);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Returns also which node was asked, and when.
    async fn ask(
        &mut self, interface: Interface, targets: &[Target], action: Action,
    ) -> (u64, u64, Vec<Result<FirstAndLast, Failure>>) {
        if interface == Interface::ProductClient {
            let invoked_ns = self.recorder.now();
            let answers = self.product.ask(targets, action).await;
            return (PRODUCT_CLIENT_NODE, invoked_ns, answers);
        }
        let (node, mut connection) = self.connect();
        let invoked_ns = self.recorder.now();
        let answers = connection.ask(targets, action).await;
        self.connection = Some((node, connection));
        (node, invoked_ns, answers)
    }

    /// The keys to ask for: `target`, and in a message those after it.
    fn targets(&self, interface: Interface, target: Target, action: Action) -> Vec<Target> {
        let keys = match (interface, action) {
            (Interface::ProductClient, _) => {
                // It may try many times on the way, and the bound for gaps does not know how often. The gaps of
                // these keys are not counted.
                let id = target.id % self.config.shared_ids();
                let namespace = SHARED;
                return vec![Target { namespace, id }];
            }
            (Interface::Stream | Interface::Resp, Action::Next { .. }) => {
                self.config.message_keys()
            }
            // Every other call asks for several keys.
            (Interface::Unary, Action::Current) if self.calls.is_multiple_of(2) => {
                self.config.message_keys()
            }
            (Interface::Unary | Interface::Http, _)
            | (Interface::Stream | Interface::Resp, Action::Current | Action::Raise { .. }) => 1,
        };
        let ids = target.id..target.id + keys;
        let namespace = target.namespace;
        ids.map(|id| Target { namespace, id }).collect()
    }

    fn choose_node(&mut self) -> (u64, Address) {
        let nodes = self.nodes.read();
        if self.place % 2 == 1 {
            return nodes[self.place / 2 % nodes.len()].clone();
        }
        if let Some((current, _)) = &self.connection
            && !self.calls.is_multiple_of(CALLS_PER_NODE)
            && let Some(node) = nodes.iter().find(|node| node.0 == *current)
        {
            return node.clone();
        }
        nodes[self.rng.random_range(0..nodes.len())].clone()
    }

    /// A node to ask, and the connection to it.
    fn connect(&mut self) -> (u64, Connection) {
        let (node, address) = self.choose_node();
        self.calls += 1;
        match self.connection.take() {
            Some((current, connection)) if current == node => (node, connection),
            Some(_) | None => (node, Connection::new(self.interface, address)),
        }
    }
}

/// The interface through which a caller makes such a call: callers with a stream or the product's client read
/// by calls of their own.
fn interface_for(interface: Interface, action: Action) -> Interface {
    match (interface, action) {
        (Interface::Stream | Interface::ProductClient, Action::Current | Action::Raise { .. }) => {
            Interface::Unary
        }
        (interface, _) => interface,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cluster::Product;

    #[test]
    fn sixteen_callers_ask_through_every_interface_staying_at_a_node_and_roaming() {
        let config = WorkloadConfig {
            workload: Workload::Mixed,
            keys: 100,
            interfaces: Product::Ratchet.interfaces(),
            per_second_max: 1,
            seed: 1,
        };
        let mut callers: BTreeMap<(Interface, bool), usize> = BTreeMap::new();
        for place in 0..16 {
            let stays = place % 2 == 1;
            *callers.entry((config.interface_of(place), stays)).or_default() += 1;
        }
        assert_eq!(callers.len(), 2 * config.interfaces.len(), "{callers:?}");
    }

    #[test]
    fn a_caller_with_a_stream_reads_by_calls_and_the_other_interfaces_read_themselves() {
        let read = |interface| interface_for(interface, Action::Current);
        assert_eq!(read(Interface::Stream), Interface::Unary);
        assert_eq!(read(Interface::ProductClient), Interface::Unary);
        assert_eq!(read(Interface::Http), Interface::Http);
        assert_eq!(read(Interface::Resp), Interface::Resp);
    }
}
