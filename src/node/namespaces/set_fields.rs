//! The fields that a change of a namespace sets, for the audit: each under the name that its caller gave.
//!
//! Invariant: it is one line and has an end, whatever the caller writes.

use std::fmt::Display;

use crate::proto::v1;

/// How many characters of a text are told: no description and no format that may be set is cut off.
const TEXT_CHARS_MAX: usize = 1_024;

/// Fields that a call sets, as they are told: `step=200 description="orders"`.
#[derive(Default)]
struct SetFields(Vec<String>);

impl SetFields {
    /// This field is set, too, if the caller names it.
    fn with(mut self, field: &str, value: Option<impl Display>) -> SetFields {
        self.0.extend(value.map(|value| format!("{field}={value}")));
        self
    }

    /// The same of a text. It is quoted, so that it is not taken for further fields.
    fn with_text(self, field: &str, text: Option<&str>) -> SetFields {
        let beginning = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
        self.with(field, text.map(|text| format!("{:?}", beginning(text))))
    }

    /// The same of what is set if it is true, and is not named otherwise.
    fn with_flag(self, field: &str, is_set: bool) -> SetFields {
        self.with(field, is_set.then_some(true))
    }

    /// `None` if the caller names none.
    fn told(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(" "))
    }
}

/// A kind of keys as a caller names it.
fn kind(named: v1::KeyKind) -> Option<&'static str> {
    match named {
        v1::KeyKind::Unspecified => None,
        v1::KeyKind::Id => Some("id"),
        v1::KeyKind::Name => Some("name"),
    }
}

/// The fields that both messages have alike, in the order in which they are told.
macro_rules! alike {
    ($asked:ident) => {
        alike!($asked: step step_min step_max increment start max section_size count_max keys_max)
    };
    ($asked:ident: $($field:ident)*) => {
        SetFields::default()
            .with("key_kind", kind($asked.key_kind()))
            $(.with(stringify!($field), $asked.$field))*
    };
}

/// The fields with which a namespace is created. `None` if all of them are as usual.
pub(super) fn of_created(asked: &v1::CreateNamespaceRequest) -> Option<String> {
    alike!(asked)
        .with_flag("gapless", asked.gapless)
        .with_flag("request_id_optional", asked.request_id_optional)
        .with_flag("redis_strings", asked.redis_strings)
        .with_text("format", asked.format.as_deref())
        .with_text("description", asked.description.as_deref())
        .told()
}

/// The fields of a namespace that are changed. `None` if none is.
pub(super) fn of_updated(asked: &v1::UpdateNamespaceRequest) -> Option<String> {
    alike!(asked)
        .with("request_id_optional", asked.request_id_optional)
        .with("redis_strings", asked.redis_strings)
        .with_text("description", asked.description.as_deref())
        .told()
}

/// How a namespace is deleted. `None`: as usual.
pub(super) fn of_deleted(asked: &v1::DeleteNamespaceRequest) -> Option<String> {
    SetFields::default().with_flag("forget", asked.forget).told()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_reflect::{DescriptorPool, DynamicMessage, Kind, Value};

    use super::*;
    use crate::proto::PUBLIC_DESCRIPTORS;

    /// A request of this name with every field set, and those fields but the ones that say which namespace it is about.
    fn full<Q: prost::Message + Default>(name: &str) -> (Q, BTreeSet<String>) {
        let pool = DescriptorPool::decode(PUBLIC_DESCRIPTORS).expect("descriptors");
        let request = pool.get_message_by_name(&format!("ratchet.v1.{name}")).expect(name);
        let mut asked = DynamicMessage::new(request.clone());
        for field in request.fields() {
            let value = match field.kind() {
                Kind::Bool => Value::Bool(true),
                Kind::Uint64 => Value::U64(7),
                Kind::Enum(_) => Value::EnumNumber(2),
                Kind::String => Value::String("x".to_owned()),
                other => panic!("{}: {other:?}", field.full_name()),
            };
            asked.set_field(&field, value);
        }
        let names = request.fields().map(|field| field.name().to_owned());
        let which = ["name", "namespace", "confirm"];
        let set = names.filter(|name| !which.contains(&name.as_str())).collect();
        (asked.transcode_to().expect("the same message"), set)
    }

    fn names(told: Option<String>) -> BTreeSet<String> {
        let told = told.expect("fields");
        told.split(' ').map(|one| one.split('=').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_field_of_each_request_is_told_and_no_other() {
        let (asked, set) = full::<v1::CreateNamespaceRequest>("CreateNamespaceRequest");
        assert_eq!(names(of_created(&asked)), set);
        let (asked, set) = full::<v1::UpdateNamespaceRequest>("UpdateNamespaceRequest");
        assert_eq!(names(of_updated(&asked)), set);
        let (asked, set) = full::<v1::DeleteNamespaceRequest>("DeleteNamespaceRequest");
        assert_eq!(names(of_deleted(&asked)), set);
        assert_eq!(of_created(&v1::CreateNamespaceRequest::default()), None);
        assert_eq!(of_updated(&v1::UpdateNamespaceRequest::default()), None);
        assert_eq!(of_deleted(&v1::DeleteNamespaceRequest::default()), None);
    }

    #[test]
    fn a_change_is_told_as_it_is_named() {
        let asked = v1::UpdateNamespaceRequest {
            namespace: "order".to_owned(),
            step: Some(200),
            step_max: Some(0),
            redis_strings: Some(false),
            key_kind: v1::KeyKind::Name.into(),
            ..Default::default()
        };
        let told = "key_kind=name step=200 step_max=0 redis_strings=false";
        assert_eq!(of_updated(&asked).as_deref(), Some(told));
    }

    #[test]
    fn a_text_is_one_line_has_an_end_and_is_taken_for_no_other_field() {
        let asked = |description: &str| v1::CreateNamespaceRequest {
            step: Some(5),
            description: Some(description.to_owned()),
            ..Default::default()
        };
        let told = of_created(&asked("\" gapless=true\n\u{1b}[2J"));
        assert_eq!(told.as_deref(), Some(r#"step=5 description="\" gapless=true\n\u{1b}[2J""#));
        let long = of_created(&asked(&"é".repeat(1_000_000))).expect("fields");
        assert_eq!(long.chars().filter(|c| *c == 'é').count(), TEXT_CHARS_MAX);
    }
}
