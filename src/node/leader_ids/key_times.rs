//! The times of namespaces whose ids of keys lie ahead of the leader's time: after a leader that crashed, and left what
//! it had not used, or after one with another clock. Such a namespace goes on from its ids at half speed, until the
//! leader's time has caught up. Other namespaces, and the leader's time itself, do not follow.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{clock, sequence::NamespaceId};

/// The namespaces that are ahead. Times are in milliseconds since 1970.
#[derive(Default)]
pub struct KeyTimes {
    ahead: Mutex<HashMap<NamespaceId, Ahead>>,
}

/// From where a namespace goes on.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    since: clock::Instant,
    from_ms: u64,
}

impl Ahead {
    fn at(&self, now: clock::Instant) -> u64 {
        let elapsed = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.from_ms.saturating_add(elapsed / 2_000_000)
    }
}

impl KeyTimes {
    /// The time of a namespace, when the leader's time is `leader_ms`.
    pub fn time_of(&self, namespace: NamespaceId, now: clock::Instant, leader_ms: u64) -> u64 {
        let mut all = self.ahead.lock();
        match all.get(&namespace).map(|ahead| ahead.at(now)) {
            Some(ahead_ms) if ahead_ms > leader_ms => ahead_ms,
            Some(_) => {
                all.remove(&namespace);
                leader_ms
            }
            None => leader_ms,
        }
    }

    /// Has a namespace go on from `from_ms`; false if it is there or later. Forgets those that the leader's time has caught up
    /// with.
    pub fn go_on_from(
        &self, namespace: NamespaceId, from_ms: u64, now: clock::Instant, leader_ms: u64,
    ) -> bool {
        let mut all = self.ahead.lock();
        all.retain(|_, ahead| ahead.at(now) > leader_ms);
        let before = all.get(&namespace).map_or(leader_ms, |ahead| ahead.at(now));
        let moves = before < from_ms;
        if moves {
            let since = now;
            all.insert(namespace, Ahead { since, from_ms });
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NamespaceId = NamespaceId(1);
    const B: NamespaceId = NamespaceId(2);

    fn at(ms: u64) -> clock::Instant {
        clock::Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_namespace_that_is_ahead_goes_on_at_half_speed_alone_until_the_time_has_caught_up() {
        let times = KeyTimes::default();
        assert_eq!(times.time_of(A, at(0), 10_000), 10_000);
        assert!(times.go_on_from(A, 13_000, at(0), 10_000));
        // A time that lies behind changes nothing.
        assert!(!times.go_on_from(A, 12_000, at(0), 10_000));
        assert_eq!(times.time_of(A, at(0), 10_000), 13_000);
        assert_eq!(times.time_of(A, at(2_000), 12_000), 14_000);
        assert_eq!(times.time_of(B, at(2_000), 12_000), 12_000);
        assert_eq!(times.time_of(A, at(7_000), 17_000), 17_000);
        assert!(times.ahead.lock().is_empty(), "it was forgotten");
    }
}
