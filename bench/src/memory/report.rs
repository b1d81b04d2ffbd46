//! The report of the cost of a bound on the leader's memory: as a table for people, as JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::{options::MemoryOptions, restart::Restart};
use crate::{
    format::add_fields,
    round::RoundResult,
    sides::{Side, Sides},
};

/// The results of one cluster in a round.
pub struct Half {
    /// The results of the callers.
    pub load: RoundResult,
    /// How long the round's keys took to be asked for.
    pub scan_time: Duration,
    /// The leader's memory after that, in bytes.
    pub memory: u64,
}

/// The report. Of both arrays the first has the results with the bound.
pub struct Report {
    title: String,
    settings: Value,
    sides: Sides,
    scans: [Vec<Duration>; 2],
    memory: [Vec<u64>; 2],
    /// The restart of the cluster with the bound.
    pub restart: Option<Restart>,
}

impl Report {
    /// A report without rounds.
    pub fn new(options: &MemoryOptions) -> Report {
        let mut settings = json!({"version": env!("CARGO_PKG_VERSION")});
        for part in [options.to_json(), options.cluster.to_json()] {
            add_fields(&mut settings, part);
        }
        Report {
            title: format!("ratchet-bench: {}", options.to_text()),
            settings,
            sides: Sides(["bounded", "unbounded"].map(Side::new).into()),
            scans: Default::default(),
            memory: Default::default(),
            restart: None,
        }
    }

    /// Adds a round.
    pub fn add_round(&mut self, with: Half, without: Half) {
        for (at, half) in [with, without].into_iter().enumerate() {
            self.sides.0[at].rounds.push(half.load);
            self.scans[at].push(half.scan_time);
            self.memory[at].push(half.memory);
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        for (at, field) in ["bounded", "unbounded"].into_iter().enumerate() {
            value[field] = self.sides.0[at].to_json();
            value[field]["leader_memory_bytes_of_rounds"] = json!(self.memory[at]);
            value[field]["scan_seconds_of_rounds"] =
                self.scans[at].iter().map(Duration::as_secs_f64).collect();
        }
        add_fields(&mut value, self.sides.ratios_to_json());
        if let Some(restart) = &self.restart {
            value["restart"] = json!({
                "stopping_seconds": restart.stopping.as_secs_f64(),
                "starting_seconds": restart.starting.as_secs_f64(),
                "keys": restart.keys,
                "gaps": restart.gaps,
            });
        }
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n{}", self.title, self.sides.to_text());
        for (at, name) in ["bounded", "unbounded"].into_iter().enumerate() {
            let megabytes = |bytes: Option<&u64>| bytes.map_or(0.0, |bytes| *bytes as f64 / 1e6);
            let scans: Duration = self.scans[at].iter().sum();
            text += &format!(
                "\n{name}: the leader's memory {:.0} MB at the end, {:.0} MB at most; the keys took {:.1} s",
                megabytes(self.memory[at].last()),
                megabytes(self.memory[at].iter().max()),
                scans.as_secs_f64(),
            );
        }
        if let Some(restart) = &self.restart {
            text += &format!(
                "\nclean restart of bounded: stopped after {:.1?}, answers {:.1?} after the start; {} of {} keys have a gap",
                restart.stopping, restart.starting, restart.gaps, restart.keys
            );
        }
        text
    }
}
