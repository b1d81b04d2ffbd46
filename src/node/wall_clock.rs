//! The time that a leader has for ids, and whether its wall clock is believed.
//!
//! `believed_time.rs` says which time is believed, by the clocks of the voters. `ids_time.rs` reads the clocks, and refuses
//! where no time is believed.

pub(super) mod believed_time;
pub(super) mod ids_time;
