//! How numbers are written: as strings, or as JSON's numbers if the caller asks for that.

use std::fmt::Display;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, OneOfBuilder, RefOr,
        schema::{Schema, Type},
    },
};

use crate::{
    proto::{Refusal, refusal},
    server::written::integer,
};

/// The form in which a caller wants numbers: `?numbers=...`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// "9007199254740993".
    #[default]
    String,
    /// 9007199254740993.
    Number,
}

/// What may follow the question mark where nothing but the form of numbers can be chosen.
pub const SHOWN: &str = "numbers=string, or numbers=number";

/// What follows the question mark where nothing but the form of numbers can be chosen.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The form of numbers in the answer.
    #[serde(default)]
    pub numbers: Form,
}

/// A number in the form that the caller wants.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub u64, pub Form);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            Form::String => serializer.serialize_str(itoa::Buffer::new().format(self.0)),
            Form::Number => serializer.serialize_u64(self.0),
        }
    }
}

/// A number as callers may give it: as a string, or as JSON's number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Given {
    /// As JSON's number.
    Number(u64),
    /// As a string.
    Text(String),
}

impl PartialSchema for Number {
    fn schema() -> RefOr<Schema> {
        either("A number: a string unless numbers are asked for as numbers.")
    }
}

impl ToSchema for Number {}

impl PartialSchema for Given {
    fn schema() -> RefOr<Schema> {
        either("A number, as a string or as a number.")
    }
}

impl ToSchema for Given {}

/// The schema of a number in either form.
fn either(description: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]{1,20}$"));
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let either = OneOfBuilder::new().item(text).item(number);
    either.description(Some(description)).into()
}

impl Given {
    /// The number. `what` it is and the `least` that it may be are for an error.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is none.
    pub fn number(&self, what: impl Display, least: u64) -> Result<u64, Refusal> {
        match self {
            Given::Number(number) => Ok(*number),
            Given::Text(text) => integer(text.as_bytes()).ok_or_else(|| {
                refusal!(InvalidRequest, "{what} is {text:?}; give an integer from {least} on")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strings_unless_asked_for_as_numbers_and_may_be_given_as_either() {
        let big = (1 << 53) + 1;
        let written = |form| serde_json::to_string(&Number(big, form)).unwrap();
        assert_eq!(written(Form::String), "\"9007199254740993\"");
        assert_eq!(written(Form::Number), "9007199254740993");
        for json in ["\"9007199254740993\"", "9007199254740993"] {
            let given: Given = serde_json::from_str(json).unwrap();
            assert_eq!(given.number("count", 1).unwrap(), big);
        }
        let refused = Given::Text("-1".to_owned()).number("count", 1).unwrap_err();
        assert_eq!(refused.message(), "count is \"-1\"; give an integer from 1 on");
    }
}
