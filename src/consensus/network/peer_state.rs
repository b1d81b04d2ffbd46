//! What this node remembers of its peers: their clocks and disks, and how far each has the log.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    clock::{Instant, whole_ms},
    proto::peer,
    sequence::NodeId,
    storage::{AppliedView, LowDisk},
};

/// What this node remembers of its peers.
#[derive(Default)]
pub struct PeerState {
    /// Up to where each has acknowledged the log.
    pub acknowledged: AcknowledgedIndexes,
    /// What they say of the room on their disks.
    pub disks: PeerDisks,
    /// What they say of the speed of their disks.
    pub flushes: PeerFlushes,
    /// What is kept of the log for those that are sent snapshots.
    pub log_holds: LogHolds,
    /// What their wall clocks show.
    pub clocks: PeerClocks,
    /// Since when this node asks them for votes, or whether it would get them. `None` once it follows a leader, or leads. For
    /// the metrics: nothing is decided by it.
    pub candidacy: Mutex<Option<Instant>>,
    /// The table of this node, once it is open: peers are told how many changes of who may do what it knows.
    table: OnceLock<AppliedView>,
}

impl PeerState {
    /// Tells peers from now on how many changes of who may do what this table knows.
    pub fn tell_principals_of(&self, table: AppliedView) {
        // A group opens its table once.
        drop(self.table.set(table));
    }

    /// How many changes of who may do what this node knows.
    pub fn principals_version(&self) -> u64 {
        self.table.get().map_or(0, |table| table.principals().version())
    }
}

// What the wall clocks of the peers show, as their answers to this leader's appends tell.
//
// A reading is kept beside one of this node's clock that never jumps: it stays true while this node's wall clock does.
// A peer reads its clock between the question and its answer, so that half of the way bounds the error.

/// A reading that is older says nothing: the peer's clock may have been set meanwhile.
const OLD: Duration = Duration::from_secs(60);

/// An answer that took longer does not say when the clock was read: the machine may have been suspended meanwhile.
const LATE: Duration = Duration::from_secs(5);

/// The last reading of each peer's wall clock.
#[derive(Default)]
pub struct PeerClocks(Mutex<BTreeMap<NodeId, Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Halfway between question and answer.
    at: Instant,
    /// Half of the way between them, in milliseconds.
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
        self.0.lock().insert(peer, Reading { at: sent.after(half), error_ms, wall_ms });
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

    /// What a peer's wall clock shows at `now`. `None` if that is not known.
    pub fn shows_ms(&self, peer: NodeId, now: Instant) -> Option<u64> {
        let reading = self.0.lock().get(&peer).copied()?;
        let elapsed = now.since(reading.at);
        let wall_ms = reading.wall_ms.filter(|_| elapsed <= OLD)?;
        Some(wall_ms.saturating_add(whole_ms(elapsed)))
    }
}

// Which peers have said that their disks are low.
//
// Invariant: what counts of a peer is what its last answer said. One that says nothing any more may have run into its
// full disk.

/// The peers whose disks are low.
#[derive(Default)]
pub struct PeerDisks(Mutex<BTreeMap<NodeId, LowDisk>>);

impl PeerDisks {
    /// Notes what an answer of `peer` says of its disk.
    pub fn note(&self, peer: NodeId, told: Option<peer::LowDisk>) {
        let mut low = self.0.lock();
        match told {
            None => drop(low.remove(&peer)),
            Some(peer::LowDisk { free_mb, reserve_mb }) => {
                low.insert(peer, LowDisk { free_mb, reserve_mb, follower: Some(peer) });
            }
        }
    }

    /// The peers whose disks are low.
    pub fn low(&self) -> BTreeMap<NodeId, LowDisk> {
        self.0.lock().clone()
    }
}

// How long a write takes to the disk of each peer, as its last answer said.

/// What a peer said longer ago says nothing: its disk may have become slow, or quick, meanwhile.
const FLUSH_OLD: Duration = Duration::from_secs(2);

/// How long a write takes to the disk of each peer, and when it said so.
#[derive(Default)]
pub struct PeerFlushes(Mutex<BTreeMap<NodeId, (Duration, Instant)>>);

impl PeerFlushes {
    /// Notes what an answer of `peer` that came at `at` says of its disk.
    pub fn note(&self, peer: NodeId, told_ms: Option<u64>, at: Instant) {
        let mut all = self.0.lock();
        match told_ms {
            None => drop(all.remove(&peer)),
            Some(ms) => drop(all.insert(peer, (Duration::from_millis(ms), at))),
        }
    }

    /// How long a write takes to the disk of `peer` at `now`. `None` if it has not said so lately.
    pub fn of(&self, peer: NodeId, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let (takes, at) = all.get(&peer)?;
        (now.since(*at) < FLUSH_OLD).then_some(*takes)
    }
}

// Up to which index each peer has acknowledged the log to this leader.
//
// A peer's log never gets shorter within a term. If it does, the peer's disk forgot what it had
// synced. Raft would panic on that, and take the leader down with it.
//
// Invariant: what is recorded for a peer never moves back.

/// For each peer, by its incarnation: the latest term it acknowledged anything in, and up to where.
#[derive(Default)]
pub struct AcknowledgedIndexes(Mutex<BTreeMap<u64, (u64, u64)>>);

impl AcknowledgedIndexes {
    /// The peer acknowledged the log up to `index` in `term`.
    pub fn record(&self, incarnation: u64, term: u64, index: u64) {
        let mut all = self.0.lock();
        let latest = all.entry(incarnation).or_default();
        *latest = (*latest).max((term, index));
    }

    /// Up to where the peer acknowledged the log in `term`, if `index` is covered by that.
    pub fn covering(&self, incarnation: u64, term: u64, index: u64) -> Option<u64> {
        let latest = self.0.lock().get(&incarnation).copied();
        latest
            .filter(|(in_term, up_to)| *in_term == term && *up_to >= index)
            .map(|(_, up_to)| up_to)
    }
}

// Keeps the log from being purged where a peer needs it next: a peer that is sent a snapshot goes on
// with the entries after it, and would need another snapshot without them.

/// The log indexes after which the log is held.
#[derive(Default)]
pub struct LogHolds(Mutex<BTreeMap<u64, Held>>);

/// For whom the log is held after an index.
#[derive(Default)]
struct Held {
    /// For how many peers.
    peers: usize,
    /// How many of them are still sent the snapshot.
    sending: usize,
    /// The log was purged further all the same.
    is_broken: bool,
}

impl LogHolds {
    /// Up to where the log may be purged.
    pub fn purgeable_max(&self) -> u64 {
        let holds = self.0.lock();
        holds.keys().next().copied().unwrap_or(u64::MAX)
    }

    /// The log is purged up to `index`. Returns how many peers are sent a snapshot in vain by that, which it does not tell
    /// again: they lack what comes next, and need another one.
    pub fn purged(&self, index: u64) -> usize {
        let mut holds = self.0.lock();
        let broken = holds.range_mut(..index).map(|(_, held)| held);
        let newly = broken.filter(|held| held.sending > 0 && !held.is_broken);
        newly
            .map(|held| {
                held.is_broken = true;
                held.sending
            })
            .sum()
    }
}

/// Holds the log after an index until this is dropped.
pub struct LogHold {
    peers: Arc<PeerState>,
    after: u64,
    is_sending: bool,
}

impl LogHold {
    /// Holds the entries after index `after`.
    pub fn after(peers: &Arc<PeerState>, after: u64) -> Self {
        let mut held = peers.log_holds.0.lock();
        let held = held.entry(after).or_default();
        held.peers += 1;
        held.sending += 1;
        LogHold { peers: peers.clone(), after, is_sending: true }
    }

    /// The snapshot is sent. The peer now gets what is held.
    pub fn sent(&mut self) {
        if std::mem::take(&mut self.is_sending)
            && let Some(held) = self.peers.log_holds.0.lock().get_mut(&self.after)
        {
            held.sending -= 1;
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.sent();
        let mut holds = self.peers.log_holds.0.lock();
        if let Some(held) = holds.get_mut(&self.after) {
            held.peers -= 1;
            if held.peers == 0 {
                holds.remove(&self.after);
            }
        }
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
    fn an_old_reading_says_nothing_and_a_peer_that_tells_no_time_agrees() {
        let clocks = PeerClocks::default();
        assert_eq!(clocks.distance(2, at(0), 5), None);
        clocks.record(2, (at(0), at(0)), None);
        assert_eq!(clocks.distance(2, at(60_000), 5).map(|distance| distance.ms), Some(0));
        assert_eq!(clocks.ahead_ms(2, at(0), 5), None);
        assert_eq!(clocks.distance(2, at(60_001), 5), None);
    }

    #[test]
    fn what_a_peer_says_of_the_speed_of_its_disk_counts_for_a_while_and_until_it_says_otherwise() {
        let flushes = PeerFlushes::default();
        assert_eq!(flushes.of(2, at(0)), None);
        flushes.note(2, Some(700), at(1_000));
        assert_eq!(flushes.of(2, at(2_999)), Some(Duration::from_millis(700)));
        assert_eq!(flushes.of(2, at(3_000)), None);
        assert_eq!(flushes.of(3, at(1_000)), None);
        flushes.note(2, None, at(1_000));
        assert_eq!(flushes.of(2, at(1_000)), None);
    }

    #[test]
    fn the_log_is_held_for_the_peer_that_needs_most_of_it() {
        let peers = Arc::new(PeerState::default());
        let holds = &peers.log_holds;
        let (late, early) = (LogHold::after(&peers, 70), LogHold::after(&peers, 50));
        let again = LogHold::after(&peers, 50);
        drop(early);
        assert_eq!(holds.purgeable_max(), 50, "another peer is sent the same snapshot");
        drop(again);
        assert_eq!(holds.purgeable_max(), 70);
        drop(late);
        assert_eq!(holds.purgeable_max(), u64::MAX);
    }

    #[test]
    fn a_snapshot_that_is_sent_in_vain_is_told_once_and_one_that_was_sent_is_not() {
        let peers = Arc::new(PeerState::default());
        let holds = &peers.log_holds;
        let (_early, mut late) = (LogHold::after(&peers, 50), LogHold::after(&peers, 70));
        assert_eq!(holds.purged(50), 0, "what comes next is there");
        assert_eq!(holds.purged(51), 1);
        assert_eq!(holds.purged(60), 0, "it was told");
        late.sent();
        assert_eq!(holds.purged(80), 0, "the peer has the snapshot, and what followed so far");
        let _again = LogHold::after(&peers, 90);
        assert_eq!(holds.purged(u64::MAX), 1);
    }
}
