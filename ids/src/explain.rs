//! A format in words. Pure.

use std::fmt;

use crate::{
    civil::DAY_MS,
    field::{Field, Kind},
    format::{Format, Source},
};

/// The facts about a format, for people.
#[derive(Debug, Clone, Copy)]
pub struct FormatExplanation<'a> {
    format: &'a Format,
}

impl Format {
    /// The format in words.
    pub fn explain(&self) -> FormatExplanation<'_> {
        FormatExplanation { format: self }
    }

    /// How many ids there are in a second: for each counter of a worker, or each key. `None` for a format with a date,
    /// which does not count the ids of a time.
    pub fn ids_per_second(&self) -> Option<u128> {
        match self.tick_ms() {
            DAY_MS => None,
            tick_ms => Some(u128::from(self.capacity()) * u128::from(1_000 / tick_ms)),
        }
    }
}

impl FormatExplanation<'_> {
    /// The facts about the whole format: the subject of each line, and the line.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let format = self.format;
        let mut facts = vec![
            ("format", format.to_string()),
            ("source", self.source().to_owned()),
            ("ids", self.rate()),
        ];
        if let Some(name) = format.name() {
            facts.insert(0, ("name", name.to_owned()));
        }
        if format.source() == Source::Worker {
            let max = format.workers_max();
            facts.push(("workers", format!("{max}, 0 to {}", max - 1)));
        }
        let parameters: Vec<&str> = format.parameters().collect();
        if !parameters.is_empty() {
            facts.push(("parameters", parameters.join(", ")));
        }
        if format.counter_runs_on() {
            let last = format.capacity() - 1;
            facts.push((
                "counter",
                format!("runs on over the {}, and from {last} to 0", self.units()),
            ));
        }
        facts.push(("size", format!("{} bits", format.bits())));
        facts.push(("text", format.text_form().to_string()));
        facts.push(("first", format.date_time(format.first_ms()).to_string()));
        facts.push(("last", format.date_time(format.last_ms()).to_string()));
        facts
    }

    fn source(&self) -> &'static str {
        match self.format.source() {
            Source::Worker => "whoever holds a worker id",
            Source::Key => "the leader, for each key",
            Source::Date => "the leader, for each key, with the day's date",
        }
    }

    fn units(&self) -> &'static str {
        match self.format.tick_ms() {
            1 => "milliseconds",
            _ => "seconds",
        }
    }

    fn rate(&self) -> String {
        let capacity = self.format.capacity();
        match (self.format.source(), self.format.ids_per_second()) {
            (Source::Worker, Some(rate)) => match self.format.counter_per() {
                None => format!("{rate} a second for each worker"),
                Some(parameter) => format!("{rate} a second for each worker and {parameter}"),
            },
            (_, Some(rate)) => format!("{rate} a second for each key"),
            (_, None) => format!("{capacity} for each key, {} apart", self.format.step()),
        }
    }
}

/// The meaning of a field, in words.
fn meaning(field: &Field) -> String {
    match field.kind() {
        Kind::TimeS => "seconds since the epoch".to_owned(),
        Kind::TimeMs => "milliseconds since the epoch".to_owned(),
        Kind::Date => "the date, YYYYMMDD".to_owned(),
        Kind::Sequence => "counts the ids".to_owned(),
        Kind::Worker => "who makes the id".to_owned(),
        Kind::Key => "the id of the key".to_owned(),
        Kind::Random => "random".to_owned(),
        Kind::Parameter => "chosen by the caller".to_owned(),
        Kind::Constant(value) => format!("always {value}"),
    }
}

/// Writes the facts, and a table of the fields.
impl fmt::Display for FormatExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (about, fact) in self.facts() {
            writeln!(f, "{about:<12}{fact}")?;
        }
        let fields = self.format.fields();
        let names = fields.iter().map(|field| field.name().len());
        let width = names.max().unwrap_or(0).max("field".len()) + 2;
        let unit = self.format.unit();
        writeln!(f, "\n{:<width$}{unit:<8}{:<21}meaning", "field", "greatest")?;
        for field in fields {
            let (name, places) = (field.name(), field.width());
            let max = match field.kind() {
                Kind::Constant(value) => value,
                Kind::Date => self.format.date_time(self.format.last_ms()).date().as_number(),
                Kind::Sequence if self.format.source() == Source::Date => {
                    self.format.capacity() * self.format.step()
                }
                _ => field.max(),
            };
            writeln!(f, "{name:<width$}{places:<8}{max:<21}{}", meaning(field))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
