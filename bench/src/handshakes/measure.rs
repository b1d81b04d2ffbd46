//! Measures both kinds of handshakes, of the node and of the echo, in alternating rounds.

use std::sync::Arc;

use super::{options::HandshakesOptions, report::Report};
use crate::{
    child::Directory,
    cluster, echo,
    error::Error,
    handshake::Kind,
    options::ClusterOptions,
    output::Printed,
    round::{self, RoundResult},
    secrets::Secrets,
    target::{Protocol, Target},
};

impl HandshakesOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a server does not start or answer, or no handshake succeeds.
    pub async fn run(self) -> Result<Printed, Error> {
        let directory = Directory::new()?;
        let program = cluster::program(self.cluster.binary.as_deref())?;
        let secrets = Arc::new(Secrets::make(&directory, &program, 1, self.shown()).await?);
        let options = ClusterOptions { secrets: Some(secrets.clone()), ..self.cluster.clone() };
        let node = cluster::start(&directory, "ratchet", 1, &options).await?;
        let echo = echo::start(&directory, Some(&secrets), node.token.clone()).await?;
        // Handshakes hand out no numbers.
        let mut targets = [node, echo].map(|target| Target { is_checked: false, ..target });
        let mut report = Report::new(&self);
        for nth in 0..self.rounds {
            for kind in [Kind::Full, Kind::Resumed] {
                // The sides take turns at going first.
                let first = nth as usize % targets.len();
                for side in [first, 1 - first] {
                    let result = self.drive(&mut targets[side], kind, nth).await?;
                    report.add(kind, side, result);
                }
            }
        }
        Ok(Printed { json: report.to_json(), text: report.to_text() })
    }

    async fn drive(&self, target: &mut Target, kind: Kind, nth: u32) -> Result<RoundResult, Error> {
        target.protocol = Protocol::Handshakes(kind);
        let (target, name) = (&*target, target.name);
        let tell = |so_far: &RoundResult| round::tell(nth, self.rounds, name, so_far);
        round::drive(target, &self.load(), self.slice(), tell).await
    }
}
