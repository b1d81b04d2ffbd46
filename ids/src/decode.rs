//! From an id to its parts. Pure.

use crate::{
    civil::{Date, DateTime},
    decode_error::DecodeError,
    encode::Parts,
    field::{Field, Kind},
    format::Format,
    read::read,
};

/// An id, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    format: &'a Format,
    id: u128,
    parts: Parts,
}

impl Format {
    /// Takes the text of an id apart. Letters may be in either case.
    ///
    /// # Errors
    /// [`DecodeError`] if it is no id of this format.
    pub fn decode(&self, text: &str) -> Result<Decoded<'_>, DecodeError> {
        self.decode_number(read(self, text)?)
    }

    /// Takes an id apart.
    ///
    /// # Errors
    /// [`DecodeError`] if it is no id of this format.
    pub fn decode_number(&self, id: u128) -> Result<Decoded<'_>, DecodeError> {
        if id == 0 {
            return Err(DecodeError::Zero);
        }
        if id > self.id_max {
            return Err(DecodeError::TooLarge { max: self.id_max });
        }
        let mut parts = Parts::default();
        for field in self.fields() {
            let value = field.of(id);
            match field.kind() {
                Kind::TimeS | Kind::TimeMs => parts.time_ms = self.tick_first_ms(value),
                Kind::Date => parts.time_ms = self.tick_first_ms(day(value)?),
                Kind::Sequence => parts.sequence = value,
                Kind::Worker => parts.worker = value,
                Kind::Random => parts.random = value,
                Kind::Constant(expected) if value != expected => {
                    return Err(DecodeError::Constant {
                        field: field.name().to_owned(),
                        found: value,
                        expected,
                    });
                }
                Kind::Key | Kind::Parameter | Kind::Constant(_) => {}
            }
        }
        Ok(Decoded { format: self, id, parts })
    }
}

/// The day from 1970 on that is written as the number YYYYMMDD.
fn day(number: u64) -> Result<u64, DecodeError> {
    let date = Date::from_number(number);
    let day = date.and_then(|date| u64::try_from(date.days()).ok());
    day.ok_or(DecodeError::NoSuchDate { value: number })
}

impl<'a> Decoded<'a> {
    /// The id as a number.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// The fields and their values, the most significant one first.
    pub fn fields(&self) -> impl Iterator<Item = (&'a Field, u64)> {
        let id = self.id;
        self.format.fields().iter().map(move |field| (field, field.of(id)))
    }

    /// The value of the field with this name.
    pub fn value(&self, name: &str) -> Option<u64> {
        let mut fields = self.fields();
        let found = fields.find(|(field, _)| field.name() == name);
        found.map(|(_, value)| value)
    }

    /// The time at which it was made, the worker that made it, and which one of that time it is. The time is the first
    /// millisecond of the id's second or date.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// The time of the id, as it is written at the format's offset.
    pub fn date_time(&self) -> DateTime {
        self.format.date_time(self.parts.time_ms)
    }
}

#[cfg(test)]
mod tests;
