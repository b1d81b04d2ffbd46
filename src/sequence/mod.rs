//! The domain: namespaces, keys, sections, ranges, worker ids, and what a log entry does to them. Pure: no I/O, no
//! async, no clock, and nothing else of this crate.
//!
//! Invariant: the `max_seq` of a section only grows. The exceptions are a *trim* and a *release* by the
//! tenure that raised it, which never go below what was handed out. The same holds of the ceiling of a worker id, which
//! its holder may lower to what it used.
//!
//! Which file uses which: `ids` and `progression` use no other; `key`, `ledger`, `request_id`, `section` and `workers`
//! come next, then `day_books`, `namespace` and `take`, then `namespace_change`, `namespace_limits`, `request_book` and `tombstone`, then
//! `command`, and last `namespace_life`, `worker_leases`, `apply` and `written_key`.

mod apply;
mod command;
mod day_books;
mod ids;
mod key;
mod ledger;
#[cfg(test)]
mod memory_table;
mod namespace;
mod namespace_change;
mod namespace_life;
mod namespace_limits;
mod progression;
mod request_book;
mod request_id;
mod section;
mod take;
mod tombstone;
mod worker_leases;
mod workers;
mod written_key;

pub use apply::{Table, apply};
pub use command::{Bump, Bumped, Command, NamespaceRefused, Outcome, Trim};
pub use day_books::{DAYS_KEPT, DayBooks, Lost, LostBy, day_of};
pub use ids::{ClusterId, NamespaceId, NodeId, SectionId, SectionKey, SetId};
pub use key::{InvalidKey, KEY_NAME_BYTES_MAX, Key, KeyKind, OwnedKey};
pub use ledger::{Bequest, Ledger, LedgerRefused, MemoryDigest};
pub use namespace::{
    InvalidNamespace, NAMESPACE_NAME_CHARS_MAX, Namespace, NamespaceConfig, check_name,
};
pub use namespace_change::NamespaceChange;
pub use namespace_life::NamespaceTable;
pub use namespace_limits::{
    STEP_MAX, check_description, check_format, check_limits, check_section_size, check_steps,
};
pub use progression::{NUMBER_MAX, Progression, Range};
pub use request_book::{Place, QueuedId, Remembered, Remembering, RequestBook, RequestTable};
pub use request_id::{
    InvalidRequestId, Lifetime, MessageId, PartId, REQUEST_ID_BYTES_MAX, RequestId,
};
pub use section::{Chunk, Exhausted, Raise, SectionBooks, SectionRecord};
pub use take::{MessagePart, NoRoom, PartTaken, Take, Taken, Used};
pub use tombstone::{NamespaceTotals, Tombstone};
pub use worker_leases::WorkerTable;
pub use workers::{
    AHEAD_MAX_MS, LeaseFloor, WORKERS_MAX, WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord,
};
pub use written_key::{InvalidWrittenKey, WrittenKey};
