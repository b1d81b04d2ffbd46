//! The report of a run: one HTML page that needs nothing else.

mod page;
mod text;
mod timeline;

pub use page::html;
