//! Transcripts of quorums and of leases. To accept what the code says today: `UPDATE_EXPECT=1`.

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use expect_test::{Expect, expect};
use futures::{
    FutureExt,
    task::{ArcWake, Context, waker},
};

use super::{LeaseClock, Quorums, TermLease, term_lease::LeaseStage};
use crate::{
    clock::{Clock, Instant},
    sequence::NodeId,
};

const LEASE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        ms(self.0.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn quorums(log_index: u64, sets: &[&[NodeId]]) -> Quorums {
    Quorums::new(log_index, sets.iter().map(|set| set.iter().copied().collect()))
}

/// The leases of node 1, which last 200 ms. Every step writes one line: what happened, and the state of each
/// lease that has begun. `{1, 2}+{2, 3}@7` is the joint membership of these voters at log index 7.
struct Transcript {
    time: Arc<ManualClock>,
    clock: Arc<LeaseClock>,
    leases: Vec<Arc<TermLease>>,
    text: String,
}

impl Transcript {
    fn new() -> Self {
        let time = Arc::new(ManualClock::default());
        Transcript {
            clock: Arc::new(LeaseClock::new(time.clone(), 1, LEASE)),
            time,
            leases: Vec::new(),
            text: String::new(),
        }
    }

    fn line(&mut self, step: impl AsRef<str>, result: impl AsRef<str>) {
        writeln!(self.text, "{} -> {}", step.as_ref(), result.as_ref()).unwrap();
    }

    fn show_leases(&mut self, step: impl AsRef<str>) {
        let states: Vec<String> = self.leases.iter().map(|lease| state(lease)).collect();
        let all = match states.as_slice() {
            [] => "no lease".to_owned(),
            states => states.join(", "),
        };
        self.line(step, all);
    }

    fn lead(&mut self, term: u64, in_force: &Quorums) {
        let lease = self.clock.begin(term, in_force.clone());
        if !self.leases.iter().any(|known| Arc::ptr_eq(known, &lease)) {
            self.leases.push(lease);
        }
        self.show_leases(format!("lead term {term} with {}", text(in_force)));
    }

    fn ack(&mut self, term: u64, peer: NodeId, sent: u64) {
        self.clock.record_ack(term, peer, ms(sent));
        self.show_leases(format!("ack {peer} in term {term}, sent at {sent}ms"));
    }

    fn propose(&mut self, in_force: &Quorums, voters: &[NodeId]) {
        let voters: BTreeSet<NodeId> = voters.iter().copied().collect();
        let step = format!("propose {voters:?} while {} in force", text(in_force));
        self.clock.need(in_force.clone(), Some(voters));
        self.show_leases(step);
    }

    fn settle(&mut self, in_force: &Quorums) {
        self.clock.need(in_force.clone(), None);
        self.show_leases(format!("settle on {}", text(in_force)));
    }

    fn void_before(&mut self, term: u64) {
        self.clock.void_before(term);
        self.show_leases(format!("Raft adopts term {term}"));
    }

    fn void(&mut self) {
        self.clock.void();
        self.show_leases("give the term up");
    }

    /// Asks the latest lease.
    fn at(&mut self, now: u64) {
        let lease = self.leases.last().expect("no lease has begun");
        let answer = match lease.is_valid(ms(now)) {
            true => "answer",
            false => "do not answer",
        };
        self.line(format!("at {now}ms"), answer);
    }

    fn silence(&mut self, now: u64, peer: NodeId) {
        self.time.0.store(now, Ordering::Relaxed);
        let silence = match self.clock.silence(peer) {
            None => "unknown".to_owned(),
            Some(silence) => {
                let since = match silence.in_term {
                    true => "its last acknowledgement",
                    false => "the term began",
                };
                format!("{:?} since {since}", silence.lasts)
            }
        };
        self.line(format!("silence of {peer} at {now}ms"), silence);
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.text);
    }
}

fn text(quorums: &Quorums) -> String {
    let sets: Vec<String> = quorums.sets().map(|voters| format!("{voters:?}")).collect();
    format!("{}@{}", sets.join("+"), quorums.log_index())
}

fn state(lease: &TermLease) -> String {
    let term = lease.term();
    if lease.is_void() {
        format!("term {term} void")
    } else if lease.deadline() == Instant::NEVER {
        format!("term {term} valid for ever")
    } else if lease.deadline() < ms(1) {
        format!("term {term} not valid")
    } else {
        let until = lease.deadline().since(Instant::default());
        format!("term {term} valid until {}ms", until.as_millis())
    }
}

#[test]
fn a_quorum_is_a_majority_of_every_voter_set() {
    let mut text = String::new();
    let mut agree = |sets: &[&[NodeId]], nodes: &[NodeId]| {
        let agrees = quorums(0, sets).agree(&nodes.iter().copied().collect());
        writeln!(text, "{nodes:?} of {sets:?} -> {agrees}").unwrap();
    };
    agree(&[&[1]], &[]);
    agree(&[&[1]], &[1]);
    agree(&[&[1, 2]], &[1]);
    agree(&[&[1, 2]], &[1, 2]);
    agree(&[&[1, 2, 3]], &[1]);
    agree(&[&[1, 2, 3]], &[1, 3]);
    agree(&[&[1, 2, 3]], &[1, 8, 9]);
    agree(&[&[1, 2, 3, 4]], &[1, 2]);
    agree(&[&[1, 2, 3, 4]], &[1, 2, 4]);
    agree(&[&[1, 2, 3, 4, 5]], &[1, 2]);
    agree(&[&[1, 2, 3, 4, 5]], &[1, 2, 5]);
    agree(&[&[1, 2, 3], &[3, 4, 5]], &[1, 2, 3]);
    agree(&[&[1, 2, 3], &[3, 4, 5]], &[1, 3, 4]);
    agree(&[], &[1]);
    agree(&[&[]], &[1]);
    expect![[r#"
        [] of [[1]] -> false
        [1] of [[1]] -> true
        [1] of [[1, 2]] -> false
        [1, 2] of [[1, 2]] -> true
        [1] of [[1, 2, 3]] -> false
        [1, 3] of [[1, 2, 3]] -> true
        [1, 8, 9] of [[1, 2, 3]] -> false
        [1, 2] of [[1, 2, 3, 4]] -> false
        [1, 2, 4] of [[1, 2, 3, 4]] -> true
        [1, 2] of [[1, 2, 3, 4, 5]] -> false
        [1, 2, 5] of [[1, 2, 3, 4, 5]] -> true
        [1, 2, 3] of [[1, 2, 3], [3, 4, 5]] -> false
        [1, 3, 4] of [[1, 2, 3], [3, 4, 5]] -> true
        [1] of [] -> false
        [1] of [[]] -> false
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_majority_has_reached_what_its_slowest_node_has_reached() {
    let mut text = String::new();
    let mut reached = |sets: &[&[NodeId]], points: &[(NodeId, u32)]| {
        let of = |node| points.iter().find(|(id, _)| *id == node).map(|(_, at)| *at);
        let reached = quorums(0, sets).majority_reached(of);
        writeln!(text, "{points:?} of {sets:?} -> {reached:?}").unwrap();
    };
    reached(&[&[1, 2, 3]], &[(1, 90)]);
    reached(&[&[1, 2, 3]], &[(1, 90), (2, 50)]);
    reached(&[&[1, 2, 3]], &[(1, 90), (2, 50), (3, 70)]);
    reached(&[&[1, 2, 3, 4]], &[(1, 90), (2, 50), (3, 70)]);
    reached(&[&[1, 2, 3, 4, 5]], &[(1, 90), (2, 50), (3, 70), (4, 60)]);
    reached(&[&[1, 2, 3], &[3, 4, 5]], &[(1, 90), (2, 50), (3, 70)]);
    reached(&[&[1, 2, 3], &[3, 4, 5]], &[(1, 90), (2, 50), (3, 70), (5, 20)]);
    reached(&[], &[(1, 90)]);
    expect![[r#"
        [(1, 90)] of [[1, 2, 3]] -> None
        [(1, 90), (2, 50)] of [[1, 2, 3]] -> Some(50)
        [(1, 90), (2, 50), (3, 70)] of [[1, 2, 3]] -> Some(70)
        [(1, 90), (2, 50), (3, 70)] of [[1, 2, 3, 4]] -> Some(50)
        [(1, 90), (2, 50), (3, 70), (4, 60)] of [[1, 2, 3, 4, 5]] -> Some(60)
        [(1, 90), (2, 50), (3, 70)] of [[1, 2, 3], [3, 4, 5]] -> None
        [(1, 90), (2, 50), (3, 70), (5, 20)] of [[1, 2, 3], [3, 4, 5]] -> Some(20)
        [(1, 90)] of [] -> None
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_lease_runs_from_the_sending_of_what_a_majority_acknowledged() {
    let mut t = Transcript::new();
    t.lead(3, &quorums(0, &[&[1, 2, 3]]));
    t.at(0);
    t.ack(3, 2, 1_000);
    t.at(1_199);
    t.at(1_200);
    // An older acknowledgement does not shorten it, of this peer or of another.
    t.ack(3, 3, 900);
    t.ack(3, 2, 950);
    t.check(expect![[r#"
        lead term 3 with {1, 2, 3}@0 -> term 3 not valid
        at 0ms -> do not answer
        ack 2 in term 3, sent at 1000ms -> term 3 valid until 1200ms
        at 1199ms -> answer
        at 1200ms -> do not answer
        ack 3 in term 3, sent at 900ms -> term 3 valid until 1200ms
        ack 2 in term 3, sent at 950ms -> term 3 valid until 1200ms
    "#]]);
}

#[test]
fn of_five_voters_the_second_fastest_peer_counts() {
    let mut t = Transcript::new();
    t.lead(3, &quorums(0, &[&[1, 2, 3, 4, 5]]));
    t.ack(3, 2, 1_000);
    t.at(0);
    t.ack(3, 3, 500);
    t.ack(3, 4, 800);
    t.check(expect![[r#"
        lead term 3 with {1, 2, 3, 4, 5}@0 -> term 3 not valid
        ack 2 in term 3, sent at 1000ms -> term 3 not valid
        at 0ms -> do not answer
        ack 3 in term 3, sent at 500ms -> term 3 valid until 700ms
        ack 4 in term 3, sent at 800ms -> term 3 valid until 1000ms
    "#]]);
}

#[test]
fn a_joint_membership_needs_both_majorities() {
    let mut t = Transcript::new();
    t.lead(3, &quorums(0, &[&[1, 2, 3], &[3, 4, 5]]));
    t.ack(3, 2, 1_000);
    t.at(0);
    t.ack(3, 4, 100);
    t.ack(3, 5, 90);
    t.check(expect![[r#"
        lead term 3 with {1, 2, 3}+{3, 4, 5}@0 -> term 3 not valid
        ack 2 in term 3, sent at 1000ms -> term 3 not valid
        at 0ms -> do not answer
        ack 4 in term 3, sent at 100ms -> term 3 not valid
        ack 5 in term 3, sent at 90ms -> term 3 valid until 290ms
    "#]]);
}

#[test]
fn a_sole_voters_lease_never_ends_until_another_membership_is_proposed() {
    let mut t = Transcript::new();
    let sole = quorums(0, &[&[1]]);
    t.lead(3, &sole);
    t.at(u64::from(u32::MAX));
    t.propose(&sole, &[1, 2]);
    t.at(0);
    t.ack(3, 2, 1_000);
    t.check(expect![[r#"
        lead term 3 with {1}@0 -> term 3 valid for ever
        at 4294967295ms -> answer
        propose {1, 2} while {1}@0 in force -> term 3 not valid
        at 0ms -> do not answer
        ack 2 in term 3, sent at 1000ms -> term 3 valid until 1200ms
    "#]]);
}

#[test]
fn an_acknowledgement_of_another_term_extends_nothing() {
    let mut t = Transcript::new();
    t.ack(2, 2, 1_000);
    t.lead(3, &quorums(0, &[&[1, 2, 3]]));
    t.at(0);
    t.ack(2, 2, 1_100);
    t.at(0);
    t.ack(4, 2, 1_100);
    t.at(0);
    t.check(expect![[r#"
        ack 2 in term 2, sent at 1000ms -> no lease
        lead term 3 with {1, 2, 3}@0 -> term 3 not valid
        at 0ms -> do not answer
        ack 2 in term 2, sent at 1100ms -> term 3 not valid
        at 0ms -> do not answer
        ack 2 in term 4, sent at 1100ms -> term 3 not valid
        at 0ms -> do not answer
    "#]]);
}

#[test]
fn an_acknowledgement_that_came_before_the_term_was_noticed_counts() {
    let mut t = Transcript::new();
    t.ack(3, 2, 1_000);
    t.lead(3, &quorums(0, &[&[1, 2, 3]]));
    t.check(expect![[r#"
        ack 2 in term 3, sent at 1000ms -> no lease
        lead term 3 with {1, 2, 3}@0 -> term 3 valid until 1200ms
    "#]]);
}

#[test]
fn a_void_lease_stays_void() {
    let mut t = Transcript::new();
    let three = quorums(0, &[&[1, 2, 3]]);
    t.lead(3, &three);
    t.ack(3, 2, 1_000);
    // It is the same term.
    t.void_before(3);
    t.at(1_000);
    t.void_before(4);
    t.ack(3, 2, 2_000);
    t.at(2_000);
    // The same term does not start over.
    t.lead(3, &three);
    t.lead(5, &three);
    t.check(expect![[r#"
        lead term 3 with {1, 2, 3}@0 -> term 3 not valid
        ack 2 in term 3, sent at 1000ms -> term 3 valid until 1200ms
        Raft adopts term 3 -> term 3 valid until 1200ms
        at 1000ms -> answer
        Raft adopts term 4 -> term 3 void
        ack 2 in term 3, sent at 2000ms -> term 3 void
        at 2000ms -> do not answer
        lead term 3 with {1, 2, 3}@0 -> term 3 void
        lead term 5 with {1, 2, 3}@0 -> term 3 void, term 5 not valid
    "#]]);
}

#[test]
fn a_lease_is_given_up_once() {
    let clock = LeaseClock::new(Arc::new(ManualClock::default()), 1, LEASE);
    assert!(!clock.void(), "no term has begun");
    let lease = clock.begin(3, quorums(0, &[&[1, 2, 3]]));
    assert!(clock.void() && lease.is_void());
    assert!(!clock.void(), "it was void");
}

#[test]
fn a_lease_that_begins_after_a_later_term_was_seen_is_void() {
    let mut t = Transcript::new();
    let three = quorums(0, &[&[1, 2, 3]]);
    t.ack(3, 2, 1_000);
    t.void_before(4);
    t.lead(3, &three);
    t.lead(4, &three);
    t.check(expect![[r#"
        ack 2 in term 3, sent at 1000ms -> no lease
        Raft adopts term 4 -> no lease
        lead term 3 with {1, 2, 3}@0 -> term 3 void
        lead term 4 with {1, 2, 3}@0 -> term 3 void, term 4 not valid
    "#]]);
}

#[test]
fn a_new_term_voids_the_last_one() {
    let mut t = Transcript::new();
    let sole = quorums(0, &[&[1]]);
    t.lead(3, &sole);
    t.lead(5, &sole);
    t.check(expect![[r#"
        lead term 3 with {1}@0 -> term 3 valid for ever
        lead term 5 with {1}@0 -> term 3 void, term 5 valid for ever
    "#]]);
}

#[test]
fn a_proposed_majority_is_needed_until_the_membership_in_force_is_known() {
    let mut t = Transcript::new();
    let three = quorums(0, &[&[1, 2, 3]]);
    t.lead(3, &three);
    t.ack(3, 2, 1_000);
    // Two of four are no majority.
    t.propose(&three, &[1, 2, 3, 4]);
    t.at(0);
    // It was refused.
    t.settle(&three);
    t.check(expect![[r#"
        lead term 3 with {1, 2, 3}@0 -> term 3 not valid
        ack 2 in term 3, sent at 1000ms -> term 3 valid until 1200ms
        propose {1, 2, 3, 4} while {1, 2, 3}@0 in force -> term 3 not valid
        at 0ms -> do not answer
        settle on {1, 2, 3}@0 -> term 3 valid until 1200ms
    "#]]);
}

#[test]
fn a_watcher_that_lags_does_not_bring_an_earlier_membership_back() {
    let mut t = Transcript::new();
    let sole = quorums(0, &[&[1]]);
    t.lead(3, &sole);
    t.propose(&sole, &[1, 2]);
    t.settle(&quorums(7, &[&[1], &[1, 2]]));
    t.at(0);
    // The watcher has not seen entry 7.
    t.lead(3, &sole);
    t.at(0);
    // A term that begins later may have another log.
    t.lead(4, &sole);
    t.at(0);
    t.check(expect![[r#"
        lead term 3 with {1}@0 -> term 3 valid for ever
        propose {1, 2} while {1}@0 in force -> term 3 not valid
        settle on {1}+{1, 2}@7 -> term 3 not valid
        at 0ms -> do not answer
        lead term 3 with {1}@0 -> term 3 not valid
        at 0ms -> do not answer
        lead term 4 with {1}@0 -> term 3 void, term 4 valid for ever
        at 0ms -> answer
    "#]]);
}

#[test]
fn a_lease_that_begins_after_a_rejected_term_is_valid() {
    let mut t = Transcript::new();
    let sole = quorums(0, &[&[1]]);
    t.lead(3, &sole);
    let clock = t.clock.clone();
    let pending = clock.void_while_pending(1_000);
    t.show_leases("Raft is told of term 1000");
    t.lead(4, &sole);
    pending.rejected();
    t.show_leases("Raft rejects term 1000");
    t.lead(5, &sole);
    t.void_before(1_000);
    t.lead(6, &sole);
    t.lead(1_000, &sole);
    t.check(expect![[r#"
        lead term 3 with {1}@0 -> term 3 valid for ever
        Raft is told of term 1000 -> term 3 void
        lead term 4 with {1}@0 -> term 3 void, term 4 void
        Raft rejects term 1000 -> term 3 void, term 4 void
        lead term 5 with {1}@0 -> term 3 void, term 4 void, term 5 valid for ever
        Raft adopts term 1000 -> term 3 void, term 4 void, term 5 void
        lead term 6 with {1}@0 -> term 3 void, term 4 void, term 5 void, term 6 void
        lead term 1000 with {1}@0 -> term 3 void, term 4 void, term 5 void, term 6 void, term 1000 valid for ever
    "#]]);
}

#[test]
fn a_peer_is_silent_since_it_last_answered_or_since_the_term_began() {
    let mut t = Transcript::new();
    t.silence(1_000, 2);
    t.lead(3, &quorums(0, &[&[1, 2, 3]]));
    t.ack(3, 2, 4_900);
    t.silence(5_000, 2);
    t.silence(5_000, 3);
    // Answers of a later term say nothing about this one.
    t.ack(4, 2, 4_950);
    t.silence(5_000, 2);
    t.void();
    t.silence(5_000, 2);
    t.check(expect![[r#"
        silence of 2 at 1000ms -> unknown
        lead term 3 with {1, 2, 3}@0 -> term 3 not valid
        ack 2 in term 3, sent at 4900ms -> term 3 valid until 5100ms
        silence of 2 at 5000ms -> 100ms since its last acknowledgement
        silence of 3 at 5000ms -> 4s since the term began
        ack 2 in term 4, sent at 4950ms -> term 3 not valid
        silence of 2 at 5000ms -> 4s since the term began
        give the term up -> term 3 void
        silence of 2 at 5000ms -> unknown
    "#]]);
}

#[test]
fn appends_of_a_term_that_is_given_up_go_to_its_successor_alone() {
    let clock = LeaseClock::new(Arc::new(ManualClock::default()), 1, LEASE);
    let may_append = |term| [2, 3].map(|peer| clock.may_append(term, peer));
    let of_three = quorums(0, &[&[1, 2, 3]]);
    let lease = clock.begin(3, of_three.clone());
    assert_eq!(may_append(3), [true, true], "the term goes on");
    lease.void();
    clock.append_only_to(3, Some(2));
    assert_eq!(may_append(3), [true, false]);
    clock.append_only_to(3, None);
    assert_eq!(may_append(3), [false, false]);
    assert_eq!(may_append(4), [true, true], "Raft may lead a later term before it is noticed here");
    assert!(!clock.give_up_to(3, 2), "it is void");

    clock.begin(5, of_three);
    assert_eq!(may_append(5), [true, true]);
    assert!(!clock.give_up_to(3, 2), "it is not the current term");
    clock.append_only_to(3, Some(2));
    assert!(clock.give_up_to(5, 3));
    assert_eq!((clock.successor(5), clock.successor(3)), (Some(3), None));
    assert_eq!(may_append(5), [false, true]);
}

#[test]
#[should_panic(expected = "a term that goes on has a successor")]
fn a_term_whose_lease_is_held_has_no_successor() {
    let clock = LeaseClock::new(Arc::new(ManualClock::default()), 1, LEASE);
    clock.begin(3, quorums(0, &[&[1, 2, 3]]));
    clock.append_only_to(3, Some(2));
}

#[test]
fn a_lease_is_held_until_deadlines_that_move_and_then_void_for_good() {
    let clock = LeaseClock::new(Arc::new(ManualClock::default()), 1, LEASE);
    let lease = clock.begin(3, quorums(0, &[&[1, 2, 3]]));
    let held_until = |stage| match stage {
        LeaseStage::Held { deadline } => deadline,
        LeaseStage::Void => panic!("it is void"),
    };
    assert!(held_until(lease.stage()) < ms(1), "nobody has acknowledged anything");
    assert!(!lease.is_valid(ms(0)));
    clock.record_ack(3, 2, ms(10));
    assert_eq!(held_until(lease.stage()), ms(10).after(LEASE));
    assert!(clock.void());
    clock.record_ack(3, 2, ms(20));
    assert_eq!(lease.stage(), LeaseStage::Void);
    assert!(!clock.void(), "it is void");
    assert_eq!((lease.stage(), lease.is_valid(ms(0))), (LeaseStage::Void, false));
}

#[test]
fn when_a_majority_followed_this_node_last_is_known_after_its_lease() {
    let time = Arc::new(ManualClock::default());
    let clock = LeaseClock::new(time.clone(), 1, LEASE);
    clock.begin(3, quorums(0, &[&[1, 2, 3]]));
    assert_eq!(clock.followed_at(), None, "nobody has acknowledged anything");
    time.0.store(60_000, Ordering::Relaxed);
    clock.record_ack(3, 2, ms(59_999));
    assert_eq!(clock.followed_at(), Some(ms(60_000)));
    let is_without = |at| {
        time.0.store(at, Ordering::Relaxed);
        clock.is_without_majority()
    };
    assert_eq!([60_199, 61_999, 62_000].map(is_without), [false, false, true]);
    // An answer that comes late tells of the past.
    time.0.store(90_000, Ordering::Relaxed);
    clock.record_ack(3, 2, ms(60_100));
    assert_eq!(clock.followed_at(), Some(ms(60_100).after(LEASE)));
    assert!(clock.void());
    clock.record_ack(3, 2, ms(90_000));
    assert_eq!(clock.followed_at(), Some(ms(60_100).after(LEASE)), "the term is given up");
}

#[test]
fn a_sole_voter_is_followed_until_it_needs_others() {
    let time = Arc::new(ManualClock::default());
    let clock = LeaseClock::new(time.clone(), 1, LEASE);
    let alone = quorums(0, &[&[1]]);
    clock.begin(3, alone.clone());
    time.0.store(60_000, Ordering::Relaxed);
    clock.need(alone, Some([1, 2].into()));
    assert_eq!(clock.followed_at(), Some(ms(60_000)));
    time.0.store(90_000, Ordering::Relaxed);
    assert_eq!(clock.followed_at(), Some(ms(60_000)), "the other one does not answer");
}

#[test]
fn a_leader_can_do_without_a_peer_if_it_commits_and_those_it_heard_are_a_majority_without_it() {
    let time = Arc::new(ManualClock::default());
    let clock = LeaseClock::new(time.clone(), 1, LEASE);
    let without = |peer| clock.can_do_without(peer, Duration::from_millis(300));
    assert!(!without(2), "it does not lead");
    let lease = clock.begin(3, quorums(0, &[&[1, 2, 3]]));
    clock.record_ack(3, 3, ms(0));
    assert!(!without(2), "nothing of the term is committed");
    clock.committed(2);
    assert!(!without(2), "that was another term");
    clock.committed(3);
    assert!(without(2));
    assert!(!without(3), "2 was not heard");
    assert!(without(9), "a learner");
    time.0.store(299, Ordering::Relaxed);
    assert!(without(2));
    time.0.store(300, Ordering::Relaxed);
    assert!(!without(2), "3 was not heard lately");
    clock.record_ack(3, 3, ms(300));
    clock.need(quorums(0, &[&[1, 2, 3]]), Some(BTreeSet::from([1, 2])));
    assert!(!without(2), "the next voters need it");
    clock.need(quorums(0, &[&[1, 2, 3]]), None);
    assert!(without(2));
    lease.void();
    assert!(!without(2), "the term is given up");

    let sole = LeaseClock::new(time, 1, LEASE);
    sole.begin(3, quorums(0, &[&[1]]));
    sole.committed(3);
    assert!(sole.can_do_without(2, LEASE));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_for_the_end_of_a_lease_is_not_woken_when_it_is_extended() {
    let mut transcript = Transcript::new();
    transcript.lead(1, &quorums(1, &[&[1, 2, 3]]));
    let lease = transcript.leases[0].clone();
    let (end, change) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
    let mut until_void = Box::pin(lease.until_void());
    let mut until_valid = Box::pin(lease.wait_until(|lease| lease.is_valid(ms(1_000))));
    let (of_end, of_change) = (waker(end.clone()), waker(change.clone()));
    assert!(until_void.poll_unpin(&mut Context::from_waker(&of_end)).is_pending());
    assert!(until_valid.poll_unpin(&mut Context::from_waker(&of_change)).is_pending());
    transcript.ack(1, 2, 10);
    let woken = || (end.0.load(Ordering::Relaxed), change.0.load(Ordering::Relaxed));
    assert_eq!(woken(), (0, 1));
    assert!(until_valid.poll_unpin(&mut Context::from_waker(&of_change)).is_pending());
    transcript.void();
    assert_eq!(woken(), (1, 2));
    assert!(until_void.poll_unpin(&mut Context::from_waker(&of_end)).is_ready());
}
