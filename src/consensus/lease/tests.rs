//! What the lease's clock counts.

use super::*;

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        ms(self.0.load(Ordering::Relaxed))
    }
}

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn quorums(sets: &[&[NodeId]]) -> Quorums {
    Quorums::new(sets.iter().map(|set| set.iter().copied().collect()))
}

fn clock() -> LeaseClock {
    LeaseClock::new(
        Arc::new(ManualClock::default()),
        1,
        Duration::from_millis(200),
    )
}

#[test]
fn the_lease_runs_from_the_sending_of_what_a_majority_acknowledged() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    assert!(!lease.is_valid(ms(0)), "nobody has spoken");
    clock.credit(3, 2, ms(1_000));
    assert!(lease.is_valid(ms(1_199)));
    assert!(!lease.is_valid(ms(1_200)));
    clock.credit(3, 3, ms(900));
    assert_eq!(
        lease.deadline(),
        ms(1_200),
        "an older one does not shorten it"
    );
}

#[test]
fn of_five_voters_the_second_fastest_peer_counts() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1, 2, 3, 4, 5]]));
    clock.credit(3, 2, ms(1_000));
    assert!(!lease.is_valid(ms(0)));
    clock.credit(3, 3, ms(500));
    assert_eq!(lease.deadline(), ms(700));
    clock.credit(3, 4, ms(800));
    assert_eq!(lease.deadline(), ms(1_000));
}

#[test]
fn a_joint_membership_needs_both_majorities() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1, 2, 3], &[3, 4, 5]]));
    clock.credit(3, 2, ms(1_000));
    assert!(!lease.is_valid(ms(0)));
    clock.credit(3, 4, ms(100));
    clock.credit(3, 5, ms(90));
    assert_eq!(lease.deadline(), ms(290));
}

#[test]
fn a_sole_voters_lease_never_ends_until_another_membership_is_proposed() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1]]));
    assert!(lease.is_valid(ms(u64::from(u32::MAX))));
    clock.propose(quorums(&[&[1]]), BTreeSet::from([1, 2]));
    assert!(!lease.is_valid(ms(0)));
    clock.credit(3, 2, ms(1_000));
    assert_eq!(lease.deadline(), ms(1_200));
}

#[test]
fn acknowledgements_of_another_term_extend_nothing() {
    let clock = clock();
    clock.credit(2, 2, ms(1_000));
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    assert!(!lease.is_valid(ms(0)));
    clock.credit(2, 2, ms(1_100));
    assert!(!lease.is_valid(ms(0)));
    clock.credit(4, 2, ms(1_100));
    assert!(!lease.is_valid(ms(0)));
}

#[test]
fn those_that_came_before_the_term_was_noticed_count() {
    let clock = clock();
    clock.credit(3, 2, ms(1_000));
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    assert_eq!(lease.deadline(), ms(1_200));
}

#[test]
fn a_void_lease_stays_void() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    clock.credit(3, 2, ms(1_000));
    clock.void_before(3);
    assert!(lease.is_valid(ms(1_000)), "of the same term");
    clock.void_before(4);
    assert!(lease.is_void());
    clock.credit(3, 2, ms(2_000));
    assert!(!lease.is_valid(ms(2_000)));
    let again = clock.begin(3, quorums(&[&[1, 2, 3]]));
    assert!(again.is_void(), "the same term does not start over");
    let next = clock.begin(5, quorums(&[&[1, 2, 3]]));
    assert!(!next.is_void());
}

#[test]
fn a_lease_that_is_begun_after_a_later_term_was_seen_is_void() {
    let clock = clock();
    clock.credit(3, 2, ms(1_000));
    clock.void_before(4);
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    assert!(lease.is_void());
    assert!(!clock.begin(4, quorums(&[&[1, 2, 3]])).is_void());
}

#[test]
fn a_new_term_voids_the_last_one() {
    let clock = clock();
    let old = clock.begin(3, quorums(&[&[1]]));
    clock.begin(5, quorums(&[&[1]]));
    assert!(old.is_void());
}

#[test]
fn a_proposed_majority_counts_until_what_is_in_force_is_known() {
    let clock = clock();
    let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
    clock.credit(3, 2, ms(1_000));
    assert_eq!(lease.deadline(), ms(1_200));
    clock.propose(quorums(&[&[1, 2, 3]]), BTreeSet::from([1, 2, 3, 4]));
    assert!(!lease.is_valid(ms(0)), "two of four are no majority");
    clock.settle(quorums(&[&[1, 2, 3]]));
    assert_eq!(lease.deadline(), ms(1_200), "it was refused");
}

#[test]
fn a_watcher_that_lags_does_not_bring_an_earlier_membership_back() {
    let clock = clock();
    let before = quorums(&[&[1]]);
    let lease = clock.begin(3, before.clone());
    clock.propose(before.clone(), BTreeSet::from([1, 2]));
    let joint = Quorums {
        at: 7,
        ..quorums(&[&[1], &[1, 2]])
    };
    clock.settle(joint);
    assert!(!lease.is_valid(ms(0)));
    clock.begin(3, before.clone());
    assert!(
        !lease.is_valid(ms(0)),
        "the membership of entry 7 is in force"
    );
    // A term that begins later may have another log.
    assert!(clock.begin(4, before).is_valid(ms(0)));
}

#[test]
fn leases_that_begin_after_a_refusal_are_valid() {
    let clock = clock();
    let old = clock.begin(3, quorums(&[&[1]]));
    let shown = clock.show(1_000);
    assert!(old.is_void(), "while Raft judges, nothing may be answered");
    assert!(clock.begin(4, quorums(&[&[1]])).is_void(), "nor in between");
    shown.refused();
    assert!(!clock.begin(5, quorums(&[&[1]])).is_void());
    drop(clock.show(1_000));
    assert!(clock.begin(6, quorums(&[&[1]])).is_void(), "not refused");
    assert!(!clock.begin(1_000, quorums(&[&[1]])).is_void());
}

#[test]
fn a_peer_is_silent_since_it_last_answered_or_since_the_term_began() {
    let time = Arc::new(ManualClock::default());
    let clock = LeaseClock::new(time.clone(), 1, Duration::from_millis(200));
    assert_eq!(clock.silence(2), None, "nobody leads");
    time.0.store(1_000, Ordering::Relaxed);
    clock.begin(3, quorums(&[&[1, 2, 3]]));
    time.0.store(5_000, Ordering::Relaxed);
    clock.credit(3, 2, ms(4_900));
    let silence = |millis, in_term| {
        let lasts = Duration::from_millis(millis);
        Some(Silence { lasts, in_term })
    };
    assert_eq!(clock.silence(2), silence(100, true));
    assert_eq!(clock.silence(3), silence(4_000, false));
    // A later term's answers say nothing of this one's.
    clock.credit(4, 2, ms(4_950));
    assert_eq!(clock.silence(2), silence(4_000, false));
    clock.void();
    assert_eq!(clock.silence(2), None, "the term is given up");
}
