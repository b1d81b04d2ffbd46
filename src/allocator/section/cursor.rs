//! Where a key stands, which numbers a term owns of its section, and the slot that holds both. Pure.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    allocator::key_table::{KeyOf, NOBODY, Slot, StoredKey},
    clock::Instant,
    sequence::{NamespaceConfig, NamespaceId, Progression, Range},
};

// Where one key stands.
//
// A cursor hands out numbers by itself up to its fast limit; beyond it, the section decides. It also knows whether its
// key was asked for lately.
//
// Invariant: a cursor only moves up.

/// The fast limit of a cursor that must ask its section. Numbers begin at 1, so none is within it.
const ASK_SECTION: u64 = 0;
/// This bit of the fast limit says that the key was asked for lately. Numbers have 63 bits.
const IN_USE: u64 = 1 << 63;

/// Where a key stands.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The next number, if the section has that many.
    next: u64,
    /// Numbers up to this one are handed out without asking the section. Also holds [`IN_USE`].
    fast_limit: u64,
}

impl Cursor {
    /// A key that was not asked for in this term: the section gives its first number.
    pub fn new() -> Self {
        Cursor { next: 1, fast_limit: ASK_SECTION | IN_USE }
    }

    /// A key whose next number is `next`, if its section has that many.
    pub fn at(next: u64) -> Self {
        Cursor { next, fast_limit: ASK_SECTION | IN_USE }
    }

    /// Takes the next `count` (at least 1) numbers. `None` if the section must be asked.
    #[inline]
    pub fn take(&mut self, config: &NamespaceConfig, count: u64) -> Option<Range> {
        let span = (count - 1).checked_mul(config.increment)?;
        let last = self.next.checked_add(span)?;
        if last > self.fast_limit() || last > config.max {
            return None;
        }
        Some(self.advance(last, config.increment))
    }

    /// Takes the numbers up to and including `last`, which the section has granted.
    #[inline]
    pub fn advance(&mut self, last: u64, increment: u64) -> Range {
        let first = self.next;
        assert!(first <= last, "a cursor only moves up: {first} to {last}");
        // A division for each call is too much for a release build.
        debug_assert!((last - first).is_multiple_of(increment));
        // Both are at most 2^63 - 1.
        self.next = last + increment;
        self.fast_limit |= IN_USE;
        Range { first, last, increment }
    }

    /// The next number, if the section has that many.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Skips the numbers below `lowest`.
    pub fn raise_to(&mut self, lowest: u64) {
        self.next = self.next.max(lowest);
    }

    /// The last number taken, if `lowest` was the first that could be taken. `None` if none was.
    pub fn last(&self, lowest: u64, increment: u64) -> Option<u64> {
        (self.next > lowest).then(|| self.next - increment)
    }

    /// Numbers up to this one are handed out without asking the section.
    #[inline]
    pub fn fast_limit(&self) -> u64 {
        self.fast_limit & !IN_USE
    }

    /// Lets the key take numbers up to `limit` without asking the section.
    pub fn set_fast_limit(&mut self, limit: u64) {
        assert!(limit < IN_USE, "{limit} is no number");
        self.fast_limit = limit | self.fast_limit & IN_USE;
    }

    /// Makes the next call for this key ask the section.
    pub fn stop_fast_path(&mut self) {
        self.set_fast_limit(ASK_SECTION);
    }

    /// True if the key was asked for since the last call of [`Cursor::take_in_use`].
    pub fn is_in_use(&self) -> bool {
        self.fast_limit & IN_USE > 0
    }

    /// True if the key was asked for since the last call of this.
    pub fn take_in_use(&mut self) -> bool {
        let was = self.is_in_use();
        self.fast_limit &= !IN_USE;
        was
    }
}

// The numbers that one term owns of a section, and what it has used of them.
//
// Invariant: no number at or below the floor, and none above the ceiling, is this term's.

/// The numbers that a term owns of a section: those above `floor`, up to and including `ceiling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// No key takes a number at or below this one. It is `old` of the first chunk, up to which earlier terms may have
    /// handed out numbers, or the floor that the section was raised to since.
    pub floor: u64,
    /// The ceiling.
    pub ceiling: u64,
    /// Above this number a bump is asked for.
    pub refill_at: u64,
    /// When the last chunk was granted.
    pub granted_at: GrantTime,
}

/// When a chunk was granted: milliseconds of the node's clock, modulo 2^31, or that this is not known, because it was
/// granted on another node. It takes 4 bytes.
///
/// A chunk that lasts for 24 days seems to have lasted for a moment: its section's next margin is then the
/// greatest one, and its step doubles, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantTime(u32);

impl Owned {
    /// How many numbers are left for the key at `cursor`, which is moved above the floor.
    pub fn left(&self, cursor: &mut Cursor, config: &NamespaceConfig) -> u64 {
        let Some(lowest) = self.lowest(config.progression()) else {
            return 0;
        };
        cursor.raise_to(lowest);
        let highest = self.ceiling.min(config.max);
        highest.checked_sub(cursor.next()).map_or(0, |span| span / config.increment + 1)
    }

    /// The last number that this term knows to be handed out for the key at `cursor`: 0 for none.
    pub fn current(&self, cursor: Option<&Cursor>, progression: Progression) -> u64 {
        let lowest = self.lowest(progression);
        let last = lowest.and_then(|lowest| cursor?.last(lowest, progression.increment));
        last.unwrap_or(self.floor)
    }

    /// The first number above the floor, whatever the namespace's `max` is now: it may be lowered below what was handed out.
    /// `None` at the end of the number space.
    pub fn lowest(&self, progression: Progression) -> Option<u64> {
        progression.unbounded().first_above(self.floor)
    }
}

impl GrantTime {
    const MILLIS_MASK: u32 = u32::MAX >> 1;

    /// A chunk that was granted on another node.
    pub const UNKNOWN: GrantTime = GrantTime(u32::MAX);

    /// The time of a grant at `now`.
    pub fn at(now: Instant) -> GrantTime {
        let millis = now.as_nanos() / 1_000_000;
        GrantTime(millis as u32 & Self::MILLIS_MASK)
    }

    /// How long the chunk has lasted at `now`. `None` if that is not known.
    pub fn lasted_at(self, now: Instant) -> Option<Duration> {
        let millis = Self::at(now).0.wrapping_sub(self.0) & Self::MILLIS_MASK;
        (self != Self::UNKNOWN).then(|| Duration::from_millis(millis.into()))
    }
}

// What a term has of a key's section, for people to look at.

/// What a term has of a key's section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The ceiling.
    pub ceiling: u64,
    /// The last number that the term knows to be handed out for the key: 0 for none.
    pub last: u64,
    /// When the last chunk was granted.
    pub granted_at: GrantTime,
}

impl Holding {
    /// What a term that owns `owned` has for the key at `cursor`; `None` for a key that was not asked for.
    pub fn new(owned: &Owned, cursor: Option<&Cursor>, progression: Progression) -> Self {
        Holding {
            ceiling: owned.ceiling,
            last: owned.current(cursor, progression),
            granted_at: owned.granted_at,
        }
    }

    /// What a term has of a section that it evicted after number `last`.
    pub fn gone(last: u64) -> Self {
        Holding { ceiling: last, last, granted_at: GrantTime::UNKNOWN }
    }
}

// A key that has a section of its own, and the section: one slot of 40 bytes for an id.
//
// The slot holds the key's cursor and what the term owns of the section. Three facts are not stored,
// because they follow from others:
//
// - `refill_at` is the cursor's fast limit.
// - The floor is the last number before the cursor. If numbers were taken above the floor, the key cannot
//   take any below the cursor, so that the floor itself is of no use any more.
// - The step is the namespace's.
//
// So a slot cannot hold every section. `shard/own_keys.rs` keeps the others beside the slots.
//
// Invariant: what was put into a slot and what comes out of it hand out the same numbers, and answer the
// same to `Current`.

/// A key and its section. What every call reads comes first, in 32 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct OwnSlot<K> {
    key: K,
    /// Where the key stands.
    pub cursor: Cursor,
    /// The namespace of the key.
    pub namespace: NamespaceId,
    granted_at: GrantTime,
    /// `None`: this term has no chunk of the section.
    ceiling: Option<NonZeroU64>,
}

impl<K: StoredKey> Slot for OwnSlot<K> {
    type Key = K;

    fn vacant() -> Self {
        OwnSlot::new(K::default(), NOBODY)
    }

    #[inline]
    fn key(&self) -> &KeyOf<Self> {
        self.key.borrow()
    }

    #[inline]
    fn namespace(&self) -> NamespaceId {
        self.namespace
    }
}

impl<K: StoredKey> OwnSlot<K> {
    /// A key that was not asked for in this term.
    pub fn new(key: K, namespace: NamespaceId) -> Self {
        OwnSlot {
            key,
            cursor: Cursor::new(),
            namespace,
            granted_at: GrantTime::default(),
            ceiling: None,
        }
    }

    /// A key that was asked for in a term of another node, and its section. That node's slot held `next`, and what
    /// it owned of the section: the ceiling, and the number above which a bump is asked for. `None` if the section
    /// is not in the slot.
    pub fn inherited(
        key: K, namespace: NamespaceId, next: u64, owned: Option<(NonZeroU64, u64)>,
    ) -> Self {
        let mut slot = OwnSlot::new(key, namespace);
        slot.inherit(next, owned);
        slot
    }

    /// As [`OwnSlot::inherited`], for a key that is here already.
    pub fn inherit(&mut self, next: u64, owned: Option<(NonZeroU64, u64)>) {
        self.cursor = Cursor::at(next);
        self.ceiling = owned.map(|(ceiling, _)| ceiling);
        if let Some((_, refill_at)) = owned {
            self.cursor.set_fast_limit(refill_at);
        }
        self.granted_at = GrantTime::UNKNOWN;
    }

    /// The key, as it is stored.
    pub fn stored_key(&self) -> &K {
        &self.key
    }

    /// The ceiling of the section in the slot, and the number above which a bump is asked for. `None` if this term has
    /// no chunk of it, or it is not in the slot.
    pub fn limits(&self) -> Option<(NonZeroU64, u64)> {
        Some((self.ceiling?, self.cursor.fast_limit()))
    }

    /// What the term owns of the section, as it was put last.
    pub fn owned(&self, progression: Progression) -> Option<Owned> {
        Some(Owned {
            floor: last_before(self.cursor.next(), progression),
            ceiling: self.ceiling?.get(),
            refill_at: self.cursor.fast_limit(),
            granted_at: self.granted_at,
        })
    }

    /// Puts what the term owns of the section into the slot, and lets the key take numbers up to
    /// `refill_at` without asking. False if it does not fit: the floor is no number of the namespace, and
    /// nothing was taken above it yet.
    #[must_use]
    pub fn put(&mut self, owned: Option<&Owned>, progression: Progression) -> bool {
        let Some(owned) = owned else {
            self.ceiling = None;
            self.cursor.stop_fast_path();
            return true;
        };
        let current = owned.current(Some(&self.cursor), progression);
        if let Some(lowest) = owned.lowest(progression) {
            self.cursor.raise_to(lowest);
        }
        if last_before(self.cursor.next(), progression) != current {
            return false;
        }
        self.cursor.set_fast_limit(owned.refill_at);
        self.granted_at = owned.granted_at;
        self.ceiling = NonZeroU64::new(owned.ceiling);
        let held = self.owned(progression);
        assert!(
            held.is_some_and(|held| held.ceiling == owned.ceiling
                && held.current(Some(&self.cursor), progression) == current),
            "the slot holds {held:?} of {owned:?}"
        );
        true
    }
}

/// The last number of the namespace before `next`: 0 for none.
fn last_before(next: u64, progression: Progression) -> u64 {
    progression.unbounded().last_at_or_below(next - 1)
}

#[cfg(test)]
mod tests;
