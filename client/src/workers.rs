//! Worker ids, for whoever makes ids of a format.

use crate::{
    api::{self as v1, ids_client::IdsClient},
    client::Client,
    error::Error,
    unary_call::ask,
};

impl Client {
    /// Leases a worker id of a namespace. `holder` says who asks, for the list of workers: 1 to 64 characters on one line.
    ///
    /// The worker id may be put into ids with times above `from_ms` and up to `ceiling_ms`, and no others.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time. Whether a worker id was leased is
    /// then unknown, and it is safe to ask again: nobody uses a lease that nobody was told of.
    pub async fn lease_worker(
        &self, namespace: &str, holder: &str,
    ) -> Result<v1::WorkerLease, Error> {
        // Carried out twice, it would keep a second worker id from others for some seconds.
        self.ask_for_worker(true, namespace, holder, None).await
    }

    /// Raises the ceiling of a lease.
    ///
    /// # Errors
    /// [`Error::Server`] with [`Code::FailedPrecondition`](crate::Code::FailedPrecondition) if the lease was lost: no
    /// further id may be made under it. Others as [`Client::lease_worker`]; the lease is then good up to the ceiling that
    /// is known.
    pub async fn renew_worker(
        &self, namespace: &str, holder: &str, held: v1::HeldWorker,
    ) -> Result<v1::WorkerLease, Error> {
        self.ask_for_worker(false, namespace, holder, Some(held)).await
    }

    async fn ask_for_worker(
        &self, changes: bool, namespace: &str, holder: &str, renew: Option<v1::HeldWorker>,
    ) -> Result<v1::WorkerLease, Error> {
        let request = v1::LeaseWorkerRequest {
            namespace: namespace.to_owned(),
            holder: holder.to_owned(),
            renew,
            further: false,
        };
        ask!(self, changes, IdsClient::lease_worker, request).await
    }

    /// Gives a worker id back. `used_ms` is the greatest time in an id that was made under the lease, or 0. No further id
    /// may be made under it, whatever the answer. False if the lease was lost before.
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

    /// The worker ids of a namespace that were ever leased, and their last leases.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time.
    pub async fn list_workers(&self, namespace: String) -> Result<v1::ListWorkersResponse, Error> {
        let request = v1::ListWorkersRequest { namespace };
        ask!(self, false, IdsClient::list_workers, request).await
    }

    /// Ends a lease that reaches too far ahead, because a leader's wall clock was wrong. `ceiling_ms` is its ceiling, as
    /// [`Client::list_workers`] tells it. Where ids have a date, worker 0 stands for the date.
    ///
    /// It is the one way in which a time can be used twice. With `vouched` you answer for it that nobody makes ids under the
    /// lease any more, and that it does no harm if ids with times above the new ceiling are made again when those times come.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time.
    pub async fn take_worker_back(
        &self, namespace: &str, worker: u32, ceiling_ms: u64, vouched: bool,
    ) -> Result<v1::TakeWorkerBackResponse, Error> {
        let namespace = namespace.to_owned();
        let request = v1::TakeWorkerBackRequest { namespace, worker, ceiling_ms, vouched };
        ask!(self, true, IdsClient::take_worker_back, request).await
    }
}
