//! A format of ids: its fields, and how far it reaches. Pure.

use std::{fmt, str::FromStr};

use crate::{
    bounds::{capacity, id_max, last_tick},
    built_in::FORMATS,
    check::check,
    civil::{DAY_MS, Date, DateTime},
    field::{Field, Kind, Unit},
    invalid_format::InvalidFormat,
    parse::parse,
    spec::Spec,
    text_form::TextForm,
};

/// A format of ids. Two are equal if their full texts are.
///
/// It is written as one line: the unit of widths, options, and the fields from the most significant one on.
///
/// ```
/// # use ratchet_ids::Format;
/// let format = Format::parse("bits epoch=2020-01-01 time-ms:41 shard:4 worker:10 sequence:8")?;
/// assert_eq!(format.workers_max(), 1024);
/// // The name of a built-in format, with options that replace its own.
/// let snowflake = Format::parse("snowflake epoch=2020-01-01")?;
/// assert_eq!(snowflake.to_string(), "bits epoch=2020-01-01 zero:1=0 time-ms:41 worker:10 sequence:12");
/// # Ok::<(), ratchet_ids::InvalidFormat>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub(crate) spec: Spec,
    /// The amount that the constants add to each id.
    pub(crate) constants: u128,
    /// The greatest id.
    pub(crate) id_max: u128,
    /// The last unit of time that ids have, by [`last_tick`].
    last_tick: u64,
}

/// How ids of a format come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The holder of a worker id makes them, with a [`Generator`](crate::Generator).
    Worker,
    /// The leader makes them from the key's own sequence: a number of it is a time and a counter.
    Key,
    /// The leader makes them from the key's own sequence: a number of it is the order number, beside the day's date.
    Date,
}

impl Format {
    /// Parses a format.
    ///
    /// # Errors
    /// [`InvalidFormat`] if it cannot be read, or its ids could not be made, or not be unique, or not be in order.
    pub fn parse(text: &str) -> Result<Format, InvalidFormat> {
        let spec = parse(text)?;
        check(&spec)?;
        let constants = spec.fields.iter().map(|field| match field.kind {
            Kind::Constant(value) => field.put(value),
            _ => 0,
        });
        Ok(Format {
            constants: constants.sum(),
            id_max: id_max(&spec),
            last_tick: last_tick(&spec).ok_or(InvalidFormat::EndsAtOnce)?,
            spec,
        })
    }

    /// Name and text of each format that has a name.
    pub fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
        FORMATS.into_iter()
    }

    /// The name of the built-in format that it is.
    pub fn name(&self) -> Option<&'static str> {
        let mut formats = FORMATS.into_iter();
        let found = formats.find(|(_, text)| parse(text).is_ok_and(|spec| spec == self.spec));
        found.map(|(name, _)| name)
    }

    /// How its ids come about.
    pub fn source(&self) -> Source {
        if self.field(Kind::Worker).is_some() {
            Source::Worker
        } else if self.field(Kind::Date).is_some() {
            Source::Date
        } else {
            Source::Key
        }
    }

    /// The fields, the most significant one first.
    pub fn fields(&self) -> &[Field] {
        &self.spec.fields
    }

    pub(crate) fn field(&self, kind: Kind) -> Option<&Field> {
        self.spec.field(kind)
    }

    /// The names of the values that a caller chooses, other than the key.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let fields = self.fields().iter();
        let parameters = fields.filter(|field| field.kind == Kind::Parameter);
        parameters.map(Field::name)
    }

    /// True if an id holds its key.
    pub fn has_key(&self) -> bool {
        self.field(Kind::Key).is_some()
    }

    /// The unit of widths.
    pub fn unit(&self) -> Unit {
        self.spec.unit
    }

    /// How many bits the greatest id has: 1 to 128.
    pub fn bits(&self) -> u32 {
        u128::BITS - self.id_max.leading_zeros()
    }

    /// How ids are written.
    pub fn text_form(&self) -> TextForm {
        self.spec.text
    }

    /// The distance of order numbers in a format with a date; otherwise 1.
    pub fn step(&self) -> u64 {
        self.spec.step
    }

    /// Whether the counter of a worker goes on in the next unit of time where it stood. It begins at 0 again after its
    /// greatest value, and never comes to a value twice in a unit of time. So ids of one unit of time are in no order.
    pub fn counter_runs_on(&self) -> bool {
        self.spec.runs_on
    }

    /// The parameter each of whose values has a counter of its own at each worker. `None`: a worker has one counter.
    pub fn counter_per(&self) -> Option<&str> {
        self.spec.counter_per.as_deref()
    }

    /// How long one unit of the time is, in milliseconds: 1, 1000, or a day for a date.
    pub fn tick_ms(&self) -> u64 {
        self.spec.tick_ms()
    }

    /// How many ids one unit of the time has: for each counter of a worker, or for each key. With a date: how many order
    /// numbers a key has in all.
    pub fn capacity(&self) -> u64 {
        capacity(&self.spec)
    }

    /// How many worker ids there are. 0 if the format has no worker.
    pub fn workers_max(&self) -> u64 {
        self.field(Kind::Worker).map_or(0, |field| field.size)
    }

    /// Whether ids of later times are greater from any maker, and ids of one unit of time are greater for a greater
    /// worker: the worker stands below the time and above the counter. Then one maker can use several worker ids, one
    /// after the other.
    pub fn is_ordered_by_worker(&self) -> bool {
        let place = |kind| self.field(kind).map(|field| field.place);
        place(Kind::Worker).is_some_and(|worker| {
            worker < self.time_place() && Some(worker) > place(Kind::Sequence)
        })
    }

    /// The first time of an id, in milliseconds since 1970. It lies one unit after the epoch, so that no id is 0. With a
    /// date it is the epoch.
    pub fn first_ms(&self) -> u64 {
        match self.tick_ms() {
            // West of Greenwich the first day, 1970-01-01, begins after the time 0.
            DAY_MS => self.spec.epoch_ms.max(self.day_ms(0)),
            tick_ms => self.spec.epoch_ms + tick_ms,
        }
    }

    /// The last time of an id, in milliseconds since 1970.
    pub fn last_ms(&self) -> u64 {
        self.tick_first_ms(self.last_tick) + (self.tick_ms() - 1)
    }

    /// The first millisecond of the day that `time_ms` lies in, at the format's offset; not before 1970 in UTC.
    pub fn day_of(&self, time_ms: u64) -> u64 {
        let day = self.date_time(time_ms).date().days();
        self.day_ms(u64::try_from(day).unwrap_or(0))
    }

    /// Refuses a format whose ids cannot be made at `now_ms` (milliseconds since 1970).
    ///
    /// # Errors
    /// [`InvalidFormat::FutureEpoch`] if it has not begun, [`InvalidFormat::Ended`] if it has ended.
    pub fn check_epoch(&self, now_ms: u64) -> Result<(), InvalidFormat> {
        let [first, last, now] =
            [self.first_ms(), self.last_ms(), now_ms].map(|ms| self.date_time(ms));
        if now_ms < self.first_ms() {
            return Err(InvalidFormat::FutureEpoch { first, now });
        }
        if now_ms > self.last_ms() {
            return Err(InvalidFormat::Ended { last, now });
        }
        Ok(())
    }

    /// A time as it is written at the format's offset.
    pub fn date_time(&self, ms: u64) -> DateTime {
        DateTime::new(ms, self.spec.offset)
    }

    /// The amount that one unit of the time adds to an id.
    pub(crate) fn time_place(&self) -> u128 {
        let time = self.fields().iter().find(|field| field.kind.is_time());
        time.map_or(0, |field| field.place)
    }

    /// The first millisecond of a unit of the time: counted from the epoch, or days from 1970 on.
    pub(crate) fn tick_first_ms(&self, tick: u64) -> u64 {
        // The widths of times are limited so that this cannot overflow.
        match self.tick_ms() {
            DAY_MS => self.day_ms(tick),
            tick_ms => self.spec.epoch_ms + tick * tick_ms,
        }
    }

    /// When a day begins, counted from 1970 on. Not before 1970 in UTC.
    fn day_ms(&self, day: u64) -> u64 {
        let date = Date::from_days(i64::try_from(day).unwrap_or(i64::MAX));
        u64::try_from(DateTime::midnight_ms(date, self.spec.offset)).unwrap_or(0)
    }
}

/// Writes the full text, without the options that have their default. It parses to an equal format.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl FromStr for Format {
    type Err = InvalidFormat;

    fn from_str(text: &str) -> Result<Format, InvalidFormat> {
        Format::parse(text)
    }
}

#[cfg(test)]
mod tests;
