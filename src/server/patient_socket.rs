//! A socket whose other end must read answers, and must send the head of a request in time once it has begun one. A protocol
//! waits for as long as the other end likes, and meanwhile asks nothing of the answer that it sends: what that answer holds
//! would be held, and a node could not stop.
//!
//! Hyper's own time for a head counts from the end of the last answer. It would end the connections of callers that pause,
//! or that read a long answer slowly.
//!
//! Invariant: a write waits for at most the patience that it was given, and once the node stops, for a second. A head
//! arrives in the time that it was given, or the read fails.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::calls::Calls;

/// How long a write may wait once the node stops.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How long a connection waits for its other end.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For the next request, and for an answer to be read on.
    pub idle: Duration,
    /// For the head of a request from its first byte on, and for the first byte of a new connection where places are short.
    pub head: Duration,
    /// Without a call, until it becomes a mere socket; up to twice as long.
    pub rest_after: Duration,
}

impl Times {
    /// With `idle`, and what is usual for the others.
    pub fn with_idle(idle: Duration) -> Times {
        let usual = Duration::from_secs(5);
        Times { idle, head: usual.min(idle), rest_after: usual.min(idle) }
    }
}

/// A socket whose other end must read, and must end what it begins.
pub struct PatientSocket {
    stream: TcpStream,
    times: Times,
    calls: Arc<Calls>,
    stop: CancellationToken,
    /// The write that waits, if one does.
    waiting: Option<Waiting>,
    /// The head that is arriving, if one is.
    head: Option<Head>,
}

struct Head {
    /// How many calls had begun before.
    after: u64,
    until: Instant,
    /// `None` until the rest of it is waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

struct Waiting {
    until: Pin<Box<Sleep>>,
    /// `None` once the node stops.
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl PatientSocket {
    /// A socket whose writes wait for at most `times.idle`, each anew, and for a second after `stop`; a head of a request,
    /// which ends when a call begins, for `times.head`.
    pub fn new(
        stream: TcpStream, times: Times, calls: Arc<Calls>, stop: CancellationToken,
    ) -> Self {
        PatientSocket { stream, times, calls, stop, waiting: None, head: None }
    }

    /// The socket.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }

    /// What a write came to. One that must wait fails once it has waited for too long.
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

    /// What a read came to that brought bytes, or none. One that must wait for the rest of a head fails if that takes too
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
            let until = Instant::now() + self.times.head;
            self.head = Some(Head { after: begun, until, timer: None });
        }
        match &mut self.head {
            Some(head) if read.is_pending() => {
                let until = head.until;
                let timer = head.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(timer.as_mut().poll(cx));
                late("the head of a request does not end")
            }
            _ => read,
        }
    }
}

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
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
