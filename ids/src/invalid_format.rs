//! Why a text is no format. Pure.

use crate::{built_in::FORMATS, civil::DateTime, field::Unit};

/// How long the text of a format may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// How long the name of a field may be, in bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// How many counters a worker may have: its holder keeps them all in memory.
pub const COUNTERS_MAX: u64 = 1024;

/// Why a format is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFormat {
    /// The text is longer than [`TEXT_BYTES_MAX`].
    #[error("the format has {length} bytes: write it in at most {TEXT_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It begins with neither a unit nor the name of a built-in format.
    #[error("there is no format {word:?}: begin with bits or digits, or name one of {}", names())]
    UnknownFormat {
        /// The word.
        word: String,
    },
    /// Something other than an option follows the name of a built-in format.
    #[error(
        "{word:?} follows the name {name}: after a name write options only, or write all fields after bits or digits"
    )]
    FieldAfterName {
        /// The name of the built-in format.
        name: String,
        /// The word.
        word: String,
    },
    /// There is no such option.
    #[error(
        "there is no option {option:?}: the options are epoch, offset, text, step, counter and counter-per"
    )]
    UnknownOption {
        /// The option's name.
        option: String,
    },
    /// An option is given twice.
    #[error("the option {option} is given twice: write it once")]
    RepeatedOption {
        /// The option's name.
        option: &'static str,
    },
    /// The value of an option cannot be read.
    #[error("{option}={value:?} cannot be read: write {expected}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value as it was written.
        value: String,
        /// The values that can be read.
        expected: &'static str,
    },
    /// The epoch is a date that begins before 1970 in UTC.
    #[error("epoch={value} at offset={offset} is before 1970 in UTC: choose a later epoch")]
    EarlyEpoch {
        /// The date.
        value: String,
        /// The option offset.
        offset: String,
    },
    /// A word is no field.
    #[error(
        "{word:?} is no field: write name:width, or name:width=value for a constant, with a name of a-z, 0-9 and '-' that begins with a letter and has at most {NAME_BYTES_MAX}"
    )]
    InvalidField {
        /// The word.
        word: String,
    },
    /// Two fields have the same name.
    #[error("two fields are named {name}: name each field differently, and write each kind once")]
    RepeatedField {
        /// The field's name.
        name: String,
    },
    /// A field is empty, or wider than its kind may be.
    #[error("{name}:{width} is too wide or empty: its width is 1 to {max} {unit}")]
    Width {
        /// The field's name.
        name: String,
        /// Its width.
        width: u32,
        /// The greatest width of such a field.
        max: u32,
        /// The unit of widths.
        unit: Unit,
    },
    /// The sequence has the width 0.
    #[error("sequence:0 has no room for an id: give it a width of at least 1")]
    NoRoom,
    /// A date has another width than 8, or the format counts bits.
    #[error(
        "date:{width} in {unit} holds no date: write date:8 in a format of digits, for YYYYMMDD"
    )]
    DateWidth {
        /// Its width.
        width: u32,
        /// The unit of widths.
        unit: Unit,
    },
    /// All fields together are too wide.
    #[error(
        "the fields have {width} {unit} together: an id has at most {max}, so make some of them narrower"
    )]
    TooWide {
        /// The width of all fields.
        width: u32,
        /// The greatest width of an id.
        max: u32,
        /// The unit of widths.
        unit: Unit,
    },
    /// A constant does not fit its width.
    #[error("{name}:{width}={value} does not fit: the greatest value of this width is {max}")]
    ConstantTooLarge {
        /// The field's name.
        name: String,
        /// Its width.
        width: u32,
        /// The value.
        value: u64,
        /// The greatest value.
        max: u64,
    },
    /// A constant has the name of a kind of field.
    #[error(
        "{name} cannot be the constant {value}, because it is a kind of field: give the constant another name"
    )]
    ConstantKind {
        /// The field's name.
        name: String,
        /// The value.
        value: u64,
    },
    /// There is no field that says when an id was made.
    #[error("the format has no time: add time-s, time-ms or date")]
    NoTime,
    /// Two fields say when an id was made.
    #[error("the format has {first} and {second}: keep one of them")]
    TwoTimes {
        /// The name of the more significant one.
        first: String,
        /// The name of the other one.
        second: String,
    },
    /// There is no sequence.
    #[error("the format has no sequence, so ids of one time would be equal: add sequence:width")]
    NoSequence,
    /// The sequence is more significant than the time.
    #[error("sequence stands before {time}, so later ids could be smaller: write it after {time}")]
    SequenceBeforeTime {
        /// The time's field.
        time: String,
    },
    /// The random field is more significant than the sequence.
    #[error(
        "random stands before sequence, so later ids could be smaller: write it after sequence"
    )]
    RandomBeforeSequence,
    /// There are a worker and a key.
    #[error(
        "the format has worker and key, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields"
    )]
    WorkerAndKey,
    /// There are a worker and a date.
    #[error(
        "the format has worker and date, so ids would come from two sources: whoever holds a worker id makes the one kind, the leader the other; keep one of the fields"
    )]
    WorkerAndDate,
    /// There is a step, but no date.
    #[error("step={step} needs a date: leave it out, or use date:8 in place of the time")]
    StepWithoutDate {
        /// The step.
        step: u64,
    },
    /// The step is greater than the greatest order number.
    #[error("step={step} does not fit into sequence:{width}: choose 1 to {max}")]
    StepTooLarge {
        /// The step.
        step: u64,
        /// The width of the sequence.
        width: u32,
        /// The greatest step.
        max: u64,
    },
    /// There is no worker, and an option is about the counters of one.
    #[error(
        "{option}={value} needs a worker: without one the leader counts the ids of each key; leave it out"
    )]
    CounterWithoutWorker {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: String,
    },
    /// The values of something have a counter each that is no parameter.
    #[error("counter-per={name} names no parameter: the format's parameters are {known:?}")]
    CounterPerOther {
        /// The name that it has.
        name: String,
        /// The names of the format's parameters.
        known: Vec<String>,
    },
    /// A parameter whose values have a counter each has too many.
    #[error(
        "counter-per={name} needs {values} counters: name a parameter that has at most {COUNTERS_MAX} values"
    )]
    TooManyCounters {
        /// The parameter.
        name: String,
        /// How many values it has.
        values: u64,
    },
    /// The text cannot show the unit of widths.
    #[error(
        "text={text} does not go with {unit}: write the format in {other}, or choose another text"
    )]
    TextOfUnit {
        /// The option's value.
        text: String,
        /// The unit of widths.
        unit: Unit,
        /// The unit that they would need.
        other: Unit,
    },
    /// The width is no multiple of four letters.
    #[error(
        "text={text} needs a multiple of 20 bits, for groups of four letters of 5 bits: the fields have {width}"
    )]
    Base32Width {
        /// The option's value.
        text: String,
        /// The width of all fields, in bits.
        width: u32,
    },
    /// The width is not that of a UUID.
    #[error("text=uuid needs 128 bits: the fields have {width}")]
    UuidWidth {
        /// The width of all fields, in bits.
        width: u32,
    },
    /// The last time lies less than a day after the epoch.
    #[error(
        "ids of this format would end less than a day after its epoch: make the time wider, or the other fields narrower where a number must stay within 2^63 - 1"
    )]
    EndsAtOnce,
    /// The first time has not come.
    #[error("the format begins at {first}, and now it is {now}: choose an earlier epoch")]
    FutureEpoch {
        /// The first time.
        first: DateTime,
        /// The time that it is.
        now: DateTime,
    },
    /// The last time has passed.
    #[error(
        "the format ended at {last}, and now it is {now}: choose a later epoch, or a wider time"
    )]
    Ended {
        /// The last time.
        last: DateTime,
        /// The time that it is.
        now: DateTime,
    },
}

fn names() -> String {
    FORMATS.map(|(name, _)| name).join(", ")
}
