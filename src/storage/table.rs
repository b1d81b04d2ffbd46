//! The records of an applied table: how they are found, read and changed.

mod change;
mod days;
mod fill;
mod generation;
mod meta;
mod namespace_records;
mod namespaces;
mod page;
mod recent;
mod records;
mod view;
mod workers;

pub use change::TableChange;
pub use days::read_days;
pub use fill::RecordsFill;
pub use generation::Generation;
pub use meta::AppliedMeta;
pub use namespaces::Namespaces;
pub use page::{Page, PageAsked, read_page};
pub use view::AppliedView;
pub use workers::read_workers;
