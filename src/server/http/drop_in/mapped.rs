//! The key that a name of another generator stands for, and its numbers.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    mapped_id::next_id,
    parameters::Parameters,
    said::{NoNumber, Said},
    warnings::WARNINGS,
};
use crate::{
    node::{Asked, NodeContext, ROUTE_UNWANTED, RowPart, asked_by, id_format, to_key},
    proto::{Code, Refusal, refusal, v1::NextRequest},
    sequence::{Range, WrittenKey},
    server::{
        http::{asked::key, request::Due, serve::serve},
        written::shown,
    },
};

/// A name that a table of the configuration maps to a key.
#[derive(Debug, Clone, Copy)]
pub struct Mapped<'a> {
    /// The setting that has the table.
    setting: &'static str,
    name: &'a str,
    key: WrittenKey<'a>,
}

impl<'a> Mapped<'a> {
    /// Finds the key of `name` in the table of `setting`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the table does not have the name.
    pub fn find(
        setting: &'static str, table: &'a BTreeMap<String, String>, name: &'a str,
    ) -> Result<Self, Refusal> {
        let to = table.get(name).ok_or_else(|| {
            let name = shown(name.as_bytes());
            refusal!(
                InvalidRequest,
                "'{name}' is not in this node's {setting}; ask for another name, or add {name}=namespace:key there"
            )
        })?;
        let key = WrittenKey::parse(to.as_bytes()).map_err(|_| {
            refusal!(Internal, "{setting} maps '{name}' to '{to}', which is no key")
        })?;
        Ok(Mapped { setting, name, key })
    }

    fn row(&self) -> &'a str {
        // It was a text before the namespace was taken off.
        std::str::from_utf8(self.key.key).unwrap_or_default()
    }

    /// Whether the row takes what a request says in this parameter.
    pub fn asks_for(&self, parameter: &str) -> bool {
        asked_by(self.row()).any(|asked| asked == parameter)
    }

    /// The next number of the key, or the next id if its namespace has a format. Then the row says what its parameters are,
    /// and its key. What stands in braces comes from `asked`, if there is that.
    ///
    /// # Errors
    /// As [`Mapped::next`]; INVALID_ARGUMENT if what the caller said does not fit; FAILED_PRECONDITION if the id has more than
    /// 64 bits, or what the row says does not fit the format.
    pub async fn next_number(
        self, context: &Arc<NodeContext>, asked: Option<&Parameters>, due: Due,
    ) -> Result<u64, Refusal> {
        let namespace = self.key.namespace;
        let format = {
            let namespaces = context.group.view().namespaces();
            let known = namespaces.by_name(namespace);
            known.filter(|known| known.config.format.is_some()).map(id_format)
        };
        let number = match format {
            Some(Ok(format)) => {
                let of = (self.setting, namespace, self.row());
                next_id(context, of, &format, asked, due).await
            }
            Some(Err(refusal)) => Err(NoNumber::Other(refusal)),
            None => self.next_plain(context, asked, due).await,
        };
        number.map_err(|why| match why {
            NoNumber::Said(refusal) => refusal,
            NoNumber::Other(refusal) => self.blamed(refusal),
        })
    }

    async fn next_plain(
        self, context: &Arc<NodeContext>, asked: Option<&Parameters>, due: Due,
    ) -> Result<u64, NoNumber> {
        let part = RowPart::of(self.row());
        if let (Some(_), RowPart::Written(row)) = (asked, part)
            && asked_by(row).next().is_some()
        {
            return Err(NoNumber::Other(refusal!(
                WrongState,
                "'{}' gives the parameters of a format, and namespace {:?} hands out plain numbers; name the key alone",
                shown(row.as_bytes()),
                self.key.namespace
            )));
        }
        let said = Said::of(part, asked)?;
        let taken = self.take(context, said.text.as_bytes(), 1, due).await;
        taken.map(|range| range.first).map_err(|refusal| said.failed(refusal))
    }

    /// Takes the next `count` numbers of the key.
    ///
    /// # Errors
    /// Whatever the node refuses it for. INVALID_ARGUMENT and NOT_FOUND become FAILED_PRECONDITION: it was not the caller
    /// who wrote the key.
    pub async fn next(
        self, context: &Arc<NodeContext>, count: u64, due: Due,
    ) -> Result<Range, Refusal> {
        let taken = self.take(context, self.key.key, count, due).await;
        taken.map_err(|refusal| self.blamed(refusal))
    }

    async fn take(
        &self, context: &Arc<NodeContext>, of: &[u8], count: u64, due: Due,
    ) -> Result<Range, Refusal> {
        let namespace = self.key.namespace;
        let message = NextRequest {
            key: to_key(&key(context, namespace, of, due).await?),
            namespace: namespace.to_owned(),
            count: Some(count),
            route_version: ROUTE_UNWANTED,
            ..NextRequest::default()
        };
        let taken = serve(context, Asked::new(message)?, due).await?;
        Ok(Range { first: taken.first, last: taken.last, increment: taken.increment })
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
        WARNINGS.warn(|| {
            tracing::warn!(
                setting = self.setting,
                name = self.name,
                namespace = self.key.namespace,
                key = shown(self.key.key),
                why = refusal.message(),
                "clients of another id generator get no numbers"
            );
        });
        refusal
    }
}
