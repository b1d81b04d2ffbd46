//! The effect of a log entry on the worker ids of the replicated table.
//!
//! Any term's entry may lease, renew and release; the ledger is not asked. The log's order decides, and the answer to an
//! ask is what its entry did: if a deposed leader's entry is applied, its answer is true, and if it is not, there is no
//! answer. A lease that nobody was told of is nobody's: its times are used by no one.
//!
//! Invariant: the totals of a namespace cover all its leases.

use super::{
    table::Table,
    workers::{WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord},
};

/// Does what is asked of worker ids, one ask after the other. `now_ms` is the proposer's time.
///
/// # Errors
/// If the table cannot be read.
pub fn apply_asks<T: Table>(
    table: &mut T, asks: &[WorkerAsk], now_ms: u64,
) -> Result<Vec<WorkerAnswer>, T::Error> {
    let answers = asks.iter().map(|ask| apply_ask(table, ask, now_ms));
    answers.collect()
}

fn apply_ask<T: Table>(
    table: &mut T, ask: &WorkerAsk, now_ms: u64,
) -> Result<WorkerAnswer, T::Error> {
    use WorkerAct::*;
    let id = ask.namespace;
    let namespace = table.namespace(id);
    let Some(namespace) = namespace.filter(|namespace| namespace.config.format.is_some()) else {
        return Ok(WorkerAnswer::NoNamespace);
    };
    let floor = namespace.lease_floor;
    let before = table.worker(id, ask.worker)?;
    let after = match (&ask.act, before) {
        (Lease { holder, up_to_ms }, before) => {
            match WorkerRecord::lease(before.as_ref(), floor, holder, *up_to_ms, now_ms) {
                Ok(lease) => Some(lease),
                Err(held) => return Ok(held),
            }
        }
        (Renew { token, up_to_ms }, Some(lease)) => lease.renew(*token, *up_to_ms, now_ms),
        (Release { token, used_ms }, Some(lease)) => lease.release(*token, *used_ms, now_ms),
        (TakeBack { ceiling_ms, to_ms }, Some(lease)) => {
            lease.take_back(*ceiling_ms, *to_ms, now_ms)
        }
        (Renew { .. } | Release { .. } | TakeBack { .. }, None) => None,
    };
    let Some(after) = after else {
        return Ok(WorkerAnswer::Lost);
    };
    // Whatever an ask says, it makes no such lease of one that does not end before it begins.
    assert!(
        after.from_ms <= after.ceiling_ms,
        "the table is damaged: a lease that ends before it begins: {after:?}"
    );
    table.totals(id)?.note_lease(&after);
    table.put_worker(id, ask.worker, after.clone());
    Ok(match ask.act {
        Release { .. } => WorkerAnswer::Released,
        Lease { .. } | Renew { .. } | TakeBack { .. } => WorkerAnswer::Leased(after),
    })
}

#[cfg(test)]
mod tests;
