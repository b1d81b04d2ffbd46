//! How ids are written. Pure.

use std::fmt;

/// How ids are written as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextForm {
    /// As one number, from 1 to 2^63 - 1.
    #[default]
    Number,
    /// As the decimal values of the fields, with `-` between them. Each has all its digits, but for a time in seconds
    /// or milliseconds.
    Groups,
    /// In base 32, five bits for each letter, in groups of four letters with `-` between them.
    Base32(Alphabet),
    /// As a UUID: 32 hexadecimal digits in lower case, in groups of 8, 4, 4, 4 and 12.
    Uuid,
}

const FORMS: [(&str, TextForm); 5] = [
    ("number", TextForm::Number),
    ("groups", TextForm::Groups),
    ("base32", TextForm::Base32(Alphabet::Ordered)),
    ("base32-unambiguous", TextForm::Base32(Alphabet::Unambiguous)),
    ("uuid", TextForm::Uuid),
];

impl TextForm {
    /// The form that is written as this name.
    pub(crate) fn parse(name: &str) -> Option<TextForm> {
        let found = FORMS.into_iter().find(|(own, _)| *own == name);
        found.map(|(_, form)| form)
    }
}

/// Writes the form's name, such as `base32`.
impl fmt::Display for TextForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FORMS.into_iter().find(|(_, form)| form == self);
        f.pad(found.map_or("", |(name, _)| name))
    }
}

/// The letters of base 32. In both alphabets they are in the order of ASCII, so that texts sort as their ids do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// `0` to `9` and `A` to `V`.
    Ordered,
    /// `2` to `9` and `A` to `Z`, without `I` and `O`, which look like digits.
    Unambiguous,
}

impl Alphabet {
    /// The letters, for the values 0 to 31.
    pub(crate) fn letters(self) -> &'static [u8; 32] {
        match self {
            Alphabet::Ordered => b"0123456789ABCDEFGHIJKLMNOPQRSTUV",
            Alphabet::Unambiguous => b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ",
        }
    }

    /// The value of a letter, in either case.
    pub(crate) fn value(self, letter: char) -> Option<u128> {
        let letter = letter.to_ascii_uppercase();
        let mut letters = self.letters().iter();
        let at = letters.position(|own| char::from(*own) == letter)?;
        Some(at as u128)
    }
}
