//! The cursors of keys that share sections, wherever they are.

use super::{pages::Pages, shared_slot::SharedSlot};
use crate::{
    allocator::{
        key_table::KeyTable,
        section::{cursor::Cursor, queued_section::Cursors},
    },
    sequence::{Key, Namespace},
};

/// The cursors of the keys of one namespace.
pub struct NamespaceCursors<'a> {
    /// Those in slots.
    pub keys: &'a mut KeyTable<SharedSlot>,
    /// Those in pages.
    pub pages: &'a mut Pages,
    /// The namespace.
    pub namespace: &'a Namespace,
}

impl Cursors for NamespaceCursors<'_> {
    fn with<R>(
        &mut self, hash: u64, key: Key<'_>, act: impl FnOnce(&mut Cursor) -> R,
    ) -> Option<R> {
        let Key::Id(id) = key else {
            return None;
        };
        if let Some(number) = self.keys.find(hash, self.namespace.id, &id) {
            return (self.keys.found_mut(number)).map(|slot| act(&mut slot.cursor));
        }
        self.pages.with(self.namespace, id, |_, cursor| act(cursor))
    }
}
