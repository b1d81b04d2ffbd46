//! Which worker id a lease gets.

use super::*;

fn lease(holder: &str, ceiling_ms: u64) -> WorkerRecord {
    WorkerRecord { holder: holder.to_owned(), token: 1, from_ms: 0, ceiling_ms, written_ms: 0 }
}

/// Four worker ids, of which number 2 was never leased, at the time 100.
fn four(busy: &[u32]) -> FreeWorkers {
    let last = [(0, lease("a", 40)), (1, lease("b", 30)), (3, lease("c", 200))];
    let busy = busy.iter().copied().collect();
    FreeWorkers::new(4, &last.into(), &busy, 100)
}

#[test]
fn a_holder_gets_the_worker_id_that_it_had_last_and_another_one_what_was_never_leased_or_ended_first()
 {
    let mut free = four(&[]);
    assert_eq!(free.choose("b"), Ok(1));
    assert_eq!(free.choose("new"), Ok(2));
    assert_eq!(free.choose("b"), Ok(0));
    assert_eq!(free.choose("a"), Err(Some(200)));
    let mut free = four(&[]);
    let chosen = [(); 3].map(|()| free.choose("new"));
    assert_eq!(chosen, [Ok(2), Ok(1), Ok(0)]);
}

#[test]
fn of_several_that_a_holder_had_it_gets_the_last_one() {
    let last = BTreeMap::from([(0, lease("a", 40)), (1, lease("a", 60)), (2, lease("a", 50))]);
    let mut free = FreeWorkers::new(3, &last, &BTreeSet::new(), 100);
    assert_eq!([(); 3].map(|()| free.choose("a")), [Ok(1), Ok(2), Ok(0)]);
}

#[test]
fn there_is_one_to_spare_as_long_as_half_of_all_stay_free_without_it() {
    let of_eight = |held: u32| {
        let last = (0..held).map(|worker| (worker, lease("a", 200))).collect();
        FreeWorkers::new(8, &last, &BTreeSet::new(), 100)
    };
    assert!(of_eight(3).has_to_spare());
    assert!(!of_eight(4).has_to_spare());
    let mut free = of_eight(3);
    free.choose("b").expect("it is free");
    assert!(!free.has_to_spare(), "another one got it");
    let busy = [7].into();
    let last = BTreeMap::from([0, 1, 2].map(|worker| (worker, lease("a", 200))));
    assert!(!FreeWorkers::new(8, &last, &busy, 100).has_to_spare());
    assert!(
        !FreeWorkers::new(1, &BTreeMap::from([(0, lease("a", 200))]), &BTreeSet::new(), 100)
            .has_to_spare()
    );
}

#[test]
fn one_that_is_held_at_its_ceiling_or_busy_is_given_to_nobody_also_not_to_its_holder() {
    let last = BTreeMap::from([(0, lease("a", 100))]);
    let mut held = FreeWorkers::new(1, &last, &BTreeSet::new(), 100);
    assert_eq!(held.choose("a"), Err(Some(100)));
    let mut free = FreeWorkers::new(1, &last, &BTreeSet::new(), 101);
    assert_eq!(free.choose("a"), Ok(0));
    let mut busy = four(&[0, 1, 2]);
    assert_eq!(busy.choose("b"), Err(Some(200)));
    assert_eq!(four(&[0, 1, 2, 3]).choose("b"), Err(None));
}
