//! The parts that tests of this module share.

pub(super) mod transcript;
