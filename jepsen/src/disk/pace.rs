//! How long fsyncs take.

use std::time::Duration;

use rand::{RngExt, rngs::StdRng};

/// How long an fsync takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    /// An fsync takes no time.
    #[default]
    Quick,
    /// An fsync takes at least and at most so long, each one another time.
    Slow(Duration, Duration),
    /// An fsync hangs until the disk has other faults.
    Hanging,
}

impl Pace {
    /// How long the next fsync takes; `None` if it takes no time.
    pub(super) fn draw(self, rng: &mut StdRng) -> Option<Duration> {
        match self {
            Pace::Quick => None,
            Pace::Slow(shortest, longest) => Some(rng.random_range(shortest..=longest)),
            Pace::Hanging => Some(Duration::MAX),
        }
    }
}

/// The wait of an fsync: the time that it takes, or other faults of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) takes: Duration,
    /// How often the faults had been replaced when it began.
    pub(super) replaced: u64,
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const SHORTEST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_millis(2_000);

    #[test]
    fn a_slow_disk_takes_another_time_for_each_fsync_and_the_seed_says_which() {
        let draw = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            let drawn = (0..100).map(|_| Pace::Slow(SHORTEST, LONGEST).draw(&mut rng).unwrap());
            drawn.collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert!(drawn.iter().all(|takes| (SHORTEST..=LONGEST).contains(takes)));
        assert!(drawn.iter().any(|takes| *takes < 2 * SHORTEST));
        assert!(drawn.iter().any(|takes| *takes > LONGEST - SHORTEST));
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(Pace::Quick.draw(&mut rng), None);
    }
}
