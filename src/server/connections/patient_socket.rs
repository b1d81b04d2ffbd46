//! A socket whose other end must read answers. Once it has begun the head of a request, it must also send the rest in time. A
//! protocol itself waits for as long as the other end likes. The memory of the answer would be held all that time, and a node
//! could not stop.
//!
//! Hyper's own time for a head counts from the end of the last answer. It would end the connections of callers that
//! pause, or that read a long answer slowly; so it is off.
//!
//! Invariant: a write waits for at most the patience that it was given. Once the node stops, or the reader may not read any
//! more, it waits for a second at most. A head arrives in the time that it was given, or the read fails.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{calls::Calls, opening::GREETING_TIME_MAX, stream::Stream, until_known::UntilKnown};

/// How long a write may wait once the node stops, or its answer is to end early.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How long a connection waits for its other end.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For the next request, and for an answer to be read on.
    pub idle: Duration,
    /// For the head of a request from its first byte on, and for the first byte of a new connection where places are short.
    pub head: Duration,
    /// Without a call, until it becomes a mere socket; up to twice as long.
    pub rest_after: Duration,
    /// When it is too old: the next answer is its last one, and says so.
    pub too_old_at: Option<Instant>,
}

impl Times {
    /// The times with `idle` and `too_old_at`, and the usual values for the others.
    pub fn new(idle: Duration, too_old_at: Option<Instant>) -> Times {
        let usual = GREETING_TIME_MAX.min(idle);
        Times { idle, head: usual, rest_after: usual, too_old_at }
    }

    /// Whether the connection is too old.
    pub(super) fn are_over(&self) -> bool {
        self.too_old_at.is_some_and(|time| time <= Instant::now())
    }
}

/// A socket whose other end must read, and must end what it begins.
pub struct PatientSocket {
    stream: UntilKnown<Stream>,
    times: Times,
    calls: Arc<Calls>,
    stop: CancellationToken,
    /// The write that waits, if one does.
    waiting: Option<Waiting>,
    /// The head that is arriving, if one is.
    head: Option<Head>,
    /// The number that went with the answer's token when a write waited last, and when that answer is given up.
    given_up: (u64, GivenUp),
}

struct Head {
    /// How many calls had begun before.
    after: u64,
    /// `None` until the socket waits for the rest of it: the first bytes are looked at at once, and mostly they are all of it.
    timer: Option<Pin<Box<Sleep>>>,
}

struct Waiting {
    until: Pin<Box<Sleep>>,
    /// `None` once the node stops.
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Ready a moment after an answer is to end early: by then its reader has been told why. `None`: it never is.
pub(super) type GivenUp = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Waits for the token that says that an answer is to end early, and a moment more.
pub(super) fn given_up(end: Option<CancellationToken>) -> GivenUp {
    let end = end?;
    Some(Box::pin(async move {
        end.cancelled().await;
        sleep(LAST_PATIENCE).await;
    }))
}

/// Whether an answer is given up by now.
pub(super) fn is_given_up(given_up: &mut GivenUp, cx: &mut Context<'_>) -> bool {
    let is_ready = given_up.as_mut().is_some_and(|given_up| given_up.as_mut().poll(cx).is_ready());
    if is_ready {
        *given_up = None;
    }
    is_ready
}

impl PatientSocket {
    /// A socket. Each write waits for at most `times.idle`, and for a second once `stop` is cancelled. The head of a request
    /// may take `times.head`. It ends when its call begins.
    pub fn new(
        stream: UntilKnown<Stream>, times: Times, calls: Arc<Calls>, stop: CancellationToken,
    ) -> Self {
        PatientSocket { stream, times, calls, stop, waiting: None, head: None, given_up: (0, None) }
    }

    /// The socket.
    pub fn into_inner(self) -> UntilKnown<Stream> {
        self.stream
    }

    /// Whether a write waits for the other end to read.
    pub(super) fn is_writing(&self) -> bool {
        self.waiting.is_some()
    }

    fn is_tls(&self) -> bool {
        self.stream.inner().is_tls()
    }

    /// The outcome of a write. One that must wait fails once it has waited for too long.
    fn bound<T>(
        &mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            until: Box::pin(sleep(self.times.idle)),
            stopped: Some(Box::pin(self.stop.clone().cancelled_owned())),
        });
        // An answer that is given up ends, however much of it is read meanwhile.
        let (answer, end) = self.calls.answer();
        if self.given_up.0 != answer {
            self.given_up = (answer, given_up(end));
        }
        if is_given_up(&mut self.given_up.1, cx) {
            return late("the other end may not read on");
        }
        if let Some(stopped) = &mut waiting.stopped
            && stopped.as_mut().poll(cx).is_ready()
        {
            waiting.stopped = None;
            let last = Instant::now() + LAST_PATIENCE;
            if last < waiting.until.deadline() {
                waiting.until.as_mut().reset(last);
            }
        }
        ready!(waiting.until.as_mut().poll(cx));
        late("the other end does not read")
    }

    /// The outcome of a read that brought bytes, or none. One that must wait for the rest of a head fails if that takes too
    /// long.
    fn bound_head(
        &mut self, cx: &mut Context<'_>, brought_bytes: bool, read: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        let begun = self.calls.begun();
        if self.head.as_ref().is_some_and(|head| head.after != begun) {
            self.head = None;
        }
        // Otherwise they are the body's of a call that is under way.
        if brought_bytes && self.head.is_none() && self.calls.are_none() {
            self.head = Some(Head { after: begun, timer: None });
        }
        match &mut self.head {
            Some(head) if read.is_pending() => {
                let patience = self.times.head;
                let timer = head.timer.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(timer.as_mut().poll(cx));
                late("the head of a request does not end")
            }
            _ => read,
        }
    }
}

/// The failure of a read or a write that has taken too long.
fn late<T>(why: &str) -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
}

impl AsyncRead for PatientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let brought_bytes = buffer.filled().len() > before;
        self.bound_head(cx, brought_bytes, read)
    }
}

impl AsyncWrite for PatientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.bound(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        match self.is_tls() {
            true => self.bound(cx, flushed),
            // A write waits for the bytes that the socket did not take.
            false => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        match self.is_tls() {
            true => self.bound(cx, shut),
            false => shut,
        }
    }
}
