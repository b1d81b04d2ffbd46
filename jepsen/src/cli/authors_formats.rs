//! `ratchet-jepsen authors-formats`.

use std::{fs, io, path::PathBuf, process::ExitCode};

use clap::Args;
use ratchet_jepsen::{
    authors::{Judged, authors, judge},
    finding::{Finding, Violation},
    verdict::{Verdict, VerdictKind},
};
use serde_json::json;

use super::exit::failed;

/// The formats of ids as their authors make them.
#[derive(Args)]
pub struct AuthorsFormats {
    /// The seed of the clocks' jumps, the restarts and the busy seconds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where summary.json goes.
    #[arg(long, default_value = "jepsen-report")]
    out: PathBuf,
}

impl AuthorsFormats {
    /// Makes ids and judges them. A violation if any id was made twice.
    pub fn main(self) -> ExitCode {
        match self.judge() {
            Ok(kind) => kind.into(),
            Err(error) => failed(error),
        }
    }

    fn judge(&self) -> io::Result<VerdictKind> {
        let judged = authors().map(|author| judge(&author, self.seed).map_err(io::Error::other));
        let judged: Vec<Judged> = judged.into_iter().collect::<Result<_, _>>()?;
        let twice = judged.iter().filter(|judged| judged.duplicates > 0);
        let violations: Vec<Violation> = twice
            .map(|judged| {
                let Judged { name, ids, duplicates, .. } = judged;
                let what = format!(
                    "{name}: {duplicates} ids were made again, beside {ids} different ones"
                );
                Finding::Ids.told(what)
            })
            .collect();
        let first_ms = judged.iter().filter_map(|judged| judged.first_after_ms).min();
        let verdict = match violations.is_empty() {
            true => Verdict::Pass,
            false => Verdict::Violation(violations),
        };
        let summary = json!({
            "verdict": verdict.kind().word(),
            "findings": verdict.findings(),
            "caught_after_s": first_ms.map(|ms| ms as f64 / 1e3),
            "authors": judged,
        });
        fs::create_dir_all(&self.out)?;
        fs::write(self.out.join("summary.json"), format!("{summary:#}\n"))?;
        println!("{verdict}");
        Ok(verdict.kind())
    }
}
