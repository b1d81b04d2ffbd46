//! The replicated table, and the life of namespaces and of their worker ids in it.

use std::collections::BTreeSet;

use super::{
    access::{PrincipalKey, PrincipalRecord, Principals},
    books::{DayBooks, NamespaceTotals, Tombstone},
    command::NamespaceRefused,
    ids::{ClusterId, NamespaceId, SectionId},
    ledger::Ledger,
    namespace::{Namespace, NamespaceConfig},
    namespace_limits::NamespaceChange,
    request_book::{IdHolder, Place, QueuedId, Remembered, RequestBook},
    request_id::PartId,
    section::SectionRecord,
    workers::{LeaseFloor, WorkerAct, WorkerAnswer, WorkerAsk, WorkerRecord},
};

/// The replicated table as one log entry sees it. Reads see the entry's own writes.
pub trait Table {
    /// The error of a read.
    type Error;

    /// A namespace by its id.
    fn namespace(&self, id: NamespaceId) -> Option<&Namespace>;
    /// A namespace by its name.
    fn namespace_named(&self, name: &str) -> Option<&Namespace>;
    /// How many namespaces there are.
    fn namespace_count(&self) -> usize;
    /// Writes a namespace.
    fn put_namespace(&mut self, namespace: Namespace);
    /// Removes a namespace, its totals, its books, and the records of all its sections and worker ids.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn remove_namespace(&mut self, id: NamespaceId) -> Result<(), Self::Error>;
    /// The id of the next namespace, above the ids of all that ever existed. `None` before the cluster was founded.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn next_namespace_id(&self) -> Result<Option<NamespaceId>, Self::Error>;
    /// Writes the id of the next namespace.
    fn put_next_namespace_id(&mut self, id: NamespaceId);
    /// The id of the cluster; `None` before it has one.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn cluster_id(&self) -> Result<Option<ClusterId>, Self::Error>;
    /// Writes the id of the cluster.
    fn put_cluster_id(&mut self, id: ClusterId);
    /// Who may do what.
    fn principals(&self) -> &Principals;
    /// Writes what is known of a principal, or removes it.
    fn put_principal(&mut self, key: PrincipalKey, record: Option<PrincipalRecord>);
    /// Writes how often the principals were changed.
    fn put_principals_version(&mut self, version: u64);
    /// What is known of all sections of a namespace together, to be changed.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, Self::Error>;
    /// What a namespace of this name left, if one was deleted and none was created since.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, Self::Error>;
    /// Writes a tombstone, or removes it.
    fn put_tombstone(&mut self, name: &str, tombstone: Option<Tombstone>);
    /// The last lease of a worker id; `None` if there was none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn worker(
        &self, namespace: NamespaceId, worker: u32,
    ) -> Result<Option<WorkerRecord>, Self::Error>;
    /// Writes the last lease of a worker id.
    fn put_worker(&mut self, namespace: NamespaceId, worker: u32, record: WorkerRecord);

    /// The ledger, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn ledger(&self) -> Result<Ledger, Self::Error>;
    /// Writes the ledger.
    fn put_ledger(&mut self, ledger: Ledger);
    /// A section's record, or the default if there is none. If the record is older than lift number `lift`, its floor
    /// and its time may be wrong: nothing uses them then.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, Self::Error>;
    /// Writes a section's record.
    fn put_section(&mut self, id: &SectionId, record: SectionRecord);

    /// The books of a namespace and a day; `None` if there are none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn day_books(&self, id: NamespaceId, day: u32) -> Result<Option<DayBooks>, Self::Error>;
    /// Writes the books of a namespace and a day.
    fn put_day_books(&mut self, id: NamespaceId, day: u32, books: DayBooks);
    /// The days of which a namespace has books.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn days_booked(&self, id: NamespaceId) -> Result<BTreeSet<u32>, Self::Error>;
    /// Removes the books of a namespace and a day.
    fn remove_day_books(&mut self, id: NamespaceId, day: u32);
    /// Notes how many numbers of a namespace the entry has booked as skipped by leaders that ended without leaving them to
    /// anybody.
    fn note_skipped(&mut self, namespace: NamespaceId, numbers: u64);

    /// The book of request ids, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn request_book(&self) -> Result<RequestBook, Self::Error>;
    /// Writes the book of request ids.
    fn put_request_book(&mut self, book: RequestBook);
    /// What a part of a message took, if it is remembered.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn remembered(
        &self, namespace: NamespaceId, id: &PartId,
    ) -> Result<Option<Remembered>, Self::Error>;
    /// The request id at a place.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn queued_id(&self, place: Place) -> Result<Option<QueuedId>, Self::Error>;
    /// Writes what is known of a part whose request id has a place.
    fn put_remembered(&mut self, namespace: NamespaceId, id: &PartId, remembered: Remembered);
    /// How many bytes of request ids are remembered for a holder.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn id_bytes(&self, holder: IdHolder) -> Result<u64, Self::Error>;
    /// Writes how many bytes of request ids are remembered for a holder. With 0 nothing is kept of it.
    fn put_id_bytes(&mut self, holder: IdHolder, bytes: u64);
    /// Writes a request id at a place, and what its part took.
    fn remember(&mut self, place: Place, queued: QueuedId, remembered: Remembered);
    /// Removes the request id at a place.
    fn forget(&mut self, place: Place, queued: &QueuedId);
}

// The life of namespaces in the replicated table: founding, creation, change, deletion, creation again.
//
// A namespace that is deleted leaves a `Tombstone` under its name. A namespace that is created under the name again
// begins above it, so that the numbers of one (name, key) go up through it, and so do the times of one (name, worker
// id).
//
// Invariant: an id of a namespace is used once. What a leader holds of a namespace that is gone, or was replaced, is
// found by nobody who comes later: its keys stand under the old id.

/// What became of an entry: a value, or a refusal.
type Refusable<T, E> = Result<Result<T, NamespaceRefused>, E>;

/// Creates the namespaces of a fresh cluster, all in one entry. Changes nothing if the cluster was founded before:
/// namespaces that were deleted since do not come back.
pub fn found<T: Table>(table: &mut T, namespaces: &[NamespaceConfig]) -> Result<(), T::Error> {
    if table.next_namespace_id()?.is_some() {
        return Ok(());
    }
    table.put_next_namespace_id(NamespaceId(1));
    for config in namespaces {
        // The configurations are this product's own; one that is refused is left out on every node.
        drop(create(table, config, u64::MAX)?);
    }
    Ok(())
}

/// Gives the cluster its id. Changes nothing if it has one: an id never changes.
pub fn name_cluster<T: Table>(table: &mut T, id: ClusterId) -> Result<(), T::Error> {
    if table.cluster_id()?.is_none() {
        table.put_cluster_id(id);
    }
    Ok(())
}

/// Creates a namespace. Its numbers begin above those that a deleted namespace of this name may have handed out.
pub fn create<T: Table>(
    table: &mut T, config: &NamespaceConfig, namespaces_max: u64,
) -> Refusable<Namespace, T::Error> {
    if let Err(invalid) = config.check() {
        return Ok(Err(invalid.into()));
    }
    if table.namespace_named(&config.name).is_some() {
        return Ok(Err(NamespaceRefused::Exists(config.name.clone())));
    }
    let count = table.namespace_count() as u64;
    if count >= namespaces_max {
        return Ok(Err(NamespaceRefused::TooMany(count)));
    }
    let tombstone = table.tombstone(&config.name)?;
    let floor = tombstone.map_or(0, |tombstone| tombstone.floor);
    let leased = tombstone.map_or(LeaseFloor::default(), |tombstone| tombstone.leased);
    match above(config.clone(), floor) {
        Ok(config) => insert(table, config.with_fitting_steps(), floor, leased, None),
        Err(refused) => Ok(Err(refused)),
    }
}

impl Namespace {
    /// Whether it is what `create` makes of `config`, above what a deleted namespace of the name handed out.
    pub fn is_as_created(&self, config: &NamespaceConfig) -> bool {
        let created = above(config.clone(), self.floor).map(NamespaceConfig::with_fitting_steps);
        created.is_ok_and(|config| config == self.config)
    }
}

/// Changes a namespace. What would disorder numbers is changed only while nothing was handed out, and then by a
/// namespace under a new id that takes the place of the old one: a bump for the old id that is still to be applied finds
/// no namespace, and no chunk of the old layout is used under the new one.
pub fn update<T: Table>(
    table: &mut T, name: &str, change: &NamespaceChange,
) -> Refusable<Namespace, T::Error> {
    let Some(old) = table.namespace_named(name).cloned() else {
        return Ok(Err(NamespaceRefused::NotFound(name.to_owned())));
    };
    let config = change.applied_to(old.config.clone());
    let checked = config.check();
    if let Err(invalid) = checked.and_then(|()| change.check_keys_of(&old.config)) {
        return Ok(Err(invalid.into()));
    }
    let Some(reasons) = old.config.why_fixed(&config) else {
        let max_ever = old.max_ever.max(config.max);
        let namespace = Namespace { config: config.with_fitting_steps(), max_ever, ..old };
        table.put_namespace(namespace.clone());
        return Ok(Ok(namespace));
    };
    if !table.totals(old.id)?.is_unused() {
        return Ok(Err(NamespaceRefused::Fixed { name: name.to_owned(), reasons }));
    }
    match above(config, old.floor) {
        Ok(config) => {
            let config = config.with_fitting_steps();
            insert(table, config, old.floor, old.lease_floor, Some(old.id))
        }
        Err(refused) => Ok(Err(refused)),
    }
}

/// Deletes a namespace. Unless it is to be forgotten, its tombstone stays. Returns the tombstone; `None` if there is none.
/// With `forget`, a tombstone alone is removed as well.
pub fn delete<T: Table>(
    table: &mut T, name: &str, forget: bool,
) -> Refusable<Option<Tombstone>, T::Error> {
    let Some(namespace) = table.namespace_named(name).cloned() else {
        return Ok(match (table.tombstone(name)?, forget) {
            (Some(_), true) => {
                table.put_tombstone(name, None);
                Ok(None)
            }
            (Some(tombstone), false) => {
                Err(NamespaceRefused::DeletedBefore { name: name.to_owned(), tombstone })
            }
            (None, _) => Err(NamespaceRefused::NotFound(name.to_owned())),
        });
    };
    let tombstone = Tombstone::of(&namespace, *table.totals(namespace.id)?);
    let tombstone = tombstone.filter(|_| !forget);
    table.remove_namespace(namespace.id)?;
    table.put_tombstone(name, tombstone);
    Ok(Ok(tombstone))
}

/// The configuration with its first number above `floor`.
fn above(mut config: NamespaceConfig, floor: u64) -> Result<NamespaceConfig, NamespaceRefused> {
    if config.start <= floor {
        let first = config.progression().first_above(floor);
        config.start = first.ok_or_else(|| NamespaceRefused::BelowFloor {
            name: config.name.clone(),
            floor,
            max: config.max,
        })?;
    }
    Ok(config)
}

/// Writes a new namespace under the next id, in the place of the tombstone of its name, or of `old`.
fn insert<T: Table>(
    table: &mut T, config: NamespaceConfig, floor: u64, lease_floor: LeaseFloor,
    old: Option<NamespaceId>,
) -> Refusable<Namespace, T::Error> {
    let id = table.next_namespace_id()?.unwrap_or(NamespaceId(1));
    let Some(next) = id.0.checked_add(1) else {
        return Ok(Err(NamespaceRefused::IdsUsedUp));
    };
    table.put_next_namespace_id(NamespaceId(next));
    table.put_tombstone(&config.name, None);
    if let Some(old) = old {
        table.remove_namespace(old)?;
    }
    let namespace = Namespace { floor, lease_floor, ..Namespace::new(id, config) };
    table.put_namespace(namespace.clone());
    Ok(Ok(namespace))
}

// What a log entry does to the worker ids of the replicated table.
//
// Any term's entry may lease, renew and release; the ledger is not asked. The log's order decides, and the answer to an
// ask is what its entry did: if a deposed leader's entry is applied, its answer is true, and if it is not, there is no
// answer. A lease that nobody was told of is nobody's: its times are used by no one.
//
// Invariant: the totals of a namespace cover all its leases.

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
    // The node that is answered asserts it. No replica ends here.
    debug_assert!(after.from_ms <= after.ceiling_ms, "{after:?}");
    table.totals(id)?.note_lease(&after);
    table.put_worker(id, ask.worker, after.clone());
    Ok(match ask.act {
        Release { .. } => WorkerAnswer::Released,
        Lease { .. } | Renew { .. } | TakeBack { .. } => WorkerAnswer::Leased(after),
    })
}

#[cfg(test)]
mod tests;
