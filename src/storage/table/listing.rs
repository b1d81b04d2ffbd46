//! Pages of a namespace's sections, for lists of keys. The next page begins after the last section of the page before: nothing
//! is kept between two pages.

use super::{generation::Generation, view::AppliedView};
use crate::{
    sequence::{NamespaceId, SectionId, SectionKey, SectionRecord},
    storage::{
        error::StoreError,
        layout::{Family, namespace_sections_range, section_key, section_of},
    },
};

/// Which page is asked for.
#[derive(Debug, Clone)]
pub struct PageAsked {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Only names that begin with this.
    pub prefix: Box<[u8]>,
    /// Only sections after this one, which need not exist.
    pub after: Option<SectionKey>,
    /// How many sections at most.
    pub limit: usize,
}

/// A page.
#[derive(Debug, Default)]
pub struct SectionsPage {
    /// The sections and their records.
    pub sections: Vec<(SectionKey, SectionRecord)>,
    /// True if more sections follow.
    pub more: bool,
}

/// Reads a page, on a thread for blocking work. The page is as the table was at one moment.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub async fn read_page(view: &AppliedView, asked: PageAsked) -> Result<SectionsPage, StoreError> {
    view.read_few(move |generation| read(generation, &asked)).await
}

fn read(generation: &Generation, asked: &PageAsked) -> Result<SectionsPage, StoreError> {
    let (db, prefix) = (&generation.db, generation.prefix());
    let (from, to) = range(&prefix, asked);
    let mut page = SectionsPage::default();
    for record in generation.records(&from, to)? {
        let (key, value) = record?;
        if page.sections.len() == asked.limit {
            page.more = true;
            break;
        }
        let not_a_section = || db.damaged(Family::Applied, &key, "its key names no section");
        let id = section_of(&key[prefix.len()..]).ok_or_else(not_a_section)?;
        let record = db.decode(Family::Applied, &key, &value)?;
        page.sections.push((id.key, record));
    }
    Ok(page)
}

/// The range of the full keys; its end is exclusive.
fn range(generation: &[u8], asked: &PageAsked) -> (Vec<u8>, Vec<u8>) {
    let full_key = |key: SectionKey| {
        let namespace = asked.namespace;
        section_key(generation, &SectionId { namespace, key })
    };
    let (mut from, mut to) = namespace_sections_range(generation, asked.namespace);
    if !asked.prefix.is_empty() {
        from = full_key(SectionKey::Name(asked.prefix.clone()));
        to = end_of_prefix(from.clone());
    }
    if let Some(after) = &asked.after {
        let mut next = full_key(after.clone());
        // The first key after that one.
        next.push(0);
        from = from.max(next);
    }
    (from, to)
}

/// The first key after all those that begin with `prefix`.
fn end_of_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

#[cfg(test)]
mod tests;
