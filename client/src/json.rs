//! A key in JSON. The other messages have proto's own mapping, which the build makes.
//!
//! An id is a string of digits, and a name a string. A name that is no text is `{"base64": ".."}`.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::api::{Key, key::Kind};

/// The one member of the object that a name is which is no text.
const BASE64: &str = "base64";

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match &self.kind {
            Some(Kind::Id(id)) => return serializer.collect_str(id),
            Some(Kind::Name(name)) => name,
            None => return serializer.serialize_none(),
        };
        match std::str::from_utf8(name) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut object = serializer.serialize_map(Some(1))?;
                object.serialize_entry(BASE64, &BASE64_STANDARD.encode(name))?;
                object.end()
            }
        }
    }
}

/// A string that is written as an id is written is an id. It may be meant as a name: the namespace's kind decides.
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = deserializer.deserialize_any(Written)?;
        Ok(Key { kind: Some(kind) })
    }
}

/// What may be written for a key.
struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: a string, a number from 0 to 2^64 - 1, or {\"base64\": \"..\"}")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Kind, E> {
        Ok(Kind::Id(id))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Kind, E> {
        let id = text.parse::<u64>().ok().filter(|id| id.to_string() == text);
        Ok(id.map_or_else(|| Kind::Name(text.as_bytes().to_vec().into()), Kind::Id))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Kind, A::Error> {
        let member: Option<(String, String)> = object.next_entry()?;
        let Some((BASE64, name)) = member.as_ref().map(|(field, name)| (&**field, name)) else {
            return Err(Error::custom("a name that is no text is {\"base64\": \"..\"}"));
        };
        let name = BASE64_STANDARD.decode(name).map_err(Error::custom)?;
        match object.next_key::<String>()? {
            None => Ok(Kind::Name(name.into())),
            Some(more) => Err(Error::unknown_field(&more, &[BASE64])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_string_and_a_name_that_is_no_text_is_in_base64() {
        let id = |id| Key { kind: Some(Kind::Id(id)) };
        let name = |name: &'static [u8]| Key { kind: Some(Kind::Name(name.into())) };
        for (key, json) in [
            (id(u64::MAX), r#""18446744073709551615""#),
            (name(b"a/b \"c\""), r#""a/b \"c\"""#),
            (name(b"007"), r#""007""#),
            (name(b""), r#""""#),
            (name(b"b\xff"), r#"{"base64":"Yv8="}"#),
        ] {
            assert_eq!(serde_json::to_string(&key).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Key>(json).expect("a key"), key);
        }
        assert_eq!(serde_json::from_str::<Key>("42").expect("a key"), id(42));
        for none in
            [r#"{}"#, r#"{"base64":"?"}"#, r#"{"base64":"","x":""}"#, r#"{"x":""}"#, "-1", "[]"]
        {
            serde_json::from_str::<Key>(none).expect_err(none);
        }
    }
}
