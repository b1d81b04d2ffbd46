//! Which time is believed when the clocks of voters differ.

use super::*;

const S: u64 = 1_000;
const HOUR: u64 = 3_600 * S;
const MAX: u64 = 60 * S;
/// 70 years.
const WRONG: u64 = 2_208_988_800 * S;

fn at(elapsed_ms: u64, wall_ms: u64) -> Readings {
    Readings { mono_ns: elapsed_ms * 1_000_000, wall_ms }
}

/// Looks in a term, while the clocks of the others show `others_ms`: two of three voters, of which this is the third.
fn lead(time: &mut BelievedTime, term: u64, now: Readings, others_ms: u64) -> Belief {
    time.lead(term, now, MAX, |time_ms| Some(ClockDistance::of(time_ms, others_ms)))
}

fn time_of(belief: Belief) -> Option<u64> {
    match belief {
        Belief::Agreed { time_ms, .. } | Belief::RunsOn { time_ms, .. } => Some(time_ms),
        Belief::Doubted(_) => None,
    }
}

#[test]
fn a_clock_that_is_wrong_at_the_start_is_not_believed_and_once_it_is_mended_it_is_at_once() {
    let mut time = BelievedTime::new(at(0, WRONG));
    let doubted = lead(&mut time, 1, at(1_000, WRONG + 1_000), HOUR);
    let Belief::Doubted(doubt) = doubted else { panic!("{doubted:?}") };
    let text = doubt.to_string();
    assert!(text.contains("2040-01-01T00:00:01.000Z"), "{text}");
    assert!(text.contains("2208985201.000 s ahead of"), "{text}");
    assert!(text.contains("clock_apart_max_ms is 60000"), "{text}");
    let mended = lead(&mut time, 1, at(2_000, HOUR + 1_000), HOUR + 1_000);
    assert_eq!(time_of(mended), Some(HOUR + 1_000));
}

#[test]
fn nothing_is_believed_before_a_majority_has_told_its_time() {
    let mut time = BelievedTime::new(at(0, HOUR));
    let belief = time.lead(1, at(0, HOUR), MAX, |_| None);
    let Belief::Doubted(doubt) = belief else { panic!("{belief:?}") };
    assert!(doubt.to_string().contains("is not known yet"), "{doubt}");
}

#[test]
fn a_clock_may_be_apart_by_the_bound_and_not_by_more() {
    let mut time = BelievedTime::new(at(0, HOUR + MAX));
    assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR + MAX), HOUR)), Some(HOUR + MAX));
    let mut time = BelievedTime::new(at(0, HOUR + MAX + 1));
    assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR + MAX + 1), HOUR)), None);
}

#[test]
fn a_clock_that_jumps_by_itself_is_never_followed_and_the_time_runs_on_without_it() {
    let mut time = BelievedTime::new(at(0, HOUR));
    assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
    for elapsed in (50..300 * S).step_by(50) {
        let belief = lead(&mut time, 1, at(elapsed, WRONG + elapsed), HOUR + elapsed);
        assert!(matches!(belief, Belief::RunsOn { .. }), "{belief:?} after {elapsed} ms");
        assert_eq!(time_of(belief), Some(HOUR + elapsed));
    }
    // In the next term it is not believed.
    assert_eq!(time_of(lead(&mut time, 2, at(300 * S, WRONG), HOUR + 300 * S)), None);
}

#[test]
fn a_jump_of_a_majoritys_clocks_is_followed_after_a_minute() {
    let mut time = BelievedTime::new(at(0, HOUR));
    assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
    let look = |time: &mut BelievedTime, elapsed| {
        let all_show = 2 * HOUR + elapsed;
        time_of(lead(time, 1, at(elapsed, all_show), all_show))
    };
    assert_eq!(look(&mut time, S), Some(HOUR + S));
    assert_eq!(look(&mut time, 61 * S), Some(2 * HOUR + 61 * S));
}

#[test]
fn a_time_that_drifts_away_while_the_wall_clock_is_wrong_is_believed_no_longer() {
    let mut time = BelievedTime::new(at(0, HOUR));
    assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
    let others = HOUR + 100 * S;
    assert_eq!(time_of(lead(&mut time, 1, at(30 * S, WRONG), others)), None);
}
