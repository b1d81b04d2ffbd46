//! How much a key holds that waits for its first chunk. Pure.

use super::{own_slot::OwnSlot, pending::WAITING_CALL_BYTES, queued_section::QueuedSection};

/// What a key that is new to its term and waits for a bump holds, in bytes, besides its request: its slot, an entry of the
/// table of keys, its section beside the slot, the call that waits, and where the call's answer goes. A name holds its
/// bytes besides.
///
/// Tables are half to seven eighths full: what is in one counts one and a half times.
pub const WAITING_KEY_BYTES: usize = size_of::<OwnSlot<u64>>()
    + (size_of::<u64>() + size_of::<(u32, QueuedSection)>()) * 3 / 2
    + WAITING_CALL_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_waits_holds_some_450_bytes() {
        assert!((400..=500).contains(&WAITING_KEY_BYTES), "{WAITING_KEY_BYTES}");
    }
}
