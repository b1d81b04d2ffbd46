//! Raises floors: of one key, or of all keys of a section. Pure.
//!
//! A key's floor is where its cursor stands. The floor of a section is that of what the term owns of it (`Owned`): no key of
//! the section takes a number at or below it, whether it was asked for before or not.

use super::{
    Section, Supply,
    cursor::Cursor,
    owned::{ChunkTime, Owned},
};
use crate::{
    allocator::{floor::Raised, outcome::Why},
    sequence::NamespaceConfig,
};

/// How the numbers up to a floor can be passed over.
enum Pass<'o> {
    /// They are this term's, up to the last one.
    Now {
        /// The last one.
        last: u64,
        /// The part that the term owns.
        owned: &'o mut Owned,
    },
    /// There is nothing to pass over, or the floor is refused.
    Ended(Result<Raised, Why>),
    /// A bump must bring them first.
    AfterBump,
}

impl Section {
    /// Moves the key at `cursor` above `at_least`: takes all numbers up to there, for nobody. Asks for no refill.
    /// `None` if a bump must bring them first.
    pub fn raise(
        &mut self, cursor: &mut Cursor, config: &NamespaceConfig, at_least: u64,
    ) -> Option<Result<Raised, Why>> {
        self.left(cursor, config);
        let progression = config.progression();
        let before = self.owned().map(|o| o.current(Some(cursor), progression));
        let last = match self.pass(config, at_least, before) {
            Pass::Now { last, .. } => last,
            Pass::Ended(raised) => return Some(raised),
            Pass::AfterBump => return None,
        };
        let range = cursor.advance(last, config.increment);
        Some(Ok(Raised {
            floor: at_least,
            is_higher: true,
            passed: (range.last - range.first) / config.increment + 1,
        }))
    }

    /// Moves all keys of the section above `at_least`, as [`Section::raise`] moves one. Each of them must ask the section
    /// before it takes another number. Those that stand higher stay where they are, so that the floor in force is that
    /// of a key that was not asked for. It is also such a key's numbers that are counted as passed over.
    pub fn raise_section(
        &mut self, config: &NamespaceConfig, at_least: u64,
    ) -> Option<Result<Raised, Why>> {
        let before = self.owned().map(|owned| owned.floor);
        let (last, owned) = match self.pass(config, at_least, before) {
            Pass::Now { last, owned } => (last, owned),
            Pass::Ended(raised) => return Some(raised),
            Pass::AfterBump => return None,
        };
        let was = std::mem::replace(&mut owned.floor, last);
        Some(Ok(Raised {
            floor: at_least,
            is_higher: true,
            passed: config.progression().unbounded().count_between(was, last),
        }))
    }

    /// How the floor comes to `at_least`. It was at `before`, unless the term owns nothing. Forgets when the last chunk came,
    /// if numbers are passed over or a bump must bring them: how long the chunk lasts does not tell then how fast numbers are
    /// taken.
    fn pass(&mut self, config: &NamespaceConfig, at_least: u64, before: Option<u64>) -> Pass<'_> {
        if at_least > config.max {
            return Pass::Ended(Err(Why::AboveMax { max: config.max }));
        }
        if let Some(keys_max) = self.over_keys_max_of(config) {
            return Pass::Ended(Err(Why::OverKeysMax { keys_max }));
        }
        let last = config.progression().unbounded().last_at_or_below(at_least);
        let unchanged = |floor: u64| {
            Pass::Ended(Ok(Raised {
                floor: floor.max(at_least),
                is_higher: floor < at_least,
                passed: 0,
            }))
        };
        if let Some(before) = before.filter(|before| last <= *before) {
            return unchanged(before);
        }
        let is_exhausted = self.is_exhausted(config.max);
        if let Some(owned) = self.owned_mut() {
            owned.came_at = ChunkTime::UNKNOWN;
            if last <= owned.ceiling {
                assert!(owned.floor < last, "{last} is above {owned:?}");
                return Pass::Now { last, owned };
            }
        }
        match is_exhausted {
            // No number is left under `max`, so that every later one lies above it.
            true => unchanged(config.max),
            false => Pass::AfterBump,
        }
    }

    fn owned_mut(&mut self) -> Option<&mut Owned> {
        match &mut self.supply {
            Supply::Untouched | Supply::OverKeysMax { .. } => None,
            Supply::Open(owned) => Some(owned),
            Supply::Exhausted { owned, .. } => owned.as_mut(),
        }
    }
}
