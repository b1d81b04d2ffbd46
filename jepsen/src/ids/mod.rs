//! Ids with a shape: callers that take them beside a run's other callers, and a checker of their own.
//!
//! From below to above: `namespace` lists the formats, `taken` is the answer to a call, `order` and `distance` are rules,
//! `checker` judges all ids that were taken. `wish` is a request, `connection` carries it, `caller` and `application` ask,
//! `seen` is the state that they share, and `callers` starts them.

mod application;
mod caller;
mod callers;
mod checker;
mod connection;
mod distance;
mod namespace;
mod order;
mod seen;
mod taken;
mod wish;

pub use callers::start_id_callers;
pub use checker::{Checker, Rule};
pub use distance::Distance;
pub use namespace::{ALL, IdNamespace};
pub use seen::{Figures, Findings, SeenIds};
pub use taken::{Maker, Said, TakenIds};

use crate::proto::CreateNamespaceRequest;

/// The namespaces, as they are created.
pub fn namespaces() -> impl Iterator<Item = CreateNamespaceRequest> {
    ALL.iter().map(|namespace| CreateNamespaceRequest {
        name: namespace.name.to_owned(),
        format: Some(namespace.format.to_owned()),
        ..CreateNamespaceRequest::default()
    })
}
