//! The leader whose costs are measured.

use std::time::{Duration, Instant};

use crate::{
    child::{cpu_nanos, resident_bytes},
    error::Error,
    http,
    target::{Server, Target},
};

/// How long the leader may take to notice that other connections were closed.
const CLOSED_MAX: Duration = Duration::from_secs(30);
/// The metric with the number of open client connections, one line for each interface.
const OPEN: &str = "ratchet_client_connections{";

/// The leader of a cluster that was started for the run.
pub struct Leader<'a> {
    pub server: &'a Server,
    process: u32,
    metrics: &'a str,
}

impl Leader<'_> {
    /// The leader of `cluster`.
    ///
    /// # Errors
    /// If it runs elsewhere.
    pub fn of(cluster: &Target) -> Result<Leader<'_>, Error> {
        let mut servers = cluster.servers.iter();
        let server = servers.find(|server| server.id == cluster.leader);
        let found = server.and_then(|server| {
            Some(Leader {
                server,
                process: server.process.as_ref()?.id(),
                metrics: server.metrics.as_deref()?,
            })
        });
        found.ok_or_else(|| Error::other(format!("the leader of {} runs elsewhere", cluster.name)))
    }

    /// How much of its memory is in RAM, in bytes.
    ///
    /// # Errors
    /// If it has ended.
    pub fn memory(&self) -> Result<u64, Error> {
        resident_bytes(self.process).ok_or_else(|| self.ended())
    }

    /// The CPU time that it takes in a second, in nanoseconds, measured for `time`.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn cpu_per_second(&self, time: Duration) -> Result<f64, Error> {
        let cpu = || cpu_nanos(self.process).ok_or_else(|| self.ended());
        let (started, before) = (Instant::now(), cpu()?);
        tokio::time::sleep(time).await;
        let spent = cpu()?.saturating_sub(before);
        Ok(spent as f64 / started.elapsed().as_secs_f64())
    }

    /// Waits until clients have `count` connections to it, and no others.
    ///
    /// # Errors
    /// If there are fewer, if others stay, or if it does not tell.
    pub async fn until_connections(&self, count: u64) -> Result<(), Error> {
        let until = Instant::now() + CLOSED_MAX;
        loop {
            let open = self.connections().await?;
            if open == count {
                return Ok(());
            }
            if open < count {
                return Err(Error::other(format!(
                    "the leader has closed idle connections: {open} of {count} are open"
                )));
            }
            if Instant::now() > until {
                return Err(Error::other(format!(
                    "the leader has {open} connections {CLOSED_MAX:?} after all but {count} were closed"
                )));
            }
            // A node does not report when a connection has ended, so ask again and again.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many connections clients have to it.
    async fn connections(&self) -> Result<u64, Error> {
        let failed = |why: &str| {
            let address = self.metrics;
            Error::other(format!("cannot read the connections at {address}: {why}"))
        };
        let text = http::get(self.metrics, "/metrics").await;
        let text = text.map_err(|error| failed(&error.to_string()))?;
        let interfaces = text.lines().filter(|line| line.starts_with(OPEN));
        let counts = interfaces.map(|line| line.rsplit(' ').next()?.parse().ok());
        let counts: Option<Vec<u64>> = counts.collect();
        let counts = counts.filter(|counts| !counts.is_empty());
        let counts = counts.ok_or_else(|| failed("there is no ratchet_client_connections"))?;
        Ok(counts.iter().sum())
    }

    fn ended(&self) -> Error {
        Error::other(format!("node {}, the leader, has ended", self.server.id))
    }
}
