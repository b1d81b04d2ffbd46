//! What requests have in common, whoever answers them: their keys, what refuses them, how they are counted, and what an
//! operation says of itself.

pub(super) mod counted;
pub(super) mod keys;
pub(super) mod operation;
pub(super) mod refused;
