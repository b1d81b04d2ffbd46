//! Why a text or a number is no id of a format. Pure.

/// Why a text or a number is no id of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There is no text.
    #[error("the id is empty: write it as ids of the format are printed")]
    Empty,
    /// The text is longer than that of any id.
    #[error("the text has {length} bytes, and no id has more than {max}: give one id alone")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The greatest length in bytes.
        max: usize,
    },
    /// A letter does not belong where it stands.
    #[error(
        "the letter {letter:?} at place {at} does not belong there: check the id, and that it is one of this format"
    )]
    Letter {
        /// The letter.
        letter: char,
        /// Its place, from 1 on.
        at: usize,
    },
    /// The text is too short or too long for its form.
    #[error(
        "the id has {length} letters, not {expected}: check that it is whole, and of this format"
    )]
    Length {
        /// How many letters it has.
        length: usize,
        /// How many it should have.
        expected: usize,
    },
    /// There are too few or too many groups.
    #[error(
        "the id has {found} groups, not {expected}: check that it is whole, and of this format"
    )]
    Groups {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A group has too few or too many digits.
    #[error("the group {group:?} is no {field}: its width is {width}")]
    GroupWidth {
        /// The field's name.
        field: String,
        /// The group as it was written.
        group: String,
        /// The width of the field.
        width: u32,
    },
    /// A number or a time begins with a zero.
    #[error("the id has a zero in front: leave it out, or check that the id is of this format")]
    LeadingZero,
    /// The id is greater than any of the format.
    #[error("the id is too large: the greatest one of this format is {max}")]
    TooLarge {
        /// The greatest one that fits.
        max: u128,
    },
    /// The id is 0.
    #[error("0 is no id: the first one is greater")]
    Zero,
    /// A constant differs.
    #[error("{field} is {found}, not {expected}: the id is of another format")]
    Constant {
        /// The field's name.
        field: String,
        /// Its value in the id.
        found: u64,
        /// Its value in the format.
        expected: u64,
    },
    /// The date is no day of the calendar, or lies before 1970.
    #[error("there is no date {value} from 1970 on: the id is of another format")]
    NoSuchDate {
        /// The number, YYYYMMDD.
        value: u64,
    },
}
