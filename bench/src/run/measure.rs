//! A run: starts the targets, drives them in rounds, and reports.

use std::{sync::Arc, time::Duration};

use super::{
    options::{Against, RunOptions},
    plot,
    report::Report,
};
use crate::{
    child::Directory,
    cluster, echo,
    error::Error,
    load::{Load, Overload},
    options::{ClusterOptions, Fence, Interface, Via},
    output::Printed,
    peers,
    round::{self, RoundResult},
    secrets::{Secrets, Shown},
    sides::{Side, Sides},
    target::Target,
    warm,
};

impl RunOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If the options contradict each other, a server does not start or answer, or a number is out of order.
    pub async fn run(mut self) -> Result<Printed, Error> {
        let load = self.load.load(Overload::Abort).map_err(Error::config)?;
        if !self.server.is_empty() && self.against == Some(Against::Quorum) {
            return Err(Error::config(
                "--against quorum starts both clusters for the run; leave --server out".to_owned(),
            ));
        }
        let directory = Directory::new()?;
        if self.secure {
            let program = cluster::program(self.cluster.binary.as_deref())?;
            let secrets = Secrets::make(&directory, &program, self.nodes, Shown::ByAll).await?;
            self.cluster.secrets = Some(Arc::new(secrets));
        }
        let ours = self.our_target(&directory, &load).await?;
        let theirs = self.their_target(&directory, &ours, &load).await?;
        let rounds = self.rounds.unwrap_or(if theirs.is_some() { 5 } else { 1 });
        let count = 1 + u32::from(theirs.is_some());
        let slice = Duration::from_secs_f64(self.seconds / f64::from(rounds * count));
        let targets: Vec<&Target> = [&ours].into_iter().chain(&theirs).collect();
        // The names of the sides tell secure figures from others.
        let is_told = ours.is_secure();
        let sides = targets.iter().map(|target| Side {
            secure: is_told.then(|| target.is_secure()),
            ..Side::new(target.name)
        });
        let mut sides: Vec<Side> = sides.collect();
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            // The sides take turns at going first.
            order.rotate_left(round as usize % targets.len());
            for side in order {
                let target = targets[side];
                let tell = |so_far: &RoundResult| round::tell(round, rounds, target.name, so_far);
                let measured = round::drive(target, &load, slice, tell).await?;
                sides[side].rounds.push(measured);
            }
        }
        let report = Report::new(&self, Sides(sides));
        if let Some(path) = &self.plot {
            plot::write(path, &report)?;
        }
        Ok(Printed { json: report.to_json(), text: report.to_text() })
    }

    async fn start(
        &self, directory: &Directory, name: &'static str, fence: Fence,
    ) -> Result<Target, Error> {
        let options = ClusterOptions { fence, ..self.cluster.clone() };
        cluster::start(directory, name, self.nodes, &options).await
    }

    async fn our_target(&self, directory: &Directory, load: &Load) -> Result<Target, Error> {
        let mut target = if self.server.is_empty() {
            self.start(directory, "ratchet", self.cluster.fence).await?
        } else {
            cluster::running(&self.server, self.tls.read()?, self.token.read()?).await?
        };
        target.choose(self.load.interface, self.load.via)?;
        warm::touch_all(&target, load, load.keys).await?;
        Ok(target)
    }

    async fn their_target(
        &self, directory: &Directory, ours: &Target, load: &Load,
    ) -> Result<Option<Target>, Error> {
        let Some(against) = self.against else {
            return Ok(None);
        };
        let interface = self.against_interface.unwrap_or(match (against, self.load.interface) {
            // The client library checks that numbers grow, and an echo's do not.
            (Against::Echo, Interface::Client) => Interface::Unary,
            (_, interface) => interface,
        });
        if against == Against::Echo && interface == Interface::Client {
            return Err(Error::config(
                "an echo hands out no growing numbers, and the client library would report that; use --against-interface unary"
                    .to_owned(),
            ));
        }
        let mut target = match against {
            Against::Echo => {
                // One beside a running cluster is plain.
                let token = ours.token.clone().filter(|_| self.secure);
                echo::start(directory, self.cluster.secrets.as_deref(), token).await?
            }
            Against::Redis => peers::redis(directory).await?,
            Against::Etcd => peers::etcd(directory).await?,
            Against::TsOracle => peers::tsoracle(directory).await?,
            Against::Follower => ours.without_processes("follower"),
            Against::Quorum => {
                let mut cluster = self.start(directory, "quorum", Fence::Quorum).await?;
                cluster.choose(interface, self.load.via)?;
                warm::touch_all(&cluster, load, load.keys).await?;
                cluster
            }
        };
        match against {
            Against::Follower => target.choose(interface, Via::Follower)?,
            Against::Echo => target.choose(interface, Via::Leader)?,
            // These have one way to be asked, or have chosen above.
            Against::Redis | Against::Etcd | Against::TsOracle | Against::Quorum => {}
        }
        Ok(Some(target))
    }
}
