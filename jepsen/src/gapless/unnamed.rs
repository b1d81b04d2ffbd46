//! Callers that give no ids, in a namespace that allows it: through every interface, one key or two in a message.
//!
//! A call that was not answered may have taken its numbers, unless nothing was sent or the node said that nothing was taken.

use rand::{RngExt, rngs::StdRng};

use super::{
    TICKET,
    asked::{self, Shared, pause},
};
use crate::{
    connections::Connection,
    history::{Action, Interface},
    target::Target,
};

/// For how many calls a caller stays at a node.
const CALLS_PER_NODE: u64 = 8;

/// One caller.
pub(super) struct Caller {
    pub shared: Shared,
    pub interface: Interface,
    pub keys: u64,
    pub rng: StdRng,
    /// The node that it asks now.
    pub connection: Option<(u64, Connection)>,
}

impl asked::Caller for Caller {
    async fn call(&mut self, number: u64) {
        if number.is_multiple_of(CALLS_PER_NODE) {
            self.connection = None;
        }
        let (interface, count) = (self.interface, self.rng.random_range(1..4));
        let calls = self.targets().map(|target| self.shared.begin(target, count));
        let calls = Vec::from_iter(calls);
        let targets: Vec<Target> = calls.iter().map(|call| call.target.clone()).collect();
        let shared = self.shared.clone();
        let (node, connection) = self.connection.get_or_insert_with(|| {
            let (node, address) = shared.any_node(&mut self.rng);
            (node, Connection::new(interface, address))
        });
        let answers = connection.ask(&targets, Action::Next { count }).await;
        let node = *node;
        let mut all_answered = true;
        for (call, answer) in calls.iter().zip(answers) {
            all_answered &= answer.is_ok();
            match answer {
                Ok(answer) => {
                    let asked = format!("call {number} at node {node}");
                    shared.answered(call, answer, (node, interface), &asked);
                }
                Err(failure) if failure.not_done => {}
                Err(_) => shared.unknown(call),
            }
        }
        if !all_answered {
            self.connection = None;
        }
        pause(&mut self.rng, 1..8).await;
    }
}

impl Caller {
    /// One key, or two where a message can have several.
    fn targets(&mut self) -> impl Iterator<Item = Target> + use<> {
        let first = self.rng.random_range(0..self.keys);
        let keys = match self.interface {
            Interface::Stream | Interface::Resp => 2,
            Interface::Unary | Interface::Http | Interface::ProductClient => 1,
        };
        let total = self.keys;
        let ids = (first..first + keys).map(move |id| id % total);
        ids.map(|id| Target { namespace: TICKET, id })
    }
}
