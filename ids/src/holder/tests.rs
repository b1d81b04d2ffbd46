use super::*;
use crate::encode::Fixed;

const MS: u64 = 1_000_000;
const NOW: u64 = 1_700_000_000_000;

fn holder() -> Holder {
    let format = Format::parse("snowflake").unwrap();
    Holder::new(format, 0, NOW).unwrap()
}

fn grant(token: u64, from_ms: u64, ceiling_ms: u64, now_ms: u64) -> Grant {
    Grant {
        worker: 7,
        token,
        from_ms,
        ceiling_ms,
        now_ms,
    }
}

fn renew(token: u64) -> Ask {
    Ask::Renew(HeldWorker { worker: 7, token })
}

fn first(holder: &mut Holder, mono_ns: u64) -> Result<u128, Wait> {
    let run = holder.take(mono_ns, 1)?;
    Ok(run.ids(Fixed(0), || 0).next().unwrap())
}

#[test]
fn a_holder_asks_once_for_a_lease_and_again_some_time_before_the_ceiling() {
    let mut holder = holder();
    assert_eq!(holder.take(0, 1), Err(Wait::ForLease));
    assert_eq!(holder.ask(0), Some(Ask::Lease));
    assert_eq!(holder.ask(0), None, "it was asked");
    holder.failed(MS);
    assert_eq!(holder.ask(MS + RETRY_NS), None, "nobody wants it any more");
    assert_eq!(holder.take(MS, 1), Err(Wait::ForLease));
    assert_eq!(holder.ask(MS), None, "not at once");
    assert_eq!(holder.ask(MS + RETRY_NS), Some(Ask::Lease));
    let now = 2 * RETRY_NS;
    let granted = grant(1, 0, NOW + 10_000, NOW + now / MS);
    holder.granted(Ask::Lease, now, now, granted).unwrap();
    assert_eq!(holder.worker(), Some(7));
    assert_eq!(holder.ask(now), None);
    let near = (10_000 - RENEW_BELOW_MS + 1) * MS;
    assert_eq!(holder.ask(near), Some(renew(1)));
}

#[test]
fn a_holder_that_cannot_renew_stops_at_its_ceiling_and_goes_on_when_it_is_raised() {
    let mut holder = holder();
    let granted = grant(1, NOW, NOW + 10_000, NOW);
    holder.granted(Ask::Lease, 0, 0, granted).unwrap();
    let last = first(&mut holder, 10_000 * MS).unwrap();
    assert_eq!(first(&mut holder, 10_001 * MS), Err(Wait::ForLease));
    let granted = grant(1, NOW, NOW + 20_000, NOW + 10_001);
    holder
        .granted(renew(1), 10_001 * MS, 10_001 * MS, granted)
        .unwrap();
    assert!(first(&mut holder, 10_001 * MS).unwrap() > last);
}

#[test]
fn a_lease_that_was_lost_is_not_used_any_more_and_the_next_one_begins_above_its_from() {
    let mut holder = holder();
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    first(&mut holder, 5 * MS).unwrap();
    holder.lost(6 * MS);
    assert_eq!(first(&mut holder, 6 * MS), Err(Wait::ForLease));
    assert_eq!(holder.ask(6 * MS), Some(Ask::Lease));
    // Of the same worker id, with its former ceiling as the new from.
    let next = grant(2, NOW + 10_000, NOW + 20_000, NOW + 7);
    holder.granted(Ask::Lease, 7 * MS, 7 * MS, next).unwrap();
    let waits = Duration::from_millis(10_000 + 1 - 7);
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
    let mut holder = Holder::new(format, 0, NOW - hour).unwrap();
    let observed = holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    let step_ms = i64::try_from(hour).unwrap();
    assert_eq!(observed, Observed::Followed { step_ms });
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
    assert_eq!(holder.give_up(), None);
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    first(&mut holder, 5 * MS).unwrap();
    let held = HeldWorker {
        worker: 7,
        token: 1,
    };
    assert_eq!(holder.give_up(), Some((held, NOW + 5)));
    assert_eq!(holder.ask(2_000 * MS), None, "nobody wants ids");
    assert_eq!(first(&mut holder, 2_000 * MS), Err(Wait::ForLease));
    assert_eq!(holder.ask(2_000 * MS), Some(Ask::Lease));
}

#[test]
fn a_format_without_a_worker_has_no_holder() {
    let format = Format::parse("rongcloud").unwrap();
    assert!(matches!(
        Holder::new(format, 0, NOW),
        Err(EncodeError::NoWorker)
    ));
}

#[test]
fn ids_run_ahead_of_the_time_by_a_few_milliseconds_and_no_further() {
    let mut holder = holder();
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    let format = Format::parse("snowflake").unwrap();
    let mut ids = Vec::new();
    let wait = loop {
        match holder.take(3 * MS, u64::MAX) {
            Ok(run) => ids.extend(run.ids(Fixed(0), || 0)),
            Err(wait) => break wait,
        }
    };
    assert_eq!(ids.len(), 4_096 * (1 + BORROWED_MS as usize));
    assert!(ids.is_sorted_by(|a, b| a < b));
    let last = format.decode_number(*ids.last().unwrap()).unwrap();
    assert_eq!(last.parts().time_ms, NOW + 3 + BORROWED_MS);
    assert_eq!(wait, Wait::For(Duration::from_millis(BORROWED_MS + 1)));
}

#[test]
fn ids_of_a_second_that_is_used_up_wait_for_the_next_one() {
    let format = Format::parse("uid-generator epoch=2023-01-01").unwrap();
    let mut holder = Holder::new(format, 0, NOW + 990).unwrap();
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW + 990))
        .unwrap();
    assert_eq!(holder.take(0, u64::MAX).unwrap().count(), 8_192);
    assert_eq!(holder.take(0, 1), Err(Wait::For(Duration::from_millis(10))));
    assert_eq!(holder.take(10 * MS, 1).unwrap().count(), 1);
}

#[test]
fn a_renewal_that_comes_after_the_lease_was_given_up_makes_no_id_a_second_time() {
    let mut holder = holder();
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    first(&mut holder, 5 * MS).unwrap();
    let asked = 5_000 * MS;
    assert_eq!(holder.ask(asked), Some(renew(1)));
    holder.give_up();
    let renewed = grant(1, 0, NOW + 20_000, NOW + 5_000);
    holder.granted(renew(1), asked, asked, renewed).unwrap();
    assert_eq!(first(&mut holder, asked), Err(Wait::ForLease));
    assert_eq!(holder.ask(asked + RENEWAL_EVERY_NS), Some(Ask::Lease));
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
    assert_eq!(holder.ask(9_000 * MS), Some(renew(1)));
    holder
        .granted(renew(1), 9_000 * MS, 9_000 * MS, renewed)
        .unwrap();
    assert!(first(&mut holder, 9_500 * MS).unwrap() > before);
    assert_eq!(holder.ask(9_500 * MS), None, "a second has not passed");
    // At half speed.
    let at_ceiling = 11_002 * MS;
    assert_eq!(holder.ask(at_ceiling), Some(renew(1)));
    holder
        .granted(renew(1), at_ceiling, at_ceiling, renewed)
        .unwrap();
    assert_eq!(first(&mut holder, at_ceiling), Err(Wait::ForLease));
    assert_eq!(holder.ask(at_ceiling), Some(Ask::Lease));
    let other = Grant {
        worker: 8,
        ..grant(5, 0, NOW - hour + 20_000, NOW - hour)
    };
    holder
        .granted(Ask::Lease, at_ceiling, at_ceiling, other)
        .unwrap();
    assert!(first(&mut holder, at_ceiling).is_ok());
}

#[test]
fn a_holder_whose_wall_clock_is_an_hour_ahead_makes_ids_at_the_leaders_time() {
    let hour = 3_600_000;
    let format = Format::parse("snowflake").unwrap();
    let mut holder = Holder::new(format.clone(), 0, NOW + hour).unwrap();
    let granted = grant(1, 0, NOW + 10_000, NOW);
    let observed = holder.granted(Ask::Lease, 0, 0, granted).unwrap();
    let step_ms = -i64::try_from(hour).unwrap();
    assert_eq!(observed, Observed::Followed { step_ms });
    let id = first(&mut holder, MS).unwrap();
    let time_ms = format.decode_number(id).unwrap().parts().time_ms;
    assert_eq!(time_ms, NOW + 1);
}

#[test]
fn a_leader_whose_clock_went_back_does_not_make_ids_go_back() {
    let mut holder = holder();
    holder
        .granted(Ask::Lease, 0, 0, grant(1, 0, NOW + 10_000, NOW))
        .unwrap();
    let before = first(&mut holder, 5_000 * MS).unwrap();
    let renewed = grant(1, 0, NOW + 10_000, NOW + 5_000 - 3_600_000);
    holder
        .granted(renew(1), 5_000 * MS, 5_000 * MS, renewed)
        .unwrap();
    let after = first(&mut holder, 5_001 * MS).unwrap();
    assert!(after > before);
    // Half as fast as the time.
    assert_eq!(holder.now_ms(6_000 * MS), NOW + 5_500);
}

#[test]
fn a_lease_that_begins_far_above_the_time_is_waited_for_until_it_can_be_renewed() {
    let mut holder = holder();
    let empty = grant(1, NOW + 60_000, NOW + 60_000, NOW);
    holder.granted(Ask::Lease, 0, 0, empty).unwrap();
    let until_renewed = 60_000 - RENEW_BELOW_MS;
    assert_eq!(
        first(&mut holder, 0),
        Err(Wait::For(Duration::from_millis(until_renewed)))
    );
    let later = (until_renewed + 1) * MS;
    assert_eq!(first(&mut holder, later), Err(Wait::ForLease));
    assert_eq!(holder.ask(later), Some(renew(1)));
}

#[test]
fn a_lease_that_ended_unrenewed_is_not_asked_for_again_until_somebody_wants_ids() {
    let mut holder = holder();
    let leased = grant(1, 0, NOW + 10_000, NOW);
    holder.granted(Ask::Lease, 0, 0, leased).unwrap();
    let before = 9_000 * MS;
    assert_eq!(holder.ask(before), Some(renew(1)));
    holder.failed(before);
    assert!(
        first(&mut holder, before).is_ok(),
        "the lease is still good"
    );
    let after = 10_001 * MS;
    assert_eq!(holder.ask(after), Some(renew(1)));
    holder.failed(after);
    let later = after + RETRY_NS;
    assert_eq!(holder.ask(later), None);
    assert_eq!(first(&mut holder, later), Err(Wait::ForLease));
    assert_eq!(holder.ask(later), Some(Ask::Lease));
}
