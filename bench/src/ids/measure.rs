//! Measures the makers of ids in rounds: nobody, the client alone, one node beside the echo, and all nodes.

use std::time::{Duration, Instant};

use ratchet_client::{Client, api::CreateNamespaceRequest};

use super::{
    client_alone::ClientAlone,
    entries::{self, Entries},
    options::IdsOptions,
    report::{Report, Round},
};
use crate::{
    child::Directory,
    cluster, echo,
    error::Error,
    load::Load,
    output::Printed,
    round::{self, RoundResult},
    target::{IDS_NAMESPACE, Target},
    workers::Workers,
};

/// How long the cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// In this time a node has leased the worker ids that its callers can use: a further one every 0.3 s or so, up to 32.
const GROWTH: Duration = Duration::from_secs(12);
/// How often the workers' records are taken, where latencies are of no interest.
const DRAIN: Duration = Duration::from_millis(500);

/// The targets that are asked for ids, and their load.
struct Targets {
    /// The cluster, whose leader is asked for ids.
    ours: Target,
    /// Each node of the cluster.
    nodes: Vec<Target>,
    echo: Target,
    client: Client,
    load: Load,
}

impl IdsOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a node does not start or answer, or ids do not increase.
    pub async fn run(self) -> Result<Printed, Error> {
        let directory = Directory::new()?;
        let mut ours = cluster::start(&directory, "ratchet", 3, &self.cluster).await?;
        let client = cluster::client(&ours.addresses, PATIENCE)?;
        let request = CreateNamespaceRequest {
            name: IDS_NAMESPACE.to_owned(),
            format: Some(self.format.clone()),
            ..CreateNamespaceRequest::default()
        };
        client.create_namespace(request).await?;
        let nodes = ours.servers.iter().map(|server| {
            let mut node = ours.without_processes("node");
            node.choose_ids_of(server.id);
            node
        });
        let nodes = nodes.collect();
        let leader = ours.leader;
        ours.choose_ids_of(leader);
        let mut echo = echo::start(&directory, None, None).await?;
        echo.choose_ids_of(1);
        let load = self.load();
        let targets = Targets { ours, nodes, echo, client, load };
        let mut report = Report::new(&self);
        let mut alone = ClientAlone::new(targets.client.ids(IDS_NAMESPACE).await?);
        for nth in 0..self.rounds {
            let round = self.round(nth, &targets, &mut alone).await?;
            report.add(round);
        }
        alone.release().await;
        Ok(Printed { json: report.to_json(), text: report.to_text() })
    }

    async fn round(
        &self, nth: u32, targets: &Targets, alone: &mut ClientAlone,
    ) -> Result<Round, Error> {
        let time = self.time();
        let (all_nodes, busy) = targets.all_nodes(time).await?;
        // The nodes' callers have gone, and the nodes still hold the worker ids that they leased.
        let idle = entries::count(&targets.ours, &targets.client, time).await?;
        let single = alone.one_a_call(time).await?;
        let bursts = alone.many_a_call(time).await?;
        round::drive(&targets.ours, &targets.load, GROWTH, |_| {}).await?;
        let tell = |target: &Target, so_far: &RoundResult| {
            round::tell(nth, self.rounds, target.name, so_far);
        };
        let drive = async |target: &Target| {
            round::drive(target, &targets.load, time, |so_far| tell(target, so_far)).await
        };
        // The sides take turns at going first.
        let (ours, echo) = if nth.is_multiple_of(2) {
            let ours = drive(&targets.ours).await?;
            (ours, drive(&targets.echo).await?)
        } else {
            let echo = drive(&targets.echo).await?;
            (drive(&targets.ours).await?, echo)
        };
        Ok(Round { idle, busy, single, bursts, all_nodes, ours, echo })
    }
}

impl Targets {
    /// Has all nodes make ids for `time`, once each has the worker ids that it needs. Returns how many ids a second, and the
    /// log entries.
    async fn all_nodes(&self, time: Duration) -> Result<(f64, Entries), Error> {
        let mut workers = Vec::new();
        for node in &self.nodes {
            workers.push(Workers::start(node, &self.load).await?);
        }
        tokio::time::sleep(GROWTH).await;
        let numbers = || workers.iter().map(|each| each.records().numbers()).sum::<u64>();
        numbers();
        let (began, mut made) = (Instant::now(), 0);
        let counting = entries::count(&self.ours, &self.client, time);
        tokio::pin!(counting);
        let counted = loop {
            tokio::select! {
                counted = &mut counting => break counted?,
                () = tokio::time::sleep(DRAIN) => made += numbers(),
            }
        };
        made += numbers();
        let per_second = made as f64 / began.elapsed().as_secs_f64();
        for each in workers {
            let stopped = each.stop().await?;
            if let Some(why) = stopped.failures.first {
                return Err(Error::other(why).within("all nodes"));
            }
        }
        Ok((per_second, counted))
    }
}
