//! What stands in a row of a table in the place of a key or a value: the row says it, or the caller does, in a parameter that
//! the row names.

use std::borrow::Cow;

use super::parameters::Parameters;
use crate::{
    node::RowPart,
    proto::{Code, Refusal, refusal},
};

/// A key or a value.
#[derive(Debug)]
pub struct Said<'a> {
    /// As it is written.
    pub text: Cow<'a, str>,
    /// Whether the caller wrote it.
    by_caller: bool,
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
    /// What a part of a row stands for. Without parameters a caller says nothing, and braces are letters as others.
    ///
    /// # Errors
    /// [`NoNumber::Said`] if the parameter is missing, or there more than once.
    pub fn of(part: RowPart<'a>, asked: Option<&'a Parameters>) -> Result<Said<'a>, NoNumber> {
        let written = |text| Ok(Said { text, by_caller: false });
        match (part, asked) {
            (RowPart::Written(text), _) => written(text.into()),
            (RowPart::Asked(name), None) => written(format!("{{{name}}}").into()),
            (RowPart::Asked(name), Some(asked)) => {
                let text = asked.one(name).map_err(NoNumber::Said)?;
                let missing = || refusal!(InvalidRequest, "{name} is missing");
                let text = text.ok_or_else(|| NoNumber::Said(missing()))?;
                Ok(Said { text, by_caller: true })
            }
        }
    }

    /// Whether the caller wrote it.
    pub fn is_by_caller(&self) -> bool {
        self.by_caller
    }

    /// A failure of a request for it.
    pub fn failed(&self, refusal: Refusal) -> NoNumber {
        match self.by_caller && refusal.code() == Code::InvalidArgument {
            true => NoNumber::Said(refusal),
            false => NoNumber::Other(refusal),
        }
    }
}
