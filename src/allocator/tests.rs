//! What the tests of this module share.

pub(super) mod transcript;
