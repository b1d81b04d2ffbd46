//! What the tests of this module share.

pub(super) mod memory_table;
