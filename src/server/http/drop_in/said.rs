//! The key or the value that a row of a table gives: the row has it written, or names the parameter of the request that has it.

use std::borrow::Cow;

use super::parameters::Parameters;
use crate::{
    node::RowPart,
    proto::{Code, Refusal, refusal},
};

/// What a caller says.
#[derive(Debug, Clone, Copy)]
pub struct AskedName<'a> {
    /// How rows call the name that is asked for.
    pub parameter: &'static str,
    /// The name.
    pub name: &'a str,
    /// What else the request says, if rows may take that.
    pub others: Option<&'a Parameters>,
}

/// A key or a value.
#[derive(Debug)]
pub struct Said<'a> {
    /// As it is written.
    pub text: Cow<'a, str>,
    /// Who wrote it.
    pub by: WrittenBy,
}

/// Who wrote a key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenBy {
    /// The row.
    Row,
    /// The caller, as the name that is asked for.
    Name,
    /// The caller, in another parameter.
    Parameter,
}

/// Why there is no number.
#[derive(Debug)]
pub enum NoNumber {
    /// The caller said something wrong.
    Said(Refusal),
    /// Anything else. Who is to blame depends on its code.
    Other(Refusal),
}

impl From<Refusal> for NoNumber {
    fn from(refusal: Refusal) -> Self {
        NoNumber::Other(refusal)
    }
}

impl<'a> Said<'a> {
    /// What a part of a row stands for.
    ///
    /// # Errors
    /// [`NoNumber::Said`] if the parameter is missing, or there more than once.
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

    /// Whether the caller wrote it.
    pub fn is_by_caller(&self) -> bool {
        self.by != WrittenBy::Row
    }

    /// A failure of a request for it.
    pub fn failed(&self, refusal: Refusal) -> NoNumber {
        match self.is_by_caller() && refusal.code() == Code::InvalidArgument {
            true => NoNumber::Said(refusal),
            false => NoNumber::Other(refusal),
        }
    }
}
