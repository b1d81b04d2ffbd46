//! The replicated table as the state machine sees it while it applies one entry: a trait. `storage` implements it for the table
//! on the disk, and the tests for one in memory.

use std::collections::BTreeSet;

use super::{
    access::{PrincipalKey, PrincipalRecord, Principals},
    accounts::DayAccounts,
    identifiers::{ClusterId, NamespaceId, SectionId},
    ledger::Ledger,
    namespace::Namespace,
    request_book::{IdPlace, IdShare, QueuedId, Remembered, RequestBook},
    request_id::PartId,
    section::SectionRecord,
    totals::{NamespaceTotals, Tombstone},
    workers::WorkerRecord,
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
    /// Removes a namespace, its totals, its accounts, and the records of all its sections and worker ids.
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
    /// The principals, and their grants.
    fn principals(&self) -> &Principals;
    /// Writes what is known of a principal, or removes it.
    fn put_principal(&mut self, key: PrincipalKey, record: Option<PrincipalRecord>);
    /// Writes how often the principals were changed.
    fn put_principals_version(&mut self, version: u64);
    /// The totals of all sections of a namespace, to be changed.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, Self::Error>;
    /// The tombstone of a namespace of this name, if one was deleted and none was created since.
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
    /// A section's record, or the default if there is none. If the record is older than `epoch`, its floor
    /// and its time may be wrong: nothing uses them then.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn section(&self, id: &SectionId, epoch: u64) -> Result<SectionRecord, Self::Error>;
    /// Writes a section's record.
    fn put_section(&mut self, id: &SectionId, record: SectionRecord);

    /// The accounts of a namespace and a day; `None` if there are none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn day_accounts(&self, id: NamespaceId, day: u32) -> Result<Option<DayAccounts>, Self::Error>;
    /// Writes the accounts of a namespace and a day.
    fn put_day_accounts(&mut self, id: NamespaceId, day: u32, accounts: DayAccounts);
    /// The days of which a namespace has accounts.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn accounted_days(&self, id: NamespaceId) -> Result<BTreeSet<u32>, Self::Error>;
    /// Removes the accounts of a namespace and a day.
    fn remove_day_accounts(&mut self, id: NamespaceId, day: u32);
    /// Notes how many numbers of a namespace the entry counted as skipped by leaders that ended without leaving them to
    /// anybody.
    fn note_skipped(&mut self, namespace: NamespaceId, numbers: u64);

    /// The book of request ids, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn request_book(&self) -> Result<RequestBook, Self::Error>;
    /// Writes the book of request ids.
    fn put_request_book(&mut self, book: RequestBook);
    /// The numbers that a part of a message took, if they are remembered.
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
    fn queued_id(&self, place: IdPlace) -> Result<Option<QueuedId>, Self::Error>;
    /// Writes what is known of a part whose request id has a place.
    fn put_remembered(&mut self, namespace: NamespaceId, id: &PartId, remembered: Remembered);
    /// How many bytes of request ids are remembered for a share.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn id_bytes(&self, share: IdShare) -> Result<u64, Self::Error>;
    /// Writes how many bytes of request ids are remembered for a share. With 0 nothing is kept of it.
    fn put_id_bytes(&mut self, share: IdShare, bytes: u64);
    /// Writes a request id at a place, and what its part took.
    fn remember(&mut self, place: IdPlace, queued: QueuedId, remembered: Remembered);
    /// Removes the request id at a place.
    fn forget(&mut self, place: IdPlace, queued: &QueuedId);
}
