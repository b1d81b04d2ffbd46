//! The domain: namespaces, keys, sections, ranges, worker ids, who may do what, and what a log entry does to them. Pure: no
//! I/O, no async, no clock, and nothing else of this crate.
//!
//! Invariant: the `max_seq` of a section only grows. The exceptions are a *trim* and a *release* by the
//! tenure that raised it, which never go below what was handed out. The same holds of the ceiling of a worker id, which
//! its holder may lower to what it used.
//!
//! Which file uses which: `ids` and `progression` use no other; `ledger`, `request_id`, `section` and `workers`
//! come next, then `namespace`, `books` and `request_book`, then `access` and `namespace_limits`, `command`, `namespace_life`,
//! and last `apply`.

mod access;
pub(super) mod apply;
mod books;
mod command;
mod ids;
mod ledger;
mod namespace;
mod namespace_life;
mod namespace_limits;
mod progression;
mod request_book;
mod request_id;
mod section;
mod workers;

pub use access::{
    ANONYMOUS, AccessChange, AccessRefused, AddressRange, Credential, Denied, GRANTS_MAX, Grant,
    InvalidAccess, LOCAL, NamespacePattern, PER_SECOND_MAX, PRINCIPALS_MAX, PrincipalKey,
    PrincipalRecord, Principals, QUOTAS_MAX, Quota, TokenHash, TokenRecord, Verb, Wanted,
    check_token_name, check_uri,
};
pub use apply::apply;
pub use books::{DAYS_KEPT, DayBooks, Lost, LostBy, NamespaceTotals, Tombstone, day_of};
pub use command::{Bump, Bumped, Command, NamespaceRefused, Outcome, Trim};
pub use ids::{
    ClusterId, InvalidKey, KEY_NAME_BYTES_MAX, Key, KeyKind, NO_NETWORK, NamespaceId, NodeId,
    OwnedKey, SectionId, SectionKey, SetId, client_uri, is_principal, network_of, node_uri,
    principal_id,
};
pub use ledger::{Bequest, Ledger, LedgerRefused, MemoryDigest};
pub use namespace::{
    InvalidNamespace, InvalidWrittenKey, NAMESPACE_NAME_CHARS_MAX, Namespace, NamespaceConfig,
    WrittenKey, check_name,
};
pub use namespace_life::{Table, is_as_created};
pub use namespace_limits::{
    NamespaceChange, STEP_MAX, check_description, check_format, check_limits, check_section_size,
    check_steps,
};
pub use progression::{NUMBER_MAX, Progression, Range};
pub use request_book::{
    IdHolder, IdsFull, MessagePart, NoRoom, PartTaken, Place, QueuedId, Remembered, Remembering,
    RequestBook, Take, Taken, Used,
};
pub use request_id::{
    InvalidRequestId, Lifetime, MessageId, PartId, REQUEST_ID_BYTES_MAX, RequestId,
};
pub use section::{Chunk, Exhausted, LIFTS_LIVE, Raise, SectionBooks, SectionRecord};
pub use workers::{
    AHEAD_MAX_MS, LeaseFloor, WORKERS_MAX, WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord,
};

#[cfg(test)]
mod tests;
