//! Keys, bytes and numbers in JSON. All else has proto's own mapping, which the build makes.
//!
//! An id is a string of digits. Bytes are a string, as people write names; where they are no text, they are `{"base64": ".."}`.
//! Proto's own mapping would have them in base64 always. A name that somebody wrote as it is could then be read as another one.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::{self, Display},
    str::FromStr,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::api::{Key, key::Kind};

/// The one member of the object that a name is which is no text.
const BASE64: &str = "base64";

/// Bytes in JSON.
#[derive(Debug, PartialEq)]
pub struct Text<T>(pub T);

impl<T: AsRef<[u8]>> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.as_ref();
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut object = serializer.serialize_map(Some(1))?;
                object.serialize_entry(BASE64, &BASE64_STANDARD.encode(bytes))?;
                object.end()
            }
        }
    }
}

impl<'de, T: From<Vec<u8>>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match deserializer.deserialize_any(Written)? {
            Said::Text(text) => text.into_owned().into_bytes(),
            Said::Bytes(bytes) => bytes,
            Said::Number(_) => {
                return Err(Error::custom("a number is neither a string nor base64"));
            }
        };
        Ok(Text(bytes.into()))
    }
}

/// A value of JSON that stands for bytes, a number or a key.
enum Said<'de> {
    Number(u64),
    Text(Cow<'de, str>),
    Bytes(Vec<u8>),
}

/// Reads such a value.
struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Said<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number from 0 to 2^64 - 1, or {\"base64\": \"..\"}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Said<'de>, E> {
        Ok(Said::Number(number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Said<'de>, E> {
        Ok(Said::Text(text.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Said<'de>, E> {
        Ok(Said::Text(text.to_owned().into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Said<'de>, A::Error> {
        from_base64(object).map(Said::Bytes)
    }
}

/// The bytes that an object of one member has in base64.
fn from_base64<'de, A: MapAccess<'de>>(mut object: A) -> Result<Vec<u8>, A::Error> {
    let member: Option<(String, String)> = object.next_entry()?;
    let Some((BASE64, bytes)) = member.as_ref().map(|(field, bytes)| (&**field, bytes)) else {
        return Err(Error::custom("what is no text is {\"base64\": \"..\"}"));
    };
    let bytes = BASE64_STANDARD.decode(bytes).map_err(Error::custom)?;
    match object.next_key::<String>()? {
        None => Ok(bytes),
        Some(more) => Err(Error::unknown_field(&more, &[BASE64])),
    }
}

/// A number of 64 bits as JSON has it: a string.
#[derive(Debug)]
pub struct Digits<T>(pub T);

impl<T: Display> Serialize for Digits<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A number that is read: as it is, or in a string. Digits alone: `+5` is none.
#[derive(Debug)]
pub struct Number<T>(pub T);

impl<'de, T: FromStr<Err: Display> + Deserialize<'de>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Written)? {
            Said::Number(number) => T::deserialize(number.into_deserializer()).map(Number),
            Said::Text(text) => digits(&text).map(Number).map_err(Error::custom),
            Said::Bytes(_) => Err(Error::custom(NO_DIGITS)),
        }
    }
}

const NO_DIGITS: &str = "a number is digits alone";

fn digits<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    match text.starts_with('+') {
        true => Err(NO_DIGITS.to_owned()),
        false => text.parse().map_err(|error: T::Err| error.to_string()),
    }
}

/// A type of a field that may stand in the path of a request over HTTP. It is read there as a string in JSON is.
pub trait InPath: Sized {
    /// The value that `text` stands for.
    ///
    /// # Errors
    /// The error in the text, in words.
    fn in_path(text: Cow<'_, str>) -> Result<Self, String>;
}

impl InPath for String {
    fn in_path(text: Cow<'_, str>) -> Result<String, String> {
        Ok(text.into_owned())
    }
}

impl InPath for u64 {
    fn in_path(text: Cow<'_, str>) -> Result<u64, String> {
        digits(&text)
    }
}

impl InPath for Option<Key> {
    fn in_path(text: Cow<'_, str>) -> Result<Option<Key>, String> {
        Ok(Some(Key { kind: Some(written(text)) }))
    }
}

/// Numbers by name, each of them once.
#[derive(Debug)]
pub struct NumbersByName(pub HashMap<String, Number<u64>>);

impl<'de> Deserialize<'de> for NumbersByName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NumbersByName(HashMap::new()))
    }
}

impl<'de> Visitor<'de> for NumbersByName {
    type Value = NumbersByName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<NumbersByName, A::Error> {
        while let Some((name, number)) = object.next_entry::<String, _>()? {
            if self.0.insert(name.clone(), number).is_some() {
                return Err(Error::custom(format!("{name:?} is given twice")));
            }
        }
        Ok(self)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Some(Kind::Id(id)) => serializer.collect_str(id),
            Some(Kind::Name(name)) => Text(name).serialize(serializer),
            None => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = match deserializer.deserialize_any(Written)? {
            Said::Number(id) => Kind::Id(id),
            Said::Bytes(name) => Kind::Name(name.into()),
            Said::Text(text) => written(text),
        };
        Ok(Key { kind: Some(kind) })
    }
}

/// The key that is written so. A text that looks like an id is an id. It may be meant as a name: the namespace's kind
/// decides.
fn written(text: Cow<'_, str>) -> Kind {
    let is_usual = text == "0" || !text.starts_with(['0', '+']);
    match text.parse() {
        Ok(id) if is_usual => Kind::Id(id),
        Ok(_) | Err(_) => Kind::Name(text.into_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Failure, NextIdsRequest, NextManyRequest};

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

    /// The value of a text in a path, and its value as a string in JSON.
    fn both<T: InPath + for<'de> Deserialize<'de>>(text: &str) -> [Option<T>; 2] {
        let in_json = serde_json::from_value(text.into());
        [T::in_path(text.into()).ok(), in_json.ok()]
    }

    #[test]
    fn a_field_in_a_path_is_read_as_a_string_in_json_is() {
        for text in [
            "",
            "0",
            "00",
            "7",
            "007",
            "+7",
            "-7",
            " 7",
            "7x",
            "18446744073709551615",
            "18446744073709551616",
            "abc",
            "a/b: c",
            "\u{665}",
        ] {
            let [in_path, in_json] = both::<Option<Key>>(text);
            assert_eq!(in_path, in_json, "{text}");
            let [in_path, in_json] = both::<String>(text);
            assert_eq!(in_path, in_json, "{text}");
            let in_path = u64::in_path(text.into());
            let in_json = serde_json::from_value::<Number<u64>>(text.into());
            let in_json = in_json.map(|Number(number)| number).map_err(|error| error.to_string());
            assert_eq!(in_path, in_json, "{text}");
        }
    }

    #[test]
    fn bytes_are_a_string_and_what_is_no_text_is_in_base64() {
        let ask = |names: &[&'static [u8]], id: &'static [u8]| NextManyRequest {
            names: names.iter().copied().map(Into::into).collect(),
            request_id: Some(id.into()),
            ..NextManyRequest::default()
        };
        for (asked, names, id) in [
            (ask(&[b"book", b"YQ=="], b"order-18"), r#"["book","YQ=="]"#, r#""order-18""#),
            (ask(&[b"", b"b\xff"], b"\x80"), r#"["",{"base64":"Yv8="}]"#, r#"{"base64":"gA=="}"#),
        ] {
            let json = serde_json::to_string(&asked).expect("JSON");
            assert!(json.contains(&format!(r#""names":{names}"#)), "{json}");
            assert!(json.contains(&format!(r#""request_id":{id}"#)), "{json}");
            assert_eq!(serde_json::from_str::<NextManyRequest>(&json).expect("a message"), asked);
        }
        for none in [r#"{"names":[1]}"#, r#"{"names":[null]}"#, r#"{"names":[{"x":""}]}"#] {
            serde_json::from_str::<NextManyRequest>(none).expect_err(none);
        }
    }

    #[test]
    fn a_number_is_digits_alone_and_no_name_stands_twice() {
        let read = |json: &str| serde_json::from_str::<NextIdsRequest>(json);
        for json in [
            r#"{"count":5,"parameters":{"type":"1","database":18446744073709551615}}"#,
            r#"{"count":"5","parameters":{"database":"18446744073709551615","type":1}}"#,
        ] {
            let asked = read(json).expect(json);
            assert_eq!((asked.count, asked.parameters["type"]), (Some(5), 1));
            assert_eq!(asked.parameters["database"], u64::MAX);
        }
        for none in [
            r#"{"count":"+5"}"#,
            r#"{"count":" 5"}"#,
            r#"{"count":""}"#,
            r#"{"count":-5}"#,
            r#"{"count":5.5}"#,
            r#"{"count":4294967296}"#,
            r#"{"parameters":{"type":"1","type":"1"}}"#,
            r#"{"parameters":{"type":"+1"}}"#,
            r#"{"parameters":[]}"#,
        ] {
            read(none).expect_err(none);
        }
    }

    #[test]
    fn a_reason_of_a_later_release_is_unspecified() {
        let failure = Failure { reason: 1_000_000, message: "x".into(), ..Failure::default() };
        let json = serde_json::to_string(&failure).expect("JSON");
        assert!(json.contains(r#""reason":"REASON_UNSPECIFIED""#), "{json}");
    }
}
