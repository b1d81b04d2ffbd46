//! Ids of several worker ids increase and differ, under all changes of their leases.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::{encode::Fixed, format::Format};

/// Formats with few ids in a unit of time. The seconds of some begin within the second.
const FORMATS: [&str; 4] = [
    "bits epoch=1000 time-ms:41 worker:3 sequence:2",
    "bits epoch=1234 time-s:32 worker:3 sequence:1",
    "digits epoch=1234 time-s:10 worker:1 sequence:1 tail:2=5",
    "bits epoch=1000 text=base32 time-ms:41 worker:3 sequence:3 random:13",
];

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(&FORMATS[..]).prop_map(|text| Format::parse(text).unwrap())
}

/// An event of the worker ids of a holder.
#[derive(Debug, Clone)]
enum Step {
    /// The clock goes on or back by so many milliseconds, and so many ids are wanted.
    Take(i64, u64),
    /// A lease of this worker id begins, so long after its last one and for so many milliseconds. If it is held, that one was
    /// lost.
    Join(u64, u64, u64),
    /// Lost to the next holder.
    Lose(u64),
    /// Renewed, by so many milliseconds.
    Extend(u64, u64),
    /// Released: the next lease begins above the time that was used.
    Release(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delta = prop_oneof![
        4 => Just(0_i64),
        3 => 0_i64..3,
        2 => 0_i64..2_500,
        2 => -2_500_i64..0,
    ];
    let worker = || 0_u64..5;
    let step = prop_oneof![
        8 => (delta, 1_u64..12).prop_map(|(delta, count)| Step::Take(delta, count)),
        2 => (worker(), 0_u64..2_000, 0_u64..4_000)
            .prop_map(|(worker, gap, length)| Step::Join(worker, gap, length)),
        1 => worker().prop_map(Step::Lose),
        2 => (worker(), 0_u64..3_000).prop_map(|(worker, by)| Step::Extend(worker, by)),
        1 => worker().prop_map(Step::Release),
    ];
    prop::collection::vec(step, 1..150)
}

/// The leader's knowledge: of each worker id the current or last lease's token, beginning and ceiling.
#[derive(Default)]
struct Ledger(BTreeMap<u64, (u64, u64, u64)>);

/// A holder, and the ids that it made.
struct Story {
    format: Format,
    generators: Generators,
    ledger: Ledger,
    now_ms: u64,
    /// The ids, with the number of times that all leases were gone before.
    made: Vec<(usize, u128)>,
    ends: usize,
}

impl Story {
    fn new(format: Format) -> Story {
        Story {
            format,
            generators: Generators::default(),
            ledger: Ledger::default(),
            now_ms: 3_000,
            made: Vec::new(),
            ends: 0,
        }
    }

    fn held(&self, worker: u64) -> HeldWorker {
        let token = self.ledger.0.get(&worker).map_or(0, |(token, ..)| *token);
        HeldWorker { worker, token }
    }

    fn go(&mut self, step: &Step) {
        match *step {
            Step::Take(delta, count) => {
                self.now_ms = self.now_ms.saturating_add_signed(delta);
                self.take(count);
            }
            Step::Join(worker, gap_ms, length_ms) => {
                let (token, _, last_ms) = self.ledger.0.get(&worker).copied().unwrap_or_default();
                let from_ms = last_ms + gap_ms;
                let ceiling_ms = from_ms + length_ms;
                let lease = (token + 1, from_ms, ceiling_ms);
                self.ledger.0.insert(worker, lease);
                let generator = Generator::new(&self.format, worker, from_ms, ceiling_ms).unwrap();
                self.generators.join(self.held(worker), generator, 0);
            }
            Step::Lose(worker) => drop(self.generators.remove(self.held(worker))),
            Step::Extend(worker, by_ms) => {
                let held = self.held(worker);
                if let Some((_, _, ceiling_ms)) = self.ledger.0.get_mut(&worker) {
                    *ceiling_ms += by_ms;
                    self.generators.extend(held, *ceiling_ms);
                }
            }
            Step::Release(worker) => {
                if let Some((_, used_ms)) = self.generators.remove(self.held(worker)) {
                    let (_, from_ms, ceiling_ms) = self.ledger.0.get_mut(&worker).unwrap();
                    *ceiling_ms = used_ms.min(*ceiling_ms).max(*from_ms);
                }
            }
        }
        if self.generators.is_empty() {
            self.ends += 1;
        }
    }

    fn take(&mut self, count: u64) {
        let Ok(run) = self.generators.take(self.now_ms, 0, Fixed::default(), count) else {
            return;
        };
        assert!((1..=count).contains(&run.count()));
        for id in run.ids(|| 0) {
            let parts = self.format.decode_number(id).unwrap().parts();
            let (_, from_ms, ceiling_ms) = self.ledger.0[&parts.worker];
            assert!(from_ms < parts.time_ms && parts.time_ms <= ceiling_ms);
            self.made.push((self.ends, id));
        }
    }
}

proptest! {
    #[test]
    fn ids_differ_and_increase_whatever_happens_to_leases_as_long_as_there_is_one(
        format in format(),
        steps in steps(),
    ) {
        let mut story = Story::new(format);
        for step in &steps {
            story.go(step);
        }
        // Of the ids that were made while there was a lease all the time, each is greater than the one before.
        prop_assert!(story.made.is_sorted_by(|a, b| a < b || a.0 < b.0));
        let differ: HashSet<u128> = story.made.iter().map(|(_, id)| *id).collect();
        prop_assert_eq!(differ.len(), story.made.len());
    }

    #[test]
    fn what_is_said_of_the_next_id_is_true(
        format in format(),
        steps in steps(),
    ) {
        let mut story = Story::new(format);
        for step in &steps {
            story.go(step);
        }
        let (now_ms, mut generators) = (story.now_ms, story.generators);
        match generators.take(now_ms, 0, Fixed::default(), 1) {
            Ok(_) => {}
            Err(NotYet::Until(ms)) => {
                prop_assert!(ms > now_ms);
                let before = generators.clone().take(ms - 1, 0, Fixed::default(), 1);
                // Before, there may be a lease whose ceiling was passed by a clock that went back since.
                prop_assert!(before.is_err());
                prop_assert!(generators.take(ms, 0, Fixed::default(), 1).is_ok());
            }
            Err(NotYet::Ceiling) => {
                let held: Vec<HeldWorker> = generators.held().map(|(held, _)| held).collect();
                for held in &held {
                    generators.extend(*held, u64::MAX);
                }
                let soon = match generators.take(now_ms, 0, Fixed::default(), 1) {
                    Err(NotYet::Until(ms)) => generators.take(ms, 0, Fixed::default(), 1),
                    taken => taken,
                };
                prop_assert!(soon.is_ok() || held.is_empty());
            }
            Err(NotYet::Ended) => prop_assert!(false, "the format has not ended"),
        }
    }

    #[test]
    fn all_ids_of_all_workers_are_handed_out(
        format in format(),
        workers in prop::collection::btree_set(0_u64..5, 1..5),
        count in 1_u64..9,
    ) {
        let mut story = Story::new(format);
        for worker in &workers {
            story.go(&Step::Join(*worker, 0, 50_000));
        }
        for _ in 0..1_000 {
            story.go(&Step::Take(0, count));
        }
        let all = story.format.capacity() * workers.len() as u64;
        prop_assert_eq!(story.made.len() as u64, all);
    }
}

fn joined(format: &Format, worker: u64, from_ms: u64, ceiling_ms: u64) -> (HeldWorker, Generator) {
    let held = HeldWorker { worker, token: 1 };
    let generator = Generator::new(format, worker, from_ms, ceiling_ms).unwrap();
    (held, generator)
}

/// Which worker makes the next id, and at which time.
fn next(
    generators: &mut Generators, format: &Format, now_ms: u64, count: u64,
) -> Result<(u64, u64), NotYet> {
    let run = generators.take(now_ms, now_ms, Fixed::default(), count)?;
    let id = run.ids(|| 0).next().unwrap();
    let parts = format.decode_number(id).unwrap().parts();
    Ok((parts.worker, parts.time_ms))
}

#[test]
fn a_lower_worker_that_joins_within_a_unit_of_time_waits_for_the_next_one() {
    let format = Format::parse("snowflake").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generators = Generators::default();
    let (held, generator) = joined(&format, 5, 0, now_ms + 100);
    generators.join(held, generator, 0);
    assert_eq!(next(&mut generators, &format, now_ms, 1), Ok((5, now_ms)));
    let (held, generator) = joined(&format, 2, 0, now_ms + 100);
    generators.join(held, generator, 0);
    assert_eq!(next(&mut generators, &format, now_ms, 9), Ok((5, now_ms)));
    let later = now_ms + 1;
    assert_eq!(next(&mut generators, &format, later, u64::MAX), Ok((2, later)));
    assert_eq!(next(&mut generators, &format, later, u64::MAX), Ok((5, later)));
    assert_eq!(next(&mut generators, &format, later, 1), Err(NotYet::Until(later + 1)));
    // A clock that goes back changes nothing.
    assert_eq!(next(&mut generators, &format, now_ms, 1), Err(NotYet::Until(later + 1)));
}

#[test]
fn a_lost_lease_takes_its_own_worker_out_and_leaves_the_order_as_it_was() {
    let format = Format::parse("snowflake").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generators = Generators::default();
    for worker in [2, 5] {
        let (held, generator) = joined(&format, worker, 0, now_ms + 100);
        generators.join(held, generator, 0);
    }
    assert_eq!(next(&mut generators, &format, now_ms, 4_096), Ok((2, now_ms)));
    assert_eq!(next(&mut generators, &format, now_ms, 1), Ok((5, now_ms)));
    let lost = HeldWorker { worker: 5, token: 1 };
    assert_eq!(generators.remove(lost), Some((lost, now_ms)));
    assert_eq!(generators.remove(lost), None);
    assert_eq!(generators.used_ms(), now_ms, "number 2 begins above it");
    let next_ms = now_ms + 1;
    assert_eq!(next(&mut generators, &format, now_ms, 1), Err(NotYet::Until(next_ms)));
    assert_eq!(next(&mut generators, &format, next_ms, 1), Ok((2, next_ms)));
    // Another lease of a worker id that is held is the end of the one before.
    let again = HeldWorker { worker: 2, token: 9 };
    let generator = Generator::new(&format, 2, now_ms + 100, now_ms + 200).unwrap();
    generators.join(again, generator, 0);
    assert_eq!(generators.held().collect::<Vec<_>>(), [(again, now_ms + 200)]);
    // A renewal of the one before comes too late.
    let before = HeldWorker { worker: 2, token: 1 };
    generators.extend(before, now_ms + 300);
    assert_eq!(generators.held().collect::<Vec<_>>(), [(again, now_ms + 200)]);
}

#[test]
fn a_lease_that_begins_late_does_not_keep_another_from_being_renewed() {
    let format = Format::parse("snowflake").unwrap();
    let now_ms = 1_700_000_000_000;
    let mut generators = Generators::default();
    for (worker, from_ms, ceiling_ms) in [(1, 0, now_ms), (2, now_ms + 60_000, now_ms + 70_000)] {
        let (held, generator) = joined(&format, worker, from_ms, ceiling_ms);
        generators.join(held, generator, 0);
    }
    assert_eq!(next(&mut generators, &format, now_ms + 1, 1), Err(NotYet::Ceiling));
    generators.remove(HeldWorker { worker: 1, token: 1 });
    let begins_ms = now_ms + 60_001;
    assert_eq!(next(&mut generators, &format, now_ms + 1, 1), Err(NotYet::Until(begins_ms)));
}
