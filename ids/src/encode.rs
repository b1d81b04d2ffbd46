//! From the parts of an id to the id. Pure.

use crate::{
    civil::{DAY_MS, DateTime},
    field::{Field, Kind},
    format::{Format, Source},
};

/// The parts of an id, other than those that its caller chooses. A field that the format does not have is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// When, in milliseconds since 1970. The id holds the second or the date that it lies in.
    pub time_ms: u64,
    /// The worker that makes it.
    pub worker: u64,
    /// Which one of that time it is, from 0 on; with a date, the order number.
    pub sequence: u64,
    /// The number that cannot be guessed.
    pub random: u64,
}

/// The part of an id that its caller chooses: parameters and the key. Made by [`Format::fixed`], for ids of that format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The amount that it adds to an id.
    pub(crate) id: u128,
    /// Which of a worker's counters counts the id.
    pub(crate) counter: usize,
}

/// Why an id cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value does not fit its field. A field that the format does not have holds 0 alone.
    #[error("{field} {value} does not fit: the greatest value is {max}")]
    TooLarge {
        /// The field's name.
        field: String,
        /// The value.
        value: u64,
        /// The greatest one that fits.
        max: u64,
    },
    /// The time lies before [`Format::first_ms`].
    #[error(
        "the time {time} is before the format's first one, {first}: check the clock, or the format's epoch"
    )]
    BeforeEpoch {
        /// The time.
        time: DateTime,
        /// The first time.
        first: DateTime,
    },
    /// The time lies after [`Format::last_ms`].
    #[error("the time {time} is after the format's last one, {last}: ids need another format")]
    Ended {
        /// The time.
        time: DateTime,
        /// The last time.
        last: DateTime,
    },
    /// A parameter has no value.
    #[error("the parameter {name} is missing: give it a value from 0 to {max}")]
    MissingParameter {
        /// The parameter's name.
        name: String,
        /// The greatest value.
        max: u64,
    },
    /// The format has no such parameter.
    #[error("there is no parameter {name:?}: the format's parameters are {known:?}")]
    UnknownParameter {
        /// The parameter's name.
        name: String,
        /// The names of the format's parameters.
        known: Vec<String>,
    },
    /// A parameter is given twice.
    #[error("the parameter {name} is given twice: give it once")]
    RepeatedParameter {
        /// The parameter's name.
        name: String,
    },
    /// The format has a field for the key, and there is none, or it has no id.
    #[error(
        "the key has no id, and the format has a field for it: use a key with an id from 0 to {max}"
    )]
    MissingKey {
        /// The greatest value.
        max: u64,
    },
    /// The format has no worker.
    #[error(
        "the format has no worker, so its ids are made by the leader alone: ask a node for them"
    )]
    NoWorker,
}

impl Format {
    /// The part of an id that its caller chooses: a value for each parameter, and the id of the key. A format without a
    /// field for the key leaves it out.
    ///
    /// # Errors
    /// [`EncodeError`] if a parameter is missing, unknown, given twice or too large, or the key is missing or too large.
    pub fn fixed(
        &self, parameters: &[(&str, u64)], key: Option<u64>,
    ) -> Result<Fixed, EncodeError> {
        self.check_parameters(parameters)?;
        let mut fixed = Fixed::default();
        for field in self.fields() {
            let value = match field.kind() {
                Kind::Parameter => {
                    let mut given = parameters.iter();
                    let given = given.find(|(name, _)| *name == field.name());
                    let missing = || EncodeError::MissingParameter {
                        name: field.name().to_owned(),
                        max: field.max(),
                    };
                    given.ok_or_else(missing)?.1
                }
                Kind::Key => key.ok_or(EncodeError::MissingKey { max: field.max() })?,
                _ => continue,
            };
            fixed.id += fitting(field, value)?;
            if Some(field.name()) == self.counter_per() {
                // It has at most 1 024 values.
                fixed.counter = value as usize;
            }
        }
        Ok(fixed)
    }

    fn check_parameters(&self, parameters: &[(&str, u64)]) -> Result<(), EncodeError> {
        for (at, (name, _)) in parameters.iter().enumerate() {
            if !self.parameters().any(|known| known == *name) {
                return Err(EncodeError::UnknownParameter {
                    name: (*name).to_owned(),
                    known: self.parameters().map(str::to_owned).collect(),
                });
            }
            if parameters[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(EncodeError::RepeatedParameter { name: (*name).to_owned() });
            }
        }
        Ok(())
    }

    /// Makes an id.
    ///
    /// # Errors
    /// [`EncodeError`] if the time lies outside of the format, or a part does not fit.
    pub fn encode(&self, parts: &Parts, fixed: Fixed) -> Result<u128, EncodeError> {
        let mut absent =
            [(Kind::Worker, "worker", parts.worker), (Kind::Random, "random", parts.random)]
                .into_iter()
                .filter(|(kind, ..)| self.field(*kind).is_none());
        if let Some((_, name, value)) = absent.find(|(.., value)| *value > 0) {
            return Err(EncodeError::TooLarge { field: name.to_owned(), value, max: 0 });
        }
        let mut id = self.constants + fixed.id;
        for field in self.fields() {
            let value = match field.kind() {
                Kind::TimeS | Kind::TimeMs | Kind::Date => self.time_value(parts.time_ms)?,
                Kind::Sequence => parts.sequence,
                Kind::Worker => parts.worker,
                Kind::Random => parts.random,
                Kind::Key | Kind::Parameter | Kind::Constant(_) => continue,
            };
            id += fitting(field, value)?;
        }
        Ok(id)
    }

    /// The value of the time's field at `time_ms`.
    fn time_value(&self, time_ms: u64) -> Result<u64, EncodeError> {
        self.check_time(time_ms)?;
        Ok(match self.tick_ms() {
            DAY_MS => self.date_time(time_ms).date().as_number(),
            tick_ms => (time_ms - self.spec.epoch_ms) / tick_ms,
        })
    }

    /// Refuses a time that ids cannot hold, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`EncodeError::BeforeEpoch`], [`EncodeError::Ended`].
    pub fn check_time(&self, time_ms: u64) -> Result<(), EncodeError> {
        let time = self.date_time(time_ms);
        if time_ms < self.first_ms() {
            let first = self.date_time(self.first_ms());
            return Err(EncodeError::BeforeEpoch { time, first });
        }
        if time_ms > self.last_ms() {
            let last = self.date_time(self.last_ms());
            return Err(EncodeError::Ended { time, last });
        }
        Ok(())
    }

    /// The first number of a key's sequence at `time_ms`, in a format of [`Source::Key`](crate::Source::Key). Its numbers
    /// count the ids of the key: time x capacity + counter.
    ///
    /// # Errors
    /// [`EncodeError`] if the time lies outside of the format.
    pub fn number_at(&self, time_ms: u64) -> Result<u64, EncodeError> {
        // The format ends before this product exceeds 2^63 - 1.
        self.time_value(time_ms).map(|tick| tick.saturating_mul(self.capacity()))
    }

    /// The last number of a key's sequence that belongs to the same unit of time as `number`, in a format of
    /// [`Source::Key`](crate::Source::Key).
    pub fn last_number_beside(&self, number: u64) -> u64 {
        number - number % self.capacity() + (self.capacity() - 1)
    }

    /// The greatest number of a key's sequence that has an id. Of a format with a worker, which has no such numbers, 0.
    pub fn number_max(&self) -> u64 {
        match self.source() {
            Source::Worker => 0,
            // The numbers are those of `number_at`.
            Source::Key => {
                let last = self.number_at(self.last_ms()).unwrap_or(0);
                self.last_number_beside(last)
            }
            Source::Date => self.capacity(),
        }
    }

    /// A random value that fits the field for it; 0 if the format has none. All bits of `random` should be random.
    pub fn fitting_random(&self, random: u64) -> u64 {
        (self.field(Kind::Random)).map_or(0, |field| random % field.size)
    }

    /// The parts of the id with this number of the key's sequence. In a format of
    /// [`Source::Key`](crate::Source::Key) the number says when; in one of [`Source::Date`](crate::Source::Date) it is
    /// `date_ms`, in milliseconds since 1970.
    pub fn parts_of_number(&self, number: u64, date_ms: u64) -> Parts {
        if self.source() == Source::Date {
            return Parts {
                time_ms: date_ms,
                sequence: number.saturating_mul(self.step()),
                ..Parts::default()
            };
        }
        let (tick, sequence) = (number / self.capacity(), number % self.capacity());
        let since_epoch = tick.saturating_mul(self.tick_ms());
        Parts {
            time_ms: self.spec.epoch_ms.saturating_add(since_epoch),
            sequence,
            ..Parts::default()
        }
    }
}

/// The amount that a value adds to an id, if it fits.
pub(crate) fn fitting(field: &Field, value: u64) -> Result<u128, EncodeError> {
    if value > field.max() {
        return Err(EncodeError::TooLarge {
            field: field.name().to_owned(),
            value,
            max: field.max(),
        });
    }
    Ok(field.put(value))
}

#[cfg(test)]
mod tests;
