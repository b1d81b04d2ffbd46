//! The slot of a key that shares its section with others.

use crate::{
    allocator::{
        key_table::{NOBODY, Slot},
        section::cursor::Cursor,
    },
    sequence::NamespaceId,
};

/// A key of a shared section. The fields that every call reads come first; all of it is half a cache line.
#[derive(Debug)]
#[repr(C)]
pub struct SharedSlot {
    /// The id.
    pub id: u64,
    /// Where the key stands.
    pub cursor: Cursor,
    /// The namespace of the id.
    pub namespace: NamespaceId,
    /// The number of the key's section.
    pub section: u32,
}

impl Slot for SharedSlot {
    type Key = u64;

    fn vacant() -> Self {
        SharedSlot { id: 0, cursor: Cursor::new(), namespace: NOBODY, section: u32::MAX }
    }

    #[inline]
    fn key(&self) -> &u64 {
        &self.id
    }

    #[inline]
    fn namespace(&self) -> NamespaceId {
        self.namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_shared_key_takes_half_a_cache_line() {
        assert_eq!(size_of::<SharedSlot>(), 32);
    }
}
