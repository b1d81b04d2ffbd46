//! A round of the hand that evicts keys.

use crate::allocator::key_table::hasher::SHARDS;

const _: () = assert!(SHARDS == u64::BITS, "a round has a bit for each shard");

/// A round of the hand. It goes around all shards at the same time, so that all have about as many vacant slots: new keys
/// come to all of them.
#[derive(Debug, Default)]
pub struct Round {
    /// The shard whose turn it may be.
    next: u32,
    /// The shards that the hand has come around in, a bit for each. Never all of them.
    ended: u64,
}

impl Round {
    /// The shard whose turn it is. The next one has its turn then.
    pub fn next_turn(&mut self) -> u32 {
        loop {
            let shard = self.next;
            self.next = (shard + 1) % SHARDS;
            if self.ended & (1 << shard) == 0 {
                return shard;
            }
        }
    }

    /// Notes that the hand has come around in a shard. True if that was the last one: the next round begins.
    pub fn end_shard(&mut self, shard: u32) -> bool {
        self.ended |= 1 << shard;
        let is_over = self.ended == u64::MAX;
        if is_over {
            self.ended = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_take_turns_until_each_has_ended() {
        let mut round = Round::default();
        assert_eq!((round.next_turn(), round.next_turn()), (0, 1));
        assert!(!round.end_shard(1));
        let turns: Vec<u32> = (0..SHARDS).map(|_| round.next_turn()).collect();
        assert!(!turns.contains(&1) && turns.iter().filter(|shard| **shard == 2).count() == 2);
        let ended = (0..SHARDS).map(|shard| round.end_shard(shard));
        assert_eq!(ended.filter(|is_over| *is_over).count(), 1);
        assert!((0..SHARDS).all(|_| round.next_turn() < SHARDS));
    }
}
