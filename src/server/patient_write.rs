//! A socket whose other end must read. A protocol waits for as long as the other end likes, and meanwhile asks nothing of
//! the answer that it sends: what that answer holds would be held, and a node could not stop.
//!
//! Invariant: a write waits for at most the patience that it was given, and once the node stops, for a second.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long a write may wait once the node stops.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// A socket whose other end must read.
pub struct PatientWrite {
    stream: TcpStream,
    patience: Duration,
    stop: CancellationToken,
    /// The write that waits, if one does.
    waiting: Option<Waiting>,
}

struct Waiting {
    until: Pin<Box<Sleep>>,
    /// `None` once the node stops.
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl PatientWrite {
    /// A socket whose writes wait for at most `patience`, each anew, and for a second after `stop`.
    pub fn new(stream: TcpStream, patience: Duration, stop: CancellationToken) -> Self {
        PatientWrite { stream, patience, stop, waiting: None }
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
            until: Box::pin(sleep(self.patience)),
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
        let text = "the other end does not read";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl AsyncRead for PatientWrite {
    fn poll_read(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PatientWrite {
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
