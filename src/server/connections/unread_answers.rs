//! Gives up calls over HTTP/2 whose answers nobody reads, one by one: the other calls of their connection go on.
//!
//! HTTP/2 lets a caller read a connection and yet not one of its calls. The library waits for that for as long as the
//! connection lives, and keeps the memory of the answer. When the task of a call is dropped, the library resets the call.
//!
//! Invariant: a call with more to send than the caller wants is reset once nothing of it was sent for the patience that it was
//! given, or for up to twice as long. It is reset a moment after its caller may not read it any more, too.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use hyper::rt::Executor;
use tokio::time::{Instant, sleep};

use super::{
    answer_body::{ANSWER, Unsent},
    patient_socket::{given_up, is_given_up},
    places::ConnectionPlace,
};

/// Runs the calls of a connection, each in a task.
#[derive(Clone)]
pub struct ReadInTime {
    /// How long nothing of an answer may be read.
    pub patience: Duration,
    /// The place of the connection.
    pub place: Arc<ConnectionPlace>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ReadInTime {
    fn execute(&self, call: F) {
        let call = read_in_time(call, self.place.clone(), self.patience);
        match self.place.guest() {
            Some(guest) => tokio::spawn(guest.clone().scope_call(call)),
            None => tokio::spawn(call),
        };
    }
}

/// Runs a call until it is answered, or given up. Its connection keeps its `place` until then.
async fn read_in_time(
    call: impl Future<Output = ()>, _place: Arc<ConnectionPlace>, patience: Duration,
) {
    let answer = Arc::new(OnceLock::<Arc<Unsent>>::new());
    let mut call = pin!(ANSWER.scope(answer.clone(), call));
    let mut waiting = None;
    let mut ends = None;
    poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(unsent) = answer.get().filter(|unsent| unsent.end().is_some())
            && is_given_up(ends.get_or_insert_with(|| given_up(unsent.end().cloned())), cx)
        {
            tracing::debug!("a call is given up: its caller may not read the answer any more");
            return Poll::Ready(());
        }
        let Some(unsent) = answer.get().filter(|unsent| unsent.waits_for_reader()) else {
            waiting = None;
            return Poll::Pending;
        };
        let (timer, sent) =
            waiting.get_or_insert_with(|| (Box::pin(sleep(patience)), unsent.bytes_sent()));
        while timer.as_mut().poll(cx).is_ready() {
            let before = std::mem::replace(sent, unsent.bytes_sent());
            if before == *sent {
                tracing::debug!("a call is given up: its answer is not read");
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + patience);
        }
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
