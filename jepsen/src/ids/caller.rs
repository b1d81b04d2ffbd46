//! A caller that asks nodes for ids.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    connection::{IdConnection, IdInterface},
    seen::{Arrived, SeenIds},
    taken::Maker,
    wish::Wish,
};
use crate::address::Address;

/// For how many calls a roaming caller stays at a node, so that connections are reused.
const CALLS_PER_NODE: u64 = 8;

/// A caller: one call at a time.
pub(super) struct Caller {
    seen: Arc<SeenIds>,
    interface: IdInterface,
    /// Its place among the callers. It stays at one node if that is odd.
    place: usize,
    /// The node that it asks now.
    way: Option<(u64, IdConnection)>,
    rng: StdRng,
    calls: u64,
}

impl Caller {
    /// A caller that has not asked yet. Its place decides through which interface it asks.
    pub fn new(seen: Arc<SeenIds>, place: usize, seed: u64) -> Caller {
        Caller {
            seen,
            interface: IdInterface::OF_NODE[place / 2 % IdInterface::OF_NODE.len()],
            place,
            way: None,
            rng: StdRng::seed_from_u64(seed.wrapping_add(2_000 + place as u64)),
            calls: 0,
        }
    }

    /// Makes one call, as soon as the bound of the history allows.
    pub async fn call(&mut self) {
        self.seen.hold_back().await;
        let wish = match self.interface {
            IdInterface::Resp => Wish::plain(),
            _ => Wish::draw(&mut self.rng),
        };
        let (node, address) = self.choose_node();
        self.calls += 1;
        let mut way = match self.way.take() {
            Some((current, way)) if current == node => way,
            Some(_) | None => IdConnection::new(self.interface, &address),
        };
        let process = self.seen.starts.process_of(node);
        let invoked_ns = self.seen.recorder.now();
        let answer = way.ask(&wish).await;
        self.way = Some((node, way));
        match answer {
            Ok(ids) => {
                let arrived = Arrived {
                    interface: self.interface,
                    maker: Maker::Node(node),
                    // Otherwise it may have been either of two.
                    process: (self.seen.starts.process_of(node) == process).then_some(process),
                    invoked_ns,
                    asked: wish.count as usize,
                    ids,
                };
                self.seen.take(&wish, arrived);
            }
            Err(failure) => {
                self.seen.failed(self.interface, wish.namespace.name, failure.note);
                // A node that is down refuses thousands of times a second. That would only use up the CPU.
                let pause_ms = self.rng.random_range(5..20);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
        }
    }

    fn choose_node(&mut self) -> (u64, Address) {
        let nodes = self.seen.nodes.read();
        if self.place % 2 == 1 {
            return nodes[self.place / 2 % nodes.len()].clone();
        }
        if let Some((current, _)) = &self.way
            && !self.calls.is_multiple_of(CALLS_PER_NODE)
            && let Some(node) = nodes.iter().find(|node| node.0 == *current)
        {
            return node.clone();
        }
        nodes[self.rng.random_range(0..nodes.len())].clone()
    }
}
