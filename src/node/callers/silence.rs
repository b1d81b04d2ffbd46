//! Ends streams that are silent when other calls are refused for want of a place.
//!
//! A stream keeps its place among the calls for as long as it is open. Clients may keep streams for hours, and say nothing. So
//! one that was silent for as long as a connection may be idle counts as idle: it makes room as soon as a call is refused.
//!
//! Invariant: no stream ends while there are places enough. Of those that are silent, one ends for each call that is refused.

use std::{
    mem,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    sync::Notify,
    time::{Sleep, sleep},
};

use crate::proto::{Refusal, refusal};

/// The streams that are silent, of one address or of all.
#[derive(Debug, Default)]
pub struct SilentStreams {
    waiting: AtomicU64,
    needed: Notify,
}

impl SilentStreams {
    /// Ends one of them, if there is one: the one that was silent first.
    pub fn end_one(&self) {
        if self.waiting.load(Acquire) > 0 {
            self.needed.notify_one();
        }
    }

    /// Returns when this one is to end.
    async fn is_needed(&self) {
        if self.waiting.fetch_add(1, AcqRel) == 0 {
            // Left by two calls that were refused before the only one had ended, or by one that spoke just then.
            let _ = self.needed.notified().now_or_never();
        }
        let _waits = WaitingStream(self);
        self.needed.notified().await;
    }
}

/// A stream that waits, until this is dropped.
struct WaitingStream<'a>(&'a SilentStreams);

impl Drop for WaitingStream<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, AcqRel);
    }
}

/// How long a stream has been silent, and whether it is to end for that.
pub struct Silence {
    /// The silent streams that it is one of: those of its caller, and all.
    among: Box<dyn Fn() -> [Arc<SilentStreams>; 2] + Send>,
    /// How long it may be silent, whatever other call wants its place.
    span: Duration,
    /// Whether it has spoken since `timer` was set.
    has_spoken: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// Set once it was silent for so long: ready when its place is needed.
    needed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Silence {
    /// The silence of a stream among those of its caller, and among all, which may last for `span`, and up to twice as long.
    pub fn new(
        among: impl Fn() -> [Arc<SilentStreams>; 2] + Send + 'static, span: Duration,
    ) -> Silence {
        Silence { among: Box::new(among), span, has_spoken: false, timer: None, needed: None }
    }

    /// The stream has spoken.
    pub fn end(&mut self) {
        self.has_spoken = self.needed.take().is_none();
    }

    /// Ready with why the stream ends, once it was silent for so long and another call needs its place.
    pub fn poll_too_long(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        loop {
            if let Some(needed) = &mut self.needed {
                ready!(needed.as_mut().poll(cx));
                return Poll::Ready(refusal!(
                    StreamIdle,
                    "the stream said nothing for {} ms (connection_idle_ms), and another call needs its place; open it \
                     again once there is something to say",
                    self.span.as_millis()
                ));
            }
            // No timer is set anew by each message.
            let span = self.span;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(span)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            if !mem::take(&mut self.has_spoken) {
                let [own, all] = (self.among)();
                self.needed = Some(Box::pin(async move {
                    futures::future::select(pin!(own.is_needed()), pin!(all.is_needed())).await;
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    use crate::proto::{
        Code,
        v1::{Outcome, Reason},
    };

    const SPAN: Duration = Duration::from_secs(600);

    fn end(silence: &mut Silence) -> Option<Refusal> {
        std::future::poll_fn(|cx| silence.poll_too_long(cx)).now_or_never()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_ends_once_a_call_is_refused_and_not_before_nor_if_it_spoke() {
        for of in [0, 1] {
            let among = [(); 2].map(|()| Arc::new(SilentStreams::default()));
            let silence = || {
                let among = among.clone();
                Silence::new(move || among.clone(), SPAN)
            };
            let refuse = || among[of].end_one();
            let mut streams = [(); 3].map(|()| silence());
            let ended = |streams: &mut [Silence]| -> Vec<bool> {
                streams.iter_mut().map(|stream| end(stream).is_some()).collect()
            };
            refuse();
            assert_eq!(ended(&mut streams), [false; 3], "all are new");
            advance(SPAN).await;
            streams[2].end();
            assert_eq!(ended(&mut streams), [false; 3], "nobody waits");
            refuse();
            let why = end(&mut streams[0]).expect("it was silent first");
            assert_eq!((why.reason(), why.outcome()), (Reason::StreamIdle, Outcome::NotDone));
            assert_eq!(why.code(), Code::Unavailable);
            streams[0] = silence();
            assert_eq!(ended(&mut streams), [false; 3], "one place was needed");
            // It speaks just in time.
            streams[1].end();
            refuse();
            assert_eq!(ended(&mut streams), [false; 3]);
            advance(SPAN).await;
            streams[0].end();
            assert_eq!(ended(&mut streams), [false; 3], "nobody waits");
            refuse();
            assert_eq!(ended(&mut streams), [false, true, false]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_were_refused_before_are_none_of_a_later_silence() {
        let among = [(); 2].map(|()| Arc::new(SilentStreams::default()));
        let silence = || {
            let among = among.clone();
            Silence::new(move || among.clone(), SPAN)
        };
        let mut first = silence();
        assert!(end(&mut first).is_none());
        advance(SPAN).await;
        assert!(end(&mut first).is_none(), "nobody waits");
        // Both before it ends.
        among[0].end_one();
        among[0].end_one();
        assert!(end(&mut first).is_some());
        drop(first);
        let mut later = silence();
        assert!(end(&mut later).is_none());
        advance(SPAN).await;
        assert!(end(&mut later).is_none(), "nobody waits any more");
    }
}
