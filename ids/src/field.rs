//! The fields of an id. Pure.

use std::fmt;

use crate::civil::DAY_MS;

/// The unit of the widths of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Binary digits: at most 128 in an id, and 63 in a field.
    Bits,
    /// Decimal digits: at most 38 in an id, and 19 in a field.
    Digits,
}

impl Unit {
    /// How wide an id may be.
    pub fn id_width_max(self) -> u32 {
        match self {
            Unit::Bits => 128,
            Unit::Digits => 38,
        }
    }

    /// How many values `width` places have. Exact up to one place less than an id may have.
    pub(crate) fn power(self, width: u32) -> u128 {
        match self {
            Unit::Bits => 1 << width,
            Unit::Digits => 10_u128.pow(width),
        }
    }

    /// The greatest value of `width` places, from 1 to as many as an id may have.
    pub(crate) fn greatest(self, width: u32) -> u128 {
        match self {
            Unit::Bits => u128::MAX >> (128 - width),
            Unit::Digits => 10_u128.pow(width) - 1,
        }
    }
}

/// Writes `bits` or `digits`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Unit::Bits => "bits",
            Unit::Digits => "digits",
        })
    }
}

/// The kind of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Seconds since the format's epoch.
    TimeS,
    /// Milliseconds since the format's epoch.
    TimeMs,
    /// A date, as the number YYYYMMDD.
    Date,
    /// Counts the ids of one time, or of a key.
    Sequence,
    /// The worker that makes the id.
    Worker,
    /// The id of the key that the id belongs to.
    Key,
    /// A number that cannot be guessed.
    Random,
    /// A value that the caller chooses.
    Parameter,
    /// The same value in each id.
    Constant(u64),
}

impl Kind {
    /// The kind that is written with this name. Any other name is a parameter's or a constant's.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "time-s" => Kind::TimeS,
            "time-ms" => Kind::TimeMs,
            "date" => Kind::Date,
            "sequence" => Kind::Sequence,
            "worker" => Kind::Worker,
            "key" => Kind::Key,
            "random" => Kind::Random,
            _ => return None,
        })
    }

    /// How long one unit of a time is, in milliseconds. `None` for a kind that is no time.
    pub(crate) fn tick_ms(self) -> Option<u64> {
        match self {
            Kind::TimeS => Some(1_000),
            Kind::TimeMs => Some(1),
            Kind::Date => Some(DAY_MS),
            _ => None,
        }
    }

    /// Whether it says when an id was made.
    pub(crate) fn is_time(self) -> bool {
        self.tick_ms().is_some()
    }

    /// How wide a field may be. Times may reach some ten thousand years, so that adding them never overflows.
    pub(crate) fn width_max(self, unit: Unit) -> u32 {
        match (self, unit) {
            (Kind::TimeS, Unit::Bits) => 40,
            (Kind::TimeS, Unit::Digits) => 12,
            (Kind::TimeMs, Unit::Bits) => 48,
            (Kind::TimeMs, Unit::Digits) => 15,
            (Kind::Date, _) => 8,
            (_, Unit::Bits) => 63,
            (_, Unit::Digits) => 19,
        }
    }
}

/// A field of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) width: u32,
    /// How many values it has.
    pub(crate) size: u64,
    /// The amount that 1 in this field adds to the id.
    pub(crate) place: u128,
}

impl Field {
    /// Its name, which no other field of the format has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of its values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How wide it is, in the format's unit.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The greatest value that fits.
    pub fn max(&self) -> u64 {
        self.size - 1
    }

    /// Its value in an id.
    pub(crate) fn of(&self, id: u128) -> u64 {
        // The remainder is below `size`, which is a u64.
        (id / self.place % u128::from(self.size)) as u64
    }

    /// The amount that `value`, which fits, adds to an id.
    pub(crate) fn put(&self, value: u64) -> u128 {
        u128::from(value) * self.place
    }
}

/// Writes `name:width`, or `name:width=value` for a constant.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.width)?;
        match self.kind {
            Kind::Constant(value) => write!(f, "={value}"),
            _ => Ok(()),
        }
    }
}
