//! The wall clocks of the peers, as their answers to this leader's appends tell, and the appends of a leader that this node
//! follows. So the clock of a leader that dies is known to the next one.
//!
//! A reading is kept beside one of this node's clock that never jumps: it stays true while that clock does not stand still. A
//! peer that answers reads its clock between the question and its answer, so that half of the way bounds the error. Nothing
//! bounds the way of a message that answers nothing: its sender's clock seems to be behind by as much.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use crate::{
    clock::{Instant, whole_ms},
    sequence::NodeId,
};

/// A reading that is older says nothing: the peer's clock may have been set meanwhile.
const OLD: Duration = Duration::from_secs(60);

/// An answer that took longer does not say when the clock was read: the machine may have been suspended meanwhile.
const LATE: Duration = Duration::from_secs(5);

/// The last reading of each peer's wall clock.
#[derive(Default)]
pub struct PeerClocks(Mutex<BTreeMap<NodeId, ClockReading>>);

#[derive(Debug, Clone, Copy)]
struct ClockReading {
    /// Halfway between question and answer; or when a message arrived that answers nothing.
    at: Instant,
    /// Half of the way between question and answer, in milliseconds. Of a message that answers nothing no way is known.
    error_ms: u64,
    /// Milliseconds since 1970. `None`: the peer's release does not tell.
    wall_ms: Option<u64>,
}

/// How far a clock lies from another time. The greater distance is the greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockDistance {
    /// In milliseconds.
    pub ms: u64,
    /// Whether the time lies after what the clock shows.
    pub is_ahead: bool,
}

impl ClockDistance {
    /// How far `time_ms` is ahead of a clock that shows `clock_ms`.
    pub fn of(time_ms: u64, clock_ms: u64) -> Self {
        ClockDistance { ms: time_ms.abs_diff(clock_ms), is_ahead: time_ms > clock_ms }
    }

    /// In milliseconds, negative if the time lies before what the clock shows, as far as that fits.
    pub fn signed_ms(self) -> i64 {
        let ms = i64::try_from(self.ms).unwrap_or(i64::MAX);
        if self.is_ahead { ms } else { -ms }
    }
}

impl PeerClocks {
    /// A peer answered at `answered` what was sent at `sent`, and showed `wall_ms` meanwhile.
    pub fn record(&self, peer: NodeId, (sent, answered): (Instant, Instant), wall_ms: Option<u64>) {
        let way = answered.since(sent);
        if way > LATE {
            return;
        }
        let half = way / 2;
        let error_ms = whole_ms(half) + 1;
        self.keep(peer, ClockReading { at: sent.after(half), error_ms, wall_ms });
    }

    /// A message of a peer arrived, which answers nothing. The peer showed `wall_ms` when it sent the message.
    pub fn record_message(&self, peer: NodeId, arrived: Instant, wall_ms: u64) {
        self.keep(peer, ClockReading { at: arrived, error_ms: 1, wall_ms: Some(wall_ms) });
    }

    /// Keeps this reading, unless there is a later one: an append that waits for the disk tells of its time late.
    fn keep(&self, peer: NodeId, reading: ClockReading) {
        let mut readings = self.0.lock();
        if readings.get(&peer).is_none_or(|known| known.at <= reading.at) {
            readings.insert(peer, reading);
        }
    }

    /// How far `time_ms`, the time at `now`, lies from what a peer's wall clock shows then, less what the way may have taken.
    /// One whose release does not tell agrees. `None` if nothing is known of it, or not lately.
    pub fn distance(&self, peer: NodeId, now: Instant, time_ms: u64) -> Option<ClockDistance> {
        let reading = self.0.lock().get(&peer).copied()?;
        let elapsed = now.since(reading.at);
        if elapsed > OLD {
            return None;
        }
        let Some(wall_ms) = reading.wall_ms else {
            return Some(ClockDistance { ms: 0, is_ahead: false });
        };
        let distance = ClockDistance::of(time_ms, wall_ms.saturating_add(whole_ms(elapsed)));
        Some(ClockDistance { ms: distance.ms.saturating_sub(reading.error_ms), ..distance })
    }

    /// How far `time_ms`, the time at `now`, is ahead of what a peer's wall clock shows then, to show it. `None` if that is not
    /// known.
    pub fn ahead_ms(&self, peer: NodeId, now: Instant, time_ms: u64) -> Option<i64> {
        let shows = self.shows_ms(peer, now)?;
        Some(ClockDistance::of(time_ms, shows).signed_ms())
    }

    /// The reading of a peer's wall clock at `now`. `None` if it is not known.
    pub fn shows_ms(&self, peer: NodeId, now: Instant) -> Option<u64> {
        let reading = self.0.lock().get(&peer).copied()?;
        let elapsed = now.since(reading.at);
        let wall_ms = reading.wall_ms.filter(|_| elapsed <= OLD)?;
        Some(wall_ms.saturating_add(whole_ms(elapsed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_reading_goes_on_with_the_clock_that_never_jumps_and_half_of_the_way_is_its_error() {
        let clocks = PeerClocks::default();
        clocks.record(2, (at(1_000), at(1_200)), Some(50_000));
        let ahead =
            |now, time_ms| clocks.distance(2, at(now), time_ms).map(ClockDistance::signed_ms);
        assert_eq!(ahead(1_100, 50_000), Some(0));
        assert_eq!(ahead(1_100, 50_101), Some(0), "within the error");
        assert_eq!(ahead(1_100, 51_101), Some(1_000));
        assert_eq!(clocks.ahead_ms(2, at(1_100), 51_101), Some(1_101));
        assert_eq!(ahead(11_100, 51_101), Some(-8_798));
        assert_eq!(ahead(11_100, u64::MAX), Some(i64::MAX));
    }

    #[test]
    fn an_answer_that_took_seconds_tells_no_time() {
        let clocks = PeerClocks::default();
        clocks.record(2, (at(0), at(5_001)), Some(50_000));
        assert_eq!(clocks.distance(2, at(5_001), 50_000), None);
    }

    #[test]
    fn a_message_tells_its_senders_clock_which_seems_to_be_behind_by_its_way() {
        let clocks = PeerClocks::default();
        // It was sent 300 ms before.
        clocks.record_message(2, at(1_000), 50_000);
        let ahead =
            |now, time_ms| clocks.distance(2, at(now), time_ms).map(ClockDistance::signed_ms);
        assert_eq!(ahead(1_000, 50_300), Some(299), "one of them is the error of whole numbers");
        assert_eq!(ahead(11_000, 60_000), Some(0));
        assert_eq!(ahead(61_001, 60_000), None, "it is old");
        clocks.record(2, (at(1_000), at(1_000)), Some(70_000));
        assert_eq!(clocks.shows_ms(2, at(1_000)), Some(70_000), "it answers this leader now");
    }

    #[test]
    fn a_reading_that_is_told_late_does_not_replace_a_later_one() {
        let clocks = PeerClocks::default();
        clocks.record(2, (at(2_000), at(2_000)), Some(70_000));
        clocks.record_message(2, at(1_999), 50_000);
        clocks.record(2, (at(1_000), at(2_000)), Some(50_000));
        assert_eq!(clocks.shows_ms(2, at(2_000)), Some(70_000));
        clocks.record_message(2, at(2_001), 80_000);
        assert_eq!(clocks.shows_ms(2, at(2_001)), Some(80_000));
    }

    #[test]
    fn an_old_reading_says_nothing_and_a_peer_that_tells_no_time_agrees() {
        let clocks = PeerClocks::default();
        assert_eq!(clocks.distance(2, at(0), 5), None);
        clocks.record(2, (at(0), at(0)), None);
        assert_eq!(clocks.distance(2, at(60_000), 5).map(|distance| distance.ms), Some(0));
        assert_eq!(clocks.ahead_ms(2, at(0), 5), None);
        assert_eq!(clocks.distance(2, at(60_001), 5), None);
    }
}
