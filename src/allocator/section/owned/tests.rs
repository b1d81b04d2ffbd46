//! How long a chunk has lasted.

use super::*;

#[test]
fn a_chunk_lasts_as_long_as_the_clock_says_also_when_the_milliseconds_wrap() {
    let second = Duration::from_secs(1);
    let wraps = Instant::from_nanos((1 << 31) * 1_000_000);
    for granted in [0, 5, (1 << 31) - 500, (1 << 32) - 1] {
        let granted = Instant::from_nanos(granted * 1_000_000);
        let time = GrantTime::at(granted);
        assert_eq!(time.lasted_at(granted), Some(Duration::ZERO));
        assert_eq!(time.lasted_at(granted.after(second)), Some(second));
        let much_later = granted.after(wraps.since(Instant::default()));
        assert_eq!(time.lasted_at(much_later), Some(Duration::ZERO));
        assert_eq!(GrantTime::UNKNOWN.lasted_at(granted), None);
    }
}
