//! The report of the cost of idle connections: as a table for people, as JSON for programs.

use serde_json::{Value, json};

use super::options::IdleOptions;
use crate::{
    format::{add_fields, median},
    round::RoundResult,
    sides::{Side, Sides},
};

/// The results without, or with, idle connections.
pub struct Half {
    /// The leader's CPU time in a second without callers, in nanoseconds.
    pub quiet_cpu: f64,
    /// The leader's memory after that, in bytes.
    pub memory: u64,
    /// The results of the callers.
    pub load: RoundResult,
}

/// The cost of the idle connections to an interface.
pub struct InterfaceCost {
    pub name: &'static str,
    pub connections: u64,
    /// By how much the leader's memory grew while they were opened.
    pub bytes: u64,
}

/// The costs at the leader, round by round.
#[derive(Default)]
struct Costs {
    quiet_cpu: Vec<f64>,
    memory: Vec<u64>,
}

impl Costs {
    /// The median CPU time in a second without callers, in nanoseconds.
    fn cpu(&self) -> f64 {
        median(self.quiet_cpu.clone()).unwrap_or(0.0)
    }

    /// The memory in the first round. In later ones the leader uses the memory again that it has freed.
    fn memory(&self) -> u64 {
        self.memory.first().copied().unwrap_or(0)
    }
}

/// The report. Of both arrays the first has the results with idle connections.
pub struct Report {
    title: String,
    settings: Value,
    connections: u64,
    sides: Sides,
    costs: [Costs; 2],
    /// The costs of the first round.
    interfaces: Vec<InterfaceCost>,
}

impl Report {
    /// A report without rounds.
    pub fn new(options: &IdleOptions) -> Report {
        let mut settings = json!({"version": env!("CARGO_PKG_VERSION")});
        for part in [options.to_json(), options.cluster.to_json()] {
            add_fields(&mut settings, part);
        }
        Report {
            title: format!("ratchet-bench: {}", options.to_text()),
            settings,
            connections: options.connections,
            sides: Sides(["with idle", "without"].map(Side::new).into()),
            costs: Default::default(),
            interfaces: Vec::new(),
        }
    }

    /// Adds a round.
    pub fn add_round(&mut self, with: Half, without: Half, interfaces: Vec<InterfaceCost>) {
        let sides = self.sides.0.iter_mut().zip(&mut self.costs);
        for ((side, costs), half) in sides.zip([with, without]) {
            costs.quiet_cpu.push(half.quiet_cpu);
            costs.memory.push(half.memory);
            side.rounds.push(half.load);
        }
        if self.interfaces.is_empty() {
            self.interfaces = interfaces;
        }
    }

    /// By how much the leader's memory grew, in bytes.
    fn memory_more(&self) -> u64 {
        let [with, without] = &self.costs;
        with.memory().saturating_sub(without.memory())
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        let sides = self.sides.0.iter().zip(&self.costs);
        for (field, (side, costs)) in ["with", "without"].iter().zip(sides) {
            value[field] = side.to_json();
            value[field]["leader_memory_bytes"] = json!(costs.memory());
            value[field]["leader_memory_bytes_of_rounds"] = json!(costs.memory);
            value[field]["leader_quiet_cpu_ns_per_second"] = json!(costs.cpu());
        }
        add_fields(&mut value, self.sides.ratios_to_json());
        value["memory_more_bytes"] = json!(self.memory_more());
        value["memory_bytes_per_connection"] = json!(self.memory_more() / self.connections);
        for interface in &self.interfaces {
            value["interfaces"][interface.name] = json!({
                "connections": interface.connections,
                "memory_bytes_per_connection": interface.bytes / interface.connections,
            });
        }
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let kilobytes = |bytes: u64, count: u64| bytes as f64 / 1e3 / count as f64;
        let [with, without] = &self.costs;
        let interfaces = self.interfaces.iter().map(|interface| {
            let each = kilobytes(interface.bytes, interface.connections);
            format!("{} {each:.1} kB", interface.name)
        });
        let interfaces: Vec<String> = interfaces.collect();
        format!(
            "{}\n{}\nmemory of the leader: {:.1} MB without, {:.1} MB with them: {:.1} MB more, {:.1} kB each ({})\n\
             CPU time of the leader without callers: {:.1} ms a second without, {:.1} ms with them",
            self.title,
            self.sides.to_text(),
            megabytes(without.memory()),
            megabytes(with.memory()),
            megabytes(self.memory_more()),
            kilobytes(self.memory_more(), self.connections),
            interfaces.join(", "),
            without.cpu() / 1e6,
            with.cpu() / 1e6,
        )
    }
}
