//! A section that keys share.

use crate::{
    allocator::{key_table::numbered::Named, section::queued_section::QueuedSection},
    sequence::SectionId,
};

/// A section that several keys share.
#[derive(Debug)]
pub struct SharedSection {
    /// Its identifier.
    pub id: SectionId,
    /// The section, and the calls that wait for it.
    pub queued: QueuedSection,
    /// The numbers of its pages.
    pub pages: Vec<u32>,
    /// The section was asked, or the hand found a key of it in use, since the hand came by the section.
    pub is_in_use: bool,
    /// The hand found a slot of it, or one was added, since the hand came by the section.
    pub has_slots: bool,
    /// A key in a slot may take numbers without asking the section. The keys of pages always ask.
    pub has_fast_paths: bool,
}

impl SharedSection {
    /// A section that is asked for just now.
    pub fn new(id: SectionId, queued: QueuedSection) -> Self {
        SharedSection {
            id,
            queued,
            pages: Vec::new(),
            is_in_use: true,
            has_slots: true,
            has_fast_paths: false,
        }
    }

    /// No key takes a number at or below it. `None` before the first chunk.
    pub fn floor(&self) -> Option<u64> {
        self.queued.section.owned().map(|owned| owned.floor)
    }

    /// True if the term has no numbers of it, and nobody waits for any.
    pub fn has_nothing(&self) -> bool {
        self.queued.section.owned().is_none() && self.queued.is_quiet()
    }
}

impl Named for SharedSection {
    type Name = SectionId;

    #[inline]
    fn name(&self) -> &SectionId {
        &self.id
    }
}
