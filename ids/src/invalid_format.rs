//! Why a text is no format. Pure.

use crate::{built_in::built_in, civil::DateTime, field::Unit};

/// How long the text of a format may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// How long the name of a field may be, in bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// Why a format is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each one is")]
pub enum InvalidFormat {
    #[error("the format has {length} bytes: write it in at most {TEXT_BYTES_MAX}")]
    TooLong { length: usize },
    #[error(
        "there is no format {word:?}: begin with bits or digits, or name one of {}",
        names()
    )]
    UnknownFormat { word: String },
    #[error(
        "{word:?} follows the name {name}: after a name write options only, or write all fields after bits or digits"
    )]
    FieldAfterName { name: String, word: String },
    #[error("there is no option {option:?}: the options are epoch, offset, text and step")]
    UnknownOption { option: String },
    #[error("the option {option} is given twice: write it once")]
    RepeatedOption { option: &'static str },
    #[error("{option}={value} cannot be read: write {expected}")]
    InvalidOption {
        option: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("epoch={value} at offset={offset} is before 1970 in UTC: choose a later epoch")]
    EarlyEpoch { value: String, offset: String },
    #[error(
        "{word:?} is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most {NAME_BYTES_MAX}"
    )]
    InvalidField { word: String },
    #[error("two fields are named {name}: name each field differently, and write each kind once")]
    RepeatedField { name: String },
    #[error("{name}:{width} is too wide or empty: its width is 1 to {max} {unit}")]
    Width {
        name: String,
        width: u32,
        max: u32,
        unit: Unit,
    },
    #[error("sequence:0 has no room for an id: give it a width of at least 1")]
    NoRoom,
    #[error(
        "date:{width} in {unit} holds no date: write date:8 in a format of digits, for YYYYMMDD"
    )]
    DateWidth { width: u32, unit: Unit },
    #[error(
        "the fields have {width} {unit} together: an id has at most {max}, so make some of them narrower"
    )]
    TooWide { width: u32, max: u32, unit: Unit },
    #[error("{name}:{width}={value} does not fit: the greatest value of this width is {max}")]
    ConstantTooLarge {
        name: String,
        width: u32,
        value: u64,
        max: u64,
    },
    #[error(
        "{name} cannot be the constant {value}, because it is a kind of field: give the constant another name"
    )]
    ConstantKind { name: String, value: u64 },
    #[error("the format has no time: add time-s, time-ms or date")]
    NoTime,
    #[error("the format has {first} and {second}: keep one of them")]
    TwoTimes { first: String, second: String },
    #[error("the format has no sequence, so ids of one time would be equal: add sequence:width")]
    NoSequence,
    #[error("sequence stands before {time}, so later ids could be smaller: write it after {time}")]
    SequenceBeforeTime { time: String },
    #[error(
        "random stands before sequence, so later ids could be smaller: write it after sequence"
    )]
    RandomBeforeSequence,
    #[error(
        "the format has worker and key, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields"
    )]
    WorkerAndKey,
    #[error(
        "the format has worker and date, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields"
    )]
    WorkerAndDate,
    #[error("step={step} needs a date: leave it out, or use date:8 in place of the time")]
    StepWithoutDate { step: u64 },
    #[error("step={step} does not fit into sequence:{width}: choose 1 to {max}")]
    StepTooLarge { step: u64, width: u32, max: u64 },
    #[error(
        "text={text} does not go with {unit}: write the format in {other}, or choose another text"
    )]
    TextOfUnit {
        text: String,
        unit: Unit,
        other: Unit,
    },
    #[error(
        "text={text} needs a multiple of 20 bits, for groups of four letters of 5 bits: the fields have {width}"
    )]
    Base32Width { text: String, width: u32 },
    #[error("text=uuid needs 128 bits: the fields have {width}")]
    UuidWidth { width: u32 },
    #[error(
        "ids of this format would end less than a day after its epoch: make the time wider, or the other fields narrower where a number must stay within 2^63 - 1"
    )]
    EndsAtOnce,
    #[error("the format begins at {first}, and now it is {now}: choose an earlier epoch")]
    FutureEpoch { first: DateTime, now: DateTime },
    #[error(
        "the format ended at {last}, and now it is {now}: choose a later epoch, or a wider time"
    )]
    Ended { last: DateTime, now: DateTime },
}

fn names() -> String {
    let names: Vec<&str> = built_in().map(|(name, _)| name).collect();
    names.join(", ")
}
