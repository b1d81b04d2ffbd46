//! The common parts of all requests: their keys, checks and refusals, their count, and the description of an operation.
//!
//! `keys` has the keys of a message, and `checks` checks it before it is carried out. `refused` makes a refusal of the reason
//! that a term gives. Of many keys some may be refused (`refused_keys`), wait (`waiting_keys`), or be left to the next leader
//! (`late_keys`). `request_id` has the name that a caller gives a message. `counted` counts calls and refusals for their
//! namespace. `operation` is the description of an operation, and `ongoing` tells of a change that goes on.

pub(super) mod checks;
pub(super) mod counted;
pub(super) mod keys;
pub(super) mod late_keys;
pub(super) mod ongoing;
pub(super) mod operation;
pub(super) mod refused;
pub(super) mod refused_keys;
pub(super) mod request_id;
pub(super) mod waiting_keys;
