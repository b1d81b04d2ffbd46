//! Ids that hold a time, a counter and more: their formats as data, and how they are made, printed and read.
//!
//! Pure: no I/O, no clock, no async. Time is an argument, in milliseconds since 1970. Arithmetic is on integers, and
//! no id comes twice: a value that does not fit is refused, and a counter that is used up waits for the next unit of
//! time.
//!
//! - [`Format`] has the fields of an id. It is written as one line, or by the name of a built-in one.
//! - [`Generator`] makes ids for the holder of a worker id, within the times that were leased to it.
//! - [`SteadyTime`] makes a time that never goes back from a clock that may jump.
//!
//! ```
//! # use ratchet_ids::Format;
//! let format = Format::parse("rongcloud")?;
//! let id = format.decode("BD8U-FCOJ-LDC5-L789")?;
//! assert_eq!(id.date_time().to_string(), "2019-09-19T03:44:12.366Z");
//! assert_eq!(id.value("key"), Some(1_744_137));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bounds;
mod built_in;
mod check;
mod civil;
mod decode;
mod decode_error;
mod encode;
mod explain;
mod field;
mod format;
mod generator;
mod generators;
mod holder;
mod invalid_format;
mod lease;
mod parse;
mod print;
mod read;
mod shortage;
mod spec;
mod steady_time;
mod text_form;

pub use self::{
    civil::{DAY_MS, Date, DateTime, Offset},
    decode::Decoded,
    decode_error::DecodeError,
    encode::{EncodeError, Fixed, Parts},
    explain::FormatExplanation,
    field::{Field, Kind, Unit},
    format::{Format, Source},
    generator::{Generator, NotYet, Run},
    holder::{Holder, Wait},
    invalid_format::{InvalidFormat, NAME_BYTES_MAX, TEXT_BYTES_MAX},
    lease::{Ask, GrantedLease, HeldWorker},
    print::Printed,
    steady_time::SteadyTime,
    text_form::{Alphabet, TextForm},
};
