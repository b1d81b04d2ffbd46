//! Ids of a worker increase, differ from ids of other chunks, and end without a wrap.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Formats with few ids in a unit of time. The seconds of some begin within the second.
const FORMATS: [&str; 5] = [
    "bits epoch=1000 time-ms:41 worker:3 sequence:2",
    "bits epoch=1234 time-s:32 worker:3 sequence:1",
    "digits epoch=1234 text=groups time-s:10 sequence:1 worker:2 type:1",
    "bits epoch=1000 text=base32 head:2=1 time-ms:41 sequence:3 worker:3 random:11",
    "bits epoch=1000 time-ms:41 sequence:2 worker:3 tail:4=5",
];

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(&FORMATS[..]).prop_map(|text| Format::parse(text).unwrap())
}

fn fixed(format: &Format) -> Fixed {
    let parameters: Vec<(&str, u64)> = format.parameters().map(|name| (name, 1)).collect();
    format.fixed(&parameters, None).unwrap()
}

fn ids(run: Run) -> Vec<u128> {
    run.ids(|| u64::MAX).collect()
}

/// How time goes on from call to call, in milliseconds, and how many ids each call wants.
fn calls() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let delta = prop_oneof![
        3 => Just(0_i64),
        3 => 0_i64..3,
        2 => 0_i64..2_500,
        2 => -3_000_i64..0,
    ];
    prop::collection::vec((delta, 1_u64..12), 1..80)
}

/// All ids that the calls give, in order.
fn drain(
    format: &Format, generator: &mut Generator, begin_ms: u64, calls: &[(i64, u64)],
) -> Vec<u128> {
    let mut now_ms = begin_ms;
    let mut made = Vec::new();
    for (delta, count) in calls {
        now_ms = now_ms.saturating_add_signed(*delta);
        if let Ok(run) = generator.take(now_ms, fixed(format), *count) {
            made.extend(ids(run));
        }
    }
    made
}

#[test]
fn the_ids_of_a_millisecond_are_a_run() {
    let format = Format::parse("snowflake").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generator = Generator::new(&format, 5, now_ms - 1, now_ms + 10).unwrap();
    let run = generator.take(now_ms, fixed(&format), 3).unwrap();
    assert_eq!(run.count(), 3);
    let first = (now_ms - 1_288_834_974_657) << 22 | 5 << 12;
    let first = u128::from(first);
    assert_eq!(ids(run), [first, first + 1, first + 2]);
    let rest = generator.take(now_ms, fixed(&format), u64::MAX).unwrap();
    assert_eq!(rest.count(), 4_093);
    assert_eq!(generator.take(now_ms, fixed(&format), 1), Err(NotYet::Until(now_ms + 1)));
    // A clock that goes back finds the same unit of time.
    assert_eq!(generator.take(now_ms - 500, fixed(&format), 1), Err(NotYet::Until(now_ms + 1)));
    let next = generator.take(now_ms + 1, fixed(&format), 1).unwrap();
    assert_eq!(ids(next), [first + (1 << 22)]);
    let again = generator.take(now_ms - 500, fixed(&format), 1).unwrap();
    assert_eq!(ids(again), [first + (1 << 22) + 1]);
}

#[test]
fn a_unit_of_time_belongs_to_the_chunk_of_its_first_millisecond() {
    let format = Format::parse("bits epoch=1000 time-s:32 worker:3 sequence:1").unwrap();
    // Seconds begin at 10 000, 11 000, 12 000.
    let take = |from_ms, ceiling_ms, now_ms| {
        let mut generator = Generator::new(&format, 1, from_ms, ceiling_ms).unwrap();
        let taken = generator.take(now_ms, fixed(&format), 1);
        taken.map(|run| format.decode_number(ids(run)[0]).unwrap().parts().time_ms)
    };
    assert_eq!(take(10_000, 12_000, 10_999), Err(NotYet::Until(11_000)));
    assert_eq!(take(9_999, 12_000, 10_999), Ok(10_000));
    assert_eq!(take(10_000, 11_000, 11_999), Ok(11_000));
    assert_eq!(take(10_000, 10_999, 11_999), Err(NotYet::Ceiling));
    assert_eq!(take(10_000, 11_500, 12_000), Err(NotYet::Ceiling));
    // A chunk without the beginning of a second has no ids.
    assert_eq!(take(10_000, 10_999, 10_500), Err(NotYet::Ceiling));
}

#[test]
fn the_greatest_time_used_is_that_of_the_last_id() {
    let format = Format::parse("bits epoch=1000 time-s:32 worker:3 sequence:1").unwrap();
    let mut generator = Generator::new(&format, 1, 9_999, 20_000).unwrap();
    assert_eq!(generator.used_ms(), 0);
    assert!(generator.take(9_000, fixed(&format), 1).is_err());
    assert_eq!(generator.used_ms(), 0);
    generator.take(10_700, fixed(&format), 1).unwrap();
    assert_eq!(generator.used_ms(), 10_000);
    // Nothing is taken of the second 12 000.
    assert_eq!(generator.take(12_700, fixed(&format), 0).unwrap().count(), 0);
    assert_eq!(generator.used_ms(), 10_000);
    generator.take(12_800, fixed(&format), 1).unwrap();
    assert_eq!(generator.used_ms(), 12_000);
    assert_eq!(generator.take(21_000, fixed(&format), 1), Err(NotYet::Ceiling));
    assert_eq!(generator.used_ms(), 12_000);
}

#[test]
fn a_higher_ceiling_gives_more_times_and_a_lower_one_changes_nothing() {
    let format = Format::parse("snowflake").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generator = Generator::new(&format, 5, now_ms, now_ms).unwrap();
    assert_eq!(generator.take(now_ms, fixed(&format), 1), Err(NotYet::Ceiling));
    generator.extend(now_ms + 1);
    generator.extend(now_ms);
    assert_eq!(generator.ceiling_ms(), now_ms + 1);
    assert_eq!(generator.take(now_ms, fixed(&format), 1), Err(NotYet::Until(now_ms + 1)));
    assert!(generator.take(now_ms + 1, fixed(&format), 1).is_ok());
    assert_eq!(generator.take(now_ms + 2, fixed(&format), 1), Err(NotYet::Ceiling));
}

#[test]
fn ids_end_with_the_format_and_never_wrap() {
    for text in [
        "bits time-s:17 worker:1 sequence:1",
        "digits time-s:5 worker:1 sequence:2",
        // All 128 bits are in use: one step more would overflow.
        "bits text=uuid time-s:20 sequence:63 worker:45",
    ] {
        let format = Format::parse(text).unwrap();
        let worker = format.workers_max() - 1;
        let mut generator = Generator::new(&format, worker, 0, u64::MAX).unwrap();
        let last_ms = format.last_ms();
        let run = generator.take(last_ms, fixed(&format), u64::MAX).unwrap();
        assert_eq!(run.count(), format.capacity(), "{text}");
        assert_eq!(generator.take(last_ms, fixed(&format), 1), Err(NotYet::Ended), "{text}");
        assert_eq!(generator.take(0, fixed(&format), 1), Err(NotYet::Ended), "{text}");
        assert_eq!(generator.take(u64::MAX, fixed(&format), 1), Err(NotYet::Ended), "{text}");
        let mut late = Generator::new(&format, worker, last_ms, u64::MAX).unwrap();
        assert_eq!(late.take(last_ms, fixed(&format), 1), Err(NotYet::Ended), "{text}");
        let mut never = Generator::new(&format, worker, u64::MAX, u64::MAX).unwrap();
        assert_eq!(never.take(u64::MAX, fixed(&format), 1), Err(NotYet::Ended), "{text}");
    }
}

#[test]
fn a_worker_must_be_one_of_the_formats() {
    let refused = |text, worker| {
        let format = Format::parse(text).unwrap();
        Generator::new(&format, worker, 0, 1).unwrap_err().to_string()
    };
    assert_eq!(refused("snowflake", 1_024), "worker 1024 does not fit: the greatest value is 1023");
    assert_eq!(
        refused("rongcloud", 0),
        "the format has no worker, so its ids are made by the leader alone: ask a node for them"
    );
}

#[test]
fn each_id_has_a_random_number_of_its_own() {
    let format = Format::parse("uuid7").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generator = Generator::new(&format, 5, now_ms - 1, now_ms).unwrap();
    let run = generator.take(now_ms, fixed(&format), 3).unwrap();
    let mut next = 0x1234_0000_0000_0000_u64;
    let made = run.ids(|| {
        next += 1;
        next
    });
    let random = made.map(|id| format.decode_number(id).unwrap().parts().random);
    assert_eq!(random.collect::<Vec<_>>(), [1, 2, 3]);
}

/// One counter that runs on, or one for each value of a parameter.
const RUNNING: [&str; 2] = [
    "digits epoch=1000 counter=runs-on time-s:10 sequence:1 type:1 worker:1",
    "digits epoch=1000 text=groups counter=runs-on counter-per=type time-s:10 sequence:1 type:1 worker:1",
];

/// The second, the counter and the type of an id.
type Row = (u64, u64, u64);

/// The ids of one type.
fn rows(format: &Format, generator: &mut Generator, (now_ms, of_type, count): Row) -> Vec<Row> {
    let fixed = format.fixed(&[("type", of_type)], None).unwrap();
    let run = generator.take(now_ms, fixed, count);
    let ids = run.into_iter().flat_map(|run| run.ids(|| 0));
    let decoded = ids.map(|id| {
        let decoded = format.decode_number(id).unwrap();
        let parts = decoded.parts();
        (parts.time_ms, parts.sequence, decoded.value("type").unwrap())
    });
    decoded.collect()
}

#[test]
fn a_counter_that_runs_on_goes_on_in_the_next_second_and_waits_before_it_comes_to_a_value_again() {
    let format = Format::parse(RUNNING[0]).unwrap();
    let mut generator = Generator::new(&format, 1, 9_999, 20_000).unwrap();
    let mut counters = |now_ms, count| {
        let rows = rows(&format, &mut generator, (now_ms, 0, count));
        rows.iter().map(|(_, counter, _)| *counter).collect::<Vec<u64>>()
    };
    let first = counters(10_000, 1)[0];
    let next = |up: u64| (first + up) % 10;
    let mut taken = 1;
    // Nine are left. A run ends before the counter begins anew.
    while taken < 10 {
        let more = counters(10_500, u64::MAX);
        for counter in more {
            assert_eq!(counter, next(taken));
            taken += 1;
        }
    }
    assert!(counters(10_999, 1).is_empty(), "the second is used up");
    assert_eq!(counters(11_000, 1), [next(0)]);
    assert_eq!(counters(15_000, 1), [next(1)]);
    assert_eq!(counters(12_000, 1), [next(2)], "the clock went back");
}

#[test]
fn each_value_of_the_parameter_has_a_counter_of_its_own() {
    let format = Format::parse(RUNNING[1]).unwrap();
    let mut generator = Generator::new(&format, 1, 9_999, 20_000).unwrap();
    let mut taken = |of_type| {
        let mut taken = Vec::new();
        loop {
            let more = rows(&format, &mut generator, (10_000, of_type, u64::MAX));
            if more.is_empty() {
                return taken.len();
            }
            taken.extend(more);
        }
    };
    assert_eq!([taken(0), taken(9), taken(0), taken(5)], [10, 10, 0, 10]);
}

#[test]
fn rows_lie_evenly_on_tables_whether_a_lease_makes_many_ids_or_one() {
    let format = Format::parse("yuewen-route").unwrap();
    let fixed = format.fixed(&[("type", 1), ("database", 0)], None).unwrap();
    let start_ms = 1_700_000_000_000;
    let table = |generator: &mut Generator, now_ms| {
        let id = generator.take(now_ms, fixed, 1).unwrap().ids(|| 0).next().unwrap();
        (format.decode_number(id).unwrap().parts().sequence % 4) as usize
    };
    // One generator makes one id a second.
    let mut generator = Generator::new(&format, 3, start_ms - 1, u64::MAX).unwrap();
    let mut tables = [0; 4];
    for second in 0..400 {
        tables[table(&mut generator, start_ms + second * 1_000)] += 1;
    }
    assert_eq!(tables, [100; 4]);
    // Each lease makes one id.
    let mut tables = [0; 4];
    for second in 0..4_000 {
        let now_ms = start_ms + second * 1_000;
        let mut generator = Generator::new(&format, 3, now_ms - 1, u64::MAX).unwrap();
        tables[table(&mut generator, now_ms)] += 1;
    }
    assert!(tables.iter().all(|rows| (850..1_150).contains(rows)), "{tables:?}");
}

proptest! {
    #[test]
    fn ids_whose_counter_runs_on_differ_whatever_the_clock_does_and_whoever_has_the_lease(
        format in prop::sample::select(&RUNNING[..]),
        leases in prop::collection::vec((0_u64..5_000, 0_u64..30_000, calls()), 1..6),
        types in prop::collection::vec(0_u64..3, 80),
    ) {
        let format = Format::parse(format).unwrap();
        let mut from_ms = 0;
        let mut made: Vec<Row> = Vec::new();
        for (length_ms, begin_ms, calls) in &leases {
            let ceiling_ms = from_ms + length_ms;
            let mut generator = Generator::new(&format, 3, from_ms, ceiling_ms).unwrap();
            let (mut now_ms, mut last) = (*begin_ms, BTreeMap::new());
            for ((delta, count), of_type) in calls.iter().zip(&types) {
                now_ms = now_ms.saturating_add_signed(*delta);
                for row in rows(&format, &mut generator, (now_ms, *of_type, *count)) {
                    let counted_by = format.counter_per().map_or(0, |_| row.2);
                    if let Some((second, counter)) = last.insert(counted_by, (row.0, row.1)) {
                        prop_assert!(row.0 >= second);
                        prop_assert_eq!(row.1, (counter + 1) % 10);
                    }
                    made.push(row);
                }
            }
            from_ms = match length_ms % 2 {
                0 => ceiling_ms,
                _ => generator.used_ms().clamp(from_ms, ceiling_ms),
            };
        }
        let count = made.len();
        made.sort_unstable();
        made.dedup();
        prop_assert_eq!(made.len(), count);
        // The ten values of one counter are all that a second has, for all types that share it.
        let mut counted: Vec<Row> = (made.iter())
            .map(|row| (row.0, row.1, format.counter_per().map_or(0, |_| row.2)))
            .collect();
        counted.sort_unstable();
        counted.dedup();
        prop_assert_eq!(counted.len(), count);
    }

    #[test]
    fn ids_of_a_worker_increase_whatever_the_clock_does(
        format in format(),
        from_ms in 0_u64..20_000,
        length_ms in 0_u64..20_000,
        begin_ms in 0_u64..30_000,
        calls in calls(),
        worker in 0_u64..8,
    ) {
        let ceiling_ms = from_ms + length_ms;
        let mut generator = Generator::new(&format, worker, from_ms, ceiling_ms).unwrap();
        let made = drain(&format, &mut generator, begin_ms, &calls);
        prop_assert!(made.is_sorted_by(|a, b| a < b));
        let mut in_tick: BTreeMap<u64, u64> = BTreeMap::new();
        for id in &made {
            let parts = format.decode_number(*id).unwrap().parts();
            prop_assert!(from_ms < parts.time_ms && parts.time_ms <= ceiling_ms);
            prop_assert_eq!(parts.worker, worker);
            *in_tick.entry(parts.time_ms).or_default() += 1;
        }
        prop_assert!(in_tick.values().all(|count| *count <= format.capacity()));
        let last = in_tick.last_key_value().map_or(0, |(time_ms, _)| *time_ms);
        prop_assert_eq!(generator.used_ms(), last);
    }

    #[test]
    fn an_id_never_has_a_time_that_no_clock_has_shown(
        format in format(),
        calls in calls(),
    ) {
        let mut generator = Generator::new(&format, 0, 0, u64::MAX).unwrap();
        let mut now_ms = 5_000_u64;
        let mut greatest_ms = 0;
        for (delta, count) in calls {
            now_ms = now_ms.saturating_add_signed(delta);
            greatest_ms = greatest_ms.max(now_ms);
            if let Ok(run) = generator.take(now_ms, fixed(&format), count) {
                prop_assert!((1..=count).contains(&run.count()));
                let id = ids(run)[0];
                let time_ms = format.decode_number(id).unwrap().parts().time_ms;
                prop_assert!(time_ms <= greatest_ms && greatest_ms < time_ms + format.tick_ms());
            }
        }
    }

    #[test]
    fn chunks_that_follow_one_another_give_ids_that_do(
        format in format(),
        bounds in prop::collection::vec(0_u64..6_000, 2..8),
        begins in prop::collection::vec(0_u64..50_000, 8),
        calls in prop::collection::vec(calls(), 8),
    ) {
        // The chunks of one worker, one after the other, each held by somebody with a clock of their own.
        let mut from_ms = 0;
        let mut made = Vec::new();
        for ((length_ms, begin_ms), calls) in bounds.iter().zip(begins).zip(&calls) {
            let ceiling_ms = from_ms + length_ms;
            let mut generator = Generator::new(&format, 3, from_ms, ceiling_ms).unwrap();
            let own = drain(&format, &mut generator, begin_ms, calls);
            made.extend(own);
            // A holder that gives up early leaves the times above the last one used.
            from_ms = match length_ms % 2 {
                0 => ceiling_ms,
                _ => generator.used_ms().clamp(from_ms, ceiling_ms),
            };
        }
        prop_assert!(made.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn what_is_said_of_the_next_id_is_true(
        format in format(),
        from_ms in 0_u64..5_000,
        length_ms in 0_u64..5_000,
        begin_ms in 0_u64..10_000,
        calls in calls(),
    ) {
        let ceiling_ms = from_ms + length_ms;
        let mut generator = Generator::new(&format, 0, from_ms, ceiling_ms).unwrap();
        drain(&format, &mut generator, begin_ms, &calls);
        let now_ms = begin_ms;
        match generator.take(now_ms, fixed(&format), 1) {
            Ok(_) => {}
            Err(NotYet::Until(ms)) => {
                prop_assert!(ms > now_ms);
                let before = generator.clone().take(ms - 1, fixed(&format), 1);
                prop_assert_eq!(before, Err(NotYet::Until(ms)));
                prop_assert!(generator.take(ms, fixed(&format), 1).is_ok());
            }
            Err(NotYet::Ceiling) => {
                generator.extend(u64::MAX);
                let soon = match generator.take(now_ms, fixed(&format), 1) {
                    Err(NotYet::Until(ms)) => generator.take(ms, fixed(&format), 1),
                    taken => taken,
                };
                prop_assert!(soon.is_ok());
            }
            Err(NotYet::Ended) => prop_assert!(false, "the format has not ended"),
        }
    }
}
