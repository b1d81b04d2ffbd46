//! Callers of gapless keys, beside the others of a run, and the rules for their numbers.
//!
//! From below to above: `answers` judges, `asked` records the outcome of a call, `named`, `with_client`, `unnamed`
//! and `recreated` are four kinds of callers, each with a namespace of its own, and `callers` runs them.

mod answers;
mod asked;
mod callers;
mod named;
mod recreated;
mod unnamed;
mod with_client;

pub use answers::GaplessAnswers;
pub use callers::GaplessCallers;

use crate::{proto::CreateNamespaceRequest, target::Target};

/// Its callers give each request an id of their own.
const INVOICE: &str = "invoice";
/// Its callers have the product's client.
const RECEIPT: &str = "receipt";
/// Its callers give no ids.
const TICKET: &str = "ticket";
/// Its caller deletes it now and then, and creates it again.
const DRAFT: &str = "draft";

/// How many keys of each namespace that stays are asked for, from 0 on.
const NAMESPACES: [(&str, u64); 3] = [(INVOICE, 2), (RECEIPT, 4), (TICKET, 4)];

/// The namespaces, as they are created.
pub fn namespaces() -> impl Iterator<Item = CreateNamespaceRequest> {
    let names = NAMESPACES.into_iter().map(|(name, _)| name).chain([DRAFT]);
    names.map(namespace_of)
}

fn namespace_of(name: &str) -> CreateNamespaceRequest {
    CreateNamespaceRequest {
        name: name.to_owned(),
        gapless: true,
        request_id_optional: name == TICKET,
        ..CreateNamespaceRequest::default()
    }
}

/// All keys that are asked for, whose numbers are 1, 2, 3, ...
pub fn targets() -> impl Iterator<Item = Target> {
    let keys = |(namespace, keys)| (0..keys).map(move |id| Target { namespace, id });
    NAMESPACES.into_iter().flat_map(keys)
}
