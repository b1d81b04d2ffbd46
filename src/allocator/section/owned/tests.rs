//! How long a chunk has lasted.

use super::*;

#[test]
fn a_chunk_lasts_as_long_as_the_clock_says_also_when_the_milliseconds_wrap() {
    let second = Duration::from_secs(1);
    let wraps = Instant::from_nanos((1 << 31) * 1_000_000);
    for came_at in [0, 5, (1 << 31) - 500, (1 << 32) - 1] {
        let came_at = Instant::from_nanos(came_at * 1_000_000);
        let time = ChunkTime::at(came_at);
        assert_eq!(time.lasted_at(came_at), Some(Duration::ZERO));
        assert_eq!(time.lasted_at(came_at.after(second)), Some(second));
        let much_later = came_at.after(wraps.since(Instant::default()));
        assert_eq!(time.lasted_at(much_later), Some(Duration::ZERO));
        assert_eq!(ChunkTime::UNKNOWN.lasted_at(came_at), None);
    }
}
