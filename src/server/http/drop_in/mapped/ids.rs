//! Ids of a namespace with a format. A row of a table gives their key and their parameters, as in `key=42,table=0`. A value
//! that does not fit is the caller's mistake if the caller gave it, and else the operator's.

use std::{collections::HashMap, sync::Arc};

use ratchet_ids::{EncodeError, Format, Source};

use super::Mapped;
use crate::{
    node::{NEXT_IDS, NodeContext, RowPart, id_format, row_fields, to_key},
    proto::{Refusal, refusal, v1::NextIdsRequest},
    sequence::{OwnedKey, Verb, Wanted},
    server::{
        http::{
            drop_in::said::{AskedName, NoNumber, Said},
            headers::Due,
        },
        written::{integer, shown},
    },
};

/// The name of the key among the parameters of a format. No parameter has this name.
const KEY: &str = "key";

/// The key and the parameters of the format, as a row gives them.
#[derive(Debug, Default)]
struct Chosen<'a> {
    key: Option<Said<'a>>,
    parameters: Vec<(&'a str, Said<'a>)>,
}

impl<'a> Chosen<'a> {
    /// Reads a row for a format, such as `key=42,table=0`. A row without `=` is the key. In a format with a worker such a row
    /// may be anything, since the ids have no key.
    fn of(row: &'a str, format: &Format, asking: &AskedName<'a>) -> Result<Chosen<'a>, NoNumber> {
        let fields = row_fields(row).map_err(|part| {
            refusal!(
                InvalidRequest,
                "'{}' of '{}' gives no parameter of a format; write name=value,name=value",
                shown(part.as_bytes()),
                shown(row.as_bytes())
            )
        })?;
        let mut chosen = Chosen::default();
        if fields.is_empty() && format.source() != Source::Worker {
            chosen.key = Some(Said::of(RowPart::of(row), asking)?);
        }
        for (name, part) in fields {
            let said = Said::of(part, asking)?;
            match name {
                KEY => chosen.key = Some(said),
                _ => chosen.parameters.push((name, said)),
            }
        }
        Ok(chosen)
    }

    /// The values of the parameters.
    fn values(&self) -> Result<Vec<(&'a str, u64)>, NoNumber> {
        let values = self.parameters.iter().map(|(name, said)| {
            let wrong = || {
                refusal!(
                    InvalidRequest,
                    "{name} is '{}'; give an integer",
                    shown(said.text.as_bytes())
                )
            };
            let value = integer(said.text.as_bytes());
            Ok((*name, value.ok_or_else(|| said.failed(wrong()))?))
        });
        values.collect()
    }

    /// Whether the caller gave the value of a field.
    fn is_by_caller(&self, field: &str) -> bool {
        let key = self.key.iter().map(|said| (KEY, said));
        let parameters = self.parameters.iter().map(|(name, said)| (*name, said));
        let mut all = key.chain(parameters);
        all.any(|(name, said)| name == field && said.is_by_caller())
    }

    /// The reason why the format has no such ids.
    fn unfit(&self, error: &EncodeError) -> NoNumber {
        let refusal = refusal!(InvalidRequest, "{error}");
        match error {
            EncodeError::TooLarge { field, .. } if self.is_by_caller(field) => {
                NoNumber::Said(refusal)
            }
            _ => NoNumber::Other(refusal),
        }
    }
}

impl Mapped<'_> {
    /// The next id of the namespace, as the row says.
    pub(super) async fn next_id(
        &self, context: &Arc<NodeContext>, format: &Format, due: &Due,
    ) -> Result<u64, NoNumber> {
        let chosen = Chosen::of(self.row, format, &self.asking)?;
        let parameters = chosen.values()?;
        let of = match &chosen.key {
            None => None,
            Some(said) => Some(self.key(context, said, due).await?.0),
        };
        let id = match of {
            Some(OwnedKey::Id(id)) => Some(id),
            Some(OwnedKey::Name(_)) | None => None,
        };
        format.fixed(&parameters, id).map_err(|error| chosen.unfit(&error))?;
        let parameters = parameters.into_iter();
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value)).collect();
        let of = (self.namespace, of);
        Ok(one_id(context, self.names.setting, of, parameters, due).await?)
    }
}

/// Makes an id for a client that reads a number of 64 bits. `setting` names the namespace, and the key if there is one.
///
/// # Errors
/// Any refusal of the node, and FAILED_PRECONDITION if the id has more bits.
pub async fn one_id(
    context: &Arc<NodeContext>, setting: &str, (namespace, key): (&str, Option<OwnedKey>),
    parameters: HashMap<String, u64>, due: &Due,
) -> Result<u64, Refusal> {
    let too_long = || {
        refusal!(
            WrongState,
            "ids of namespace {namespace:?} have more than 64 bits, and these clients read a number; let {setting} name a \
             namespace whose ids fit, such as one with --format snowflake"
        )
    };
    let wanted = Wanted::On(Verb::Next, namespace);
    context.admission.admit(&due.by, wanted, due.deadline).await?;
    // If this node knows the namespace, it refuses before an order number is taken.
    let known = context.group.view.namespaces().by_name(namespace).map(id_format);
    if known.is_some_and(|format| format.is_ok_and(|format| format.bits() > u64::BITS)) {
        return Err(too_long());
    }
    let request = NextIdsRequest {
        namespace: namespace.to_owned(),
        key: key.as_ref().and_then(to_key),
        parameters,
        ..NextIdsRequest::default()
    };
    let span = context.traces.of_caller(NEXT_IDS, due.trace.clone());
    let made = context.ids.next(&request, (&due.by, span.as_deref()), due.deadline).await;
    let (made, _reserved) = made?;
    let id = made.ids.iter().next().unwrap_or_default();
    u64::try_from(id).map_err(|_| too_long())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::drop_in::parameters::Parameters;

    fn format(text: &str) -> Format {
        Format::parse(text).unwrap()
    }

    /// A request for type 9.
    fn asking(others: &Parameters) -> AskedName<'_> {
        AskedName { parameter: "type", name: "9", others: Some(others) }
    }

    fn chosen(row: &str, format: &Format, uri: &str) -> Result<(String, Vec<String>), NoNumber> {
        let parameters = Parameters::of(&uri.parse().unwrap());
        let chosen = Chosen::of(row, format, &asking(&parameters))?;
        let values = chosen.values()?.into_iter().map(|(name, value)| format!("{name}={value}"));
        Ok((chosen.key.map_or(String::new(), |said| said.text.into_owned()), values.collect()))
    }

    #[test]
    fn a_row_gives_the_key_and_the_parameters_of_a_format_and_takes_some_from_the_request() {
        let route = format("yuewen-route");
        let (key, values) = chosen("type=1,database={db}", &route, "/?db=7").unwrap();
        assert_eq!((&key[..], values), ("", vec!["type=1".to_owned(), "database=7".to_owned()]));
        assert_eq!(chosen("any", &route, "/").unwrap(), (String::new(), vec![]));
        let chapter = format("yuewen-chapter");
        let (key, values) = chosen("key={book},table=0", &chapter, "/?book=4%2C2").unwrap();
        assert_eq!((&key[..], values), ("4,2", vec!["table=0".to_owned()]));
        assert_eq!(chosen("{book}", &chapter, "/?book=a%3D1").unwrap().0, "a=1");
        assert_eq!(chosen("42", &chapter, "/").unwrap().0, "42");
        assert_eq!(chosen("key={type},table=0", &chapter, "/").unwrap().0, "9");
    }

    #[test]
    fn who_said_what_is_wrong_is_to_blame() {
        let route = format("yuewen-route");
        for (row, uri) in [
            ("type={t}", "/"),
            ("type={t}", "/?t=1&t=1"),
            ("type={t}", "/?t="),
            ("type={t}", "/?t=-1"),
            ("type={t}", "/?t=1%2Cdatabase%3D3"),
        ] {
            assert!(matches!(chosen(row, &route, uri), Err(NoNumber::Said(_))), "{row} {uri}");
        }
        for row in ["type=", "type=1,", "type=1,2", "type=-1"] {
            let Err(NoNumber::Other(why)) = chosen(row, &route, "/") else { panic!("{row}") };
            assert!(why.message().contains("integer") || why.message().contains(row), "{why}");
        }
        let parameters = Parameters::of(&"/?t=100".parse().unwrap());
        for (row, is_said) in [("type={t},database=1", true), ("type=100,database={t}", false)] {
            let chosen = Chosen::of(row, &route, &asking(&parameters)).unwrap();
            let error = route.fixed(&chosen.values().unwrap(), None).unwrap_err();
            assert_eq!(matches!(chosen.unfit(&error), NoNumber::Said(_)), is_said, "{row}");
        }
    }
}
