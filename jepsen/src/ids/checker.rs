//! Judges ids that were taken: unique, in the order that their format promises, made of the requested fields, and of a time
//! near the real one. Pure.
//!
//! - *Unique* over the whole run, in each namespace. In a format with a date, for each key: two keys may have the same id.
//! - *Order.* Ids of a format with a worker rise as one maker makes them one after the other with the same parameters, while
//!   the worker field is the same. A node that was restarted counts as the same maker: if it has the same worker id, its lease
//!   lies above the one before. Ids of one process of a node rise under all of its worker ids, unless clocks are touched. If
//!   the format's counter runs on, only their times do not go back. Ids of a format without a worker rise for each key, from
//!   all callers; with a date, the order number rises and the date does not go back. Nothing else is promised, and nothing
//!   else is checked.
//! - *Fields* have the requested values: parameters, key, constants. The text parses to the id that prints it.
//! - *Time.* A [`Distance`] from the harness's clock between call and answer, at most.

use std::collections::{BTreeMap, HashMap};

use ratchet_ids::{DecodeError, Decoded, Format, InvalidFormat, Source};
use serde::Serialize;

use super::{
    distance::Distance,
    namespace::IdNamespace,
    order::{Span, disorder},
    taken::{Maker, Said, TakenIds},
};

#[cfg(test)]
mod tests;

/// How many violations of a rule are told.
const TOLD_MAX: usize = 5;

/// A rule that ids promise to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// No id comes twice.
    Unique,
    /// Ids rise.
    Order,
    /// Ids hold the requested fields.
    Fields,
    /// Ids have the time at which they were made.
    Time,
}

/// Judges ids while a run goes on.
pub struct Checker {
    namespaces: Vec<Judged>,
    /// The harness's clock at the start of the run, in milliseconds since 1970.
    start_ms: u64,
    distance: Distance,
    /// The calls so far, as far as a duplicate names them.
    calls: Vec<CheckedCall>,
    broken: Broken,
    farthest_ms: u64,
}

/// How often each rule was broken, and its first violations in words.
#[derive(Debug, Clone, Default)]
struct Broken(BTreeMap<Rule, (u64, Vec<String>)>);

impl Broken {
    fn note(&mut self, rule: Rule, why: impl FnOnce() -> String) {
        let (count, told) = self.0.entry(rule).or_default();
        *count += 1;
        if told.len() < TOLD_MAX {
            told.push(why());
        }
    }
}

/// The ids that were taken in one namespace.
struct Judged {
    namespace: IdNamespace,
    format: Format,
    /// The call that took each id first. With the key where two keys may have the same id.
    ids: HashMap<(u64, u128), u32>,
    series: HashMap<Series, Vec<Span>>,
}

/// The place of a call that took ids, and its time.
#[derive(Debug, Clone, Copy)]
struct CheckedCall {
    maker: Maker,
    invoked_ns: u64,
    returned_ns: u64,
}

/// A series that rises.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Series {
    /// Ids that one maker makes with the same worker id and the same parameters.
    OfMaker(Maker, u64, Vec<u64>),
    /// Times of ids that one maker makes so, where ids of one unit of time are in no order. They may repeat.
    TimeOfMaker(Maker, u64, Vec<u64>),
    /// Ids that one process of a node makes with the same parameters, under all its worker ids.
    OfProcess(Maker, u64, Vec<u64>),
    /// Ids, or order numbers, of a key.
    OfKey(u64),
    /// Dates in the ids of a key, which may repeat.
    DateOfKey(u64),
}

impl Series {
    /// Whether the same value may come again.
    fn may_repeat(&self) -> bool {
        matches!(self, Series::TimeOfMaker(..) | Series::DateOfKey(_))
    }
}

impl Checker {
    /// A checker that has judged no ids yet.
    ///
    /// # Errors
    /// [`InvalidFormat`] if a namespace has such a format.
    pub fn new(
        namespaces: &[IdNamespace], start_ms: u64, distance: Distance,
    ) -> Result<Checker, InvalidFormat> {
        let judged = namespaces.iter().map(|namespace| {
            Ok(Judged {
                namespace: *namespace,
                format: Format::parse(namespace.format)?,
                ids: HashMap::new(),
                series: HashMap::new(),
            })
        });
        Ok(Checker {
            namespaces: judged.collect::<Result<_, _>>()?,
            start_ms,
            distance,
            calls: Vec::new(),
            broken: Broken::default(),
            farthest_ms: 0,
        })
    }

    /// Judges the ids that one call took, all but the order among calls.
    pub fn add(&mut self, taken: &TakenIds) {
        let call = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        self.calls.push(CheckedCall {
            maker: taken.maker,
            invoked_ns: taken.invoked_ns,
            returned_ns: taken.returned_ns,
        });
        let window = self.window(taken);
        let keeps_time = self.distance.is_of_untouched_clocks();
        let Some(judged) = self.namespaces.get_mut(taken.namespace) else {
            return;
        };
        let (name, broken) = (judged.namespace.name, &mut self.broken);
        if taken.ids.len() != taken.asked {
            let (asked, got) = (taken.asked, taken.ids.len());
            broken.note(Rule::Fields, || {
                format!("{name}: {got} ids were answered to a call for {asked}")
            });
        }
        let mut rising: Vec<(Series, Span)> = Vec::new();
        for said in &taken.ids {
            let decoded = match decode(&judged.format, said) {
                Ok(decoded) => decoded,
                Err(why) => {
                    broken.note(Rule::Fields, || format!("{name}: {said}: {why}"));
                    continue;
                }
            };
            if let Some(why) = wrong_field(judged.namespace.parameters, taken, &decoded) {
                broken.note(Rule::Fields, || format!("{name}: {said}: {why}"));
            }
            let far_ms = window.distance_ms(&judged.format, &decoded);
            self.farthest_ms = self.farthest_ms.max(far_ms);
            if far_ms > window.allowed_ms {
                let (time, allowed) = (decoded.date_time(), window.allowed_ms);
                broken.note(Rule::Time, || {
                    format!(
                        "{name}: {said} of {} has the time {time}, {far_ms} ms from the call; {allowed} ms are allowed",
                        taken.maker
                    )
                });
            }
            let key = taken.key.unwrap_or(0);
            let scope = match judged.format.source() {
                Source::Worker | Source::Key => 0,
                Source::Date => key,
            };
            if let Some(first) = judged.ids.insert((scope, decoded.id()), call) {
                let (first, second) = (self.calls[first as usize], self.calls[call as usize]);
                broken.note(Rule::Unique, || {
                    format!("{name}: {said} was made twice, by {first} and by {second}")
                });
            }
            let process = taken.process.filter(|_| keeps_time);
            for (series, value) in values(&judged.format, (taken, process), &decoded) {
                extend(&mut rising, series, value, taken, |why| {
                    broken.note(Rule::Order, || format!("{name}: {why}"));
                });
            }
        }
        for (series, span) in rising {
            judged.series.entry(series).or_default().push(span);
        }
    }

    /// The time of the harness's clock during a call.
    fn window(&self, taken: &TakenIds) -> Window {
        let ms = |run_ns: u64| self.start_ms + run_ns / 1_000_000;
        Window {
            from_ms: ms(taken.invoked_ns),
            to_ms: ms(taken.returned_ns) + 1,
            allowed_ms: self.distance.at(taken.returned_ns),
        }
    }

    /// How often each rule was broken so far. Disorder among calls is not counted: [`Checker::violations`] names it.
    pub fn broken(&self) -> BTreeMap<Rule, u64> {
        let counts = self.broken.0.iter();
        counts.map(|(rule, (count, _))| (*rule, *count)).collect()
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (rule, (count, told)) in &self.broken.0 {
            all.extend(told.iter().cloned());
            let more = count.saturating_sub(told.len() as u64);
            if more > 0 {
                all.push(format!("{more} more ids break the rule {rule:?}"));
            }
        }
        for judged in &self.namespaces {
            all.extend(judged.disorder());
        }
        all
    }

    /// How many different ids were taken of each namespace.
    pub fn ids(&self) -> BTreeMap<&'static str, usize> {
        let namespaces = self.namespaces.iter();
        let counts = namespaces.map(|judged| (judged.namespace.name, judged.ids.len()));
        counts.collect()
    }

    /// The greatest distance of the time in an id from the time between call and answer, in milliseconds.
    pub fn farthest_ms(&self) -> u64 {
        self.farthest_ms
    }
}

impl Judged {
    /// The disorder among calls: of each series one pair.
    fn disorder(&self) -> Vec<String> {
        let disordered = self.series.iter().filter_map(|(series, spans)| {
            let (before, after) = disorder(spans, series.may_repeat())?;
            let name = self.namespace.name;
            Some(format!(
                "{name}, {series:?}: {} was answered at {} ns, and then {} to a call that began at {} ns",
                before.last, before.returned_ns, after.first, after.invoked_ns
            ))
        });
        disordered.take(TOLD_MAX).collect()
    }
}

/// The time of the harness's clock during a call, in milliseconds since 1970.
struct Window {
    from_ms: u64,
    to_ms: u64,
    allowed_ms: u64,
}

impl Window {
    /// How far the time of an id, which is as long as its format's unit of time, lies outside.
    fn distance_ms(&self, format: &Format, decoded: &Decoded<'_>) -> u64 {
        let first_ms = decoded.parts().time_ms;
        let last_ms = first_ms + format.tick_ms() - 1;
        let before = self.from_ms.saturating_sub(last_ms);
        before.max(first_ms.saturating_sub(self.to_ms))
    }
}

/// Takes an id apart. Its text must be the one that its format writes.
fn decode<'a>(format: &'a Format, said: &Said) -> Result<Decoded<'a>, String> {
    let as_text = |error: DecodeError| error.to_string();
    let decoded = match said {
        Said::Number(number) => format.decode_number(*number),
        Said::Text(text) => format.decode(text),
    };
    let decoded = decoded.map_err(as_text)?;
    let printed = format.print(decoded.id()).to_string();
    match said {
        Said::Text(text) if *text != printed => Err(format!("its format writes it as {printed:?}")),
        Said::Text(_) => Ok(decoded),
        Said::Number(number) => {
            let read = format.decode(&printed).map_err(as_text)?;
            match read.id() == *number {
                true => Ok(decoded),
                false => Err(format!("it is written as {printed:?}, which is another id")),
            }
        }
    }
}

/// The violation in the fields that the caller chose.
fn wrong_field(
    parameters: &[(&'static str, u64)], taken: &TakenIds, decoded: &Decoded<'_>,
) -> Option<String> {
    let chosen = parameters.iter().map(|(name, _)| *name);
    let chosen = chosen.zip(taken.parameters.iter().copied());
    // A format with a date has a key, and no field for it.
    let key = decoded.value("key").and(taken.key);
    let mut asked = chosen.chain(key.map(|key| ("key", key)));
    asked.find_map(|(name, asked)| {
        let found = decoded.value(name);
        (found != Some(asked)).then(|| format!("{name} is {found:?} where {asked} was asked for"))
    })
}

/// The values of an id that must rise, and in which series.
fn values(
    format: &Format, (taken, process): (&TakenIds, Option<u64>), decoded: &Decoded<'_>,
) -> Vec<(Series, u128)> {
    let (parts, key) = (decoded.parts(), taken.key.unwrap_or(0));
    match format.source() {
        Source::Worker if format.counter_runs_on() => {
            let series = Series::TimeOfMaker(taken.maker, parts.worker, taken.parameters.clone());
            vec![(series, parts.time_ms.into())]
        }
        Source::Worker => {
            let parameters = || taken.parameters.clone();
            let of_worker = Series::OfMaker(taken.maker, parts.worker, parameters());
            let of_process =
                process.map(|process| Series::OfProcess(taken.maker, process, parameters()));
            let series = [of_worker].into_iter().chain(of_process);
            series.map(|series| (series, decoded.id())).collect()
        }
        Source::Key => vec![(Series::OfKey(key), decoded.id())],
        Source::Date => vec![
            (Series::OfKey(key), parts.sequence.into()),
            (Series::DateOfKey(key), parts.time_ms.into()),
        ],
    }
}

/// Adds a value to the span that one call took of its series. It must lie above the values before it in the answer.
fn extend(
    rising: &mut Vec<(Series, Span)>, series: Series, value: u128, taken: &TakenIds,
    disorder: impl FnOnce(String),
) {
    let known = rising.iter_mut().find(|(known, _)| *known == series);
    let Some((series, span)) = known else {
        let span = Span {
            invoked_ns: taken.invoked_ns,
            returned_ns: taken.returned_ns,
            first: value,
            last: value,
        };
        return rising.push((series, span));
    };
    if value < span.last || (value == span.last && !series.may_repeat()) {
        disorder(format!("{series:?}: {value} follows {} in one answer", span.last));
    }
    span.first = span.first.min(value);
    span.last = span.last.max(value);
}

impl std::fmt::Display for CheckedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (from, to) = (ms(self.invoked_ns), ms(self.returned_ns));
        write!(f, "{} ({from:.3} to {to:.3} ms)", self.maker)
    }
}
