//! The common parts of all requests: their keys, checks and refusals, their count, and the description of an operation.
//!
//! `checks` is before a request is carried out, and `refused` after it was not: it makes a refusal of what a term says. Of many
//! keys some may be refused (`refused_keys`), wait (`waiting_keys`), or be left to the next leader (`late_keys`). `request_id`
//! is what a caller calls a message.

pub(super) mod checks;
pub(super) mod counted;
pub(super) mod keys;
pub(super) mod late_keys;
pub(super) mod operation;
pub(super) mod refused;
pub(super) mod refused_keys;
pub(super) mod request_id;
pub(super) mod waiting_keys;
