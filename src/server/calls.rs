//! The calls under way on one connection.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};

/// The calls of one connection.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    pub fn begin(self: &Arc<Self>) -> Call {
        self.begun.fetch_add(1, Relaxed);
        Call(self.clone())
    }

    /// Waits until no call has been under way for `span`, or somewhat longer.
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

/// A call under way; over when dropped.
pub struct Call(Arc<Calls>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

/// An answer: its call is under way until it is sent, or nobody wants it any more.
pub struct CallBody<B> {
    body: B,
    _call: Call,
}

impl<B> CallBody<B> {
    /// The body of the answer to `call`.
    pub fn new(body: B, call: Call) -> Self {
        CallBody { body, _call: call }
    }
}

impl<B: Body + Unpin> Body for CallBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
