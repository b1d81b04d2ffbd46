//! The key that a name of another generator stands for, and its numbers.

use std::{collections::BTreeMap, sync::Arc};

use tonic::{Code, Status};

use super::warnings::WARNINGS;
use crate::{
    node::{KnownRoute, Next, NodeContext},
    sequence::{Range, WrittenKey},
    server::{
        http::{
            request::Due,
            serve::{key, serve},
        },
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
        setting: &'static str,
        table: &'a BTreeMap<String, String>,
        name: &'a str,
    ) -> Result<Self, Status> {
        let to = table.get(name).ok_or_else(|| {
            let name = shown(name.as_bytes());
            Status::invalid_argument(format!(
                "'{name}' is not in this node's {setting}; ask for another name, or add {name}=namespace:key there"
            ))
        })?;
        let key = WrittenKey::parse(to.as_bytes()).map_err(|_| {
            Status::internal(format!(
                "{setting} maps '{name}' to '{to}', which is no key"
            ))
        })?;
        Ok(Mapped { setting, name, key })
    }

    /// Takes the next `count` numbers of the key.
    ///
    /// # Errors
    /// Whatever the node refuses it for. INVALID_ARGUMENT and NOT_FOUND become FAILED_PRECONDITION: it was not the caller
    /// who wrote the key.
    pub async fn next(
        self,
        context: &Arc<NodeContext>,
        count: u64,
        due: Due,
    ) -> Result<Range, Status> {
        let WrittenKey { namespace, key: of } = self.key;
        let taking = async {
            let request = Next {
                key: key(context, namespace, of, due).await?,
                namespace: namespace.to_owned(),
                count,
                request_id: None,
                known: KnownRoute::UNWANTED,
            };
            serve(context, request, due).await
        };
        taking.await.map_err(|status| match status.code() {
            Code::InvalidArgument | Code::NotFound => {
                self.warn_operator(Status::failed_precondition(status.message()))
            }
            Code::OutOfRange => self.warn_operator(status),
            _ => status,
        })
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
