//! The report of handshakes: as a table for people, as JSON for programs.

use serde_json::{Value, json};

use super::options::HandshakesOptions;
use crate::{
    format::add_fields,
    handshake::Kind,
    round::RoundResult,
    sides::{Side, Sides},
};

/// The report of handshakes.
pub struct Report {
    title: String,
    settings: Value,
    full: Sides,
    resumed: Sides,
}

impl Report {
    /// A report without rounds.
    pub fn new(options: &HandshakesOptions) -> Report {
        let mut settings = json!({"version": env!("CARGO_PKG_VERSION")});
        add_fields(&mut settings, options.to_json());
        let sides = || {
            let side = |name| Side { secure: Some(true), unit: "handshake", ..Side::new(name) };
            Sides(["ratchet", "echo"].map(side).into())
        };
        Report {
            title: format!("ratchet-bench: {}", options.to_text()),
            settings,
            full: sides(),
            resumed: sides(),
        }
    }

    /// Adds the results of a side: the node is 0, the echo 1.
    pub fn add(&mut self, kind: Kind, side: usize, result: RoundResult) {
        let sides = match kind {
            Kind::Full => &mut self.full,
            Kind::Resumed => &mut self.resumed,
        };
        sides.0[side].rounds.push(result);
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        for (field, sides) in [("full", &self.full), ("resumed", &self.resumed)] {
            let mut of_kind = sides.ratios_to_json();
            for (field, side) in ["ratchet", "against"].iter().zip(&sides.0) {
                of_kind[field] = side.to_json();
            }
            value[field] = of_kind;
        }
        value
    }

    /// The report as tables.
    pub fn to_text(&self) -> String {
        let (full, resumed) = (self.full.to_text(), self.resumed.to_text());
        format!("{}\n\nfull\n{full}\n\nresumed\n{resumed}", self.title)
    }
}
