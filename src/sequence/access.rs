//! Principals, and the grants that say what each may do.
//!
//! A principal is a token, a client's certificate, or *anonymous*: callers that show neither. A grant to anonymous is one to
//! everybody. There are no rules but grants: what is not granted is denied. They do not hold for callers that ask over the
//! local socket of a node, who are called *local* where people read.
//!
//! `limits` says what principals, grants and quotas may be. `pattern` and `range` are what grants are about: namespaces, and
//! addresses of callers. `grant`, `quota` and `principal` are one of each, and `wanted` is what an action needs. `principals`
//! are all of a cluster, and `change` is what a log entry does to them.
//!
//! Invariant: a table to which nothing was written grants anonymous everything. The grants that a cluster was founded with, or
//! got since, are written.

mod change;
mod grant;
mod limits;
mod pattern;
mod principal;
mod principals;
mod quota;
mod range;
#[cfg(test)]
mod tests;
mod wanted;

pub use change::{AccessChange, AccessRefused};
pub use grant::{Grant, Verb};
pub use limits::{
    ANONYMOUS, GRANTS_MAX, InvalidAccess, LOCAL, PER_SECOND_MAX, PRINCIPALS_MAX, QUOTAS_MAX,
    check_token_name, check_uri,
};
pub use pattern::NamespacePattern;
pub use principal::{Credential, PrincipalKey, PrincipalRecord, TokenHash, TokenRecord};
pub use principals::{Denied, Principals};
pub use quota::Quota;
pub use range::AddressRange;
pub use wanted::Wanted;
