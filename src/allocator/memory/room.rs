//! How full a memory is: above which part of its bound keys are evicted (by `releaser.rs`), and above which it has no room for
//! more keys. While it has none, keys that are new to the term wait until others were evicted, unless they share a section of
//! which the term has numbers. A key that waits takes room itself: so once as many wait as may, a key that is new to the term
//! is refused.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use tokio::sync::Notify;

use crate::allocator::{
    key_table::hasher::SHARDS,
    section::{own_slot::OwnSlot, pending::WAITING_CALL_BYTES, queued_section::QueuedSection},
};

/// Keys are evicted while the memory uses more than this many sixteenths of its bound.
const EVICT_ABOVE: usize = 14;
/// Then they are evicted until it uses no more than this many sixteenths.
const EVICT_TO: usize = 13;
/// Above this many sixteenths there is no room for new keys. The rest is for calls that wait.
const FULL_ABOVE: usize = 15;
const _: () = assert!(EVICT_TO < EVICT_ABOVE && EVICT_ABOVE < FULL_ABOVE && FULL_ABOVE < 16);

/// How many new keys come before the memory is measured again.
const NEW_KEYS: usize = 1_024;

/// How many calls for new keys may always wait in a shard, however small the bound is: with all shards, those of a whole
/// message of new keys that have sections of their own, of which some 1 024 fall on each. Ids that share a section are all
/// in one shard: of more than these the rest is refused until the section has numbers.
const SHARD_WAITERS_MIN: usize = 1_536;

/// Whether there is room for more keys.
#[derive(Debug)]
pub struct Room {
    bytes_max: usize,
    is_full: AtomicBool,
    new_keys: AtomicUsize,
    to_release: Notify,
    changed: Notify,
}

impl Room {
    /// Room for `bytes_max` bytes.
    pub fn of(bytes_max: usize) -> Self {
        Room {
            bytes_max,
            is_full: AtomicBool::default(),
            new_keys: AtomicUsize::default(),
            to_release: Notify::default(),
            changed: Notify::default(),
        }
    }

    /// True if keys must be evicted from a memory that uses so many bytes.
    pub fn is_nearly_full(&self, used: usize) -> bool {
        used > self.sixteenths(EVICT_ABOVE)
    }

    /// True if no further key must be evicted from a memory that was nearly full, and uses so many bytes by now.
    pub fn is_enough(&self, used: usize) -> bool {
        used <= self.sixteenths(EVICT_TO)
    }

    /// Notes that the memory uses so many bytes, and so whether a key may be added.
    pub fn note_used(&self, used: usize) {
        self.set_full(used > self.sixteenths(FULL_ABOVE));
    }

    /// So many sixteenths of the bound.
    fn sixteenths(&self, parts: usize) -> usize {
        self.bytes_max - self.bytes_max / 16 * (16 - parts)
    }

    /// Admits one more call for a new key to a shard where `shard_waiters` wait, while the memory has room. When it is full,
    /// what waits in all shards must fit into the last sixteenth of the bound; each shard admits [`SHARD_WAITERS_MIN`] in
    /// any case.
    ///
    /// # Errors
    /// The bound, in megabytes (2^20 bytes), if it may not.
    pub fn admit(&self, shard_waiters: usize) -> Result<(), u64> {
        let most = self.bytes_max / 16 / WAITING_KEY_BYTES / SHARDS as usize;
        match self.is_full() && shard_waiters >= most.max(SHARD_WAITERS_MIN) {
            true => Err(self.bytes_max as u64 >> 20),
            false => Ok(()),
        }
    }

    /// Notes that a key was added.
    pub fn note_new_key(&self) {
        if self.new_keys.fetch_add(1, Relaxed) % NEW_KEYS == NEW_KEYS - 1 {
            self.wake_releaser();
        }
    }

    /// Makes [`Room::to_release`] return.
    pub fn wake_releaser(&self) {
        self.to_release.notify_one();
    }

    /// Waits until the memory should be measured: many keys were added, or its gate was closed.
    pub async fn to_release(&self) {
        self.to_release.notified().await;
    }

    /// True if no key should be added.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Acquire)
    }

    /// Notes whether a key may be added. Calls that wait go on if so.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Release);
        if !is_full {
            self.changed.notify_waiters();
        }
    }

    /// The releaser has ended an attempt to make room. Calls that wait go on, also if there is no room: they take room
    /// themselves.
    pub fn attempt_over(&self) {
        self.changed.notify_waiters();
    }

    /// Nobody evicts keys any more.
    pub fn give_up(&self) {
        self.set_full(false);
        self.wake_releaser();
    }

    /// Returns once there is room, or once the releaser has found nothing more to evict.
    pub async fn wait(&self) {
        let changed = self.changed.notified();
        if self.is_full() {
            self.wake_releaser();
            changed.await;
        }
    }
}

/// The memory of a key that is new to its term and waits for a bump, in bytes, besides its request: its slot, an entry of the
/// table of keys, its section beside the slot, the call that waits, and where the call's answer goes. A name holds its
/// bytes besides.
///
/// Tables are half to seven eighths full: what is in one counts one and a half times.
pub const WAITING_KEY_BYTES: usize = size_of::<OwnSlot<u64>>()
    + (size_of::<u64>() + size_of::<(u32, QueuedSection)>()) * 3 / 2
    + WAITING_CALL_BYTES;

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn as_many_new_keys_wait_in_a_full_memory_as_the_last_sixteenth_of_its_bound_holds() {
        let room = Room::of(2_048 << 20);
        assert_eq!(room.admit(usize::MAX), Ok(()), "there is room");
        room.set_full(true);
        let bytes = |waiters: usize| waiters * WAITING_KEY_BYTES * SHARDS as usize;
        let most = (1..).take_while(|waiters| bytes(*waiters) <= 128 << 20).last();
        let most = most.expect("more than one");
        assert_eq!(room.admit(most - 1), Ok(()));
        assert_eq!(room.admit(most), Err(2_048));
        let room = Room::of(0);
        room.set_full(true);
        assert_eq!(room.admit(65_536 / SHARDS as usize + 200), Ok(()), "a message");
        assert_eq!(room.admit(SHARD_WAITERS_MIN), Err(0));
    }

    #[test]
    fn keys_are_evicted_above_seven_eighths_of_the_bound_and_new_ones_wait_in_the_last_sixteenth() {
        let room = Room::of(1_600);
        assert!(!room.is_nearly_full(1_400));
        assert!(room.is_nearly_full(1_401));
        assert!(!room.is_enough(1_301));
        assert!(room.is_enough(1_300));
        for (used, is_full) in [(1_500, false), (1_501, true), (1_500, false)] {
            room.note_used(used);
            assert_eq!(room.is_full(), is_full, "{used}");
        }
        let unbounded = Room::of(usize::MAX);
        assert!(!unbounded.is_nearly_full(1 << 40));
    }

    #[tokio::test]
    async fn who_waits_for_room_goes_on_once_there_is_some_or_an_attempt_is_over() {
        let room = Room::of(usize::MAX);
        assert!(room.wait().now_or_never().is_some());
        for goes_on in [|room: &Room| room.set_full(false), Room::attempt_over] {
            room.set_full(true);
            let mut waiting = pin!(room.wait());
            assert_eq!(waiting.as_mut().now_or_never(), None);
            room.set_full(true);
            assert_eq!(waiting.as_mut().now_or_never(), None, "still full");
            goes_on(&room);
            assert_eq!(waiting.now_or_never(), Some(()));
        }
    }

    #[test]
    fn a_releaser_that_is_woken_before_it_waits_does_not_wait() {
        let room = Room::of(1 << 20);
        room.wake_releaser();
        assert_eq!(room.to_release().now_or_never(), Some(()));
        assert_eq!(room.to_release().now_or_never(), None);
    }

    #[test]
    fn a_key_that_waits_holds_some_450_bytes() {
        assert!((400..=500).contains(&WAITING_KEY_BYTES), "{WAITING_KEY_BYTES}");
    }
}
