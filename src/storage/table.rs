//! The records of an applied table: how they are found, read and changed.
//!
//! `generation` finds them, `meta` says how far the table is, and `namespaces` holds the namespaces in memory. `view` is for
//! readers, with `recent` for the records of sections that are in memory (`recent_part`), and `records_fill`, which reads them.
//! `listing`, `namespace_records` and `ceilings` read what people and exports ask for. `change` collects what entries write,
//! with `records` for those of one kind.

pub(super) mod ceilings;
mod change;
mod generation;
mod listing;
mod meta;
mod namespace_records;
mod namespaces;
mod recent;
mod recent_part;
mod records;
mod records_fill;
mod view;

pub use change::TableChange;
pub use generation::Generation;
pub use listing::{PageAsked, SectionsPage, read_page};
pub use meta::{AppliedMeta, founded_principals};
pub use namespace_records::{read_days, read_workers};
pub use namespaces::NamespaceMap;
pub use records_fill::RecordsFill;
pub use view::AppliedView;
