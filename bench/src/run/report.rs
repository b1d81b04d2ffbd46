//! The report of a run: as a table for people, as JSON for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::{options::RunOptions, round::RoundResult};
use crate::{
    format::{add_fields, median, table},
    target::Target,
};

/// The results of one side, round by round.
pub struct Side {
    pub name: &'static str,
    pub rounds: Vec<RoundResult>,
}

impl Side {
    /// A side without results.
    pub fn new(target: &Target) -> Side {
        Side {
            name: target.name,
            rounds: Vec::new(),
        }
    }

    /// Adds the result of a round.
    pub fn add(&mut self, result: RoundResult) {
        self.rounds.push(result);
    }

    /// The median of `of` over the rounds; 0 if there is none.
    fn median(&self, of: impl Fn(&RoundResult) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect()).unwrap_or(0.0)
    }

    fn percentile(&self, quantile: f64) -> f64 {
        self.median(|round| round.latencies.value_at_quantile(quantile) as f64)
    }

    fn cpu(&self, of: impl Fn((u64, u64)) -> u64) -> Option<f64> {
        let each = self.rounds.iter().filter_map(|round| {
            let nanos = of(round.cpu?) as f64;
            Some(nanos / round.numbers.max(1) as f64)
        });
        median(each.collect())
    }

    fn to_json(&self) -> Value {
        let rounds = self.rounds.iter().map(|round| {
            json!({
                "numbers_per_second": round.numbers_per_second(),
                "p50_ns": round.latencies.value_at_quantile(0.5),
                "p99_ns": round.latencies.value_at_quantile(0.99),
                "p999_ns": round.latencies.value_at_quantile(0.999),
            })
        });
        let errors: u64 = self.rounds.iter().map(|round| round.failures.count).sum();
        let max = self.rounds.iter().map(|round| round.latencies.max()).max();
        json!({
            "name": self.name,
            "numbers_per_second": self.median(RoundResult::numbers_per_second),
            "requests_per_second": self.median(|m| m.requests as f64 / m.elapsed.as_secs_f64()),
            "p50_ns": self.percentile(0.5),
            "p90_ns": self.percentile(0.9),
            "p99_ns": self.percentile(0.99),
            "p999_ns": self.percentile(0.999),
            "max_ns": max,
            "errors": errors,
            "first_error": self.rounds.iter().find_map(|round| round.failures.first.as_ref()),
            "server_cpu_ns_per_number": self.cpu(|(asked, _)| asked),
            "all_servers_cpu_ns_per_number": self.cpu(|(_, all)| all),
            "rounds": rounds.collect::<Vec<Value>>(),
        })
    }
}

/// The report of a run.
pub struct Report {
    pub title: String,
    settings: Value,
    pub sides: Vec<Side>,
}

impl Report {
    /// Reports the sides of a run: the cluster, and if there is one the other side.
    pub fn new(options: &RunOptions, sides: Vec<Side>) -> Report {
        let mut settings = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "seconds": options.seconds,
        });
        for part in [options.load.to_json(), options.cluster.to_json()] {
            add_fields(&mut settings, part);
        }
        Report {
            title: format!("ratchet-bench: {}", options.load.to_text()),
            settings,
            sides,
        }
    }

    /// The median over the rounds of the cluster's value divided by the other side's; `None` without another
    /// side.
    fn ratio(&self, of: impl Fn(&RoundResult) -> f64) -> Option<f64> {
        let [ours, theirs] = &self.sides[..] else {
            return None;
        };
        let pairs = ours.rounds.iter().zip(&theirs.rounds);
        median(pairs.map(|(ours, theirs)| of(ours) / of(theirs)).collect())
    }

    fn percentile_ratio(&self, quantile: f64) -> Option<f64> {
        self.ratio(|round| round.latencies.value_at_quantile(quantile) as f64)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        for (field, side) in ["ratchet", "against"].iter().zip(&self.sides) {
            value[field] = side.to_json();
        }
        value["ratio_throughput"] = json!(self.ratio(RoundResult::numbers_per_second));
        value["ratio_p50"] = json!(self.percentile_ratio(0.5));
        value["ratio_p99"] = json!(self.percentile_ratio(0.99));
        value["ratio_p999"] = json!(self.percentile_ratio(0.999));
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let head = [
            "",
            "NUMBERS/S",
            "P50",
            "P90",
            "P99",
            "P99.9",
            "MAX",
            "SERVER CPU/NUMBER",
            "ERRORS",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.sides.iter().map(Side::row));
        let mut text = format!("{}\n{}", self.title, table(&rows));
        for side in &self.sides {
            if let Some(error) = side
                .rounds
                .iter()
                .find_map(|round| round.failures.first.as_ref())
            {
                text += &format!("\nfirst error of {}: {error}", side.name);
            }
        }
        if let Some(throughput) = self.ratio(RoundResult::numbers_per_second) {
            let rounds = self.sides[0].rounds.len();
            text += &format!(
                "\nratio, median of {rounds} alternating rounds: numbers/s {throughput:.2}"
            );
            for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                let ratio = self.percentile_ratio(quantile).unwrap_or(f64::NAN);
                text += &format!("  {name} {ratio:.2}");
            }
        }
        text
    }
}

impl Side {
    fn row(&self) -> Vec<String> {
        let time = |nanos: f64| format!("{:.3?}", Duration::from_nanos(nanos as u64));
        let max = self.rounds.iter().map(|round| round.latencies.max()).max();
        let errors: u64 = self.rounds.iter().map(|round| round.failures.count).sum();
        let cpu = self.cpu(|(asked, _)| asked);
        vec![
            self.name.to_owned(),
            format!("{:.0}", self.median(RoundResult::numbers_per_second)),
            time(self.percentile(0.5)),
            time(self.percentile(0.9)),
            time(self.percentile(0.99)),
            time(self.percentile(0.999)),
            time(max.unwrap_or(0) as f64),
            cpu.map_or("-".to_owned(), |nanos| format!("{nanos:.0} ns")),
            errors.to_string(),
        ]
    }

    /// The latencies of each tenth of a second, over all rounds.
    pub fn ticks(&self) -> impl Iterator<Item = &Histogram<u64>> {
        self.rounds.iter().flat_map(|round| &round.ticks)
    }
}
