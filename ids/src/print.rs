//! From an id to its text. Pure.

use std::fmt::{self, Write};

use crate::{
    field::{Field, Kind},
    format::Format,
    text_form::{Alphabet, TextForm},
};

/// An id as text. Writing it allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct Printed<'a> {
    format: &'a Format,
    id: u128,
}

impl Format {
    /// The text of an id of this format.
    pub fn print(&self, id: u128) -> Printed<'_> {
        Printed { format: self, id }
    }
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format.text_form() {
            TextForm::Number => write!(f, "{}", self.id),
            TextForm::Groups => write_groups(f, self.format.fields(), self.id),
            TextForm::Base32(alphabet) => {
                write_base32(f, alphabet, self.format.spec.width() / 5, self.id)
            }
            TextForm::Uuid => write_uuid(f, self.id),
        }
    }
}

fn write_groups(f: &mut fmt::Formatter<'_>, fields: &[Field], id: u128) -> fmt::Result {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            f.write_char('-')?;
        }
        let digits = group_digits(field).0 as usize;
        write!(f, "{:0digits$}", field.of(id))?;
    }
    Ok(())
}

/// How many digits the group of a field has, at least and at most.
pub(crate) fn group_digits(field: &Field) -> (u32, u32) {
    let is_count = field.kind().is_time() && field.kind() != Kind::Date;
    (if is_count { 1 } else { field.width() }, field.width())
}

fn write_base32(
    f: &mut fmt::Formatter<'_>, alphabet: Alphabet, letters: u32, id: u128,
) -> fmt::Result {
    for at in 0..letters {
        if at > 0 && at % 4 == 0 {
            f.write_char('-')?;
        }
        let value = id >> (5 * (letters - 1 - at)) & 31;
        f.write_char(alphabet.letters()[value as usize].into())?;
    }
    Ok(())
}

fn write_uuid(f: &mut fmt::Formatter<'_>, id: u128) -> fmt::Result {
    let (low, mid, high) = (id >> 96, id >> 80 & 0xffff, id >> 64 & 0xffff);
    write!(f, "{low:08x}-{mid:04x}-{high:04x}")?;
    write!(f, "-{:04x}-{:012x}", id >> 48 & 0xffff, id & 0xffff_ffff_ffff)
}
