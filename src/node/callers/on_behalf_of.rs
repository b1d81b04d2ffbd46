//! Notes for a task which caller it works for: the memory that it reserves and the places that it takes count as that caller's.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::Either;

use super::{Caller, Guest, GuestCall, Silence};
use crate::proto::Refusal;

tokio::task_local! {
    /// The call or the connection that this task serves.
    static ON_BEHALF_OF: OnBehalfOf;
}

/// A call or a connection that a task serves.
enum OnBehalfOf {
    /// A call of this caller.
    Caller(Arc<Caller>),
    /// A call over a connection that has others, once it has a place among them.
    Call(Arc<Guest>, OnceLock<Arc<GuestCall>>),
    /// A connection, and its calls one after the other. Each is the call of the principal that asks over it then.
    Guest(Arc<Guest>),
}

impl OnBehalfOf {
    fn caller(&self) -> Arc<Caller> {
        match self {
            OnBehalfOf::Caller(caller) => caller.clone(),
            OnBehalfOf::Call(guest, call) => {
                call.get().map_or_else(|| guest.caller(), |call| call.caller())
            }
            OnBehalfOf::Guest(guest) => guest.caller(),
        }
    }

    /// The same for another task. That task may learn whose call it is.
    fn go_on(&self) -> OnBehalfOf {
        match self {
            OnBehalfOf::Call(guest, call) => OnBehalfOf::Call(guest.clone(), call.clone()),
            OnBehalfOf::Caller(_) | OnBehalfOf::Guest(_) => OnBehalfOf::Caller(self.caller()),
        }
    }
}

impl Caller {
    /// The caller that this task serves, if it is a client's.
    pub(in crate::node) fn current() -> Option<Arc<Caller>> {
        ON_BEHALF_OF.try_with(OnBehalfOf::caller).ok()
    }

    /// The silence of a stream of the caller that this task serves, which may last for `span`; `None` if it is no client's.
    pub fn silence(span: Duration) -> Option<Silence> {
        let began = Caller::current()?;
        // Its caller may be known later only.
        let among = move || {
            let caller = Caller::current().unwrap_or_else(|| began.clone());
            [&caller.silent, &caller.callers.silent].map(Arc::clone)
        };
        Some(Silence::new(among, span))
    }

    /// The future in which reservations of memory are those of `caller`, or nobody's.
    pub fn scope<F: Future>(
        caller: Option<Arc<Caller>>, future: F,
    ) -> impl Future<Output = F::Output> {
        match caller {
            Some(caller) => Either::Left(ON_BEHALF_OF.scope(OnBehalfOf::Caller(caller), future)),
            None => Either::Right(future),
        }
    }

    /// Runs `reserve`. The memory that it reserves is this caller's.
    pub fn charge<T>(self: Arc<Self>, reserve: impl FnOnce() -> T) -> T {
        ON_BEHALF_OF.sync_scope(OnBehalfOf::Caller(self), reserve)
    }

    /// The future for a task of its own, which serves what this one does: reservations of memory are those of the same caller.
    pub fn go_on<F: Future>(future: F) -> impl Future<Output = F::Output> {
        match ON_BEHALF_OF.try_with(OnBehalfOf::go_on) {
            Ok(served) => Either::Left(ON_BEHALF_OF.scope(served, future)),
            // It serves nobody.
            Err(_) => Either::Right(future),
        }
    }
}

impl Guest {
    /// The principal asks that `id` names, or somebody of an address, in what this task serves.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the connection would become that principal's, who has as many as it may have.
    pub fn is_asked_here_by(id: impl FnOnce() -> Option<u64>) -> Result<(), Refusal> {
        let asked = ON_BEHALF_OF.try_with(|served| match served {
            OnBehalfOf::Guest(guest) => guest.is_asked_by(id()),
            // Others may ask over the connection meanwhile.
            OnBehalfOf::Call(_, call) => call.get().map_or(Ok(()), |call| call.is_asked_by(id)),
            OnBehalfOf::Caller(_) => Ok(()),
        });
        asked.unwrap_or(Ok(()))
    }

    /// The future in which reservations of memory are those of the principal that asks over the connection by then.
    pub fn scope<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        ON_BEHALF_OF.scope(OnBehalfOf::Guest(self), future)
    }

    /// The future of a call over it, which goes on beside others, and says by [`Guest::is_serving`] which one it is:
    /// reservations of memory are those of the principal that asks in that call.
    pub fn scope_call<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        ON_BEHALF_OF.scope(OnBehalfOf::Call(self, OnceLock::new()), future)
    }

    /// This task, which is the future of a call, serves this one.
    pub fn is_serving(call: &Arc<GuestCall>) {
        // Without a scope it is a test's.
        let _ = ON_BEHALF_OF.try_with(|served| match served {
            OnBehalfOf::Call(_, known) => drop(known.set(call.clone())),
            OnBehalfOf::Caller(_) | OnBehalfOf::Guest(_) => {}
        });
    }
}
