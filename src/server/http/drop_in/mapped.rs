//! What a name of another generator stands for: a key and its numbers, or ids of a namespace with a format.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ratchet_ids::{EncodeError, Format, Source};
use tokio::time::Instant;

use super::parameters::{Asking, By, NoNumber, Parameters, Said};
use crate::{
    metrics::SkipCause,
    node::{
        Asked, KeysOf, MappedNames, NEXT_IDS, NodeContext, ROUTE_UNWANTED, RowPart, asked_by,
        id_format, row_fields, to_key,
    },
    proto::{
        Code, Refusal, refusal,
        v1::{NextIdsRequest, NextRequest},
    },
    sequence::{OwnedKey, Range, Verb, Wanted},
    server::{
        http::{endpoints::serve, request::Due},
        written::{integer, key, shown},
    },
};

/// A name that a table of the configuration maps to a key.
#[derive(Debug, Clone, Copy)]
pub struct Mapped<'a> {
    names: MappedNames<'a>,
    asking: Asking<'a>,
    /// Whether the name has no row of its own.
    is_any: bool,
    namespace: &'a str,
    /// Whether the caller named the namespace.
    names_namespace: bool,
    /// What the row has after the namespace.
    row: &'a str,
}

impl<'a> Mapped<'a> {
    /// Finds the key of `name` in a table. What stands in braces in its row is the name, or comes from `others`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the table does not have the name.
    pub fn find(
        names: MappedNames<'a>, name: &'a str, others: Option<&'a Parameters>,
    ) -> Result<Self, Refusal> {
        let MappedNames { setting, parameter, .. } = names;
        let (to, is_any) = names.row(name).ok_or_else(|| {
            let name = shown(name.as_bytes());
            refusal!(
                InvalidRequest,
                "'{name}' is not in this node's {setting}; ask for another name, or add {name}=namespace:key there"
            )
        })?;
        let (namespace, row) = to.split_once(':').ok_or_else(|| {
            let name = shown(name.as_bytes());
            refusal!(Internal, "{setting} maps '{name}' to '{to}', which is no key")
        })?;
        let (namespace, names_namespace) = match RowPart::of(namespace) {
            RowPart::Asked(_) => (name, true),
            RowPart::Written(namespace) => (namespace, false),
        };
        let asking = Asking { parameter, name, others };
        Ok(Mapped { names, asking, is_any, namespace, names_namespace, row })
    }

    /// Whether the row takes what a request says in this parameter.
    pub fn asks_for(&self, parameter: &str) -> bool {
        asked_by(self.row).any(|asked| asked == parameter)
    }

    /// The distance between neighbouring numbers of the key, if this node knows its namespace.
    pub fn increment(&self, context: &NodeContext) -> Option<u64> {
        let namespaces = context.group.view.namespaces();
        Some(namespaces.by_name(self.namespace)?.config.increment)
    }

    /// The next number of the key, or the next id if its namespace has a format. Then the row says what its parameters are,
    /// and its key.
    ///
    /// # Errors
    /// As [`Mapped::next`]; FAILED_PRECONDITION if the id has more than 64 bits, or what the row says does not fit the format.
    pub async fn next_number(self, context: &Arc<NodeContext>, due: &Due) -> Result<u64, Refusal> {
        self.admit(context, due).await?;
        let format = {
            let namespaces = context.group.view.namespaces();
            let known = namespaces.by_name(self.namespace);
            known.filter(|known| known.config.format.is_some()).map(id_format)
        };
        let number = match format {
            Some(Ok(format)) => self.next_id(context, &format, due).await,
            Some(Err(refusal)) => Err(NoNumber::Other(refusal)),
            None => self.take(context, 1, due).await.map(|range| range.first),
        };
        number.map_err(|why| self.told(why))
    }

    /// Takes the next `count` numbers of the key.
    ///
    /// # Errors
    /// Whatever the node refuses it for. INVALID_ARGUMENT and NOT_FOUND become FAILED_PRECONDITION where it was not the caller
    /// who wrote the key.
    pub async fn next(
        self, context: &Arc<NodeContext>, count: u64, due: &Due,
    ) -> Result<Range, Refusal> {
        self.admit(context, due).await?;
        self.take(context, count, due).await.map_err(|why| self.told(why))
    }

    /// Counts numbers of the key as skipped that nobody gets.
    pub fn skip(&self, context: &NodeContext, numbers: u64) {
        context.counts.of(self.namespace).skip(SkipCause::cancelled, numbers);
    }

    /// Lets the caller in, before anything is told of the namespace.
    async fn admit(&self, context: &Arc<NodeContext>, due: &Due) -> Result<(), Refusal> {
        let wanted = Wanted::On(Verb::Next, self.namespace);
        context.admission.admit(&due.by, wanted, due.deadline).await
    }

    async fn take(
        &self, context: &Arc<NodeContext>, count: u64, due: &Due,
    ) -> Result<Range, NoNumber> {
        let part = RowPart::of(self.row);
        if let RowPart::Written(row) = part
            && asked_by(row).next().is_some()
        {
            return Err(NoNumber::Other(refusal!(
                WrongState,
                "'{}' gives the parameters of a format, and namespace {:?} hands out plain numbers; name the key alone",
                shown(row.as_bytes()),
                self.namespace
            )));
        }
        let said = Said::of(part, &self.asking)?;
        let (of, keys) = self.key(context, &said, due).await?;
        let message = NextRequest {
            key: to_key(&of),
            namespace: self.namespace.to_owned(),
            count: Some(count),
            route_version: ROUTE_UNWANTED,
            ..NextRequest::default()
        };
        let (by, trace) = (due.by.clone(), due.trace.clone());
        let asked = Asked::of_caller(message, by, &context.traces, trace);
        let asked = asked.map_err(|refusal| said.failed(refusal))?;
        let taken = serve(context, asked, due).await.map_err(|refusal| said.failed(refusal))?;
        if taken.first == keys.start && said.by != By::Parameter {
            self.tell_first(taken.first, &said.text);
        }
        Ok(Range { first: taken.first, last: taken.last, increment: taken.increment })
    }

    /// The key that was said, and what is known of its namespace.
    async fn key(
        &self, context: &NodeContext, said: &Said<'_>, due: &Due,
    ) -> Result<(OwnedKey, KeysOf), NoNumber> {
        let namespace = self.namespace;
        let keys = context
            .namespaces
            .keys_of(Wanted::On(Verb::Next, namespace), &due.by, due.deadline)
            .await;
        let keys = keys.map_err(|refusal| self.without_namespace(refusal))?;
        let key = key(keys.kind, namespace, said.text.as_bytes());
        let key = key.map_err(|refusal| said.failed(refusal))?;
        // A name that is mistyped makes a key for ever.
        if self.is_any && said.by != By::Row && keys.keys_max.is_none() {
            let setting = self.names.setting;
            return Err(NoNumber::Other(refusal!(
                WrongState,
                "{setting} makes a key of every name, and namespace {namespace:?} may have any number of keys; bound them with: \
                 ratchet namespace update {namespace} --keys-max N"
            )));
        }
        Ok((OwnedKey::from(key), keys))
    }

    /// Why nothing is known of the namespace. If the caller named it, it is the name that is wrong.
    fn without_namespace(&self, refusal: Refusal) -> NoNumber {
        let is_wrong = matches!(refusal.code(), Code::InvalidArgument | Code::NotFound);
        match self.names_namespace && is_wrong {
            false => NoNumber::Other(refusal),
            true => NoNumber::Said(refusal!(
                InvalidRequest,
                "'{}' has no row in this node's {}, and there is no namespace of that name",
                shown(self.asking.name.as_bytes()),
                self.names.setting
            )),
        }
    }

    /// Tells the operator that the first number of a key was asked for: once, since no other call gets that number.
    fn tell_first(&self, number: u64, key: &str) {
        tracing::warn!(
            setting = self.names.setting,
            name = shown(self.asking.name.as_bytes()),
            namespace = self.namespace,
            key = shown(key.as_bytes()),
            number,
            "clients of another id generator got the first number of a key; if numbers of it were handed out elsewhere, raise \
             it above them with: ratchet raise"
        );
    }

    fn told(self, why: NoNumber) -> Refusal {
        match why {
            NoNumber::Said(refusal) => refusal,
            NoNumber::Other(refusal) => self.blamed(refusal),
        }
    }

    /// The status, and a warning if the operator has to do something.
    fn blamed(self, refusal: Refusal) -> Refusal {
        match refusal.code() {
            Code::InvalidArgument | Code::NotFound => {
                self.warn_operator(refusal!(WrongState, "{}", refusal.message()))
            }
            Code::OutOfRange | Code::FailedPrecondition => self.warn_operator(refusal),
            _ => refusal,
        }
    }

    /// Tells the operator that clients get no numbers until somebody changes a setting or a namespace. Returns `refusal`.
    pub fn warn_operator(self, refusal: Refusal) -> Refusal {
        if WARNINGS.is_due(Instant::now()) {
            tracing::warn!(
                setting = self.names.setting,
                name = shown(self.asking.name.as_bytes()),
                namespace = self.namespace,
                key = self.row,
                why = refusal.message(),
                "clients of another id generator get no numbers"
            );
        }
        refusal
    }
}

// Ids of a namespace with a format, where a row of a table says what their parameters and their key are.

/// What stands before the key among the parameters of a format. No parameter has this name: it is the field for the key.
const KEY: &str = "key";

/// What a row says: the key, and the parameters of the format.
#[derive(Debug, Default)]
struct Chosen<'a> {
    key: Option<Said<'a>>,
    parameters: Vec<(&'a str, Said<'a>)>,
}

impl<'a> Chosen<'a> {
    /// What a row says of a format: `key=42,table=0`. Without `=` it is the key, or anything in a format with a worker, whose
    /// ids have none.
    fn of(row: &'a str, format: &Format, asking: &Asking<'a>) -> Result<Chosen<'a>, NoNumber> {
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

    /// Whether the caller said what is in a field.
    fn is_by_caller(&self, field: &str) -> bool {
        let key = self.key.iter().map(|said| (KEY, said));
        let parameters = self.parameters.iter().map(|(name, said)| (*name, said));
        let mut all = key.chain(parameters);
        all.any(|(name, said)| name == field && said.is_by_caller())
    }

    /// Why the format has no such ids.
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
    async fn next_id(
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

/// Makes an id of a namespace, and of a key in it, that `setting` names, for a client that reads a number of 64 bits.
///
/// # Errors
/// Whatever the node refuses it for, and FAILED_PRECONDITION if the id has more bits.
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
    // Before an order number is taken, if this node knows the namespace.
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

// Warnings that requests cause: at most one in some seconds, however many requests come.

/// At most one warning is logged in this time.
const EVERY: Duration = Duration::from_secs(10);

/// The warnings of this process about clients of other id generators.
static WARNINGS: Warnings = Warnings { last: Mutex::new(None) };

/// When the last warning was logged.
struct Warnings {
    last: Mutex<Option<Instant>>,
}

impl Warnings {
    /// Whether a warning is to be logged: none was logged lately.
    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) > EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Format {
        Format::parse(text).unwrap()
    }

    /// What a request for type 9 says.
    fn asking(others: &Parameters) -> Asking<'_> {
        Asking { parameter: "type", name: "9", others: Some(others) }
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

    #[test]
    fn one_warning_is_logged_in_ten_seconds() {
        let warnings = Warnings { last: Mutex::new(None) };
        let began = Instant::now();
        let due = |ms| warnings.is_due(began + Duration::from_millis(ms));
        assert_eq!(
            [0, 1, 10_000, 10_001, 10_002, 20_002].map(due),
            [true, false, false, true, false, true]
        );
    }
}
