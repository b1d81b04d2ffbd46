//! Limits the bytes of a connection while its caller has to be known, and is not.
//!
//! HTTP/2 would take in a megabyte before somebody reads it: the library tells a connection its window once, when it begins. A
//! body over HTTP/1, and a command of a Redis client, may have a megabyte, too. So the socket is not read on. A caller with a
//! token shows it in the headers of its first call, or in AUTH, long before.
//!
//! Invariant: a stranger's connection brings at most [`STRANGERS_BYTES_MAX`], counted from when it became a stranger's.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::node::Guest;

/// How many bytes a stranger's connection may bring in all.
pub const STRANGERS_BYTES_MAX: usize = 64 << 10;

/// A stream that is read on once its owner is known.
pub struct UntilKnown<S> {
    stream: S,
    /// `None` if the owner need not be known.
    bound: Option<Bound>,
}

struct Bound {
    guest: Arc<Guest>,
    /// How many bytes may be read before somebody looks whether it is a stranger's.
    left: usize,
    /// Waits until the owner is known.
    known: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> UntilKnown<S> {
    /// The stream of `guest`'s connection, if it is a client's.
    pub fn new(stream: S, guest: Option<&Arc<Guest>>) -> Self {
        let bound = guest.map(|guest| Bound {
            guest: guest.clone(),
            left: STRANGERS_BYTES_MAX,
            known: None,
        });
        UntilKnown { stream, bound }
    }

    /// The stream. Its bytes are not to be read here, but all else may be asked of it.
    pub fn inner(&self) -> &S {
        &self.stream
    }

    /// The same stream, to change it.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl Bound {
    /// How many bytes may be read now, where there is room for so many.
    fn poll_left(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<usize> {
        // Seldom: it costs more than a read.
        let is_strangers = self.left < room && self.guest.is_strangers();
        if is_strangers && self.left > 0 {
            return Poll::Ready(self.left);
        }
        if is_strangers {
            let known = self.known.get_or_insert_with(|| {
                let guest = self.guest.clone();
                Box::pin(async move { guest.becomes_known().await })
            });
            ready!(known.as_mut().poll(cx));
        }
        if self.left < room {
            (self.left, self.known) = (STRANGERS_BYTES_MAX.max(room), None);
        }
        Poll::Ready(self.left)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UntilKnown<S> {
    fn poll_read(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let UntilKnown { stream, bound } = &mut *self;
        let Some(bound) = bound else {
            return Pin::new(stream).poll_read(cx, buffer);
        };
        let left = ready!(bound.poll_left(buffer.remaining(), cx));
        let read = if buffer.remaining() <= left {
            let before = buffer.filled().len();
            ready!(Pin::new(stream).poll_read(cx, buffer))?;
            buffer.filled().len() - before
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left));
            ready!(Pin::new(stream).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buffer.advance(read);
            read
        };
        bound.left -= read;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UntilKnown<S> {
    fn poll_write(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::{
        metrics::Metrics,
        node::{Callers, Config, Port},
        sequence::principal_id,
    };

    const SENT: usize = 1 << 20;

    /// A connection over which a megabyte was sent; its owner; and its other end. Anonymous may do nothing at the node, or
    /// something.
    async fn sent(are_closed: bool) -> (UntilKnown<DuplexStream>, Arc<Guest>, DuplexStream) {
        let callers = Callers::new(&Config::default(), &Metrics::new(), move |_| are_closed);
        let guest = callers.connect(Port::Clients, [10, 0, 0, 1].into()).expect("a connection");
        let (mut theirs, ours) = tokio::io::duplex(SENT);
        theirs.write_all(&vec![7; SENT]).await.expect("room for it");
        (UntilKnown::new(ours, Some(&guest)), guest, theirs)
    }

    /// How many bytes can be read at once, with room for so many.
    async fn read_at_once(stream: &mut UntilKnown<DuplexStream>, room: usize) -> usize {
        let (mut part, mut all) = (vec![0; room], 0);
        while let Some(read) = stream.read(&mut part).now_or_never() {
            all += read.expect("it is open");
            assert!(all <= SENT);
            if all == SENT {
                break;
            }
            // So that the runtime does not have this task pause.
            tokio::task::yield_now().await;
        }
        all
    }

    #[tokio::test]
    async fn a_stranger_brings_64_kib_and_the_rest_once_it_is_known_who_it_is() {
        for room in [100, 8 << 10, 10_000, 64 << 10, 100_000] {
            let (mut stream, guest, _theirs) = sent(true).await;
            assert_eq!(read_at_once(&mut stream, room).await, 64 << 10, "room for {room}");
            let reading = tokio::spawn(async move {
                let mut rest = vec![0; SENT - (64 << 10)];
                stream.read_exact(&mut rest).await
            });
            tokio::task::yield_now().await;
            assert!(!reading.is_finished(), "room for {room}");
            let shows = async { Guest::is_asked_here_by(|| Some(principal_id("ci"))) };
            guest.scope(shows).await.expect("its share");
            let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
            read.expect("it is woken").expect("no panic").expect("the rest");
        }
    }

    #[tokio::test]
    async fn where_anonymous_may_do_something_all_is_read() {
        for room in [100, 8 << 10, 100_000] {
            let (mut stream, _guest, _theirs) = sent(false).await;
            assert_eq!(read_at_once(&mut stream, room).await, SENT, "room for {room}");
        }
    }
}
