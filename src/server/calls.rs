//! Counts the calls in progress on one connection, so that an idle connection can be closed.
//!
//! The HTTP library takes an answer's parts as fast as they come, and keeps what the caller does not read. So each part
//! knows of its call until it is sent.
//!
//! Invariant: a call counts from when its headers have arrived until its answer is sent, or dropped because
//! the caller is gone. The connection is given no further part of an answer while more than [`UNSENT_BYTES_MAX`] of it are
//! unsent.

use std::{
    convert::Infallible,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use futures::task::AtomicWaker;
use hyper::{
    Request, Response,
    body::{Frame, Incoming, SizeHint},
};
use tonic::{body::Body, codegen::Service};

/// How long the other end of a connection without calls may take to close it, once it was told to.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// An answer's next part is made once no more bytes than these are unsent: as many as HTTP/2 lets a stream send before its
/// caller reads.
const UNSENT_BYTES_MAX: usize = 65_535;

/// What answers the calls of a port. It must always be ready: `poll_ready` is not called.
pub trait Answering:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Answering for S where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// The calls of one connection, counted as they begin and end.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    /// Counts a call as begun. It ends when the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Call {
        self.begun.fetch_add(1, Relaxed);
        Call(self.clone())
    }

    /// Waits until no call has been in progress for `span`, or for up to twice as long: the counters are
    /// compared once in a `span`, and no timer is reset by each call.
    pub async fn idle_for(&self, span: Duration) {
        let mut before = None;
        loop {
            let ended = self.ended.load(Relaxed);
    /// How many have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Whether none is in progress.
    pub fn are_none(&self) -> bool {
        // What has ended had begun before.
        let ended = self.ended.load(Acquire);
        self.begun() == ended
    }

            let begun = self.begun.load(Relaxed);
            if begun == ended && before == Some(begun) {
                return;
            }
            before = (begun == ended).then_some(begun);
            tokio::time::sleep(span).await;
        }
    }
}

/// A call in progress. It ends when this is dropped.
pub struct Call(Arc<Calls>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

/// The answer to `call`, whose body keeps the call in progress.
pub async fn answered(
    call: Call, answering: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<CallBody<Body>>, Infallible> {
    let response = answering.await?;
    Ok(response.map(|body| CallBody::new(body, call)))
}

/// The body of an answer. It keeps its call in progress until it is sent or dropped.
pub struct CallBody<B> {
    body: B,
    unsent: Arc<Unsent>,
}

/// What the connection holds of an answer.
struct Unsent {
    bytes: AtomicUsize,
    /// Woken when bytes are sent.
    body: AtomicWaker,
    _call: Call,
}

impl Unsent {
    fn is_too_much(&self) -> bool {
        self.bytes.load(Acquire) > UNSENT_BYTES_MAX
    }

    fn sent(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, AcqRel);
        debug_assert!(before >= bytes, "{bytes} of {before} bytes are sent");
        if before > UNSENT_BYTES_MAX && before - bytes <= UNSENT_BYTES_MAX {
            self.body.wake();
        }
    }
}

impl<B> CallBody<B> {
    /// Ties `body` to the call that it answers.
    pub fn new(body: B, call: Call) -> Self {
        let unsent = Unsent { bytes: AtomicUsize::new(0), body: AtomicWaker::new(), _call: call };
        CallBody { body, unsent: Arc::new(unsent) }
    }
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for CallBody<B> {
    type Data = UnsentPart<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        if self.unsent.is_too_much() {
            self.unsent.body.register(cx.waker());
            // Again: some may have been sent before it was registered.
            if self.unsent.is_too_much() {
                return Poll::Pending;
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let unsent = &self.unsent;
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            Ok(frame.map_data(|data| UnsentPart::new(data, unsent.clone())))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of an answer, which counts as unsent until it is written or dropped.
pub struct UnsentPart<D: Buf> {
    data: D,
    unsent: Arc<Unsent>,
}

impl<D: Buf> UnsentPart<D> {
    fn new(data: D, unsent: Arc<Unsent>) -> Self {
        unsent.bytes.fetch_add(data.remaining(), AcqRel);
        UnsentPart { data, unsent }
    }
}

impl<D: Buf> Buf for UnsentPart<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, bytes: usize) {
        self.data.advance(bytes);
        self.unsent.sent(bytes);
    }
}

impl<D: Buf> Drop for UnsentPart<D> {
    fn drop(&mut self) {
        self.unsent.sent(self.data.remaining());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Wake, Waker};

    use bytes::Bytes;
    use hyper::body::Body as _;

    /// A body of as many parts, each of 40 000 bytes.
    struct Parts(u32);

    impl hyper::body::Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>, _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or(0);
            Poll::Ready(left.map(|_| Ok(Frame::data(Bytes::from(vec![7; 40_000])))))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn no_part_is_made_while_too_much_is_unsent_and_the_call_lasts_until_all_is_sent() {
        let calls = Arc::new(Calls::default());
        let mut body = CallBody::new(Parts(3), calls.begin());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut next = || match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().ok().expect("data")),
            Poll::Ready(Some(Err(never))) => match never {},
            Poll::Ready(None) | Poll::Pending => None,
        };
        let mut first = next().expect("the first part");
        let second = next().expect("the second part: 40 000 bytes are unsent");
        assert!(next().is_none(), "80 000 bytes are unsent");
        first.advance(14_464);
        assert!(next().is_none(), "65 536 bytes are unsent");
        assert_eq!(woken.0.load(Relaxed), 0);
        first.advance(1);
        assert_eq!(woken.0.load(Relaxed), 1);
        assert_eq!(first.copy_to_bytes(25_535), vec![7; 25_535]);
        let third = next().expect("the third part");
        // The caller is gone: what it did not read is dropped.
        drop(second);
        assert!(next().is_none(), "the body has ended");
        drop((first, body));
        let ended = || calls.ended.load(Relaxed);
        assert_eq!(ended(), 0, "the third part is unsent");
        drop(third);
        assert_eq!(ended(), 1);
    }
}
