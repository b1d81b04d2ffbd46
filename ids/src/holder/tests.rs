//! Holders through the life of their leases: grants, renewals, losses, and clocks that are wrong.

use super::*;
use crate::encode::Fixed;

const MS: u64 = 1_000_000;
const NOW: u64 = 1_700_000_000_000;

fn holder() -> Holder {
    let format = Format::parse("snowflake").unwrap();
    Holder::new(format, 1, 0, NOW).unwrap()
}

fn grant(token: u64, from_ms: u64, ceiling_ms: u64, now_ms: u64) -> GrantedLease {
    GrantedLease { worker: 7, token, from_ms, ceiling_ms, now_ms }
}

fn held(token: u64) -> HeldWorker {
    HeldWorker { worker: 7, token }
}

fn renew(token: u64) -> Ask {
    Ask::Renew(held(token))
}

fn first(holder: &mut Holder, mono_ns: u64) -> Result<u128, Wait> {
    let run = holder.take(mono_ns, Fixed::default(), 1)?;
    Ok(run.ids(|| 0).next().unwrap())
}

#[test]
fn a_holder_asks_once_for_a_lease_and_again_some_time_before_the_ceiling() {
    let mut holder = holder();
    assert_eq!(holder.take(0, Fixed::default(), 1), Err(Wait::ForLease));
    assert_eq!(holder.asks(0), [Ask::Lease]);
    assert_eq!(holder.asks(0), [], "it was asked");
    assert!(holder.failed(Ask::Lease, MS));
    assert_eq!(holder.asks(MS + RETRY_NS), [], "nobody wants it any more");
    assert_eq!(holder.take(MS, Fixed::default(), 1), Err(Wait::ForLease));
    assert_eq!(holder.asks(MS), [], "not at once");
    assert_eq!(holder.asks(MS + RETRY_NS), [Ask::Lease]);
    let now = 2 * RETRY_NS;
    let granted = grant(1, 0, NOW + 10_000, NOW + now / MS);
    holder.granted(Ask::Lease, now, now, granted).unwrap();
    assert_eq!(holder.workers().collect::<Vec<_>>(), [7]);
    assert_eq!(holder.asks(now), []);
    let near = (10_000 - RENEW_BELOW_MS + 1) * MS;
    assert_eq!(holder.asks(near), [renew(1)]);
}

#[test]
fn a_holder_that_cannot_renew_stops_at_its_ceiling_and_goes_on_when_it_is_raised() {
    let mut holder = holder();
    let granted = grant(1, NOW, NOW + 10_000, NOW);
    holder.granted(Ask::Lease, 0, 0, granted).unwrap();
    let last = first(&mut holder, 10_000 * MS).unwrap();
    assert_eq!(first(&mut holder, 10_001 * MS), Err(Wait::ForLease));
    let granted = grant(1, NOW, NOW + 20_000, NOW + 10_001);
    holder.granted(renew(1), 10_001 * MS, 10_001 * MS, granted).unwrap();
    assert!(first(&mut holder, 10_001 * MS).unwrap() > last);
}

#[test]
fn a_lease_that_was_lost_is_not_used_any_more_and_the_next_one_begins_above_its_from() {
    let mut holder = holder();
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    first(&mut holder, 5 * MS).unwrap();
    holder.lost(renew(1), 6 * MS);
    assert_eq!(first(&mut holder, 6 * MS), Err(Wait::ForLease));
    assert_eq!(holder.asks(6 * MS), [Ask::Lease]);
    // The next lease is of the same worker id, and begins at its former ceiling.
    let next = grant(2, NOW + 10_000, NOW + 20_000, NOW + 7);
    holder.granted(Ask::Lease, 7 * MS, 7 * MS, next).unwrap();
    let waits = Duration::from_millis(10_000 + 1 - BORROWED_MS - 7);
    assert_eq!(first(&mut holder, 7 * MS), Err(Wait::For(waits)));
    let id = first(&mut holder, 10_001 * MS).unwrap();
    let format = Format::parse("snowflake").unwrap();
    let decoded = format.decode_number(id).unwrap();
    assert_eq!(decoded.parts().time_ms, NOW + 10_001);
}

#[test]
fn a_holder_whose_wall_clock_is_an_hour_behind_follows_the_leader() {
    let hour = 3_600_000;
    let format = Format::parse("snowflake").unwrap();
    let mut holder = Holder::new(format, 1, 0, NOW - hour).unwrap();
    let observed = holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    let step_ms = i64::try_from(hour).unwrap();
    assert_eq!(observed, Some(step_ms));
    assert_eq!(holder.now_ms(0), NOW);
    // An answer that was long on its way says as much of the time as is sure.
    let (asked, heard) = (1_000 * MS, 31_000 * MS);
    let late = grant(1, 0, NOW + 20_000, NOW + 1_000 + hour);
    holder.granted(renew(1), asked, heard, late).unwrap();
    assert_eq!(holder.now_ms(heard), NOW + 1_000 + hour);
}

#[test]
fn what_is_given_up_names_the_greatest_time_in_an_id_and_makes_none_after() {
    let mut holder = holder();
    assert_eq!(holder.give_up(), []);
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    first(&mut holder, 5 * MS).unwrap();
    assert_eq!(holder.give_up(), [(held(1), NOW + 5)]);
    assert_eq!(holder.asks(2_000 * MS), [], "nobody wants ids");
    assert_eq!(first(&mut holder, 2_000 * MS), Err(Wait::ForLease));
    assert_eq!(holder.asks(2_000 * MS), [Ask::Lease]);
}

#[test]
fn a_format_without_a_worker_has_no_holder() {
    let format = Format::parse("rongcloud").unwrap();
    assert!(matches!(Holder::new(format, 1, 0, NOW), Err(EncodeError::NoWorker)));
}

#[test]
fn ids_run_ahead_of_the_time_by_a_few_milliseconds_and_no_further() {
    let mut holder = holder();
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    let format = Format::parse("snowflake").unwrap();
    let mut ids = Vec::new();
    let wait = loop {
        match holder.take(3 * MS, Fixed::default(), u64::MAX) {
            Ok(run) => ids.extend(run.ids(|| 0)),
            Err(wait) => break wait,
        }
    };
    assert_eq!(ids.len(), 4_096 * (1 + BORROWED_MS as usize));
    assert!(ids.is_sorted_by(|a, b| a < b));
    let last = format.decode_number(*ids.last().unwrap()).unwrap();
    assert_eq!(last.parts().time_ms, NOW + 3 + BORROWED_MS);
    assert_eq!(wait, Wait::For(Duration::from_millis(1)));
}

#[test]
fn ids_of_a_second_that_is_used_up_wait_for_the_next_one() {
    let format = Format::parse("uid-generator epoch=2023-01-01").unwrap();
    let mut holder = Holder::new(format, 1, 0, NOW + 990).unwrap();
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW + 990)).unwrap();
    assert_eq!(holder.take(0, Fixed::default(), u64::MAX).unwrap().count(), 8_192);
    assert_eq!(holder.take(0, Fixed::default(), 1), Err(Wait::For(Duration::from_millis(10))));
    assert_eq!(holder.take(10 * MS, Fixed::default(), 1).unwrap().count(), 1);
}

#[test]
fn a_renewal_that_comes_after_the_lease_was_given_up_makes_no_id_a_second_time() {
    let mut holder = holder();
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    first(&mut holder, 5 * MS).unwrap();
    let asked = 5_000 * MS;
    assert_eq!(holder.asks(asked), [renew(1)]);
    holder.give_up();
    let renewed = grant(1, 0, NOW + 20_000, NOW + 5_000);
    holder.granted(renew(1), asked, asked, renewed).unwrap();
    assert_eq!(first(&mut holder, asked), Err(Wait::ForLease));
    assert_eq!(holder.asks(asked + RENEWAL_EVERY_NS), [Ask::Lease]);
}

#[test]
fn a_leader_far_behind_is_asked_once_a_second_and_then_for_another_worker() {
    let mut holder = holder();
    let leased = grant(1, 0, NOW + 10_000, NOW);
    holder.granted(Ask::Lease, 0, 0, leased).unwrap();
    let before = first(&mut holder, 9_000 * MS).unwrap();
    let hour = 3_600_000;
    // The ceiling stays where it is.
    let renewed = grant(1, 0, NOW + 10_000, NOW - hour);
    assert_eq!(holder.asks(9_000 * MS), [renew(1)]);
    holder.granted(renew(1), 9_000 * MS, 9_000 * MS, renewed).unwrap();
    assert!(first(&mut holder, 9_500 * MS).unwrap() > before);
    assert_eq!(holder.asks(9_500 * MS), [], "a second has not passed");
    // The time runs at half speed.
    let at_ceiling = 11_002 * MS;
    assert_eq!(holder.asks(at_ceiling), [renew(1)]);
    holder.granted(renew(1), at_ceiling, at_ceiling, renewed).unwrap();
    assert_eq!(first(&mut holder, at_ceiling), Err(Wait::ForLease));
    assert_eq!(holder.asks(at_ceiling), [Ask::Lease]);
    let other = GrantedLease { worker: 8, ..grant(5, 0, NOW - hour + 20_000, NOW - hour) };
    holder.granted(Ask::Lease, at_ceiling, at_ceiling, other).unwrap();
    assert!(first(&mut holder, at_ceiling).is_ok());
}

#[test]
fn a_holder_whose_wall_clock_is_an_hour_ahead_makes_ids_at_the_leaders_time() {
    let hour = 3_600_000;
    let format = Format::parse("snowflake").unwrap();
    let mut holder = Holder::new(format.clone(), 1, 0, NOW + hour).unwrap();
    let granted = grant(1, 0, NOW + 10_000, NOW);
    let observed = holder.granted(Ask::Lease, 0, 0, granted).unwrap();
    let step_ms = -i64::try_from(hour).unwrap();
    assert_eq!(observed, Some(step_ms));
    let id = first(&mut holder, MS).unwrap();
    let time_ms = format.decode_number(id).unwrap().parts().time_ms;
    assert_eq!(time_ms, NOW + 1);
}

#[test]
fn a_leader_whose_clock_went_back_does_not_make_ids_go_back() {
    let mut holder = holder();
    holder.granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW)).unwrap();
    let before = first(&mut holder, 5_000 * MS).unwrap();
    let renewed = grant(1, 0, NOW + 10_000, NOW + 5_000 - 3_600_000);
    holder.granted(renew(1), 5_000 * MS, 5_000 * MS, renewed).unwrap();
    let after = first(&mut holder, 5_001 * MS).unwrap();
    assert!(after > before);
    // The holder's time runs half as fast as the leader's.
    assert_eq!(holder.now_ms(6_000 * MS), NOW + 5_500);
}

#[test]
fn a_lease_that_begins_far_above_the_time_is_waited_for_until_it_can_be_renewed() {
    let mut holder = holder();
    let empty = grant(1, NOW + 60_000, NOW + 60_000, NOW);
    holder.granted(Ask::Lease, 0, 0, empty).unwrap();
    let until_renewed = 60_000 - RENEW_BELOW_MS;
    assert_eq!(first(&mut holder, 0), Err(Wait::For(Duration::from_millis(until_renewed))));
    let later = (until_renewed + 1) * MS;
    assert_eq!(first(&mut holder, later), Err(Wait::ForLease));
    assert_eq!(holder.asks(later), [renew(1)]);
}

#[test]
fn a_lease_that_ended_unrenewed_is_not_asked_for_again_until_somebody_wants_ids() {
    let mut holder = holder();
    let leased = grant(1, 0, NOW + 10_000, NOW);
    holder.granted(Ask::Lease, 0, 0, leased).unwrap();
    let before = 9_000 * MS;
    assert_eq!(holder.asks(before), [renew(1)]);
    holder.failed(renew(1), before);
    assert!(first(&mut holder, before).is_ok(), "the lease is still good");
    let after = 10_001 * MS;
    assert_eq!(holder.asks(after), [renew(1)]);
    holder.failed(renew(1), after);
    let later = after + RETRY_NS;
    assert_eq!(holder.asks(later), []);
    assert_eq!(first(&mut holder, later), Err(Wait::ForLease));
    assert_eq!(holder.asks(later), [Ask::Lease]);
}

/// A lease of this worker id, for ten seconds from `at_ms` after the beginning.
fn lease_of(worker: u64, token: u64, at_ms: u64) -> GrantedLease {
    GrantedLease { worker, ..grant(token, NOW, NOW + at_ms + 10_000, NOW + at_ms) }
}

/// A holder of up to `workers_max` worker ids, which has number 7.
fn growing(workers_max: usize) -> Holder {
    let format = Format::parse("snowflake").unwrap();
    let mut holder = Holder::new(format, workers_max, 0, NOW).unwrap();
    holder.granted(Ask::Lease, 0, 0, lease_of(7, 1, 0)).unwrap();
    holder
}

/// Uses all ids of the time up, as a caller does that asks again after each wait.
fn use_up(holder: &mut Holder, from_ms: u64, to_ms: u64) {
    for ms in from_ms..to_ms {
        while holder.take(ms * MS, Fixed::default(), u64::MAX).is_ok() {}
    }
}

#[test]
fn a_holder_whose_callers_wait_asks_for_further_worker_ids_until_it_has_enough() {
    let mut holder = growing(3);
    use_up(&mut holder, 0, 40);
    assert_eq!(holder.asks(40 * MS), [], "they waited for 40 ms");
    use_up(&mut holder, 40, 60);
    assert_eq!(holder.asks(60 * MS), [Ask::Further]);
    assert_eq!(holder.asks(60 * MS), [], "it was asked");
    holder.granted(Ask::Further, 60 * MS, 60 * MS, lease_of(3, 2, 60)).unwrap();
    assert_eq!(holder.workers().collect::<Vec<_>>(), [3, 7]);
    use_up(&mut holder, 60, 200);
    assert_eq!(holder.asks(200 * MS), [], "not at once");
    assert_eq!(holder.asks(261 * MS), [Ask::Further]);
    holder.granted(Ask::Further, 261 * MS, 261 * MS, lease_of(9, 3, 261)).unwrap();
    use_up(&mut holder, 261, 1_000);
    assert_eq!(holder.asks(1_000 * MS), [], "it has as many as it may");
}

#[test]
fn a_holder_that_may_have_one_worker_id_or_whose_format_is_ordered_otherwise_has_one() {
    let mut holder = growing(1);
    use_up(&mut holder, 0, 200);
    assert_eq!(holder.asks(200 * MS), []);
    let worker_first = "bits epoch=2020-01-01 zero:1=0 worker:10 time-ms:41 sequence:12";
    for format in ["uuid7", "yuewen-route", worker_first] {
        let format = Format::parse(format).unwrap();
        let mut holder = Holder::new(format, 16, 0, NOW).unwrap();
        holder.granted(Ask::Lease, 0, 0, lease_of(7, 1, 0)).unwrap();
        use_up(&mut holder, 0, 2_500);
        assert_eq!(holder.asks(2_500 * MS), []);
    }
}

#[test]
fn where_there_is_no_worker_id_to_spare_the_holder_goes_on_and_asks_again_after_a_while() {
    let mut holder = growing(3);
    use_up(&mut holder, 0, 60);
    assert_eq!(holder.asks(60 * MS), [Ask::Further]);
    assert!(!holder.failed(Ask::Further, 60 * MS), "nobody waits for it");
    use_up(&mut holder, 60, 3_000);
    assert_eq!(holder.asks(3_000 * MS), []);
    assert!(holder.take(3_010 * MS, Fixed::default(), 1).is_ok());
    assert_eq!(holder.asks(4_100 * MS), [renew(1)]);
    holder.granted(renew(1), 4_100 * MS, 4_100 * MS, lease_of(7, 1, 4_100)).unwrap();
    use_up(&mut holder, 10_000, 10_061);
    assert_eq!(holder.asks(10_061 * MS), [renew(1), Ask::Further]);
}

#[test]
fn a_wait_for_a_lease_that_begins_late_is_no_shortage_and_hides_none() {
    let format = Format::parse("snowflake").unwrap();
    let mut holder = Holder::new(format, 3, 0, NOW).unwrap();
    let late = grant(1, NOW + 60_000, NOW + 70_000, NOW);
    holder.granted(Ask::Lease, 0, 0, late).unwrap();
    use_up(&mut holder, 0, 500);
    assert_eq!(holder.asks(500 * MS), []);
    let now = 501 * MS;
    holder.granted(Ask::Further, now, now, lease_of(3, 2, 501)).unwrap();
    use_up(&mut holder, 701, 761);
    assert_eq!(holder.asks(761 * MS), [Ask::Further]);
}

#[test]
fn the_ids_of_a_millisecond_go_from_worker_to_worker_before_the_time_is_borrowed() {
    let mut holder = growing(2);
    holder.granted(Ask::Further, 0, 0, lease_of(3, 2, 0)).unwrap();
    let format = Format::parse("snowflake").unwrap();
    let mut seen = Vec::new();
    while let Ok(run) = holder.take(MS, Fixed::default(), u64::MAX) {
        let first = run.ids(|| 0).next().unwrap();
        let parts = format.decode_number(first).unwrap().parts();
        seen.push((parts.time_ms - NOW, parts.worker));
    }
    let all = (1..=1 + BORROWED_MS).flat_map(|ms| [(ms, 3), (ms, 7)]);
    assert_eq!(seen, all.collect::<Vec<_>>());
}

#[test]
fn all_leases_are_renewed_together_and_each_goes_its_own_way() {
    let mut holder = growing(3);
    let other = HeldWorker { worker: 3, token: 2 };
    holder.granted(Ask::Further, 0, 2_000 * MS, lease_of(3, 2, 2_000)).unwrap();
    let due = 4_001 * MS;
    assert_eq!(holder.asks(due), [Ask::Renew(other), renew(1)]);
    holder.lost(Ask::Renew(other), due);
    let raised = lease_of(7, 1, 4_001);
    holder.granted(renew(1), due, due, raised).unwrap();
    assert_eq!(holder.workers().collect::<Vec<_>>(), [7]);
    assert!(holder.take(13_000 * MS, Fixed::default(), 1).is_ok(), "it was renewed");
    // A lease whose ceiling has passed goes if it cannot be renewed, and the one beside it stays.
    let joined = 13_000 * MS;
    holder.granted(Ask::Further, joined, joined, lease_of(3, 3, 13_000)).unwrap();
    let other = HeldWorker { worker: 3, token: 3 };
    let later = 14_500 * MS;
    assert_eq!(holder.asks(later), [Ask::Renew(other), renew(1)]);
    assert!(holder.failed(Ask::Renew(other), later));
    assert!(holder.failed(renew(1), later));
    assert_eq!(holder.workers().collect::<Vec<_>>(), [3]);
}

#[test]
fn worker_ids_of_no_use_for_a_minute_are_released_one_a_second_and_the_last_one_stays() {
    let mut holder = growing(3);
    for (worker, token) in [(3, 2), (9, 3)] {
        holder.granted(Ask::Further, 0, 0, lease_of(worker, token, 0)).unwrap();
    }
    let long = NOW + 1_000_000;
    for (held, _) in holder.leases.clone().held() {
        holder.leases.extend(held, long);
    }
    use_up(&mut holder, 1, 2);
    let minute = 60_002 * MS;
    assert!(holder.take(minute - MS, Fixed::default(), 1).is_ok(), "number 3 is of use");
    assert_eq!(holder.give_idle_up(60_000 * MS), None);
    let given = |given: Option<(HeldWorker, u64)>| given.map(|(held, used)| (held.worker, used));
    assert_eq!(given(holder.give_idle_up(minute)), Some((9, NOW + 6)));
    assert_eq!(holder.give_idle_up(minute), None, "one a second");
    let second = minute + SHRINK_EVERY_NS;
    assert_eq!(given(holder.give_idle_up(second)), Some((7, NOW + 6)));
    assert_eq!(holder.give_idle_up(second + 2 * IDLE_NS), None, "the last");
}

#[test]
fn a_holder_of_several_whose_leader_is_an_hour_behind_comes_to_its_time_once_all_ceilings_have_passed()
 {
    let mut holder = growing(2);
    use_up(&mut holder, 1, 2);
    let hour = 3_600_000;
    // A further lease by the new leader's time lies below the ids that were made.
    let behind = GrantedLease { worker: 3, ..grant(2, 0, NOW - hour + 10_000, NOW - hour) };
    holder.granted(Ask::Further, MS, MS, behind).unwrap();
    // The time runs at half speed, up to the lease's ceiling.
    assert!(holder.take(19_900 * MS, Fixed::default(), 1).is_ok(), "number 7 goes on");
    let later = 20_200 * MS;
    assert_eq!(holder.take(later, Fixed::default(), 1), Err(Wait::ForLease));
    assert_eq!(holder.asks(later).len(), 2);
    let unraised = grant(1, NOW, NOW + 10_000, NOW - hour + 20_200);
    holder.granted(renew(1), later, later, unraised).unwrap();
    assert_eq!(holder.workers().collect::<Vec<_>>(), [3]);
    let other = HeldWorker { worker: 3, token: 2 };
    let raised =
        GrantedLease { worker: 3, ..grant(2, 0, NOW - hour + 30_200, NOW - hour + 20_200) };
    holder.granted(Ask::Renew(other), later, later, raised).unwrap();
    let format = Format::parse("snowflake").unwrap();
    let id = first(&mut holder, later).unwrap();
    let parts = format.decode_number(id).unwrap().parts();
    assert_eq!(parts.time_ms, NOW - hour + 20_200);
}
