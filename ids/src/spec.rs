//! The options and fields in the text of a format. Pure.

use std::fmt;

use crate::{
    civil::{DateTime, Offset},
    field::{Field, Kind, Unit},
    text_form::TextForm,
};

/// The options and fields in the text of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub unit: Unit,
    /// Milliseconds since 1970.
    pub epoch_ms: u64,
    pub offset: Offset,
    pub text: TextForm,
    /// The distance of order numbers, in formats with a date; otherwise 1.
    pub step: u64,
    /// Whether the counter goes on where it stood, in the next unit of time.
    pub runs_on: bool,
    /// The parameter whose values have a counter each.
    pub counter_per: Option<String>,
    /// The most significant one first.
    pub fields: Vec<Field>,
}

impl Spec {
    /// The field of a kind, other than kinds that a format may have many of.
    pub fn field(&self, kind: Kind) -> Option<&Field> {
        self.fields.iter().find(|field| field.kind == kind)
    }

    /// The parameter whose values have a counter each.
    pub fn counted_by(&self) -> Option<&Field> {
        let name = self.counter_per.as_ref()?;
        let mut parameters = self.fields.iter().filter(|field| field.kind == Kind::Parameter);
        parameters.find(|field| field.name == *name)
    }

    /// How long one unit of the time is, in milliseconds: 1, 1000, or a day.
    pub fn tick_ms(&self) -> u64 {
        let mut ticks = self.fields.iter().filter_map(|field| field.kind.tick_ms());
        ticks.next().unwrap_or(1)
    }

    /// The width of all fields together.
    pub fn width(&self) -> u32 {
        self.fields.iter().map(|field| field.width).sum()
    }
}

/// Writes the full text. Options that have their default are left out.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.unit)?;
        let epoch = DateTime::new(self.epoch_ms, self.offset);
        match self.epoch_ms {
            0 => {}
            _ if epoch.is_midnight() => write!(f, " epoch={}", epoch.date())?,
            ms => write!(f, " epoch={ms}")?,
        }
        if self.offset != Offset::default() {
            write!(f, " offset={}", self.offset)?;
        }
        if self.text != TextForm::default() {
            write!(f, " text={}", self.text)?;
        }
        if self.step != 1 {
            write!(f, " step={}", self.step)?;
        }
        if self.runs_on {
            write!(f, " counter=runs-on")?;
        }
        if let Some(parameter) = &self.counter_per {
            write!(f, " counter-per={parameter}")?;
        }
        for field in &self.fields {
            write!(f, " {field}")?;
        }
        Ok(())
    }
}
