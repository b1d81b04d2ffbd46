//! Worker ids, for makers of ids of a format.

use std::time::Duration;

use crate::{
    admin::calls,
    api::{self as v1, ids_client::IdsClient},
    client::Client,
    error::Error,
    unary_call::ask,
};

impl Client {
    /// Leases a worker id of a namespace. `holder` names the holder in the list of workers: 1 to 64 characters on one line.
    ///
    /// The worker id may be put into ids with times above `from_ms` and up to `ceiling_ms`, and no others.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request. [`Error::OutcomeUnknown`] if no answer comes in time: whether a
    /// worker id was leased is then unknown, and it is safe to ask again, since nobody uses a lease that nobody was told of.
    pub async fn lease_worker(
        &self, namespace: &str, holder: &str,
    ) -> Result<v1::WorkerLease, Error> {
        self.ask_for_worker(self.pool().timeout(), namespace, holder, None).await
    }

    /// Raises the ceiling of a lease.
    ///
    /// # Errors
    /// [`Error::Server`] with [`Code::FailedPrecondition`](crate::Code::FailedPrecondition) if the lease was lost: no
    /// further id may be made under it. Otherwise as for any call; the lease is then good up to the ceiling that is known.
    pub async fn renew_worker(
        &self, namespace: &str, holder: &str, held: v1::HeldWorker,
    ) -> Result<v1::WorkerLease, Error> {
        self.ask_for_worker(self.pool().timeout(), namespace, holder, Some(held)).await
    }

    /// Leases or renews. It waits for no server longer than `patience`.
    pub(crate) async fn ask_for_worker(
        &self, patience: Duration, namespace: &str, holder: &str, renew: Option<v1::HeldWorker>,
    ) -> Result<v1::WorkerLease, Error> {
        // Carried out twice, a lease would keep a second worker id from others for some seconds.
        let changes = renew.is_none();
        let request = v1::LeaseWorkerRequest {
            namespace: namespace.to_owned(),
            holder: holder.to_owned(),
            renew,
            further: false,
        };
        let asking = self.pool().call(changes, patience, request, async |connection, request| {
            IdsClient::new(connection).lease_worker(request).await
        });
        asking.await
    }

    /// Releases a worker id. `used_ms` is the greatest time in an id that was made under the lease, or 0. No further id may
    /// be made under it, under any answer. False if the lease was lost before.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time. The worker id is then free once
    /// its ceiling has passed.
    pub async fn release_worker(
        &self, namespace: &str, held: v1::HeldWorker, used_ms: u64,
    ) -> Result<bool, Error> {
        let request =
            v1::ReleaseWorkerRequest { namespace: namespace.to_owned(), held: Some(held), used_ms };
        // Carried out twice, it does the same.
        Ok(ask!(self, false, IdsClient::release_worker, request).await?.released)
    }
}

calls! {
    IdsClient;
    /// The worker ids of a namespace that were ever leased, and their last leases.
    list_workers(namespace: String) -> ListWorkersResponse:
        v1::ListWorkersRequest { namespace } => list_workers, changes: false;
    /// Ends a lease that reaches too far ahead, because a leader's wall clock was wrong. `ceiling_ms` is its ceiling, as
    /// [`Client::list_workers`] tells it. Where ids have a date, worker 0 stands for the date.
    ///
    /// It is the one way in which a time can be used twice. With `vouched` you answer for it that nobody makes ids under the
    /// lease any more, and that it does no harm if ids with times above the new ceiling are made again when those times come.
    take_worker_back(namespace: &str, worker: u32, ceiling_ms: u64, vouched: bool) -> TakeWorkerBackResponse:
        v1::TakeWorkerBackRequest { namespace: namespace.to_owned(), worker, ceiling_ms, vouched } => take_worker_back,
        changes: true;
}
