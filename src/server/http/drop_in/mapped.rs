//! The meaning of a name of another generator: a key and its numbers, or ids of a namespace with a format (`mapped/ids.rs`).
//! The files of all three kinds of clients find a name here, and take numbers for it. `mapped/warnings.rs` limits the warnings
//! to the operator.

pub(super) mod ids;
mod warnings;

use std::sync::Arc;

use tokio::time::Instant;

use self::warnings::WARNINGS;
use super::{
    parameters::Parameters,
    said::{AskedName, NoNumber, Said, WrittenBy},
};
use crate::{
    metrics::SkipCause,
    node::{
        CheckedRequest, KeysOf, MappedNames, NodeContext, ROUTE_UNWANTED, RowPart, asked_by,
        id_format, to_key,
    },
    proto::{Code, Refusal, refusal, v1::NextRequest},
    sequence::{OwnedKey, Range, Verb, Wanted},
    server::{
        http::{answers::serve, headers::Due},
        written::{key, shown},
    },
};

/// A name that a table of the configuration maps to a key.
#[derive(Debug, Clone, Copy)]
pub struct Mapped<'a> {
    names: MappedNames<'a>,
    asking: AskedName<'a>,
    /// Whether the name has no row of its own, so that the row for any name counts.
    is_any: bool,
    namespace: &'a str,
    /// Whether the caller named the namespace.
    names_namespace: bool,
    /// The part of the row after the namespace.
    row: &'a str,
}

impl<'a> Mapped<'a> {
    /// Finds the row of `name` in a table. A word in braces in the row stands for the name, or for a parameter in `others`.
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
        let asking = AskedName { parameter, name, others };
        Ok(Mapped { names, asking, is_any, namespace, names_namespace, row })
    }

    /// Whether the row uses this parameter of a request.
    pub fn asks_for(&self, parameter: &str) -> bool {
        asked_by(self.row).any(|asked| asked == parameter)
    }

    /// The distance between neighbouring numbers of the key, if this node knows its namespace.
    pub fn increment(&self, context: &NodeContext) -> Option<u64> {
        let namespaces = context.group.view.namespaces();
        Some(namespaces.by_name(self.namespace)?.config.increment)
    }

    /// The next number of the key, or the next id if its namespace has a format. The row gives the key and the parameters of an
    /// id.
    ///
    /// # Errors
    /// Those of [`Mapped::next`]; FAILED_PRECONDITION if the id has more than 64 bits, or the row does not fit the format.
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
    /// Any refusal of the node. INVALID_ARGUMENT and NOT_FOUND become FAILED_PRECONDITION if the caller did not write the key.
    pub async fn next(
        self, context: &Arc<NodeContext>, count: u64, due: &Due,
    ) -> Result<Range, Refusal> {
        self.admit(context, due).await?;
        self.take(context, count, due).await.map_err(|why| self.told(why))
    }

    /// Counts numbers of the key that nobody gets: they are skipped.
    pub fn skip(&self, context: &NodeContext, numbers: u64) {
        context.counts.of(self.namespace).skip(SkipCause::cancelled, numbers);
    }

    /// Lets the caller in, before it is told anything of the namespace.
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
        let asked = CheckedRequest::of_caller(message, by, &context.traces, trace);
        let asked = asked.map_err(|refusal| said.failed(refusal))?;
        let taken = serve(context, &asked, due).await.map_err(|refusal| said.failed(refusal))?;
        if taken.first == keys.start && said.by != WrittenBy::Parameter {
            self.tell_first(taken.first, &said.text);
        }
        Ok(Range { first: taken.first, last: taken.last, increment: taken.increment })
    }

    /// The key that the row or the caller gives, and the facts about keys that are known of its namespace.
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
        // A mistyped name makes a key that stays for ever. So the number of keys must have a bound.
        if self.is_any && said.by != WrittenBy::Row && keys.keys_max.is_none() {
            let setting = self.names.setting;
            return Err(NoNumber::Other(refusal!(
                WrongState,
                "{setting} makes a key of every name, and namespace {namespace:?} may have any number of keys; bound them with: \
                 ratchet namespace update {namespace} --keys-max N"
            )));
        }
        Ok((OwnedKey::from(key), keys))
    }

    /// The reason why nothing is known of the namespace. If the caller named it, the name is wrong.
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

    /// Tells the operator that the first number of a key was taken. That happens once, since no other call gets that number.
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

    /// The refusal for the caller. The operator is warned if it has to do something.
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
