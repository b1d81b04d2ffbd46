//! The operators of a run, and the questions to every member at its end.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ratchet::proto::v1::{
    AddNodeRequest, MembershipResponse, PromoteNodeRequest, RemoveNodeRequest,
    TransferLeadershipRequest,
};
use ratchet_jepsen::history::Action;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet};

use crate::{
    clock,
    cluster::{Condition, World},
    network::Host,
    transport::peer_address,
    workload::{Client, KEYS, Record, administer, status_at},
};

/// A task of an operator.
#[derive(Debug, Clone, Copy)]
pub enum Job {
    Transfer {
        asked: Host,
        to: Option<Host>,
    },
    /// Add a node that runs already, and promote it.
    Grow {
        asked: Host,
        id: Host,
    },
    Shrink {
        asked: Host,
        id: Host,
    },
}

/// Does one job after the other. Only transfers do not wait for one another, nor does anything for them.
pub async fn see_to(world: Arc<World>, mut jobs: UnboundedReceiver<Job>) {
    let mut transfers = JoinSet::new();
    while let Some(job) = jobs.recv().await {
        let seeing_to = see_to_one(world.clone(), job);
        match job {
            Job::Transfer { .. } => drop(transfers.spawn(seeing_to)),
            Job::Grow { .. } | Job::Shrink { .. } => seeing_to.await,
        }
    }
    transfers.join_all().await;
}

async fn see_to_one(world: Arc<World>, job: Job) {
    let did = carry_out(&world, job).await;
    let text = format!("{job:?}: {did}");
    world.trace.event(clock::now(), "administration", text);
}

async fn carry_out(world: &World, job: Job) -> String {
    let patience = Duration::from_secs(1);
    match job {
        Job::Transfer { asked, to } => {
            let transfer = TransferLeadershipRequest { to };
            match administer(world, asked, transfer, patience).await {
                Ok(now) => format!("node {} leads term {}", now.leader, now.term),
                Err(status) => world.legible(&status),
            }
        }
        Job::Grow { asked, id } => {
            let peer_address = peer_address(id).to_string();
            let add = AddNodeRequest { id, peer_address };
            let added = administer(world, asked, add, patience).await;
            if added.is_err() {
                return outcome(world, &added);
            }
            let promote = PromoteNodeRequest { id, force: false };
            outcome(world, &administer(world, asked, promote, patience).await)
        }
        Job::Shrink { asked, id } => {
            let remove = RemoveNodeRequest { id, force: false };
            let removed = administer(world, asked, remove, patience).await;
            if removed.is_ok() {
                // Its process goes on, since nobody stops it.
                world.with(id, |machine| machine.condition = Condition::Gone);
            }
            outcome(world, &removed)
        }
    }
}

fn outcome(world: &World, changed: &Result<MembershipResponse, tonic::Status>) -> String {
    match changed {
        Ok(now) => format!("voters {:?}", now.voters),
        Err(status) => world.legible(status),
    }
}

/// After all faults have ended: every member answers for every key, within `patience`.
///
/// # Errors
/// If a member does not answer for a key in time, or nobody tells the members.
pub async fn last_questions(
    world: &Arc<World>, record: &Arc<Record>, patience: Duration,
) -> Result<(), String> {
    let until = clock::now() + patience;
    let mut missing = "the membership".to_owned();
    let members = loop {
        if let Some(members) = membership(world).await {
            break members;
        }
        if clock::now() > until {
            return Err(format!("nobody tells {missing} within {patience:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    for node in members {
        for key in KEYS {
            for action in [Action::Current, Action::Next { count: 1 }] {
                let mut client = Client::new(world, record);
                while !client.ask(node, key, action, Duration::from_secs(1)).await {
                    // A founding node that the cluster never knew is to be replaced.
                    if !world.members().contains(&node) {
                        break;
                    }
                    if clock::now() > until {
                        missing = format!("node {node} for {key:?}");
                        return Err(format!("no answer from {missing} within {patience:?}"));
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    Ok(())
}

/// The members, as the leader knows them.
async fn membership(world: &World) -> Option<BTreeSet<Host>> {
    let leader = world.leader()?;
    let status = status_at(world, leader).await?;
    (status.leader == Some(leader)).then(|| status.nodes.iter().map(|node| node.id).collect())
}
