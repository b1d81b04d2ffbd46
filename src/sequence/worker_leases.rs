//! What a log entry does to the worker ids of the replicated table.
//!
//! Any term's entry may lease, renew and release; the ledger is not asked. The log's order decides, and the answer to an
//! ask is what its entry did: if a deposed leader's entry is applied, its answer is true, and if it is not, there is no
//! answer. A lease that nobody was told of is nobody's: its times are used by no one.
//!
//! Invariant: the totals of a namespace cover all its leases.

use super::{
    ids::NamespaceId,
    namespace_life::NamespaceTable,
    workers::{WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord},
};

/// The worker ids of the replicated table as one log entry sees them. Reads see the entry's own writes.
pub trait WorkerTable: NamespaceTable {
    /// The last lease of a worker id; `None` if there was none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn worker(
        &self, namespace: NamespaceId, worker: u32,
    ) -> Result<Option<WorkerRecord>, Self::Error>;
    /// Writes the last lease of a worker id.
    fn put_worker(&mut self, namespace: NamespaceId, worker: u32, record: WorkerRecord);
}

/// Does what is asked of worker ids, one ask after the other. `now_ms` is the proposer's time.
///
/// # Errors
/// If the table cannot be read.
pub fn apply_asks<T: WorkerTable>(
    table: &mut T, asks: &[WorkerAsk], now_ms: u64,
) -> Result<Vec<WorkerAnswer>, T::Error> {
    let answers = asks.iter().map(|ask| apply_ask(table, ask, now_ms));
    answers.collect()
}

fn apply_ask<T: WorkerTable>(
    table: &mut T, ask: &WorkerAsk, now_ms: u64,
) -> Result<WorkerAnswer, T::Error> {
    let id = ask.namespace;
    let namespace = table.namespace(id);
    let Some(namespace) = namespace.filter(|namespace| namespace.config.format.is_some()) else {
        return Ok(WorkerAnswer::NoNamespace);
    };
    let floor = namespace.lease_floor;
    let before = table.worker(id, ask.worker)?;
    let after = match (&ask.act, before) {
        (WorkerAct::Lease { holder, up_to_ms }, before) => {
            match WorkerRecord::lease(before.as_ref(), floor, holder, *up_to_ms, now_ms) {
                Ok(lease) => Some(lease),
                Err(held) => return Ok(held),
            }
        }
        (WorkerAct::Renew { token, up_to_ms }, Some(lease)) => {
            lease.renew(*token, *up_to_ms, now_ms)
        }
        (WorkerAct::Release { token, used_ms }, Some(lease)) => {
            lease.release(*token, *used_ms, now_ms)
        }
        (WorkerAct::TakeBack { ceiling_ms, to_ms }, Some(lease)) => {
            lease.take_back(*ceiling_ms, *to_ms, now_ms)
        }
        (
            WorkerAct::Renew { .. } | WorkerAct::Release { .. } | WorkerAct::TakeBack { .. },
            None,
        ) => None,
    };
    let Some(after) = after else {
        return Ok(WorkerAnswer::Lost);
    };
    debug_assert!(after.from_ms <= after.ceiling_ms, "{after:?}");
    table.totals(id)?.note_lease(&after);
    table.put_worker(id, ask.worker, after.clone());
    Ok(match ask.act {
        WorkerAct::Release { .. } => WorkerAnswer::Released,
        WorkerAct::Lease { .. } | WorkerAct::Renew { .. } | WorkerAct::TakeBack { .. } => {
            WorkerAnswer::Leased(after)
        }
    })
}

#[cfg(test)]
mod tests;
