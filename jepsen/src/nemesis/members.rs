//! Members that come and go, leaders that hand over, followers that fall far behind.

use std::{cell::Cell, io, time::Duration};

use rand::RngExt;
use tonic::Status;

use super::{Begun, Nemesis, Stage, Wound};
use crate::{
    client::Client,
    network::{Link, Port},
    proto::{AddNodeRequest, NodeRequest, TransferLeadershipRequest},
};

const CHANGING: Duration = Duration::from_secs(15);
/// Longer than it takes to elect a leader that is told to stand, shorter than a message may take.
const HEARD_LATE: Duration = Duration::from_millis(25);
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

    pub(super) async fn transfer(&mut self) -> Begun {
        let (leader, to) = (self.leader(), self.follower());
        let asked = self.any();
        let mut client = self.cluster.client(asked);
        let request = TransferLeadershipRequest {
            to: Some(u64::from(to)),
        };
        let answer = tokio::time::timeout(CHANGING, client.admin().transfer_leadership(request));
        let (done, how) = match answer.await {
            Ok(Ok(answer)) => (true, format!("done in term {}", answer.into_inner().term)),
            // Another fault may be under way; then it is no graceful change, and counted as none.
            Ok(Err(status)) => (false, status.message().to_owned()),
            Err(_) => (false, "no answer".to_owned()),
        };
        self.handed_over += u64::from(done);
        let what = format!("transfer from {leader} to {to}, asked at {asked}: {how}");
        Begun::new(what, Wound::Healed, done)
    }

    /// The old leader hears of its successor later than clients do.
    async fn transfer_slowly(&mut self) -> Begun {
        let leader = self.leader();
        let others = self.members.iter().filter(|id| **id != leader);
        let Some(network) = &self.cluster.network else {
            return Begun::new("links are not slow here", Wound::Healed, false);
        };
        let slow = Link {
            delay: HEARD_LATE,
            ..Link::default()
        };
        let before = network.tally().delayed;
        others.for_each(|other| network.set(*other, leader, slow));
        let mut begun = self.transfer().await;
        begun.what.push_str(", heard of late by the old leader");
        begun.wound = Wound::Links;
        let delayed = self
            .cluster
            .network
            .as_ref()
            .map(|network| network.tally().delayed);
        begun.bit &= delayed > Some(before);
        begun
    }

    async fn fall_behind(&mut self) -> io::Result<Begun> {
        let victim = self.follower();
        let killed = self.cluster.kill(victim);
        self.hold().await;
        self.hold().await;
        self.cluster.spawn(victim)?;
        let leader = self.leader();
        let mut client = self.cluster.client(leader);
        let caught_up = self
            .until("the follower catches up", || {
                let mut client = client.clone();
                async move {
                    let status = client.status().await?;
                    let node = status
                        .nodes
                        .iter()
                        .find(|node| node.id == u64::from(victim));
                    match node.and_then(|node| node.lag) {
                        Some(lag) if lag < 100 => Ok(()),
                        lag => Err(Status::unavailable(format!("lag is {lag:?}"))),
                    }
                }
            })
            .await;
        let logged = client.status().await.ok();
        let index = logged.and_then(|status| status.nodes.iter().find_map(|node| node.log_index));
        let snapshots = self.snapshots_received(victim);
        let what = format!(
            "node {victim} was away while the log grew to {index:?}, then caught up; snapshots \
             received so far: {snapshots}"
        );
        let bit = killed && snapshots > 0;
        // What it got it must also be able to lead with.
        let request = TransferLeadershipRequest {
            to: Some(u64::from(victim)),
        };
        let led = tokio::time::timeout(CHANGING, client.admin().transfer_leadership(request)).await;
        let led = matches!(led, Ok(Ok(_)));
        self.handed_over += u64::from(led);
        let what = if led {
            format!("{what}; it leads now")
        } else {
            what
        };
        Ok(Begun::new(what, Wound::Healed, bit && led).broken(caught_up.err()))
    }

    /// What the node itself says in its log.
    fn snapshots_received(&self, id: Port) -> usize {
        let log = std::fs::read_to_string(self.cluster.log(id)).unwrap_or_default();
        log.matches("snapshot installed").count()
    }

    /// A new node takes the place of `victim`, which leaves for good. What must not be: that it
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
    async fn until<F>(&self, what: &str, mut step: impl FnMut() -> F) -> Result<(), String>
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
