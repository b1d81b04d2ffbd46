//! The time never goes back, rides out short jumps, and follows jumps that last.

use proptest::prelude::*;

use super::*;

const START_MS: u64 = 1_700_000_000_000;

/// A time that began at [`START_MS`], and its clocks.
struct Clocks {
    time: SteadyTime,
    mono_ms: u64,
    /// How far the wall clock is off.
    off_ms: i64,
}

impl Clocks {
    fn new() -> Clocks {
        Clocks { time: SteadyTime::new(0, START_MS), mono_ms: 0, off_ms: 0 }
    }

    fn truth_ms(&self) -> u64 {
        START_MS + self.mono_ms
    }

    /// How far the time is off, after `ms` without an observation.
    fn off_after(&mut self, ms: u64) -> i64 {
        self.mono_ms += ms;
        difference(self.time.now_ms(self.mono_ms * MS_NS), self.truth_ms())
    }

    fn observe_after(&mut self, ms: u64) -> Option<i64> {
        self.mono_ms += ms;
        let wall_ms = self.truth_ms().saturating_add_signed(self.off_ms);
        self.time.observe(self.mono_ms * MS_NS, wall_ms)
    }

    /// Observes each 100 ms. Returns the results, one after the other, and how often each came in a row.
    fn observe_for(&mut self, ms: u64) -> Vec<(Option<i64>, u32)> {
        let mut seen: Vec<(Option<i64>, u32)> = Vec::new();
        for _ in 0..ms / 100 {
            let observed = self.observe_after(100);
            match seen.last_mut() {
                Some((last, count)) if *last == observed => *count += 1,
                _ => seen.push((observed, 1)),
            }
        }
        seen
    }

    fn told_after(&mut self, ms: u64, off_ms: i64) -> Option<i64> {
        self.mono_ms += ms;
        let leader_ms = self.truth_ms().saturating_add_signed(off_ms);
        self.time.told(self.mono_ms * MS_NS, leader_ms)
    }
}

#[test]
fn a_difference_up_to_a_second_is_made_good_slowly_and_not_beyond() {
    for off_ms in [1_000, -1_000] {
        let mut clocks = Clocks::new();
        clocks.off_ms = off_ms;
        assert_eq!(clocks.observe_after(0), None);
        // The time makes good one part in 32.
        assert_eq!(clocks.off_after(3_200), off_ms / 10);
        assert_eq!(clocks.off_after(28_800), off_ms);
        // Nobody observes for an hour.
        assert_eq!(clocks.off_after(3_600_000), off_ms);
        assert_eq!(clocks.observe_after(0), None);
        assert_eq!(clocks.off_after(0), off_ms);
    }
}

#[test]
fn a_step_is_ignored_until_it_has_lasted_and_then_followed_at_once() {
    let mut clocks = Clocks::new();
    clocks.observe_for(1_000);
    clocks.off_ms = 7_200_000;
    let step_ms = clocks.off_ms;
    let seen = clocks.observe_for(60_000);
    assert_eq!(seen, [(None, 600)]);
    assert_eq!(clocks.off_after(0), 0);
    assert_eq!(clocks.observe_after(100), Some(step_ms));
    assert_eq!(clocks.off_after(0), step_ms);
    assert_eq!(clocks.observe_after(100), None);
}

#[test]
fn a_step_back_is_followed_at_half_speed() {
    let mut clocks = Clocks::new();
    clocks.observe_for(1_000);
    clocks.off_ms = -10_000;
    clocks.observe_for(60_000);
    assert_eq!(clocks.observe_after(100), Some(-10_000));
    assert_eq!(clocks.off_after(0), 0);
    for passed in 1..=20 {
        assert_eq!(clocks.observe_for(1_000), [(None, 10)]);
        assert_eq!(clocks.off_after(0), -500 * passed);
    }
    clocks.observe_for(1_000);
    assert_eq!(clocks.off_after(0), -10_000);
}

#[test]
fn a_step_that_is_over_soon_changes_nothing() {
    for off_ms in [7_200_000, -7_200_000] {
        let mut clocks = Clocks::new();
        clocks.off_ms = off_ms;
        clocks.observe_for(59_900);
        clocks.off_ms = 0;
        assert_eq!(clocks.observe_for(60_000), [(None, 600)]);
        assert_eq!(clocks.off_after(0), 0);
        // The next one must last anew.
        clocks.off_ms = off_ms;
        let seen = clocks.observe_for(60_000);
        assert_eq!(seen, [(None, 600)]);
    }
}

#[test]
fn a_clock_that_jumps_again_must_last_anew() {
    let mut clocks = Clocks::new();
    for off_ms in [7_200_000, -3_600_000, 50_000, 52_000] {
        clocks.off_ms = off_ms;
        let seen = clocks.observe_for(59_000);
        assert_eq!(seen, [(None, 590)]);
    }
    assert_eq!(clocks.off_after(0), 0);
    // A clock that moves by less than a second from one reading to the next makes no jump.
    clocks.off_ms = 52_900;
    clocks.observe_for(1_000);
    let step_ms = 52_900;
    assert_eq!(clocks.observe_after(100), Some(step_ms));
}

#[test]
fn a_step_that_is_seen_twice_a_minute_apart_has_lasted() {
    let mut clocks = Clocks::new();
    clocks.off_ms = 5_000;
    let step_ms = 5_000;
    assert_eq!(clocks.observe_after(3_000), None);
    assert_eq!(clocks.observe_after(60_000), Some(step_ms));
}

#[test]
fn the_leaders_time_is_followed_at_once_forward_and_at_half_speed_back() {
    let mut clocks = Clocks::new();
    assert_eq!(clocks.told_after(100, 1_000), None);
    assert_eq!(clocks.off_after(100), 0);
    let told = clocks.told_after(0, 8_000);
    assert_eq!(told, Some(8_000));
    assert_eq!(clocks.off_after(0), 8_000);
    let told = clocks.told_after(0, 0);
    assert_eq!(told, Some(-8_000));
    assert_eq!(clocks.off_after(0), 8_000);
    assert_eq!(clocks.off_after(2_000), 7_000);
    // The wall clock agrees with the leader.
    assert_eq!(clocks.observe_after(0), None);
    assert_eq!(clocks.off_after(14_000), 0);
    assert_eq!(clocks.off_after(14_000), 0);
}

#[test]
fn the_wall_clock_does_not_win_against_a_leader_that_is_heard() {
    let mut clocks = Clocks::new();
    clocks.told_after(100, -5_000);
    for _ in 0..10 {
        let seen = clocks.observe_for(30_000);
        assert_eq!(seen, [(None, 300)]);
        assert_eq!(clocks.told_after(0, -5_000), None);
    }
    assert_eq!(clocks.off_after(0), -5_000);
    // Once it is silent, the wall clock counts again.
    let seen = clocks.observe_for(60_100);
    assert_eq!(seen.last(), Some(&(Some(5_000), 1)));
    assert_eq!(clocks.off_after(0), 0);
}

#[test]
fn the_ends_of_the_numbers_are_no_trouble() {
    let mut time = SteadyTime::new(0, u64::MAX);
    assert_eq!(time.now_ms(u64::MAX), u64::MAX);
    assert_eq!(time.observe(1, 0), None);
    let wall_ms = u64::MAX / MS_NS;
    let step_ms = difference(wall_ms, u64::MAX);
    let observed = time.observe(u64::MAX, wall_ms);
    assert_eq!(observed, Some(step_ms));
    assert_eq!(time.now_ms(u64::MAX), u64::MAX);
    let mut time = SteadyTime::new(u64::MAX, 0);
    assert_eq!(time.now_ms(0), 0);
    let step_ms = i64::MAX;
    let told = time.told(u64::MAX, u64::MAX);
    assert_eq!(told, Some(step_ms));
    assert_eq!(time.now_ms(u64::MAX), u64::MAX);
}

/// An event of a time.
#[derive(Debug, Clone)]
enum Event {
    Observe(u64),
    Told(u64),
    Read,
}

fn event() -> impl Strategy<Value = Event> {
    let ms = || {
        prop_oneof![START_MS - 100_000..START_MS + 200_000, any::<u64>(), Just(0), Just(u64::MAX),]
    };
    prop_oneof![ms().prop_map(Event::Observe), ms().prop_map(Event::Told), Just(Event::Read),]
}

/// How much the monotonic clock grows, in nanoseconds.
fn growth() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..3 * MS_NS, 0_u64..200 * MS_NS, 0_u64..100_000 * MS_NS, any::<u64>(),]
}

proptest! {
    #[test]
    fn the_time_never_goes_back(
        start in prop_oneof![Just(START_MS), any::<u64>()],
        events in prop::collection::vec((growth(), event()), 1..200),
    ) {
        let mut time = SteadyTime::new(0, start);
        let (mut mono_ns, mut last_ms) = (0_u64, start);
        for (growth, event) in events {
            mono_ns = mono_ns.saturating_add(growth);
            let before_ms = time.now_ms(mono_ns);
            prop_assert!(before_ms >= last_ms);
            match event {
                Event::Observe(wall_ms) => drop(time.observe(mono_ns, wall_ms)),
                Event::Told(leader_ms) => drop(time.told(mono_ns, leader_ms)),
                Event::Read => {}
            }
            last_ms = time.now_ms(mono_ns);
            prop_assert!(last_ms >= before_ms);
        }
    }

    #[test]
    fn the_time_stays_close_to_the_truth_while_jumps_are_short(
        spells in prop::collection::vec(
            (1_u32..40, 2_000_i64..100_000_000, any::<bool>(), 1_u32..200),
            1..20,
        ),
        noise in prop::collection::vec((-400_i64..=400, 20_u64..1_400), 100),
    ) {
        let mut clocks = Clocks::new();
        let mut noise = noise.into_iter().cycle();
        let mut observe = |clocks: &mut Clocks, jump_ms: i64, times: u32| {
            for (noise, pause_ms) in noise.by_ref().take(times as usize) {
                clocks.off_ms = jump_ms + noise;
                prop_assert_eq!(clocks.observe_after(pause_ms), None);
                let off_ms = clocks.off_after(0);
                prop_assert!(off_ms.abs() <= 401, "{off_ms}");
            }
            Ok(())
        };
        for (bad, jump_ms, is_back, good) in spells {
            // At most 39 observations, 1.4 s apart: less than a minute.
            observe(&mut clocks, if is_back { -jump_ms } else { jump_ms }, bad)?;
            observe(&mut clocks, 0, good)?;
        }
    }

    #[test]
    fn a_jump_that_lasts_is_followed_in_the_end(
        off_ms in prop_oneof![1_001_i64..10_000_000, -100_000_i64..-1_000],
    ) {
        let mut clocks = Clocks::new();
        clocks.off_ms = off_ms;
        clocks.observe_for(62_000 + 2 * off_ms.min(0).unsigned_abs());
        prop_assert!((clocks.off_after(0) - off_ms).abs() <= 1);
    }
}
