//! The report of how fast ids are made: as a table for people, as JSON for programs.

use serde_json::{Value, json};

use super::{entries::Entries, options::IdsOptions};
use crate::{
    format::{add_fields, median, table},
    round::RoundResult,
    sides::{Side, Sides},
};

/// The results of a round.
pub struct Round {
    /// Log entries while nobody asks, and while all nodes make ids.
    pub idle: Entries,
    pub busy: Entries,
    /// Ids a second of the client alone: one a call, and many a call.
    pub single: f64,
    pub bursts: f64,
    /// Ids a second of all nodes together.
    pub all_nodes: f64,
    /// The stream of one node, and of the echo.
    pub ours: RoundResult,
    pub echo: RoundResult,
}

/// The results, a value for each round.
#[derive(Default)]
struct Values {
    single: Vec<f64>,
    bursts: Vec<f64>,
    all_nodes: Vec<f64>,
    idle: Vec<Entries>,
    busy: Vec<Entries>,
}

/// The report.
pub struct Report {
    settings: Value,
    format: String,
    values: Values,
    sides: Sides,
}

impl Report {
    /// A report without rounds.
    pub fn new(options: &IdsOptions) -> Report {
        Report {
            settings: json!({
                "version": env!("CARGO_PKG_VERSION"),
                "format": options.format,
                "seconds": options.seconds,
                "connections": options.connections,
                "in_flight": options.in_flight,
                "batch": options.batch,
            }),
            format: options.format.clone(),
            values: Values::default(),
            sides: Sides(vec![Side::new("stream"), Side::new("echo")]),
        }
    }

    /// Adds a round.
    pub fn add(&mut self, round: Round) {
        self.values.single.push(round.single);
        self.values.bursts.push(round.bursts);
        self.values.all_nodes.push(round.all_nodes);
        self.values.idle.push(round.idle);
        self.values.busy.push(round.busy);
        for (side, result) in self.sides.0.iter_mut().zip([round.ours, round.echo]) {
            side.rounds.push(result);
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let entries = |of: &[Entries]| {
            let rounds = of.iter().map(|entries| {
                json!({
                    "per_second": entries.per_second,
                    "workers": entries.workers,
                    "per_second_and_worker": entries.per_worker(),
                })
            });
            rounds.collect::<Vec<Value>>()
        };
        let mut value = self.settings.clone();
        let measured = json!({
            "single": self.values.single,
            "bursts": self.values.bursts,
            "all_nodes": self.values.all_nodes,
            "entries_idle": entries(&self.values.idle),
            "entries_busy": entries(&self.values.busy),
        });
        add_fields(&mut value, measured);
        for (field, side) in ["stream", "echo"].iter().zip(&self.sides.0) {
            value[field] = side.to_json();
        }
        add_fields(&mut value, self.sides.ratios_to_json());
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let Values { single, bursts, all_nodes, idle, busy } = &self.values;
        let workers = |of: &[Entries]| of.iter().map(|one| one.workers as f64).collect();
        let per_worker = |of: &[Entries]| of.iter().map(Entries::per_worker).collect();
        let rows: [(&str, Vec<f64>); 7] = [
            ("client, ids/s, one a call", single.clone()),
            ("client, ids/s, 1000 a call", bursts.clone()),
            ("all nodes, ids/s", all_nodes.clone()),
            ("worker ids held, busy", workers(busy)),
            ("log entries/s of each, busy", per_worker(busy)),
            ("worker ids held, idle", workers(idle)),
            ("log entries/s of each, idle", per_worker(idle)),
        ];
        let mut lines = vec![vec![self.format.clone(), "median".to_owned()]];
        lines.extend(rows.map(|(what, values)| {
            let median = median(values).unwrap_or(0.0);
            vec![what.to_owned(), format!("{median:.2}")]
        }));
        format!("{}\n\n{}", table(&lines), self.sides.to_text())
    }
}
