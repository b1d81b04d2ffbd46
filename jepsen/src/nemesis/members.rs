//! Members that come and go, leaders that hand over, followers that fall far behind.

use std::{cell::Cell, io, time::Duration};

use rand::RngExt;
use tonic::Status;

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::{
    client::Client,
    network::Port,
    proto::{AddNodeRequest, NodeRequest, TransferLeadershipRequest},
};

pub(super) const CHANGING: Duration = Duration::from_secs(15);
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

impl Stage {
    pub(super) async fn begin_members(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        match nemesis {
            Nemesis::Transfer => Ok(self.transfer().await),
            Nemesis::TransferSlow => Ok(self.transfer_slowly().await),
            Nemesis::SnapshotStorm => self.fall_behind().await,
            _ => {
                let victim = if self.rng.random_bool(0.5) {
                    self.leader()
                } else {
                    self.follower()
                };
                let (before, after) = (self.members.clone(), self.fresh);
                let broken = self.replace(victim).await?;
                let changed = self.members != before;
                let what = format!("node {after} joined, node {victim} left");
                Ok(Begun::new(what, Wound::Healed, changed).broken(broken))
            }
        }
    }

    /// cannot, though a majority lives.
    pub(super) async fn replace(&mut self, victim: Port) -> io::Result<Option<String>> {
        let room = self.cluster.plan.nodes + self.cluster.plan.spare;
        if self.fresh > room {
            return Ok(None);
        }
        let new = self.fresh;
        self.fresh += 1;
        self.cluster.spawn(new)?;
        let peer_address = self.cluster.peer_address(new).to_string();
        let add = AddNodeRequest {
            id: u64::from(new),
            peer_address,
        };
        let steps = self.change_members(victim, new, add).await;
        if steps.is_ok() {
            self.members.retain(|id| *id != victim);
            self.members.push(new);
            let address = self.cluster.address(new);
            let mut nodes = self.nodes.write();
            nodes.retain(|(id, _)| *id != u64::from(victim));
            nodes.push((u64::from(new), address));
            drop(nodes);
            self.cluster.kill(victim);
        }
        Ok(steps.err())
    }

    async fn change_members(
        &mut self,
        victim: Port,
        new: Port,
        add: AddNodeRequest,
    ) -> Result<(), String> {
        let others: Vec<Port> = self
            .members
            .iter()
            .copied()
            .filter(|id| *id != victim)
            .collect();
        // Whoever does not answer is not asked again at once.
        let clients: Vec<Client> = others.iter().map(|id| self.cluster.client(*id)).collect();
        let turn = Cell::new(self.rng.random_range(0..clients.len()));
        let anyone = || {
            turn.set((turn.get() + 1) % clients.len());
            clients[turn.get()].clone()
        };
        let new = NodeRequest {
            id: u64::from(new),
            force: false,
        };
        let gone = NodeRequest {
            id: u64::from(victim),
            force: false,
        };
        self.until("the new node is added", || {
            let (mut client, add) = (anyone(), add.clone());
            async move { already(client.admin().add_node(add).await.map(drop)) }
        })
        .await?;
        self.until("it is promoted", || {
            let mut client = anyone();
            async move { client.admin().promote_node(new).await.map(drop) }
        })
        .await?;
        self.until("the old one is removed", || {
            let mut client = anyone();
            async move {
                match client.admin().remove_node(gone).await {
                    // It leads: hand over first. Gone already: an earlier try did it.
                    Err(status) if status.code() == tonic::Code::FailedPrecondition => {
                        let to_any = TransferLeadershipRequest { to: None };
                        client.admin().transfer_leadership(to_any).await?;
                        Err(status)
                    }
                    Err(status) if status.code() == tonic::Code::NotFound => Ok(()),
                    removed => removed.map(drop),
                }
            }
        })
        .await
    }

    /// Tries until it succeeds or the time is over.
    pub(super) async fn until<F>(
        &self,
        what: &str,
        mut step: impl FnMut() -> F,
    ) -> Result<(), String>
    where
        F: Future<Output = Result<(), Status>>,
    {
        let mut last = String::new();
        let trying = async {
            while let Err(status) = step().await {
                last = format!("{:?}: {}", status.code(), status.message());
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
        };
        tokio::time::timeout(CHANGING, trying)
            .await
            .map_err(|_| format!("not so within {} s: {what}; {last}", CHANGING.as_secs()))
    }
}

fn already(added: Result<(), Status>) -> Result<(), Status> {
    match added {
        Err(status) if status.code() == tonic::Code::AlreadyExists => Ok(()),
        added => added,
    }
}
