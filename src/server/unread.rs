//! Gives up calls over HTTP/2 whose answers nobody reads, one by one: the other calls of their connection go on.
//!
//! HTTP/2 lets a caller read a connection and yet not one of its calls. The library waits for that for as long as the
//! connection lives, with what the answer holds. When the task of a call is dropped, it resets the call.
//!
//! Invariant: a call of which there is more to send than the caller wants is reset once nothing of it was sent for the
//! patience that it was given, or for up to twice as long.

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
    calls::{ANSWER, Unsent},
    places::Place,
};
use crate::node::Caller;

/// Runs the calls of a connection, each in a task.
#[derive(Clone)]
pub struct ReadInTime {
    /// How long nothing of an answer may be read.
    pub patience: Duration,
    /// Whose connection it is.
    pub place: Arc<Place>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ReadInTime {
    fn execute(&self, call: F) {
        let call = read_in_time(call, self.place.clone(), self.patience);
        tokio::spawn(Caller::scope(self.place.caller(), call));
    }
}

/// Runs a call until it is answered, or given up. Its connection keeps its `place` until then.
async fn read_in_time(call: impl Future<Output = ()>, _place: Arc<Place>, patience: Duration) {
    let answer = Arc::new(OnceLock::<Arc<Unsent>>::new());
    let mut call = pin!(ANSWER.scope(answer.clone(), call));
    let mut waiting = None;
    poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() {
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
mod tests {
    use super::*;
    use std::future::pending;

    use bytes::Buf;
    use hyper::body::Body as _;
    use tokio::sync::mpsc;
    use tonic::codegen::http::Response;

    use crate::server::{
        calls::{Calls, answered},
        places::{Places, WhenFull},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn place() -> Arc<Place> {
        Places::new(WhenFull::RefuseNew).enter(None).expect("room")
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_given_up_once_nothing_of_its_answer_is_read_for_too_long() {
        let (connection, mut parts) = mpsc::unbounded_channel();
        let calls = Arc::new(Calls::default());
        let begun = calls.begin();
        // As a connection whose caller opens no window.
        let call = async move {
            let body = tonic::body::Body::new("x".repeat(100));
            let answer = answered(begun, async { Ok(Response::new(body)) }).await;
            let mut body = pin!(answer.expect("an answer").into_body());
            let first = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
            let part = first.expect("a part").expect("no error").into_data();
            connection.send(part.ok().expect("data")).expect("it is waited for");
            pending::<()>().await;
        };
        let task = tokio::spawn(read_in_time(call, place(), SECOND));
        let mut part = parts.recv().await.expect("a part");
        for _ in 0..10 {
            sleep(SECOND * 9 / 10).await;
            part.advance(1);
            assert!(!task.is_finished());
        }
        let since = Instant::now();
        task.await.expect("it ends");
        assert!(since.elapsed() <= 2 * SECOND, "{:?}", since.elapsed());
        assert!(!calls.are_none(), "a part is unsent");
        drop(part);
        assert!(calls.are_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_nothing_to_say_is_not_given_up() {
        let (asks, says) = mpsc::unbounded_channel::<Result<bytes::Bytes, std::io::Error>>();
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(says);
        let body = tonic::body::Body::new(axum::body::Body::from_stream(stream));
        let begun = Arc::new(Calls::default()).begin();
        let call = async move {
            let answer = answered(begun, async { Ok(Response::new(body)) }).await;
            let mut body = pin!(answer.expect("an answer").into_body());
            while poll_fn(|cx| body.as_mut().poll_frame(cx)).await.is_some() {}
        };
        let task = tokio::spawn(read_in_time(call, place(), SECOND));
        sleep(100 * SECOND).await;
        assert!(!task.is_finished());
        drop(asks);
        task.await.expect("it ends");
    }
}
