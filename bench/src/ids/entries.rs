//! How many log entries the times of ids cost.

use std::time::{Duration, Instant};

use ratchet_client::Client;

use crate::{
    error::Error,
    target::{IDS_NAMESPACE, Target},
};

/// The log entries of a while, and the worker ids that were held at its end.
#[derive(Debug, Clone, Copy)]
pub struct Entries {
    pub per_second: f64,
    pub workers: u64,
}

impl Entries {
    /// Log entries a second for each worker id.
    pub fn per_worker(&self) -> f64 {
        self.per_second / self.workers.max(1) as f64
    }
}

/// Counts log entries for `time`.
///
/// # Errors
/// If the cluster does not answer, or has no leader.
pub async fn count(target: &Target, client: &Client, time: Duration) -> Result<Entries, Error> {
    let (began, before) = (Instant::now(), last_entry(target, client).await?);
    tokio::time::sleep(time).await;
    let after = last_entry(target, client).await?;
    let per_second = after.saturating_sub(before) as f64 / began.elapsed().as_secs_f64();
    Ok(Entries { per_second, workers: held(client).await? })
}

/// How many entries the leader's log has had.
async fn last_entry(target: &Target, client: &Client) -> Result<u64, Error> {
    let status = client.status().await?;
    let longest = status.nodes.iter().filter_map(|node| node.log_index).max();
    longest.ok_or_else(|| Error::other(format!("{} has no leader", target.name)))
}

/// How many worker ids are held, by nodes and clients.
async fn held(client: &Client) -> Result<u64, Error> {
    let list = client.list_workers(IDS_NAMESPACE.to_owned()).await?;
    let workers = list.workers.iter();
    let held = workers.filter(|worker| worker.ceiling_ms >= list.now_ms);
    Ok(held.count() as u64)
}
