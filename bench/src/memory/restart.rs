//! Stops a cluster cleanly, starts it again, and looks for numbers that were skipped.

use std::time::{Duration, Instant};

use crate::{
    cluster,
    error::Error,
    event::restart_ended,
    target::{NAMESPACE, Target},
};
use ratchet_client::api::{NextManyRequest, sequencer_client::SequencerClient};

/// Of how many keys, evenly spread, a number is taken before and after.
const KEYS: u64 = 10_000;
/// How long a node may take to stop.
const STOP_MAX: Duration = Duration::from_secs(300);

/// The result of a clean restart.
#[derive(Debug)]
pub struct Restart {
    /// How long the nodes took to stop.
    pub stopping: Duration,
    /// How long it took from their start to the first answers.
    pub starting: Duration,
    /// Of how many keys a number was taken.
    pub keys: u64,
    /// How many of these keys went on with another number than the next one.
    pub gaps: u64,
}

/// Restarts all nodes of `target`, which has the keys below `keys`.
///
/// # Errors
/// If a node does not stop or start, or does not answer.
pub async fn measure(target: &mut Target, keys: u64) -> Result<Restart, Error> {
    let count = KEYS.min(keys);
    let ids: Vec<u64> = (0..count).map(|nth| nth * (keys / count)).collect();
    let before = take(target, &ids).await?;
    let began = Instant::now();
    for process in target.servers.iter_mut().flat_map(|one| &mut one.process) {
        process.terminate()?;
    }
    for process in target.servers.iter_mut().flat_map(|one| &mut one.process) {
        process.end(STOP_MAX).await?;
    }
    let (stopping, began) = (began.elapsed(), Instant::now());
    restart_ended(target).await?;
    let after = take(target, &ids).await?;
    let goes_on = |(before, after): (&u64, &u64)| before + 1 == *after;
    Ok(Restart {
        stopping,
        starting: began.elapsed(),
        keys: count,
        gaps: count - before.iter().zip(&after).filter(|both| goes_on(*both)).count() as u64,
    })
}

/// Takes a number of each key.
async fn take(target: &Target, ids: &[u64]) -> Result<Vec<u64>, Error> {
    let leader = cluster::leader(target).await?;
    let server = target.servers.iter().find(|server| server.id == leader);
    let server = server.ok_or_else(|| Error::other(format!("{} has no leader", target.name)))?;
    let message = NextManyRequest {
        namespace: NAMESPACE.to_owned(),
        ids: ids.to_vec(),
        timeout_ms: 60_000,
        ..NextManyRequest::default()
    };
    let mut client = SequencerClient::new(crate::connection::connect(&server.address, None).await?);
    let failed =
        |why: &str| Error::other(format!("cannot take numbers at {}: {why}", server.address));
    let answers = client.next_many(tokio_stream::iter([message])).await;
    let mut answers = answers.map_err(|status| failed(status.message()))?.into_inner();
    let answer = answers.message().await;
    let answer = answer
        .map_err(|status| failed(status.message()))?
        .ok_or_else(|| failed("the stream ended"))?;
    match answer.failure {
        Some(failure) => Err(failed(&failure.message)),
        None => Ok(answer.firsts),
    }
}
