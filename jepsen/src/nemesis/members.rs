//! Members that join and leave.

use std::{cell::Cell, io};

use rand::RngExt;
use tonic::{Code, Status};

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
    retry::retry,
};
use crate::{
    client::Client,
    network::Port,
    proto::{AddNodeRequest, PromoteNodeRequest, RemoveNodeRequest, TransferLeadershipRequest},
};

impl Injector {
    pub(super) async fn change_membership(&mut self) -> io::Result<ActiveFault> {
        let victim = if self.rng.random_bool(0.5) { self.leader() } else { self.random_follower() };
        let (before, new) = (self.members.clone(), self.next_new_node);
        let violation = self.replace(victim).await?;
        let changed = self.members != before;
        let description = format!("node {new} joined, node {victim} left");
        let fault = ActiveFault::new(description, Repair::Nothing, changed);
        Ok(fault.with_violation(violation))
    }

    /// Replaces `victim`, which leaves for good, by a new node. Returns the violation if that is not
    /// possible, although a majority lives. Does nothing when no new node is left.
    pub(super) async fn replace(&mut self, victim: Port) -> io::Result<Option<String>> {
        let new = self.next_new_node;
        if new > self.cluster.config.room() {
            return Ok(None);
        }
        self.next_new_node += 1;
        self.cluster.spawn(new)?;
        let replaced = self.change_members(victim, new).await;
        if replaced.is_ok() {
            self.members.retain(|id| *id != victim);
            self.members.push(new);
            let address = self.cluster.address(new);
            let mut nodes = self.nodes.write();
            nodes.retain(|(id, _)| *id != u64::from(victim));
            nodes.push((u64::from(new), address));
            drop(nodes);
            self.cluster.kill(victim);
        }
        Ok(replaced.err())
    }

    async fn change_members(&mut self, victim: Port, new: Port) -> Result<(), String> {
        let next_client = self.clients_but(victim);
        self.add_through(&next_client, new).await?;
        let removed = RemoveNodeRequest { id: u64::from(victim), force: false };
        retry("removing the old node", || remove(next_client(), removed)).await
    }

    /// Adds a node that runs, as a voter.
    ///
    /// # Errors
    /// That is not possible, although a majority lives.
    pub(super) async fn add_member(&mut self, new: Port) -> Result<(), String> {
        let next_client = self.clients_but(new);
        self.add_through(&next_client, new).await
    }

    /// Removes a member, whether it runs or not.
    ///
    /// # Errors
    /// That is not possible, although a majority lives.
    pub(super) async fn remove_node(&mut self, victim: Port) -> Result<(), String> {
        let next_client = self.clients_but(victim);
        let removed = RemoveNodeRequest { id: u64::from(victim), force: false };
        retry("removing a node", || remove(next_client(), removed)).await
    }

    /// Clients of all members but this one, by turns: one that does not answer is not asked twice in a row.
    fn clients_but(&mut self, excluded: Port) -> impl Fn() -> Client + use<> {
        let others = self.members_except(excluded);
        let clients: Vec<Client> = others.iter().map(|id| self.cluster.client(*id)).collect();
        let turn = Cell::new(self.rng.random_range(0..clients.len()));
        move || {
            turn.set((turn.get() + 1) % clients.len());
            clients[turn.get()].clone()
        }
    }

    async fn add_through(&self, next_client: impl Fn() -> Client, new: Port) -> Result<(), String> {
        let added = AddNodeRequest {
            id: u64::from(new),
            peer_address: self.cluster.peer_name(new).map_err(|error| error.to_string())?,
        };
        retry("adding the new node", || add(next_client(), added.clone())).await?;
        let promoted = PromoteNodeRequest { id: u64::from(new), force: false };
        retry("promoting the new node", || promote(next_client(), promoted)).await
    }
}

async fn add(mut client: Client, request: AddNodeRequest) -> Result<(), Status> {
    match client.admin().add_node(request).await {
        // An earlier try did it.
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        added => added.map(drop),
    }
}

async fn promote(mut client: Client, request: PromoteNodeRequest) -> Result<(), Status> {
    client.admin().promote_node(request).await.map(drop)
}

async fn remove(mut client: Client, request: RemoveNodeRequest) -> Result<(), Status> {
    match client.admin().remove_node(request).await {
        // The node leads and must hand over first.
        Err(status) if status.code() == Code::FailedPrecondition => {
            let to_any = TransferLeadershipRequest { to: None };
            client.admin().transfer_leadership(to_any).await?;
            Err(status)
        }
        // An earlier try did it.
        Err(status) if status.code() == Code::NotFound => Ok(()),
        removed => removed.map(drop),
    }
}
