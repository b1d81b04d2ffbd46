//! The records of an applied table: how they are found, read and changed.

mod change;
mod generation;
pub(super) mod listing;
mod recent;
mod records;
mod view;

pub use change::TableChange;
pub use generation::{AppliedMeta, Generation, Namespaces, founded_principals};
pub use listing::{Page, PageAsked, read_days, read_page, read_workers};
pub use view::{AppliedView, RecordsFill};
