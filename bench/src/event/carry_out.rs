//! Carries an event out: kills, stops and restarts nodes, and transfers the leadership.

use std::time::{Duration, Instant};

use super::options::Event;
use crate::{
    child::Process,
    cluster,
    error::Error,
    target::{Server, Target},
};

/// How long a stopping node may take.
const STOP_MAX: Duration = Duration::from_secs(120);
/// How long a transfer may take. A node works on a request for a minute at most.
const TRANSFER_MAX: Duration = Duration::from_secs(70);

/// An event that was carried out.
pub struct Done {
    /// When the event began.
    pub from: Instant,
    /// When the event was over: the leader killed, the transfer answered, the last node stopped, or after the last
    /// of all nodes had caught up.
    pub until: Instant,
    /// The nodes whose processes have ended. Their counters begin at 0 when they run again.
    pub ended: Vec<u64>,
    /// Why the leader did not hand over, if the cluster said so.
    pub refused: Option<String>,
}

impl Event {
    /// Does it to `cluster`. A transfer goes to a node that is not `spared`; without one, to the node that the
    /// cluster chooses.
    ///
    /// # Errors
    /// If a process cannot be stopped or started. A transfer that the cluster refuses is no error: see
    /// [`Done::refused`].
    pub async fn carry_out(self, cluster: &mut Target, spared: Option<u64>) -> Result<Done, Error> {
        let (from, leader) = (Instant::now(), cluster.leader);
        let mut done = Done { from, until: from, ended: Vec::new(), refused: None };
        match self {
            Event::Kill => {
                let process = process_of(cluster, leader)?;
                process.kill();
                // The event is over. It takes the system a while to take the process down.
                done.until = Instant::now();
                process.end(STOP_MAX).await?;
                done.ended.push(leader);
            }
            Event::Transfer => {
                let client = cluster::client(&cluster.addresses, TRANSFER_MAX)?;
                let mut ids = cluster.servers.iter().map(|server| server.id);
                let to = spared.and_then(|spared| ids.find(|id| ![spared, leader].contains(id)));
                let transferred = client.transfer(to).await;
                done.until = Instant::now();
                done.refused = transferred.err().map(|error| error.to_string());
            }
            Event::Sigterm => {
                stop(cluster, leader).await?;
                done.until = Instant::now();
                done.ended.push(leader);
            }
            Event::Rolling => {
                while let Some(next) = next_to_restart(cluster, &done.ended).await? {
                    stop(cluster, next).await?;
                    done.ended.push(next);
                    restart_ended(cluster).await?;
                }
                done.until = Instant::now();
            }
        }
        Ok(done)
    }
}

/// The leader, if it is not among `restarted`; otherwise any other node that is not.
async fn next_to_restart(cluster: &Target, restarted: &[u64]) -> Result<Option<u64>, Error> {
    let leader = cluster::leader(cluster).await?;
    let ids = cluster.servers.iter().map(|server| server.id);
    let mut left: Vec<u64> = ids.filter(|id| !restarted.contains(id)).collect();
    left.sort_by_key(|id| *id != leader);
    Ok(left.first().copied())
}

/// Stops a node with SIGTERM, and waits until it has ended.
async fn stop(cluster: &mut Target, id: u64) -> Result<(), Error> {
    let process = process_of(cluster, id)?;
    process.terminate()?;
    process.end(STOP_MAX).await
}

/// Starts all nodes again that have ended, and waits until they have caught up. Takes note of the leader.
///
/// # Errors
/// If a node does not start, or does not catch up in time.
pub async fn restart_ended(cluster: &mut Target) -> Result<(), Error> {
    let processes = cluster.servers.iter_mut().flat_map(|one| &mut one.process);
    for process in processes {
        if process.has_ended() {
            process.start_again()?;
        }
    }
    cluster.leader = cluster::until_healthy(cluster).await?;
    Ok(())
}

fn process_of(cluster: &mut Target, id: u64) -> Result<&mut Process, Error> {
    let server = cluster.servers.iter_mut().find(|server| server.id == id);
    let process = server.and_then(|server: &mut Server| server.process.as_mut());
    process.ok_or_else(|| Error::other(format!("node {id} was not started by this program")))
}
