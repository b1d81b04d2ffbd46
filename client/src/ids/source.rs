//! Makes ids under a worker id, and keeps the lease of it: the part of [`Ids`](crate::Ids) that nodes have as well.
//!
//! Callers take ids out of a [`Holder`]. One task, the *keeper*, looks at the clocks and asks for leases; it ends with the
//! source.
//!
//! Invariant: one ask is under way at a time.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use ratchet_ids::{Ask, EncodeError, Format, Grant, HeldWorker, Holder, Observed, Run, Wait};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

/// Where a source gets leases and time from.
pub trait Lessor: Send + Sync + 'static {
    /// Why a lease was not granted.
    type Error: Clone + Send + 'static;

    /// A reading of a monotonic clock, in nanoseconds from any point on.
    fn mono_ns(&self) -> u64;

    /// The wall clock, in milliseconds since 1970.
    fn wall_ms(&self) -> u64;

    /// Asks the leader.
    ///
    /// # Errors
    /// [`NotLeased`], whether a lease was granted or not.
    fn ask(&self, ask: Ask) -> impl Future<Output = Result<Grant, NotLeased<Self::Error>>> + Send;

    /// Gives a worker id back, if the leader can be reached. `used_ms` is the greatest time in an id, 0 if there is none.
    fn release(&self, held: HeldWorker, used_ms: u64) -> impl Future<Output = ()> + Send;

    /// True if it is useless to ask again: callers are told at once.
    fn is_final(error: &Self::Error) -> bool;

    /// Is told what a look at the clocks showed.
    fn observed(&self, observed: Observed);
}

/// Why a lease was not granted or renewed.
#[derive(Debug, Clone)]
pub enum NotLeased<E> {
    /// The lease that was to be renewed is another's by now.
    Lost,
    /// Anything else.
    Failed(E),
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

/// Makes ids under a worker id. Cheap to clone. The last clone that is dropped gives the worker id back.
pub struct IdSource<L: Lessor> {
    shared: Arc<Shared<L>>,
}

impl<L: Lessor> Clone for IdSource<L> {
    fn clone(&self) -> Self {
        IdSource {
            shared: self.shared.clone(),
        }
    }
}

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
    /// A source without a lease, and its keeper, to be spawned on the present runtime.
    ///
    /// # Errors
    /// [`EncodeError::NoWorker`] if the format has no worker.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(
        format: Format,
        lessor: L,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), EncodeError> {
        let holder = Holder::new(format, lessor.mono_ns(), lessor.wall_ms())?;
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

    /// The worker id that is held.
    pub fn worker(&self) -> Option<u64> {
        self.shared.holder.lock().worker()
    }

    /// Takes up to `count_max` (at least 1) ids of one unit of time, if there are any at once.
    ///
    /// # Errors
    /// [`Wait`]: for what to wait.
    #[inline]
    pub fn try_take(&self, count_max: u64) -> Result<Run, Wait> {
        let shared = &self.shared;
        shared
            .holder
            .lock()
            .take(shared.lessor.mono_ns(), count_max)
    }

    /// Takes up to `count_max` (at least 1) ids of one unit of time.
    ///
    /// # Errors
    /// [`NotTaken`] if there is none before `deadline`.
    pub async fn take(&self, count_max: u64, deadline: Instant) -> Result<Run, NotTaken<L::Error>> {
        loop {
            let answered = self.shared.answered.notified();
            tokio::pin!(answered);
            // Before the look at the lease, so that no answer after it is missed.
            answered.as_mut().enable();
            match self.try_take(count_max) {
                Ok(run) => return Ok(run),
                Err(Wait::For(time)) if Instant::now() + time > deadline => {
                    return Err(NotTaken::UsedUp(time));
                }
                Err(Wait::For(time)) => sleep(time).await,
                Err(Wait::Ended) => return Err(NotTaken::Ended),
                Err(Wait::ForLease) => {
                    self.shared.wanted.notify_one();
                    tokio::select! {
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
    pub fn granted(&self, grant: Grant) -> Result<(), EncodeError> {
        let lessor = &self.shared.lessor;
        let observed = {
            let mut holder = self.shared.holder.lock();
            holder.granted(Ask::Lease, 0, lessor.mono_ns(), grant)?
        };
        lessor.observed(observed);
        Ok(())
    }

    /// Gives the worker id back, so that another holder may have it soon. No clone makes ids before it has a new lease.
    pub async fn give_back(&self) {
        let given_up = self.shared.holder.lock().give_up();
        if let Some((held, used_ms)) = given_up {
            self.shared.lessor.release(held, used_ms).await;
        }
    }
}

impl<L: Lessor> Drop for Shared<L> {
    fn drop(&mut self) {
        if let Some((held, used_ms)) = self.holder.get_mut().give_up() {
            let lessor = self.lessor.clone();
            // If the runtime has ended, the worker id is free once its ceiling has passed.
            drop((self.runtime).spawn(async move { lessor.release(held, used_ms).await }));
        }
    }
}

/// Keeps the lease until the source is dropped.
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
        let ask = {
            let mut holder = self.holder.lock();
            if holder.is_blind(asked_ns) {
                let observed = holder.observe(asked_ns, self.lessor.wall_ms());
                self.lessor.observed(observed);
            }
            holder.ask(asked_ns)
        };
        if let Some(ask) = ask {
            let answer = self.lessor.ask(ask).await;
            self.heed(ask, asked_ns, answer);
        }
        let mono_ns = self.lessor.mono_ns();
        self.holder.lock().look_again(mono_ns)
    }

    fn heed(&self, ask: Ask, asked_ns: u64, answer: Result<Grant, NotLeased<L::Error>>) {
        let mono_ns = self.lessor.mono_ns();
        let mut holder = self.holder.lock();
        let mut failure = self.failure.lock();
        match answer {
            Ok(grant) => match holder.granted(ask, asked_ns, mono_ns, grant) {
                Ok(observed) => {
                    *failure = None;
                    self.lessor.observed(observed);
                }
                Err(error) => {
                    tracing::error!(%error, ?grant, "the leader granted a worker that the format does not have");
                }
            },
            Err(NotLeased::Lost) => holder.lost(mono_ns),
            Err(NotLeased::Failed(error)) => {
                holder.failed(mono_ns);
                *failure = Some(error);
            }
        }
        drop((holder, failure));
        self.answered.notify_waiters();
    }
}
