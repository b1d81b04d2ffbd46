//! Whose what a task serves is: the memory that it reserves, and the places that it takes, are that caller's.

use std::{sync::Arc, time::Duration};

use futures::future::Either;

use super::{Caller, Guest, Silence};
use crate::proto::Refusal;

tokio::task_local! {
    /// Whose call, or which connection, this task serves.
    static SERVED: Served;
}

/// What a task serves.
enum Served {
    /// What this caller has asked for.
    Caller(Arc<Caller>),
    /// A call of this caller over a connection that has others.
    Call(Arc<Caller>, Arc<Guest>),
    /// A connection, and its calls one after the other. Each is the call of whoever asks over it then.
    Guest(Arc<Guest>),
}

impl Served {
    fn caller(&self) -> Arc<Caller> {
        match self {
            Served::Caller(caller) | Served::Call(caller, _) => caller.clone(),
            Served::Guest(guest) => guest.caller(),
        }
    }
}

impl Caller {
    /// The caller that this task serves, if it is a client's.
    pub(in crate::node) fn current() -> Option<Arc<Caller>> {
        SERVED.try_with(Served::caller).ok()
    }

    /// The silence of a stream of the caller that this task serves, which may last for `span`; `None` if it is no client's.
    pub fn silence(span: Duration) -> Option<Silence> {
        let caller = Caller::current()?;
        let among = [&caller.silent, &caller.callers.silent];
        Some(Silence::new(among.map(Arc::clone), span))
    }

    /// The future in which reservations of memory are those of `caller`, or nobody's.
    pub fn scope<F: Future>(
        caller: Option<Arc<Caller>>, future: F,
    ) -> impl Future<Output = F::Output> {
        match caller {
            Some(caller) => Either::Left(SERVED.scope(Served::Caller(caller), future)),
            None => Either::Right(future),
        }
    }

    /// What `reserve` returns. The memory that it reserves is this caller's.
    pub fn charge<T>(self: Arc<Self>, reserve: impl FnOnce() -> T) -> T {
        SERVED.sync_scope(Served::Caller(self), reserve)
    }

    /// The future for a task of its own, in which reservations of memory are those of the same caller as here.
    pub fn go_on<F: Future>(future: F) -> impl Future<Output = F::Output> {
        Caller::scope(Caller::current(), future)
    }
}

impl Guest {
    /// The principal asks that `id` names, or somebody of an address, in what this task serves.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the connection would become that principal's, who has as many as it may have.
    pub fn is_asked_here_by(id: impl FnOnce() -> Option<u64>) -> Result<(), Refusal> {
        let asked = SERVED.try_with(|served| match served {
            Served::Guest(guest) => guest.is_asked_by(id()),
            // Others may ask over it meanwhile. Whose the call is has been told when it began.
            Served::Call(_, guest) if guest.is_strangers() => match id() {
                Some(id) => guest.has_been_asked_by(id),
                None => Ok(()),
            },
            Served::Call(..) | Served::Caller(_) => Ok(()),
        });
        asked.unwrap_or(Ok(()))
    }

    /// The future in which reservations of memory are those of whoever asks over the connection by then.
    pub fn scope<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        SERVED.scope(Served::Guest(self), future)
    }

    /// The future of a call over it, which goes on beside others: reservations of memory are those of whoever asks now.
    pub fn scope_call<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        SERVED.scope(Served::Call(self.caller(), self), future)
    }
}
