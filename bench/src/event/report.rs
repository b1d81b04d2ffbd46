//! The report of events: as a table for people, as JSON for programs.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    options::{Event, EventOptions},
    result::{EventResult, millis},
    skips::Skips,
};
use crate::format::{add_fields, median, table};

/// The events of one cluster.
pub struct Side {
    pub name: &'static str,
    /// The node's program; `None` for the one in the directory of this program.
    pub binary: Option<PathBuf>,
    pub events: Vec<EventResult>,
}

/// A value of an event that the report has the median of: its name in JSON, and how it is read.
type Measure = (&'static str, fn(&EventResult) -> Option<f64>);

const MEASURES: [Measure; 12] = [
    ("before_numbers_per_second", |event| Some(event.around.before)),
    ("silence_ms", |event| Some(event.around.silence.ms() as f64)),
    ("first_second_numbers_per_second", |event| Some(event.around.first_second())),
    ("first_second_ratio", |event| Some(event.around.first_second_ratio())),
    ("recovered_ms", |event| event.around.recovered_ms.map(|ms| ms as f64)),
    ("event_ms", |event| Some((event.event.end - event.event.start) as f64)),
    ("longest_call_ms", |event| Some(millis(event.seen.longest_call()))),
    ("p99_before_ms", |event| Some(millis(event.seen.p99()[0]))),
    ("p99_after_ms", |event| Some(millis(event.seen.p99()[1]))),
    ("errors", |event| Some(event.failures.count as f64)),
    ("skipped", |event| Some(event.skipped() as f64)),
    ("leader_changes", |event| Some(event.leader_changes() as f64)),
];

impl Side {
    /// The medians over the events, by the names of [`MEASURES`]. The median counts the events that have the value.
    fn medians(&self) -> Value {
        let medians = MEASURES.iter().map(|(name, read)| {
            let values = self.events.iter().filter_map(read);
            ((*name).to_owned(), json!(median(values.collect())))
        });
        Value::Object(medians.collect())
    }

    /// The median throughput of each second after the silence, relative to before.
    fn seconds_after(&self) -> Vec<f64> {
        let second = |nth: usize| {
            let ratios = self.events.iter().filter_map(|event| {
                let numbers = event.around.seconds_after.get(nth)?;
                Some(numbers / event.around.before.max(1.0))
            });
            median(ratios.collect())
        };
        (0..).map_while(second).collect()
    }

    /// The skipped numbers of all events, by cause.
    fn skips(&self) -> Skips {
        let mut all = Skips::new();
        for (cause, count) in self.events.iter().flat_map(|event| &event.skips) {
            *all.entry(cause.clone()).or_default() += count;
        }
        all
    }

    fn first_error(&self) -> Option<&String> {
        let mut events = self.events.iter();
        events.find_map(|event| event.refused.as_ref().or(event.failures.first.as_ref()))
    }

    /// The facts for which the table has no room, line by line.
    fn notes(&self) -> Vec<String> {
        let seconds = self.seconds_after().into_iter();
        let seconds: Vec<String> = seconds.map(|ratio| format!("{ratio:.2}")).collect();
        let mut notes = vec![format!(
            "numbers/s in each second after the silence, relative to before: {}",
            seconds.join(" ")
        )];
        let events = self.events.iter();
        let promoted = events.filter(|event| event.asked_follower_leads == Some(true));
        match promoted.count() {
            0 => {}
            count => notes.push(format!(
                "the follower that was asked leads after {count} of the events: nothing is forwarded then"
            )),
        }
        let skips = self.skips().into_iter().filter(|(_, count)| *count > 0);
        let skips = skips.map(|(cause, count)| format!("{cause} {count}"));
        let skips: Vec<String> = skips.collect();
        if !skips.is_empty() {
            notes.push(format!("skipped by all events: {}", skips.join(", ")));
        }
        let first_error = self.first_error();
        notes.extend(first_error.map(|error| format!("first error: {error}")));
        let named = notes.into_iter();
        named.map(|note| format!("{}: {note}", self.name)).collect()
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "binary": self.binary,
            "seconds_after_ratio": self.seconds_after(),
            "errors_of_all_events": self.events.iter().map(|event| event.failures.count).sum::<u64>(),
            "skipped_by_cause": self.skips(),
            "events": self.events.iter().map(EventResult::to_json).collect::<Vec<Value>>(),
        });
        add_fields(&mut value, self.medians());
        value
    }

    /// Prints the last event, if standard error is a terminal.
    pub fn tell_last(&self) {
        use std::io::IsTerminal;
        if let Some(last) = self.events.last()
            && std::io::stderr().is_terminal()
        {
            eprintln!(
                "event {}  {}  {}",
                self.events.len(),
                self.name,
                cells(&last.to_json()).join("  ")
            );
        }
    }
}

/// The report of a run of events.
pub struct Report {
    pub title: String,
    settings: Value,
    pub sides: Vec<Side>,
}

impl Report {
    /// Reports the events of all sides.
    pub fn new(event: Event, options: &EventOptions, sides: Vec<Side>) -> Report {
        let mut settings = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "event": event.name(),
            "at": options.at,
            "seconds": options.seconds,
            "repeat": options.repeat,
            "warm_records": options.warm_records,
        });
        for part in [options.load.to_json(), options.cluster.to_json()] {
            add_fields(&mut settings, part);
        }
        Report {
            title: format!(
                "ratchet-bench: {} under load; {}",
                event.name(),
                options.load.to_text()
            ),
            settings,
            sides,
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.settings.clone();
        for (field, side) in ["ratchet", "against"].iter().zip(&self.sides) {
            value[field] = side.to_json();
        }
        value
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        for side in &self.sides {
            let mut add = |name: String, value: &Value| {
                rows.push([vec![name], cells(value)].concat());
            };
            for (event, nth) in side.events.iter().zip(1..) {
                add(format!("{} {nth}", side.name), &event.to_json());
            }
            if side.events.len() > 1 {
                add(format!("{}, median", side.name), &side.medians());
            }
        }
        let mut text = format!("{}\n{}", self.title, table(&rows));
        for note in self.sides.iter().flat_map(Side::notes) {
            text += &format!("\n{note}");
        }
        text
    }
}

const HEAD: [&str; 12] = [
    "",
    "NUMBERS/S BEFORE",
    "SILENCE",
    "FIRST SECOND",
    "RATIO",
    "90% AFTER",
    "LONGEST CALL",
    "P99 BEFORE",
    "P99 AFTER",
    "ERRORS",
    "SKIPPED",
    "LEADER CHANGES",
];

/// The cells of a row below [`HEAD`] but for the first, from the JSON of an event or of the medians.
fn cells(value: &Value) -> Vec<String> {
    let number = |field: &str, digits: usize, unit: &str| match value[field].as_f64() {
        Some(number) => format!("{number:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    vec![
        number("before_numbers_per_second", 0, ""),
        number("silence_ms", 0, " ms"),
        number("first_second_numbers_per_second", 0, ""),
        number("first_second_ratio", 2, ""),
        number("recovered_ms", 0, " ms"),
        number("longest_call_ms", 1, " ms"),
        number("p99_before_ms", 2, " ms"),
        number("p99_after_ms", 2, " ms"),
        number("errors", 0, ""),
        number("skipped", 0, ""),
        number("leader_changes", 0, ""),
    ]
}
