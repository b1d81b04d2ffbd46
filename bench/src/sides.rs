//! The results of compared servers, side by side: as a table for people, as JSON for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::{
    format::{median, table},
    round::RoundResult,
};

/// The text that stands for the unit in the names of values.
const UNIT: &str = "UNIT";

/// The results of one side, round by round.
pub struct Side {
    pub name: &'static str,
    /// Whether its callers spoke TLS and showed a token; `None` where that is not told.
    pub secure: Option<bool>,
    /// The unit that was counted, in the singular.
    pub unit: &'static str,
    pub rounds: Vec<RoundResult>,
}

impl Side {
    /// A side without results.
    pub fn new(name: &'static str) -> Side {
        Side { name, secure: None, unit: "number", rounds: Vec::new() }
    }

    /// The name, and whether it is secure.
    pub fn label(&self) -> String {
        match self.secure {
            None => self.name.to_owned(),
            Some(true) => format!("{}, secure", self.name),
            Some(false) => format!("{}, without TLS", self.name),
        }
    }

    /// The median of `of` over the rounds; 0 if there is none.
    fn median(&self, of: impl Fn(&RoundResult) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect()).unwrap_or(0.0)
    }

    fn percentile(&self, quantile: f64) -> f64 {
        self.median(|round| percentile(round, quantile))
    }

    fn cpu(&self, of: impl Fn((u64, u64)) -> u64) -> Option<f64> {
        let each = self.rounds.iter().filter_map(|round| {
            let nanos = of(round.cpu?) as f64;
            Some(nanos / round.numbers.max(1) as f64)
        });
        median(each.collect())
    }

    fn first_error(&self) -> Option<&String> {
        let mut rounds = self.rounds.iter();
        rounds.find_map(|round| round.failures.first.as_ref())
    }

    /// The latencies of each tenth of a second, over all rounds.
    pub fn ticks(&self) -> impl Iterator<Item = &Histogram<u64>> {
        self.rounds.iter().flat_map(|round| &round.ticks)
    }

    /// The results as JSON: medians, and each round.
    pub fn to_json(&self) -> Value {
        let per_second = format!("{}s_per_second", self.unit);
        let rounds = self.rounds.iter().map(|round| {
            json!({
                (per_second.as_str()): round.numbers_per_second(),
                "p50_ns": round.latencies.value_at_quantile(0.5),
                "p99_ns": round.latencies.value_at_quantile(0.99),
                "p999_ns": round.latencies.value_at_quantile(0.999),
            })
        });
        let errors: u64 = self.rounds.iter().map(|round| round.failures.count).sum();
        let max = self.rounds.iter().map(|round| round.latencies.max()).max();
        let mut value = json!({
            "name": self.name,
            (per_second.as_str()): self.median(RoundResult::numbers_per_second),
            "requests_per_second": self.median(|m| m.requests as f64 / m.elapsed.as_secs_f64()),
            "p50_ns": self.percentile(0.5),
            "p90_ns": self.percentile(0.9),
            "p99_ns": self.percentile(0.99),
            "p999_ns": self.percentile(0.999),
            "max_ns": max,
            "errors": errors,
            "first_error": self.first_error(),
            (format!("server_cpu_ns_per_{}", self.unit)): self.cpu(|(asked, _)| asked),
            (format!("all_servers_cpu_ns_per_{}", self.unit)): self.cpu(|(_, all)| all),
            "rounds": rounds.collect::<Vec<Value>>(),
        });
        if let Some(secure) = self.secure {
            value["secure"] = json!(secure);
        }
        value
    }

    fn row(&self) -> Vec<String> {
        let time = |nanos: f64| format!("{:.3?}", Duration::from_nanos(nanos as u64));
        let max = self.rounds.iter().map(|round| round.latencies.max()).max();
        let errors: u64 = self.rounds.iter().map(|round| round.failures.count).sum();
        let cpu = self.cpu(|(asked, _)| asked);
        vec![
            self.label(),
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
}

/// A latency of a round, in nanoseconds.
fn percentile(round: &RoundResult, quantile: f64) -> f64 {
    round.latencies.value_at_quantile(quantile) as f64
}

/// A value of which sides are compared: its name in JSON and in the table, and how it is read.
type Measure = (&'static str, &'static str, fn(&RoundResult) -> f64);

const MEASURES: [Measure; 4] = [
    ("ratio_throughput", "UNITs/s", RoundResult::numbers_per_second),
    ("ratio_p50", "p50", |round| percentile(round, 0.5)),
    ("ratio_p99", "p99", |round| percentile(round, 0.99)),
    ("ratio_p999", "p99.9", |round| percentile(round, 0.999)),
];

/// One side, or two that were measured in alternating rounds.
pub struct Sides(pub Vec<Side>);

impl Sides {
    /// The median over the rounds of the first side's value divided by the second one's; `None` without a second side.
    fn ratio(&self, of: fn(&RoundResult) -> f64) -> Option<f64> {
        let [first, second] = &self.0[..] else {
            return None;
        };
        let pairs = first.rounds.iter().zip(&second.rounds);
        median(pairs.map(|(ours, theirs)| of(ours) / of(theirs)).collect())
    }

    /// The ratios as JSON.
    pub fn ratios_to_json(&self) -> Value {
        let ratios = MEASURES.map(|(field, _, of)| (field.to_owned(), json!(self.ratio(of))));
        Value::Object(ratios.into_iter().collect())
    }

    /// The results as a table, with the first errors and the ratios below it.
    pub fn to_text(&self) -> String {
        let unit = self.0.first().map_or("", |side| side.unit);
        let head =
            ["", "UNITS/S", "P50", "P90", "P99", "P99.9", "MAX", "SERVER CPU/UNIT", "ERRORS"];
        let head = head.map(|cell| cell.replace(UNIT, &unit.to_uppercase()));
        let mut rows = vec![head.to_vec()];
        rows.extend(self.0.iter().map(Side::row));
        let mut text = table(&rows);
        for side in &self.0 {
            if let Some(error) = side.first_error() {
                text += &format!("\nfirst error of {}: {error}", side.label());
            }
        }
        if let [first, _] = &self.0[..] {
            let rounds = first.rounds.len();
            let ratios = MEASURES.map(|(_, name, of)| {
                let name = name.replace(UNIT, unit);
                format!("{name} {:.2}", self.ratio(of).unwrap_or(f64::NAN))
            });
            text +=
                &format!("\nratio, median of {rounds} alternating rounds: {}", ratios.join("  "));
        }
        text
    }
}
