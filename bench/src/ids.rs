//! `ratchet-bench ids`: how fast the Rust client makes ids of a format, and how many log entries their times cost.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::{
    child::Directory,
    cluster,
    error::Error,
    format::{median, table},
    options::{ClusterOptions, seconds},
    output::Printed,
    target::Target,
};
use ratchet_client::{Client, Id, api::CreateNamespaceRequest};

/// The namespace whose ids are made.
const NAMESPACE: &str = "ids";
/// How many ids are made between two looks at the clock.
const BURST: usize = 1_000;
/// How long the cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options of `ids`.
#[derive(Debug, Args)]
pub struct IdsOptions {
    /// The format of the ids
    #[arg(long, default_value = "snowflake")]
    format: String,
    /// How long each part of a round takes
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: f64,
    /// How often each part is measured
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What was measured, a value for each round.
#[derive(Default)]
struct Measured {
    /// Ids a second, one for each call.
    single: Vec<f64>,
    /// Ids a second, [`BURST`] for each call.
    bursts: Vec<f64>,
    /// Log entries a second while nobody asks, and while ids are made.
    entries_idle: Vec<f64>,
    entries_busy: Vec<f64>,
}

impl IdsOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a node does not start or answer, or ids do not increase.
    pub async fn run(self) -> Result<Printed, Error> {
        let directory = Directory::new()?;
        let target = cluster::start(&directory, "ratchet", 3, &self.cluster).await?;
        let client = cluster::client(&target.addresses, PATIENCE)?;
        let request = CreateNamespaceRequest {
            name: NAMESPACE.to_owned(),
            format: Some(self.format.clone()),
            ..CreateNamespaceRequest::default()
        };
        client.create_namespace(request).await?;
        let measured = self.measure(&target, &client).await?;
        Ok(self.report(&measured))
    }

    async fn measure(&self, target: &Target, client: &Client) -> Result<Measured, Error> {
        let time = Duration::from_secs_f64(self.seconds);
        let ids = client.ids(NAMESPACE).await?;
        let mut measured = Measured::default();
        let mut last = None;
        for _ in 0..self.rounds {
            let before = entries(target, client).await?;
            tokio::time::sleep(time).await;
            let idle = entries(target, client).await?;
            measured.entries_idle.push((idle - before) / self.seconds);

            let began = Instant::now();
            let mut made = 0;
            while began.elapsed() < time {
                for _ in 0..BURST {
                    check(&mut last, ids.next().await?)?;
                }
                made += BURST;
            }
            measured
                .single
                .push(made as f64 / began.elapsed().as_secs_f64());

            let began = Instant::now();
            let (mut made, mut burst) = (0, Vec::with_capacity(BURST));
            while began.elapsed() < time {
                burst.clear();
                ids.next_many(BURST, &mut burst).await?;
                for id in &burst {
                    check(&mut last, *id)?;
                }
                made += BURST;
            }
            measured
                .bursts
                .push(made as f64 / began.elapsed().as_secs_f64());
            let busy = entries(target, client).await?;
            measured
                .entries_busy
                .push((busy - idle) / (2.0 * self.seconds));
        }
        ids.give_back().await;
        Ok(measured)
    }

    fn report(&self, measured: &Measured) -> Printed {
        let rows = [
            ("ids/s, one a call", &measured.single),
            ("ids/s, 1000 a call", &measured.bursts),
            ("log entries/s, idle", &measured.entries_idle),
            ("log entries/s, busy", &measured.entries_busy),
        ];
        let medians = rows.map(|(what, values)| (what, median(values.clone()).unwrap_or(0.0)));
        let mut lines = vec![vec![self.format.clone(), "median".to_owned()]];
        lines.extend(medians.map(|(what, value)| vec![what.to_owned(), format!("{value:.2}")]));
        let json = json!({
            "format": self.format,
            "single": measured.single,
            "bursts": measured.bursts,
            "entries_idle": measured.entries_idle,
            "entries_busy": measured.entries_busy,
        });
        Printed {
            json,
            text: table(&lines),
        }
    }
}

/// Checks that ids increase.
fn check(last: &mut Option<Id>, id: Id) -> Result<(), Error> {
    match last.replace(id) {
        Some(before) if before >= id => Err(Error::other(format!(
            "the id {} came after {}: the client broke its promise; report this",
            id.as_u128(),
            before.as_u128()
        ))),
        _ => Ok(()),
    }
}

/// How many entries the leader's log has had.
async fn entries(target: &Target, client: &Client) -> Result<f64, Error> {
    let status = client.status().await?;
    let nodes = status.nodes.iter();
    let mut logs = nodes.filter_map(|node| node.log_index);
    let longest = logs.by_ref().max();
    let longest = longest.ok_or_else(|| Error::other(format!("{} has no leader", target.name)))?;
    Ok(longest as f64)
}
