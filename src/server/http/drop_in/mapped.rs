//! The key that a name of another generator stands for, and its numbers.

use std::{collections::BTreeMap, sync::Arc};

use tonic::{Code, Status};

use super::warnings::WARNINGS;
use crate::{
    node::{KnownRoute, Next, NextIds, NodeContext},
    sequence::{OwnedKey, Range, WrittenKey},
    server::{
        errors::to_client,
        http::{
            request::Due,
            serve::{key, serve},
        },
        written::shown,
    },
};

/// What stands before the key among the parameters of a format.
const KEY: &str = "key";

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
    ) -> Result<Self, Status> {
        let to = table.get(name).ok_or_else(|| {
            let name = shown(name.as_bytes());
            Status::invalid_argument(format!(
                "'{name}' is not in this node's {setting}; ask for another name, or add {name}=namespace:key there"
            ))
        })?;
        let key = WrittenKey::parse(to.as_bytes()).map_err(|_| {
            Status::internal(format!("{setting} maps '{name}' to '{to}', which is no key"))
        })?;
        Ok(Mapped { setting, name, key })
    }

    /// The next number of the key, or the next id if its namespace has a format. The key then says what the parameters
    /// are: `type=1,database=0`, or anything without `=` if there are none. `key=1` among them is the key of a format that
    /// has no worker.
    ///
    /// # Errors
    /// As [`Mapped::next`]; FAILED_PRECONDITION if the id has more than 64 bits, or the parameters do not fit the format.
    pub async fn next_number(self, context: &Arc<NodeContext>, due: Due) -> Result<u64, Status> {
        let has_format = {
            let namespaces = context.group.view().namespaces();
            let namespace = namespaces.by_name(self.key.namespace);
            namespace.is_some_and(|namespace| namespace.config.format.is_some())
        };
        match has_format {
            true => self.next_id(context, due).await,
            false => self.next(context, 1, due).await.map(|range| range.first),
        }
    }

    async fn next_id(self, context: &Arc<NodeContext>, due: Due) -> Result<u64, Status> {
        let making = async {
            let mut parameters = parameters(self.key.key)?;
            // No parameter of a format has this name: it is the field for the key.
            let key = parameters.iter().position(|(name, _)| name == KEY);
            let key = key.map(|at| OwnedKey::Id(parameters.swap_remove(at).1));
            let of = (self.key.namespace, key);
            one_id(context, self.setting, of, parameters, due).await
        };
        making.await.map_err(|status| self.blamed(status))
    }

    /// Takes the next `count` numbers of the key.
    ///
    /// # Errors
    /// Whatever the node refuses it for. INVALID_ARGUMENT and NOT_FOUND become FAILED_PRECONDITION: it was not the caller
    /// who wrote the key.
    pub async fn next(
        self, context: &Arc<NodeContext>, count: u64, due: Due,
    ) -> Result<Range, Status> {
        let WrittenKey { namespace, key: of } = self.key;
        let taking = async {
            let request = Next {
                key: key(context, namespace, of, due).await?,
                namespace: namespace.to_owned(),
                count,
                id: None,
                known: KnownRoute::UNWANTED,
            };
            serve(context, request, due).await
        };
        taking.await.map_err(|status| self.blamed(status))
    }

    /// The status, and a warning if the operator has to do something.
    fn blamed(self, status: Status) -> Status {
        match status.code() {
            Code::InvalidArgument | Code::NotFound => {
                self.warn_operator(Status::failed_precondition(status.message()))
            }
            Code::OutOfRange | Code::FailedPrecondition => self.warn_operator(status),
            _ => status,
        }
    }

    /// Tells the operator that clients get no numbers until somebody changes a setting or a namespace. Returns `status`.
    pub fn warn_operator(self, status: Status) -> Status {
        WARNINGS.warn(|| {
            tracing::warn!(
                setting = self.setting,
                name = self.name,
                namespace = self.key.namespace,
                key = shown(self.key.key),
                why = status.message(),
                "clients of another id generator get no numbers"
            );
        });
        status
    }
}

/// Makes an id of a namespace, and of a key in it, that `setting` names, for a client that reads a number of 64 bits.
///
/// # Errors
/// Whatever the node refuses it for, and FAILED_PRECONDITION if the id has more bits.
pub async fn one_id(
    context: &Arc<NodeContext>, setting: &str, (namespace, key): (&str, Option<OwnedKey>),
    parameters: Vec<(String, u64)>, due: Due,
) -> Result<u64, Status> {
    let request = NextIds { namespace: namespace.to_owned(), count: 1, key, parameters };
    let made = context.next_ids(&request, due.deadline).await;
    let (made, _reserved) = made.map_err(to_client)?;
    let id = made.ids.iter().next().unwrap_or_default();
    u64::try_from(id).map_err(|_| {
        Status::failed_precondition(format!(
            "ids of namespace {namespace:?} have more than 64 bits, and these clients read a number; let {setting} name a \
             namespace whose ids fit, such as one with --format snowflake"
        ))
    })
}

/// The parameters in a key, `type=1,database=0`. None if there is no `=` in it.
fn parameters(key: &[u8]) -> Result<Vec<(String, u64)>, Status> {
    let written = String::from_utf8_lossy(key);
    if !written.contains('=') {
        return Ok(Vec::new());
    }
    let parameters = written.split(',').map(|one| {
        let parts = one.split_once('=');
        let value = parts.and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        value.ok_or_else(|| {
            Status::invalid_argument(format!(
                "'{}' gives no parameters of a format; write name=value,name=value",
                shown(key)
            ))
        })
    });
    parameters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_the_parameters_of_a_format() {
        let given = parameters(b"type=1,database=0").unwrap();
        assert_eq!(given, [("type".to_owned(), 1), ("database".to_owned(), 0)]);
        assert_eq!(parameters(b"1").unwrap(), []);
        for none in ["type=", "type=1,", "type=1,2", "type=-1"] {
            let why = parameters(none.as_bytes()).unwrap_err();
            assert!(why.message().contains(none), "{why}");
        }
    }
}
