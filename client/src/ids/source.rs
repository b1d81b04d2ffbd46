//! Makes ids under worker ids, and keeps the leases of them: the part of [`Ids`](crate::Ids) that nodes have as well.
//!
//! Callers take ids out of a [`Holder`]. One task, the *keeper*, looks at the clocks and asks for leases; it ends with the
//! source.
//!
//! Invariant: asks that the holder makes together are under way at the same time. It makes more once all of them are
//! answered.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use ratchet_ids::{Ask, EncodeError, Fixed, Format, GrantedLease, HeldWorker, Holder, Run, Wait};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::api as v1;

/// Where a source gets leases and time from.
pub trait Lessor: Send + Sync + 'static {
    /// Why a lease was not granted.
    type Error: Clone + fmt::Display + Send + 'static;

    /// A reading of a monotonic clock, in nanoseconds from any point on.
    fn mono_ns(&self) -> u64;

    /// The wall clock, in milliseconds since 1970.
    fn wall_ms(&self) -> u64;

    /// The format of the ids, in full.
    fn format(&self) -> &str;

    /// Asks the leader for a lease, or to renew one. `is_further`: there is one already.
    ///
    /// # Errors
    /// Why there is no answer with a lease. One may have been granted.
    fn lease(
        &self, renew: Option<v1::HeldWorker>, is_further: bool,
    ) -> impl Future<Output = Result<v1::WorkerLease, Self::Error>> + Send;

    /// Releases a worker id. `used_ms` is the greatest time in an id, 0 if there is none.
    ///
    /// # Errors
    /// Why it may not be released.
    fn release(
        &self, held: v1::HeldWorker, used_ms: u64,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// True if the lease that was to be renewed is another's by now.
    fn is_lost(error: &Self::Error) -> bool;

    /// The error for callers if the namespace has another format by now.
    fn created_again(&self, format: &str) -> Self::Error;

    /// True if it is useless to ask again: callers are told at once.
    fn is_final(error: &Self::Error) -> bool;

    /// Is told that the time of ids follows a clock that is `step_ms` ahead; negative if it is behind.
    fn follows(&self, step_ms: i64);
}

/// Why no id could be taken.
#[derive(Debug, Clone)]
pub enum NotTaken<E> {
    /// No lease was granted: it is useless to ask again.
    Refused(E),
    /// No lease was granted before the deadline. Why the last try failed, if one did.
    NoLease(Option<E>),
    /// All ids of the time up to the deadline are taken: the next ones come only after this.
    UsedUp(Duration),
    /// The format has ended.
    Ended,
}

/// Makes ids under worker ids. Cheap to clone. The last clone that is dropped releases the worker ids.
pub struct IdSource<L: Lessor> {
    shared: Arc<Shared<L>>,
}

impl<L: Lessor> Clone for IdSource<L> {
    fn clone(&self) -> Self {
        IdSource { shared: self.shared.clone() }
    }
}

/// The leader's answer to an ask. `None`: the lease that was to be renewed is lost.
type LeaseAnswer<L> = Result<Option<GrantedLease>, <L as Lessor>::Error>;

struct Shared<L: Lessor> {
    lessor: Arc<L>,
    holder: Mutex<Holder>,
    /// Why the last ask failed. `None` after a grant.
    failure: Mutex<Option<L::Error>>,
    /// An ask was answered.
    answered: Notify,
    /// A caller waits for a lease.
    wanted: Arc<Notify>,
    runtime: tokio::runtime::Handle,
}

impl<L: Lessor> IdSource<L> {
    /// A source without a lease, and its keeper, to be spawned on the present runtime. It has one worker id, or up to
    /// `workers_max` while its callers need them: see [`Holder::new`].
    ///
    /// # Errors
    /// [`EncodeError::NoWorker`] if the format has no worker.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(
        format: Format, workers_max: usize, lessor: L,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), EncodeError> {
        let holder = Holder::new(format, workers_max, lessor.mono_ns(), lessor.wall_ms())?;
        let wanted = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            lessor: Arc::new(lessor),
            holder: Mutex::new(holder),
            failure: Mutex::new(None),
            answered: Notify::new(),
            wanted: wanted.clone(),
            runtime: tokio::runtime::Handle::current(),
        });
        let keeper = keep(Arc::downgrade(&shared), wanted);
        Ok((IdSource { shared }, keeper))
    }

    /// The lowest worker id that is held.
    pub fn worker(&self) -> Option<u64> {
        self.shared.holder.lock().workers().next()
    }

    /// Takes up to `count_max` (at least 1) ids of one unit of time, with the fields that their caller chose, if there are
    /// any at once.
    ///
    /// # Errors
    /// [`Wait`] says for which event to wait.
    #[inline]
    pub fn try_take(&self, fixed: Fixed, count_max: u64) -> Result<Run, Wait> {
        let shared = &self.shared;
        shared.holder.lock().take(shared.lessor.mono_ns(), fixed, count_max)
    }

    /// Takes up to `count_max` (at least 1) ids of one unit of time, with the fields that their caller chose.
    ///
    /// # Errors
    /// [`NotTaken`] if there is none before `deadline`.
    pub async fn take(
        &self, fixed: Fixed, count_max: u64, deadline: Instant,
    ) -> Result<Run, NotTaken<L::Error>> {
        loop {
            let answered = self.shared.answered.notified();
            tokio::pin!(answered);
            // Before the look at the lease, so that no answer after it is missed.
            answered.as_mut().enable();
            match self.try_take(fixed, count_max) {
                Ok(run) => return Ok(run),
                Err(Wait::For(time)) if Instant::now() + time > deadline => {
                    return Err(NotTaken::UsedUp(time));
                }
                // A further worker id may end the wait.
                Err(Wait::For(time)) => drop(timeout(time, answered).await),
                Err(Wait::Ended) => return Err(NotTaken::Ended),
                Err(Wait::ForLease) => {
                    self.shared.wanted.notify_one();
                    tokio::select! {
                        biased;
                        () = answered => self.refused()?,
                        () = sleep_until(deadline) => {
                            return Err(NotTaken::NoLease(self.shared.failure.lock().clone()));
                        }
                    }
                }
            }
        }
    }

    /// Why it is useless to wait for a lease, if it is.
    fn refused(&self) -> Result<(), NotTaken<L::Error>> {
        match &*self.shared.failure.lock() {
            Some(error) if L::is_final(error) => Err(NotTaken::Refused(error.clone())),
            _ => Ok(()),
        }
    }

    /// Takes a lease that was granted before there was a source. Its time may be old by now.
    ///
    /// # Errors
    /// [`EncodeError`] if the format has no such worker.
    pub fn granted(&self, lease: &v1::WorkerLease) -> Result<(), EncodeError> {
        let lessor = &self.shared.lessor;
        let followed = {
            let mut holder = self.shared.holder.lock();
            holder.granted(Ask::Lease, 0, lessor.mono_ns(), grant_of(lease))?
        };
        if let Some(step_ms) = followed {
            lessor.follows(step_ms);
        }
        Ok(())
    }

    /// Releases the worker ids, so that other holders may have them soon. No clone makes ids before it has a new lease.
    pub async fn release(&self) {
        let given_up = self.shared.holder.lock().give_up();
        release(&*self.shared.lessor, given_up).await;
    }
}

impl<L: Lessor> Drop for Shared<L> {
    fn drop(&mut self) {
        let given_up = self.holder.get_mut().give_up();
        if !given_up.is_empty() {
            let lessor = self.lessor.clone();
            // If the runtime has ended, the worker ids are free once their ceilings have passed.
            drop((self.runtime).spawn(async move { release(&*lessor, given_up).await }));
        }
    }
}

/// Releases leases, all at once: they share a log entry.
async fn release<L: Lessor>(lessor: &L, given_up: Vec<(HeldWorker, u64)>) {
    join_all(given_up.into_iter().map(|given_up| release_one(lessor, given_up))).await;
}

async fn release_one<L: Lessor>(lessor: &L, (held, used_ms): (HeldWorker, u64)) {
    if let Err(error) = lessor.release(as_message(held), used_ms).await {
        tracing::debug!(%error, "a worker id was not released; it is free once its ceiling has passed");
    }
}

async fn ask_for<L: Lessor>(lessor: &L, ask: Ask) -> LeaseAnswer<L> {
    let renew = match ask {
        Ask::Lease | Ask::Further => None,
        Ask::Renew(held) => Some(as_message(held)),
    };
    match lessor.lease(renew, ask == Ask::Further).await {
        Ok(lease) if lease.format == lessor.format() => Ok(Some(grant_of(&lease))),
        Ok(lease) => {
            // No id was made under a new lease. Under one that was renewed there are some, and their times count.
            if renew.is_none() {
                release_one(lessor, (grant_of(&lease).held(), 0)).await;
            }
            Err(lessor.created_again(&lease.format))
        }
        Err(error) if renew.is_some() && L::is_lost(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn grant_of(lease: &v1::WorkerLease) -> GrantedLease {
    GrantedLease {
        worker: lease.worker.into(),
        token: lease.token,
        from_ms: lease.from_ms,
        ceiling_ms: lease.ceiling_ms,
        now_ms: lease.now_ms,
    }
}

fn as_message(held: HeldWorker) -> v1::HeldWorker {
    v1::HeldWorker {
        // It came as 32 bits.
        worker: held.worker as u32,
        token: held.token,
    }
}

/// Keeps the leases until the source is dropped.
async fn keep<L: Lessor>(source: Weak<Shared<L>>, wanted: Arc<Notify>) {
    while let Some(shared) = source.upgrade() {
        let pause = shared.look().await;
        drop(shared);
        // However it ends: it is time to look again.
        let _ = timeout(pause, wanted.notified()).await;
    }
}

impl<L: Lessor> Shared<L> {
    /// Looks at the clocks, and asks the leader if it is time. Returns for how long there is nothing to do.
    async fn look(&self) -> Duration {
        let asked_ns = self.lessor.mono_ns();
        let asks = {
            let mut holder = self.holder.lock();
            if holder.is_blind(asked_ns) {
                let followed = holder.observe(asked_ns, self.lessor.wall_ms());
                if let Some(step_ms) = followed {
                    self.lessor.follows(step_ms);
                }
            }
            holder.asks(asked_ns)
        };
        if !asks.is_empty() {
            let asking = asks.into_iter();
            let asking = asking.map(async |ask| (ask, ask_for(&*self.lessor, ask).await));
            let answers = join_all(asking).await;
            self.heed(asked_ns, answers);
        }
        let idle = self.holder.lock().give_idle_up(self.lessor.mono_ns());
        if let Some(idle) = idle {
            release_one(&*self.lessor, idle).await;
        }
        let mono_ns = self.lessor.mono_ns();
        self.holder.lock().look_again(mono_ns)
    }

    fn heed(&self, asked_ns: u64, answers: Vec<(Ask, LeaseAnswer<L>)>) {
        let mono_ns = self.lessor.mono_ns();
        let mut holder = self.holder.lock();
        let mut failure = self.failure.lock();
        let (mut is_granted, mut failed) = (false, None);
        for (ask, answer) in answers {
            match answer {
                Ok(Some(grant)) => match holder.granted(ask, asked_ns, mono_ns, grant) {
                    Ok(followed) => {
                        is_granted = true;
                        if let Some(step_ms) = followed {
                            self.lessor.follows(step_ms);
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, ?grant, "the leader granted a worker that the format does not have");
                    }
                },
                Ok(None) => holder.lost(ask, mono_ns),
                Err(error) => {
                    if holder.failed(ask, mono_ns) {
                        failed = Some(error);
                    }
                }
            }
        }
        if is_granted {
            *failure = None;
        } else if failed.is_some() {
            *failure = failed;
        }
        drop((holder, failure));
        self.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants leases of another format than that of the ids, and counts what is released.
    #[derive(Default)]
    struct CreatedAgain {
        released: Mutex<Vec<(v1::HeldWorker, u64)>>,
    }

    impl Lessor for CreatedAgain {
        type Error = String;

        fn mono_ns(&self) -> u64 {
            0
        }

        fn wall_ms(&self) -> u64 {
            0
        }

        fn format(&self) -> &str {
            "asked"
        }

        async fn lease(
            &self, _: Option<v1::HeldWorker>, _: bool,
        ) -> Result<v1::WorkerLease, String> {
            Ok(v1::WorkerLease { format: "granted".to_owned(), ..v1::WorkerLease::default() })
        }

        async fn release(&self, held: v1::HeldWorker, used_ms: u64) -> Result<(), String> {
            self.released.lock().push((held, used_ms));
            Ok(())
        }

        fn is_lost(_: &String) -> bool {
            false
        }

        fn created_again(&self, format: &str) -> String {
            format!("the format is {format}")
        }

        fn is_final(_: &String) -> bool {
            false
        }

        fn follows(&self, _: i64) {}
    }

    /// A release says up to which time there are ids. Of a lease that is renewed there are some.
    #[tokio::test]
    async fn a_lease_of_another_format_is_released_at_once_only_if_no_id_was_made_under_it() {
        let renewed = HeldWorker { worker: 5, token: 7 };
        for (ask, released) in [(Ask::Lease, 1), (Ask::Further, 1), (Ask::Renew(renewed), 0)] {
            let lessor = CreatedAgain::default();
            let refused = ask_for(&lessor, ask).await.expect_err("the format is another one");
            assert_eq!(refused, "the format is granted", "{ask:?}");
            assert_eq!(lessor.released.lock().len(), released, "{ask:?}");
        }
    }
}
