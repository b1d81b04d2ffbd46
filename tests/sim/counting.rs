//! The numbers that were counted as skipped, beside the accounts and beside the numbers that callers got.
//!
//! - The count of all nodes of numbers skipped by leaders that ended equals the accounts. If a process ended, or a node was
//!   removed, the count may be less: an entry that it had proposed, and did not apply, is counted by nobody.
//! - Of the other causes the accounts have no more than was counted: numbers that a leader had not told are missing. Numbers
//!   that its trims and releases skip in shared sections are counted once these are applied there. So that count may be less,
//!   too, if a process ended.
//! - The accounts say that at least so many numbers of a key were handed out. So many were taken: callers got them, or the
//!   answer was lost on its way to a caller, or they were counted as skipped.
//!
//! A run in which this is checked has no other callers than the callers of the keys below, and deletes no namespace: their
//! numbers would be counted, too.

use std::{sync::Arc, time::Duration};

use ratchet::{metrics::SkipCause, proto::v1::GapsRequest};
use ratchet_jepsen::history::Action;

use crate::{
    accounts, clock,
    cluster::{Condition, World},
    workload::{KEYS, NAMESPACES, Record, administer},
};

/// No call of a run takes longer.
const CALLS_MAX: Duration = Duration::from_secs(2);

/// The causes that the accounts have, too.
const ACCOUNTED: [SkipCause; 5] = [
    SkipCause::leader_change,
    SkipCause::shared_section,
    SkipCause::fence,
    SkipCause::deadline,
    SkipCause::floor,
];

/// Checks the counts, once the callers have stopped.
///
/// # Errors
/// If the counts, the accounts and the numbers that callers got do not agree, or the leader does not tell within `patience`.
pub async fn check(world: &Arc<World>, record: &Record, patience: Duration) -> Result<(), String> {
    tokio::time::sleep(CALLS_MAX).await;
    let mut accounted = [0; ACCOUNTED.len()];
    for namespace in NAMESPACES {
        let of_namespace = accounted_of(world, namespace, patience).await?;
        accounted.iter_mut().zip(of_namespace).for_each(|(sum, numbers)| *sum += numbers);
    }
    let counted = ACCOUNTED.map(|cause| world.skipped(cause));
    let told = || format!("{ACCOUNTED:?}: counted {counted:?}, accounted {accounted:?}");
    let is_gone = |condition: &Condition| *condition == Condition::Gone;
    let none_ended = !world.trace.counts().contains_key("crash") && world.nodes(is_gone).is_empty();
    if none_ended {
        world.trace.note(clock::now(), "counted exactly", counted[0]);
        if counted[0] != accounted[0] {
            return Err(format!("the accounts and the counters differ: {}", told()));
        }
    }
    if counted[0] > accounted[0] {
        return Err(format!("more was counted than accounted for: {}", told()));
    }
    let counted_late = if none_ended { 1 } else { 2 };
    if counted
        .iter()
        .zip(accounted)
        .skip(counted_late)
        .any(|(counted, accounted)| accounted > *counted)
    {
        return Err(format!("more was accounted for than counted: {}", told()));
    }
    check_handed_out(world, record, patience).await
}

/// The numbers of each cause in the accounts of a namespace, in all days.
async fn accounted_of(
    world: &World, namespace: &str, patience: Duration,
) -> Result<[u64; ACCOUNTED.len()], String> {
    let until = clock::now() + patience;
    loop {
        let request = GapsRequest { namespace: namespace.to_owned(), days: 0 };
        if let Some(leader) = world.leader()
            && let Ok(told) = administer(world, leader, request, Duration::from_secs(1)).await
        {
            let skipped: Vec<_> = told.days.into_iter().flat_map(|day| day.skipped).collect();
            return Ok(ACCOUNTED.map(|cause| {
                let of_cause = skipped.iter().filter(|one| one.cause == format!("{cause:?}"));
                of_cause.map(|one| one.numbers).sum()
            }));
        }
        if clock::now() > until {
            return Err(format!("nobody tells the gaps of {namespace} within {patience:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that the accounts of the keys with sections of their own have no more numbers as handed out than were taken.
async fn check_handed_out(
    world: &Arc<World>, record: &Record, patience: Duration,
) -> Result<(), String> {
    let mut accounted = 0;
    let mut got_of_others = 0;
    for (namespace, id) in KEYS {
        let known = accounts::known(world, (namespace, id), patience).await?;
        match known.first_id == known.last_id {
            true => accounted += known.accounts.map_or(0, |accounts| accounts.handed_out),
            false => got_of_others += numbers_got(record, &format!("{namespace}/{id}")),
        }
    }
    // Answers that were lost on the way to a caller are among these.
    let answered = world.numbers_answered();
    let taken_and_skipped =
        [SkipCause::fence, SkipCause::deadline, SkipCause::cancelled, SkipCause::floor];
    let skipped: u64 = taken_and_skipped.map(|cause| world.skipped(cause)).iter().sum();
    let taken = (answered + skipped).saturating_sub(got_of_others);
    if accounted > taken {
        return Err(format!(
            "the accounts say that {accounted} numbers were handed out at least, of {taken} that were taken: {answered} were \
             answered, {got_of_others} of them for keys of shared sections, and {skipped} were skipped"
        ));
    }
    Ok(())
}

/// How many numbers of a key callers got.
fn numbers_got(record: &Record, key: &str) -> u64 {
    let history = record.history();
    let answered = history.answered().filter(|op| op.key == key);
    let numbers = answered.map(|op| match op.action {
        Action::Next { count } => count,
        _ => 0,
    });
    numbers.sum()
}
