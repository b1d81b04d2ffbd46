//! The body of an answer, and what belongs to the answer until it is sent: its call, the memory that it holds
//! (`answer_memory.rs`), and the token that ends it early.
//!
//! The HTTP library takes an answer's parts as fast as they come, and keeps what the caller does not read. So each part
//! knows of its call until it is sent.
//!
//! Invariant: a call is in progress, and its answer holds its memory, until the answer is sent, or dropped because the caller
//! is gone. The connection is given no further part of an answer while more than [`UNSENT_BYTES_MAX`] of it are unsent, and not
//! its end while more than [`UNSENT_END_BYTES_MAX`] are: until then the call can be given up (`unread_answers.rs`,
//! `patient_socket.rs`).

use std::{
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    task::{Context, Poll, ready},
};

use bytes::Buf;
use futures::task::AtomicWaker;
use hyper::{
    Response,
    body::{Frame, SizeHint},
};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use super::{answer_memory::AnswerMemory, calls::OpenCall};
use crate::node::COUNTED_BYTES_MIN;

/// An answer's next part is made once no more bytes than these are unsent: as many as HTTP/2 lets a stream send before its
/// caller reads.
const UNSENT_BYTES_MAX: usize = 65_535;
/// An answer's end is given to the connection once no more bytes than these are unsent.
const UNSENT_END_BYTES_MAX: usize = COUNTED_BYTES_MIN;

tokio::task_local! {
    /// The unsent part of the answer to the call of this task, once there is one.
    pub static ANSWER: Arc<OnceLock<Arc<Unsent>>>;
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
            body.unsent.call.answers_until(body.unsent.end.clone());
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

#[cfg(test)]
mod tests {
    use super::{
        super::{aside::tests::Woken, calls::Calls},
        *,
    };
    use std::{convert::Infallible, sync::atomic::Ordering::Relaxed, task::Waker};

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
        assert_eq!(calls.in_progress(), 1, "the third part is unsent");
        drop(third);
        assert_eq!(calls.in_progress(), 0);
    }
}
