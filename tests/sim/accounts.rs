//! The accounts of keys at the end of a run, beside the numbers that clients really got.

use std::{sync::Arc, time::Duration};

use ratchet::proto::v1::{self, key::Kind};
use ratchet_jepsen::history::Action;

use crate::{
    clock,
    cluster::World,
    workload::{KEYS, Record, administer},
};

/// Checks the accounts of every key that has a section of its own: all numbers up to the ceiling were handed out, were
/// skipped, or are left, and clients got no more than that.
///
/// # Errors
/// If the accounts do not add up, or the leader does not tell within `patience`.
pub async fn check(world: &Arc<World>, record: &Record, patience: Duration) -> Result<(), String> {
    for (namespace, id) in KEYS {
        // Numbers that were answered before the leader is asked must be in its accounts.
        let got = numbers_got(record, &format!("{namespace}/{id}"));
        let known = known(world, (namespace, id), patience).await?;
        compare(&known, got).map_err(|why| format!("{namespace}/{id}: {why}: {known:?}"))?;
    }
    Ok(())
}

/// The leader's knowledge of a key.
///
/// # Errors
/// If it does not tell within `patience`.
pub async fn known(
    world: &World, (namespace, id): (&str, u64), patience: Duration,
) -> Result<v1::Explanation, String> {
    let until = clock::now() + patience;
    loop {
        if let Some(known) = explained(world, namespace, id).await {
            return Ok(known);
        }
        if clock::now() > until {
            return Err(format!("nobody explains {namespace}/{id} within {patience:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many numbers of a key clients got, and the greatest one.
fn numbers_got(record: &Record, key: &str) -> (u64, u64) {
    let history = record.history();
    let answered = history.answered().filter(|op| op.key == key);
    answered.fold((0, 0), |(numbers, greatest), op| match op.action {
        Action::Next { count } => (numbers + count, greatest.max(op.last)),
        _ => (numbers, greatest.max(op.last)),
    })
}

async fn explained(world: &World, namespace: &str, id: u64) -> Option<v1::Explanation> {
    let request = v1::ExplainRequest {
        namespace: namespace.to_owned(),
        key: Some(v1::Key { kind: Some(Kind::Id(id)) }),
    };
    administer(world, world.leader()?, request, Duration::from_secs(1)).await.ok()
}

fn compare(known: &v1::Explanation, (got, greatest): (u64, u64)) -> Result<(), String> {
    if greatest > known.ceiling {
        return Err(format!("{greatest} was answered above the ceiling"));
    }
    let is_shared = known.first_id != known.last_id;
    let Some(accounts) = &known.accounts else {
        return match is_shared {
            true => Ok(()),
            false => Err("there are no accounts".to_owned()),
        };
    };
    // The first number is less than the increment, or 1.
    let first = if known.increment == 1 { 1 } else { 7 };
    let all = (known.ceiling - first) / known.increment + 1;
    let accounted = accounts.handed_out + accounts.skipped + accounts.left;
    if accounted != all {
        return Err(format!("{accounted} numbers are accounted for, and there are {all}"));
    }
    let not_left = all - accounts.left;
    if got > not_left {
        return Err(format!("clients got {got} numbers, and {not_left} are not left"));
    }
    Ok(())
}
