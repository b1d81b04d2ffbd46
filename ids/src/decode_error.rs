//! Why a text or a number is no id of a format. Pure.

/// Why a text or a number is no id of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each one is")]
pub enum DecodeError {
    #[error("the id is empty: write it as ids of the format are printed")]
    Empty,
    #[error("the text has {length} bytes, and no id has more than {max}: give one id alone")]
    TooLong { length: usize, max: usize },
    #[error(
        "the letter {letter:?} at place {at} does not belong there: check the id, and that it is one of this format"
    )]
    Letter { letter: char, at: usize },
    #[error(
        "the id has {length} letters, not {expected}: check that it is whole, and of this format"
    )]
    Length { length: usize, expected: usize },
    #[error(
        "the id has {found} groups, not {expected}: check that it is whole, and of this format"
    )]
    Groups { found: usize, expected: usize },
    #[error("the group {group:?} is no {field}: its width is {width}")]
    GroupWidth {
        field: String,
        group: String,
        width: u32,
    },
    #[error("the id has a zero in front: leave it out, or check that the id is of this format")]
    LeadingZero,
    #[error("the id is too large: the greatest one of this format is {max}")]
    TooLarge { max: u128 },
    #[error("0 is no id: the first one is greater")]
    Zero,
    #[error("{field} is {found}, not {expected}: the id is of another format")]
    Constant {
        field: String,
        found: u64,
        expected: u64,
    },
    #[error("there is no date {value} from 1970 on: the id is of another format")]
    NoSuchDate { value: u64 },
}
