//! Randomness comes from here alone, so that a simulation can decide it.
//!
//! Invariant: it is the system's, unless the thread was given a seed. Then everything that the thread draws
//! follows from the seed.

use std::{cell::RefCell, convert::Infallible};

use rand::{Rng as _, SeedableRng, TryRng, rngs::StdRng};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Gives this thread a seed: everything that it draws from now on follows from `seed`. For simulations, which run on
/// one thread each.
pub fn seed_this_thread(seed: u64) {
    SEEDED.set(Some(StdRng::seed_from_u64(seed)));
}

/// A random 64-bit integer. Without a seed nobody can foretell it: the generator is cryptographic, and the system seeds it.
pub fn u64() -> u64 {
    Random.next_u64()
}

/// The thread's source of randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Random {
    fn draw<T>(seeded: impl FnOnce(&mut StdRng) -> T, system: impl FnOnce() -> T) -> T {
        let drawn = SEEDED.with_borrow_mut(|rng| rng.as_mut().map(seeded));
        drawn.unwrap_or_else(system)
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(Self::draw(|rng| rng.next_u32(), || rand::rng().next_u32()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(Self::draw(|rng| rng.next_u64(), || rand::rng().next_u64()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_what_its_thread_draws() {
        let draw = |seed: Option<u64>| {
            std::thread::spawn(move || {
                seed.inspect(|seed| seed_this_thread(*seed));
                [u64(), u64()]
            })
            .join()
            .unwrap()
        };
        assert_eq!(draw(Some(7)), draw(Some(7)));
        assert_ne!(draw(Some(7)), draw(Some(8)));
        assert_ne!(draw(None), draw(None));
    }
}
