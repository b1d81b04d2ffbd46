//! The report of a run: as a table for people, as JSON for programs.

use serde_json::{Value, json};

use super::options::RunOptions;
use crate::{format::add_fields, sides::Sides};

/// The report of a run.
pub struct Report {
    pub title: String,
    settings: Value,
    pub sides: Sides,
}

impl Report {
    /// Reports the sides of a run: the cluster, and if there is one the other side.
    pub fn new(options: &RunOptions, sides: Sides) -> Report {
        let secure = sides.0.first().is_some_and(|ours| ours.secure == Some(true));
        let mut settings = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "seconds": options.seconds,
            "secure": secure,
        });
        for part in [options.load.to_json(), options.cluster.to_json()] {
            add_fields(&mut settings, part);
        }
        let manner = if secure { ", secure" } else { "" };
        let title = format!("ratchet-bench: {}{manner}", options.load.to_text());
        Report { title, settings, sides }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        for (field, side) in ["ratchet", "against"].iter().zip(&self.sides.0) {
            value[field] = side.to_json();
        }
        add_fields(&mut value, self.sides.ratios_to_json());
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        format!("{}\n{}", self.title, self.sides.to_text())
    }
}
