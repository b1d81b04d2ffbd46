//! Counts the calls in progress on one connection, so that an idle connection can be closed.
//!
//! The HTTP library takes an answer's parts as fast as they come, and keeps what the caller does not read. So each part
//! knows of its call until it is sent.
//!
//! Invariant: a call counts from when its headers have arrived until its answer is sent, or dropped because the caller
//! is gone; so does the memory that its answer holds. The connection is given no further part of an answer while more
//! than [`UNSENT_BYTES_MAX`] of it are unsent, and not its end while more than [`UNSENT_END_BYTES_MAX`] are: until
//! then the call can be given up (`unread_answers.rs`, `patient_socket.rs`).

use std::{
    convert::Infallible,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
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
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    body::Body,
    codegen::{Service, http::Extensions},
};
use tower::util::MapResponseLayer;

use crate::node::{COUNTED_BYTES_MIN, GuestCall, RequestMemory, Reservation};

/// How long the other end of a connection without calls may take to close it, once it was told to.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// An answer's next part is made once no more bytes than these are unsent: as many as HTTP/2 lets a stream send before its
/// caller reads.
const UNSENT_BYTES_MAX: usize = 65_535;
/// An answer's end is given to the connection once no more bytes than these are unsent.
const UNSENT_END_BYTES_MAX: usize = COUNTED_BYTES_MIN;

tokio::task_local! {
    /// The unsent part of the answer to the call of this task, once there is one.
    pub static ANSWER: Arc<OnceLock<Arc<Unsent>>>;
}

/// The service that answers the calls of a port. It must always be ready: `poll_ready` is not called.
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
    /// Over HTTP/1 one answer follows another. This has the token that ends the last one early, and a number that changes with
    /// it.
    answers: Mutex<(u64, Option<CancellationToken>)>,
    /// Whether there is such a token. The task of the connection alone changes it.
    ends_early: AtomicBool,
}

impl Calls {
    /// Counts a call as begun. It ends when the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> OpenCall {
        self.begun.fetch_add(1, Relaxed);
        OpenCall { calls: self.clone(), of_guest: None }
    }

    /// Notes that an answer is sent from here on, and is to end early when this is cancelled.
    fn answers_until(&self, end: Option<CancellationToken>) {
        // Nothing changes from one answer without a token to the next.
        if end.is_none() && !self.ends_early.load(Relaxed) {
            return;
        }
        self.ends_early.store(end.is_some(), Relaxed);
        let mut answers = self.answers.lock();
        *answers = (answers.0 + 1, end);
    }

    /// The token that is cancelled if the answer that is sent over HTTP/1 is to end early, and a number that changes with it.
    pub fn answer(&self) -> (u64, Option<CancellationToken>) {
        self.answers.lock().clone()
    }

    /// How many have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Whether none is in progress.
    pub fn are_none(&self) -> bool {
        self.in_progress() == 0
    }

    /// How many are in progress.
    pub fn in_progress(&self) -> u64 {
        // A call that has ended had begun before, but another thread may see that later.
        let ended = self.ended.load(Acquire);
        self.begun().saturating_sub(ended)
    }

    /// Waits until no call has been in progress for `span`, or for up to twice as long: the counters are
    /// compared once in a `span`, and no timer is reset by each call.
    pub async fn idle_for(&self, span: Duration) {
        let mut before = None;
        loop {
            let ended = self.ended.load(Relaxed);
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
pub struct OpenCall {
    calls: Arc<Calls>,
    /// Its place among the calls of the connection's caller.
    pub of_guest: Option<Arc<GuestCall>>,
}

impl OpenCall {
    /// The connection is given the end of its answer next.
    fn is_answered(&self) {
        if let Some(of_guest) = &self.of_guest {
            of_guest.is_answered();
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.calls.ended.fetch_add(1, Relaxed);
    }
}

/// The `response` to `call`, whose body keeps the call in progress.
pub fn answered(call: OpenCall, mut response: Response<Body>) -> Response<CallBody<Body>> {
    let held = response.extensions_mut().remove::<AnswerMemory>();
    let end = response.extensions_mut().remove::<EndsEarly>().map(|EndsEarly(end)| end);
    response.map(|body| {
        let body = CallBody::new(body, call, held, end);
        body.note_end();
        // Calls over HTTP/1 are given up with their connection, and have no task of their own.
        let has_task = ANSWER.try_with(|answer| answer.set(body.unsent.clone())).is_ok();
        if !has_task {
            body.unsent.call.calls.answers_until(body.unsent.end.clone());
        }
        body
    })
}

/// The body of an answer. It keeps its call in progress until it is sent or dropped.
pub struct CallBody<B: hyper::body::Body> {
    body: B,
    /// The end, until little is unsent.
    end: Option<Frame<UnsentPart<B::Data>>>,
    unsent: Arc<Unsent>,
}

/// The part of an answer that the connection holds, because it is not sent yet.
pub struct Unsent {
    bytes: AtomicUsize,
    /// How many bytes were made so far.
    made: AtomicUsize,
    /// Whether the connection asks for the next part.
    is_asked: AtomicBool,
    /// Woken when bytes are sent.
    body: AtomicWaker,
    call: OpenCall,
    _held: Option<AnswerMemory>,
    /// Cancelled if its caller may not read it any more.
    end: Option<CancellationToken>,
}

impl Unsent {
    /// The token that is cancelled if its caller may not read it any more.
    pub fn end(&self) -> Option<&CancellationToken> {
        self.end.as_ref()
    }

    /// True while the caller must read before anything goes on.
    pub fn waits_for_reader(&self) -> bool {
        !self.is_asked.load(Acquire)
    }

    /// How many bytes are sent.
    pub fn bytes_sent(&self) -> usize {
        let unsent = self.bytes.load(Acquire);
        self.made.load(Acquire).saturating_sub(unsent)
    }

    fn is_more_than(&self, bytes: usize) -> bool {
        self.bytes.load(Acquire) > bytes
    }

    /// Waits until no more than `bytes` are unsent.
    fn poll_at_most(&self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        if self.is_more_than(bytes) {
            self.body.register(cx.waker());
            // Again: some may have been sent before it was registered.
            if self.is_more_than(bytes) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn sent(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, AcqRel);
        assert!(before >= bytes, "{bytes} of {before} bytes are sent");
        let after = before - bytes;
        if [UNSENT_BYTES_MAX, UNSENT_END_BYTES_MAX].iter().any(|max| before > *max && after <= *max)
        {
            self.body.wake();
        }
    }
}

impl<B: hyper::body::Body> CallBody<B> {
    /// Ties `body` to the call that it answers, to the memory that it holds, and to the token that is cancelled if its caller
    /// may not read it any more.
    pub fn new(
        body: B, call: OpenCall, held: Option<AnswerMemory>, end: Option<CancellationToken>,
    ) -> Self {
        let unsent = Unsent {
            bytes: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            is_asked: AtomicBool::new(false),
            body: AtomicWaker::new(),
            call,
            _held: held,
            end,
        };
        CallBody { body, end: None, unsent: Arc::new(unsent) }
    }

    /// Notes it if the connection is given no more after this.
    fn note_end(&self) {
        if self.end.is_none() && self.body.is_end_stream() {
            self.unsent.call.is_answered();
        }
    }
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for CallBody<B>
where
    B::Data: Unpin,
{
    type Data = UnsentPart<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        let CallBody { body, end, unsent } = &mut *self;
        if end.is_none() {
            ready!(unsent.poll_at_most(UNSENT_BYTES_MAX, cx));
            let next = Pin::new(body).poll_frame(cx);
            unsent.is_asked.store(next.is_pending(), Release);
            let next = ready!(next).transpose()?;
            let next =
                next.map(|frame| frame.map_data(|data| UnsentPart::new(data, unsent.clone())));
            match next {
                Some(frame) if frame.is_trailers() => *end = Some(frame),
                Some(part) => {
                    self.note_end();
                    return Poll::Ready(Some(Ok(part)));
                }
                None => {
                    unsent.call.is_answered();
                    return Poll::Ready(None);
                }
            }
        }
        ready!(unsent.poll_at_most(UNSENT_END_BYTES_MAX, cx));
        unsent.call.is_answered();
        Poll::Ready(end.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.body.is_end_stream()
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
        unsent.made.fetch_add(data.remaining(), AcqRel);
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
        // Mostly all of it is sent by now.
        let left = self.data.remaining();
        if left > 0 {
            self.unsent.sent(left);
        }
    }
}

/// Among the extensions of a response: cancelled once its caller may not read it any more. Then it ends, also if its caller
/// reads none of it.
#[derive(Clone)]
pub struct EndsEarly(pub CancellationToken);

/// Memory that an answer holds until it is sent. A service puts it among the response's extensions, and the connection's body
/// takes it from there.
#[derive(Clone)]
pub struct AnswerMemory(#[allow(dead_code)] Arc<Reservation>);

/// Has the answer with these extensions hold the memory until it is sent, or dropped because its caller is gone.
pub fn until_sent(extensions: &mut Extensions, reservation: Option<Reservation>) {
    if let Some(reservation) = reservation {
        extensions.insert(AnswerMemory(Arc::new(reservation)));
    }
}

/// The response with a message, which holds the memory until it is sent.
pub fn response<T>(message: T, reservation: Option<Reservation>) -> tonic::Response<T> {
    let mut response = tonic::Response::new(message);
    until_sent(response.extensions_mut(), reservation);
    response
}

/// A layer that has each answer of a service hold `bytes` bytes, because the answer may have as many.
pub fn holding(
    memory: Arc<RequestMemory>, bytes: usize,
) -> MapResponseLayer<impl Fn(Response<Body>) -> Response<Body> + Clone> {
    MapResponseLayer::new(move |mut response: Response<Body>| match memory.reserve(bytes) {
        Ok(reserved) => {
            until_sent(response.extensions_mut(), Some(reserved));
            response
        }
        Err(refusal) => Status::from(refusal).into_http(),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::aside::tests::Woken, *};
    use std::task::Waker;

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

    #[test]
    fn no_part_is_made_while_too_much_is_unsent_and_the_call_lasts_until_all_is_sent() {
        let calls = Arc::new(Calls::default());
        let mut body = CallBody::new(Parts(3), calls.begin(), None, None);
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
        // The caller is gone. The answer that it did not read is dropped.
        drop(second);
        assert!(next().is_none(), "the body has ended");
        drop((first, body));
        let ended = || calls.ended.load(Relaxed);
        assert_eq!(ended(), 0, "the third part is unsent");
        drop(third);
        assert_eq!(ended(), 1);
    }
}
