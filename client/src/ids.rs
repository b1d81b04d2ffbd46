//! Ids with a shape, made by the client itself: no round trip for an id.

mod source;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ratchet_ids::{EncodeError, Fixed, Format, Printed, Run};
use tokio::time::Instant;

pub use source::{IdSource, Lessor, NotTaken};

use crate::{
    api::{self as v1, ids_client::IdsClient},
    client::Client,
    error::{Code, Error},
    key::Key,
};

/// For how many ids room is made at once.
const RESERVED_MAX: usize = 1 << 16;
/// How long to wait for a server while ids are made: a lease ends within ten seconds unless another one renews it.
const PATIENCE: Duration = Duration::from_secs(3);

impl Client {
    /// Ids of a namespace that has a format with a worker, such as `snowflake`. The client leases a worker id, and makes
    /// the ids itself.
    ///
    /// In the list of workers it appears as the host's name and the process id: see [`Client::ids_as`].
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the lease: there is no such namespace, its format has no worker, or every
    /// worker id is held. [`Error::OutcomeUnknown`] if no answer comes in time: it is safe to call it again.
    pub async fn ids(&self, namespace: &str) -> Result<Ids, Error> {
        self.ids_as(namespace, own_name()).await
    }

    /// As [`Client::ids`]. `holder` is the name in the list of workers: 1 to 64 characters on one line. A holder that
    /// comes back gets the worker id that it had, if that is free.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the lease: there is no such namespace, its format has no worker, or every
    /// worker id is held. [`Error::OutcomeUnknown`] if no answer comes in time: it is safe to call it again.
    pub async fn ids_as(&self, namespace: &str, holder: &str) -> Result<Ids, Error> {
        let started = std::time::Instant::now();
        let lease = self.lease_worker(namespace, holder).await?;
        let format = Format::parse(&lease.format).map_err(|error| {
            let format = &lease.format;
            Error::Invalid(format!(
                "this client cannot make ids of the format {format:?}; use one of the cluster's release: {error}"
            ))
        })?;
        let lessor = ClusterLessor {
            client: self.clone(),
            namespace: namespace.to_owned(),
            holder: holder.to_owned(),
            format: lease.format.clone(),
            started,
        };
        let fixed = format.fixed(&[], None);
        let unfit = |error: EncodeError| Error::Invalid(error.to_string());
        let (source, keeper) = IdSource::new(format.clone(), 1, lessor).map_err(unfit)?;
        source.granted(&lease).map_err(unfit)?;
        tokio::spawn(keeper);
        Ok(Ids { source, format: Arc::new(format), fixed, timeout: self.pool().timeout() })
    }

    /// Ids of a namespace that has a format, made by a node, as the format writes them. [`Client::ids`] makes them here,
    /// without a round trip. `key` is the key whose sequence the ids come from, in a format without a worker, such as
    /// `rongcloud`; other formats have none. `parameters` has a value for each parameter of the format.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a parameter is given twice. [`Error::Server`] if the cluster refuses the request or does not
    /// answer in time. Ids may be burnt; they are never made again.
    pub async fn next_ids(
        &self, namespace: &str, key: Option<Key>, count: u32, parameters: &[(&str, u64)],
    ) -> Result<Vec<String>, Error> {
        let mut given = HashMap::new();
        for (name, value) in parameters {
            if given.insert((*name).to_owned(), *value).is_some() {
                return Err(Error::Invalid(format!(
                    "the parameter {name} is given twice: give it once"
                )));
            }
        }
        let request = v1::NextIdsRequest {
            namespace: namespace.to_owned(),
            count: Some(count),
            parameters: given,
            as_text: true,
            key: key.map(v1::Key::from),
        };
        let asking = self.pool().call_in_turn(request, async |connection, request| {
            IdsClient::new(connection).next(request).await
        });
        Ok(asking.await?.texts)
    }
}

/// Makes ids under a worker id that it holds: unique ones among all makers of ids of the namespace, and increasing ones
/// within one `Ids` and its clones, as long as they choose the same parameters. Ids of several holders increase as their
/// clocks do. If the format's counter runs on ([`Format::counter_runs_on`]), ids of one unit of time are in no order.
/// Made by
/// [`Client::ids`].
///
/// A holder that cannot renew its lease makes ids until the lease's ceiling, some seconds. It stops then, because another
/// one may go on above it. A clock that goes back repeats nothing.
///
/// Cheap to clone. The last clone that is dropped releases the worker id.
#[derive(Clone)]
pub struct Ids {
    source: IdSource<ClusterLessor>,
    format: Arc<Format>,
    /// The fields of each id that the caller chooses. An error if parameters are missing.
    fixed: Result<Fixed, EncodeError>,
    timeout: Duration,
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = f.debug_struct("Ids");
        ids.field("format", &self.format.to_string());
        ids.field("worker", &self.source.worker());
        ids.finish_non_exhaustive()
    }
}

/// An id: a number of up to 128 bits. [`Ids::print`] writes it as the format does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

impl Id {
    /// The id as a number.
    pub fn as_u128(self) -> u128 {
        self.0
    }

    /// The id as a number of 64 bits. `None` if it has more: ids of `uuid7` and `rongcloud` have.
    pub fn as_u64(self) -> Option<u64> {
        u64::try_from(self.0).ok()
    }
}

impl Ids {
    /// The same worker's ids with a value for each of the format's parameters.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a parameter is missing, unknown, given twice or too large.
    pub fn with(&self, parameters: &[(&str, u64)]) -> Result<Ids, Error> {
        let fixed = self.format.fixed(parameters, None);
        let fixed = fixed.map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Ids { fixed: Ok(fixed), ..self.clone() })
    }

    /// The next id. It waits if the ids of the present time are used up, or the lease has to be renewed first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the format has parameters: see [`Ids::with`]. [`Error::Server`] if the lease has run out and
    /// no new one was granted in time, if the ids of the time until then are used up, or the format has ended.
    #[inline]
    pub async fn next(&self) -> Result<Id, Error> {
        let fixed = self.fixed()?;
        let run = match self.source.try_take(fixed, 1) {
            Ok(run) => run,
            Err(_) => Box::pin(self.take(fixed, 1)).await?,
        };
        let mut ids = run.ids(rand::random);
        // A run has at least one id.
        ids.next().map(Id).ok_or(Error::Gone)
    }

    /// Adds the next `count` ids to `to`. They increase, as [`Ids`] says.
    ///
    /// # Errors
    /// As [`Ids::next`]. Some of the ids may be in `to`.
    pub async fn next_many(&self, count: usize, to: &mut Vec<Id>) -> Result<(), Error> {
        let fixed = self.fixed()?;
        to.reserve(count.min(RESERVED_MAX));
        let mut left = count as u64;
        while left > 0 {
            let run = self.take(fixed, left).await?;
            left -= run.count();
            to.extend(run.ids(rand::random).map(Id));
        }
        Ok(())
    }

    /// Writes an id as its format does.
    pub fn print(&self, id: Id) -> Printed<'_> {
        self.format.print(id.0)
    }

    /// The format of the ids.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The worker id that is held. `None` while the lease is lost.
    pub fn worker(&self) -> Option<u64> {
        self.source.worker()
    }

    /// Releases the worker id, so that another holder may have it soon. A clone that makes ids later leases one again.
    pub async fn release(self) {
        self.source.release().await;
    }

    fn fixed(&self) -> Result<Fixed, Error> {
        let fixed = self.fixed.as_ref();
        fixed.copied().map_err(|error| Error::Invalid(error.to_string()))
    }

    async fn take(&self, fixed: Fixed, count_max: u64) -> Result<Run, Error> {
        let deadline = Instant::now() + self.timeout;
        let taken = self.source.take(fixed, count_max, deadline).await;
        taken.map_err(|not_taken| match not_taken {
            NotTaken::Refused(error) | NotTaken::NoLease(Some(error)) => error,
            NotTaken::NoLease(None) => local(
                Code::DeadlineExceeded,
                "no worker id was leased before the deadline: the cluster did not answer"
                    .to_owned(),
            ),
            NotTaken::UsedUp(time) => local(
                Code::Unavailable,
                format!(
                    "the ids of this worker are used up; the next one comes in {} ms",
                    time.as_millis()
                ),
            ),
            NotTaken::Ended => local(
                Code::OutOfRange,
                format!(
                    "the format {} has ended; create a namespace with another one",
                    self.format
                ),
            ),
        })
    }
}

/// An error that no server reported.
fn local(code: Code, message: String) -> Error {
    let server = "this client".to_owned();
    Error::Server { server, code, reason: v1::Reason::Unspecified, message }
}

/// Leases from a cluster, and the clocks of this process.
struct ClusterLessor {
    client: Client,
    namespace: String,
    holder: String,
    /// The format of the ids, in full.
    format: String,
    started: std::time::Instant,
}

impl Lessor for ClusterLessor {
    type Error = Error;

    fn mono_ns(&self) -> u64 {
        // 64 bits hold 584 years of nanoseconds.
        self.started.elapsed().as_nanos() as u64
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock before 1970 counts as one of 1970: the leader's time counts more.
        since.map_or(0, |since| since.as_millis() as u64)
    }

    fn format(&self) -> &str {
        &self.format
    }

    /// A client has one worker id: an `Ids` more makes ids under another one.
    async fn lease(
        &self, renew: Option<v1::HeldWorker>, _: bool,
    ) -> Result<v1::WorkerLease, Error> {
        self.client.ask_for_worker(PATIENCE, &self.namespace, &self.holder, renew).await
    }

    async fn release(&self, held: v1::HeldWorker, used_ms: u64) -> Result<(), Error> {
        self.client.release_worker(&self.namespace, held, used_ms).await.map(drop)
    }

    fn is_lost(error: &Error) -> bool {
        let Error::Server { code, reason, .. } = error else {
            return false;
        };
        // A proxy may drop the reason.
        let has_no_reason = *reason == v1::Reason::Unspecified;
        *reason == v1::Reason::LeaseLost || has_no_reason && *code == Code::FailedPrecondition
    }

    fn created_again(&self, format: &str) -> Error {
        let namespace = &self.namespace;
        local(
            Code::FailedPrecondition,
            format!(
                "namespace {namespace:?} was created again, with the format {format:?}; make new Ids"
            ),
        )
    }

    fn is_final(error: &Error) -> bool {
        // A lease that was given and not heard of is asked for again: its holder gets it.
        !error.is_retryable() && !matches!(error, Error::OutcomeUnknown { .. })
    }

    fn follows(&self, step_ms: i64) {
        tracing::info!(step_ms, "the time of ids follows a clock that jumped");
    }
}

/// The host's name and the process id.
fn own_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = host.trim().chars().take(50).collect();
        let host = if host.is_empty() { "client" } else { &host };
        format!("{host}:{}", std::process::id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_lost_if_the_reason_says_so_or_the_code_without_a_reason() {
        let failed = |code, reason| Error::Server {
            server: "a:1".to_owned(),
            code,
            reason,
            message: "it failed".to_owned(),
        };
        for (code, reason, is_lost) in [
            (Code::FailedPrecondition, v1::Reason::LeaseLost, true),
            (Code::FailedPrecondition, v1::Reason::Unspecified, true),
            (Code::FailedPrecondition, v1::Reason::WrongState, false),
            (Code::Unavailable, v1::Reason::Unspecified, false),
        ] {
            let error = failed(code, reason);
            assert_eq!(ClusterLessor::is_lost(&error), is_lost, "{error}, {reason:?}");
        }
    }
}
