//! A key or a value that a row of a table gives. The row has the text itself, or names the parameter of the request that has
//! it. The author of the text is noted, because a caller is to blame for its own text alone.

use std::borrow::Cow;

use super::parameters::Parameters;
use crate::{
    node::RowPart,
    proto::{Code, Refusal, refusal},
};

/// The request of a caller.
#[derive(Debug, Clone, Copy)]
pub struct AskedName<'a> {
    /// The name of the parameter under which the caller gives the name.
    pub parameter: &'static str,
    /// The name.
    pub name: &'a str,
    /// The other parameters of the request, if rows may use them.
    pub others: Option<&'a Parameters>,
}

/// A key or a value.
#[derive(Debug)]
pub struct Said<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// The author of the text.
    pub by: WrittenBy,
}

/// The author of a key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenBy {
    /// The row.
    Row,
    /// The caller, as the name that it asks for.
    Name,
    /// The caller, in another parameter.
    Parameter,
}

/// The reason why there is no number.
#[derive(Debug)]
pub enum NoNumber {
    /// The caller said something wrong.
    Said(Refusal),
    /// Any other failure. Its code decides who is to blame.
    Other(Refusal),
}

impl From<Refusal> for NoNumber {
    fn from(refusal: Refusal) -> Self {
        NoNumber::Other(refusal)
    }
}

impl<'a> Said<'a> {
    /// The key or the value that a part of a row stands for.
    ///
    /// # Errors
    /// [`NoNumber::Said`] if the parameter is missing, or is there more than once.
    pub fn of(part: RowPart<'a>, asking: &AskedName<'a>) -> Result<Said<'a>, NoNumber> {
        match part {
            RowPart::Written(text) => Ok(Said { text: text.into(), by: WrittenBy::Row }),
            RowPart::Asked(name) if name == asking.parameter => {
                Ok(Said { text: asking.name.into(), by: WrittenBy::Name })
            }
            RowPart::Asked(name) => {
                let text = asking.others.and_then(|others| others.one(name).transpose());
                let missing = || Err(refusal!(InvalidRequest, "{name} is missing"));
                let text = text.unwrap_or_else(missing).map_err(NoNumber::Said)?;
                Ok(Said { text, by: WrittenBy::Parameter })
            }
        }
    }

    /// Whether the caller wrote the text.
    pub fn is_by_caller(&self) -> bool {
        self.by != WrittenBy::Row
    }

    /// The failure of a request with this text.
    pub fn failed(&self, refusal: Refusal) -> NoNumber {
        match self.is_by_caller() && refusal.code() == Code::InvalidArgument {
            true => NoNumber::Said(refusal),
            false => NoNumber::Other(refusal),
        }
    }
}
