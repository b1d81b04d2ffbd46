//! The domain: namespaces, keys, sections, ranges, worker ids, principals, and what a log entry does to them. Pure: no
//! I/O, no async, no clock, and nothing else of this crate but `planted_bugs`, which a release does not have.
//!
//! Invariant: the `max_seq` of a section only grows. The exceptions are a *trim* and a *release* by the
//! epoch that raised it, which never go below what was handed out. The same holds of the ceiling of a worker id, which
//! its holder may lower to what it used.
//!
//! Which file uses which: `caller_ids`, `identifiers`, `key` and `progression` use no other; `certificate_uris`,
//! `ledger`, `request_id`, `section` and `workers` come next, then `namespace`, `accounts` and `gapless_take`, then
//! `written_key`, `totals`, `request_book`, `access` and `namespace_limits`, `namespace_change`, `command`, `table`,
//! `namespace_life` and `worker_asks`, and last `apply`.

mod access;
mod accounts;
pub(super) mod apply;
mod caller_ids;
mod certificate_uris;
mod command;
mod gapless_take;
mod identifiers;
mod key;
mod ledger;
mod namespace;
mod namespace_change;
mod namespace_life;
mod namespace_limits;
mod progression;
mod request_book;
mod request_id;
mod section;
mod table;
mod totals;
mod worker_asks;
mod workers;
mod written_key;

pub use access::{
    ANONYMOUS, AccessChange, AccessRefused, AddressRange, Credential, Denied, GRANTS_MAX, Grant,
    InvalidAccess, LOCAL, NamespacePattern, PER_SECOND_MAX, PRINCIPALS_MAX, PrincipalKey,
    PrincipalRecord, Principals, QUOTAS_MAX, Quota, TokenHash, TokenRecord, Verb, Wanted,
    check_token_name, check_uri,
};
pub use accounts::{DAYS_KEPT, DayAccounts, Skipped, SkippedBy, day_of};
pub use apply::apply;
pub use caller_ids::{NO_NETWORK, is_principal, network_of, principal_id};
pub use certificate_uris::{client_uri, node_uri};
pub use command::{Bump, Bumped, Command, EntryOutcome, NamespaceRefused, SectionUse};
pub use gapless_take::{FirstUse, IdsFull, MessagePart, NoRoom, PartTaken, Take, Taken};
pub use identifiers::{ClusterId, NamespaceId, NodeId, SectionId, SectionKey, SetId};
pub use key::{InvalidKey, KEY_NAME_BYTES_MAX, Key, KeyKind, OwnedKey};
pub use ledger::{Ledger, LedgerRefused, MemoryDigest, TermEnd};
pub use namespace::{
    InvalidNamespace, NAMESPACE_NAME_CHARS_MAX, Namespace, NamespaceConfig, check_name,
};
pub use namespace_change::NamespaceChange;
pub use namespace_life::is_as_created;
pub use namespace_limits::{
    STEP_MAX, check_description, check_format, check_limits, check_section_size, check_steps,
};
pub use progression::{NUMBER_MAX, Progression, Range};
pub use request_book::{IdPlace, IdShare, QueuedId, Remembered, Remembering, RequestBook};
pub use request_id::{
    InvalidRequestId, Lifetime, MessageId, PartId, REQUEST_ID_BYTES_MAX, RequestId,
};
pub use section::{CeilingRaise, Chunk, EPOCHS_LIVE, Exhausted, SectionAccounts, SectionRecord};
pub use table::Table;
pub use totals::{NamespaceTotals, Tombstone};
pub use workers::{
    AHEAD_MAX_MS, LeaseBound, WORKERS_MAX, WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord,
};
pub use written_key::{InvalidWrittenKey, WrittenKey};

#[cfg(test)]
mod tests;
