//! Connections whose other end is slow or silent: they are read and written in time, or end, and hold nothing
//! meanwhile.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::TryFutureExt;
use hyper::{
    header::{CONNECTION, HeaderValue},
    rt::Executor,
    server::conn::http1::{Builder, Parts},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    aside::aside,
    calls::{ANSWER, Answering, Calls, SHUTDOWN_TIME_MAX, Unsent, answered},
    opening::GREETING_TIME_MAX,
    places::Place,
    stream::Stream,
    until_known::UntilKnown,
};

// A socket whose other end must read answers, and must send the head of a request in time once it has begun one. A
// protocol waits for as long as the other end likes, and meanwhile asks nothing of the answer that it sends: what that
// answer holds would be held, and a node could not stop.
//
// Hyper's own time for a head counts from the end of the last answer. It would end the connections of callers that
// pause, or that read a long answer slowly; so it is off.
//
// Invariant: a write waits for at most the patience that it was given, and once the node stops, or who reads may not any more, for
// a second. A head arrives in the time that it was given, or the read fails.

/// How long a write may wait once the node stops, or its answer is to end early.
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
    /// When it is too old: the next answer is its last one, and says so.
    pub too_old_at: Option<Instant>,
}

impl Times {
    /// With `idle` and `too_old_at`, and what is usual for the others.
    pub fn new(idle: Duration, too_old_at: Option<Instant>) -> Times {
        let usual = GREETING_TIME_MAX.min(idle);
        Times { idle, head: usual, rest_after: usual, too_old_at }
    }

    fn are_over(&self) -> bool {
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
    /// The number of the answer that was sent when a write waited last, and when that one is given up.
    given_up: (u64, GivenUp),
}

struct Head {
    /// How many calls had begun before.
    after: u64,
    /// `None` until the rest of it is waited for: what has arrived is looked at at once, and is mostly all of it.
    timer: Option<Pin<Box<Sleep>>>,
}

struct Waiting {
    until: Pin<Box<Sleep>>,
    /// `None` once the node stops.
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Ready a moment after an answer is to end early: who reads it has been told why by then. `None`: it never is.
type GivenUp = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

fn given_up(end: Option<CancellationToken>) -> GivenUp {
    let end = end?;
    Some(Box::pin(async move {
        end.cancelled().await;
        sleep(LAST_PATIENCE).await;
    }))
}

fn is_given_up(given_up: &mut GivenUp, cx: &mut Context<'_>) -> bool {
    let is_ready = given_up.as_mut().is_some_and(|given_up| given_up.as_mut().poll(cx).is_ready());
    if is_ready {
        *given_up = None;
    }
    is_ready
}

impl PatientSocket {
    /// A socket whose writes wait for at most `times.idle`, each anew, and for a second after `stop`; a head of a request,
    /// which ends when a call begins, for `times.head`.
    pub fn new(
        stream: UntilKnown<Stream>, times: Times, calls: Arc<Calls>, stop: CancellationToken,
    ) -> Self {
        PatientSocket { stream, times, calls, stop, waiting: None, head: None, given_up: (0, None) }
    }

    /// The socket.
    pub fn into_inner(self) -> UntilKnown<Stream> {
        self.stream
    }

    fn is_tls(&self) -> bool {
        self.stream.inner().is_tls()
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
        // However much of it is read meanwhile.
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
            // What the socket did not take, a write waits for.
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

// One HTTP/1 connection. While nobody uses it, it is a socket, with TLS also its session, and nothing else: the buffers of
// the protocol, some 20 kB, are made anew for the next request.
//
// Invariant: a silent connection is closed within the limits below.

/// The most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves a connection with `service` until its other end closes it, it takes longer than `times` says, or the node stops.
///
/// # Errors
/// A text if the other end sends nothing in time, does not speak HTTP/1, or breaks off.
pub async fn serve<S: Answering>(
    stream: Stream, service: S, place: Arc<Place>, times: Times, stop: CancellationToken,
) -> Result<(), String> {
    let mut stream = UntilKnown::new(stream, place.guest());
    let mut is_new = true;
    // It was idle before it rested.
    let rest = times.idle.saturating_sub(times.rest_after);
    loop {
        let waiting = async {
            let first = stream.inner_mut().has_more();
            match std::mem::take(&mut is_new) {
                true => place.greeted(first, times.head, times.idle).await,
                false => timeout(rest, first).await.map_err(|_| "no further request".into()),
            }
        };
        let arrived = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            arrived = waiting => arrived?,
        };
        if !arrived.map_err(|error| error.to_string())? {
            return Ok(());
        }
        let serving = serve_until_rest(stream, service.clone(), &place, times, &stop);
        // In a box, so that a socket that rests is small.
        match Box::pin(serving).await? {
            Some(rests) => stream = rests,
            None => return Ok(()),
        }
    }
}

/// Serves requests until none comes for a while. Returns the socket then, with what was read of a further request; `None` if
/// the connection has ended.
async fn serve_until_rest<S: Answering>(
    stream: UntilKnown<Stream>, service: S, place: &Arc<Place>, times: Times,
    stop: &CancellationToken,
) -> Result<Option<UntilKnown<Stream>>, String> {
    let Times { idle, rest_after, .. } = times;
    let (calls, of_connection) = (place.calls(), place.clone());
    let service = service_fn(move |request| {
        let call = of_connection.begin_call();
        // In a box before anything else: it would be copied into whatever waits for it.
        Box::pin(service.clone().call(request)).map_ok(move |answer| {
            let mut answer = answered(call, answer);
            if times.are_over() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        })
    });
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None);
    let stream = PatientSocket::new(stream, times, calls.clone(), stop.clone());
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    let ends = aside(async {
        tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = calls.idle_for(rest_after) => false,
        }
    });
    let node_stops = tokio::select! {
        biased;
        ended = &mut connection => {
            return ended.map(|()| None).map_err(|error| error.to_string());
        }
        node_stops = ends => node_stops,
    };
    if node_stops {
        // Tells the other end to begin no further calls. Those in progress are answered.
        connection.as_mut().graceful_shutdown();
        return tokio::select! {
            biased;
            ended = &mut connection => ended.map(|()| None).map_err(|error| error.to_string()),
            () = calls.idle_for(SHUTDOWN_TIME_MAX) => Ok(None),
        };
    }
    // No call is in progress: this ends the protocol without a word to the other end, once all answers are sent. If a part
    // of the first request has arrived, the rest is waited for, and that request is the last one: its answer says so.
    let begun = calls.begun();
    connection.as_mut().graceful_shutdown();
    let resting = timeout(idle, Pin::into_inner(connection).without_shutdown());
    let stopping = async {
        stop.cancelled().await;
        calls.idle_for(SHUTDOWN_TIME_MAX).await;
    };
    let rested = tokio::select! {
        biased;
        rested = resting => rested.map_err(|_| "the other end neither sends nor reads")?,
        () = stopping => return Ok(None),
    };
    let Parts { io, read_buf, .. } = rested.map_err(|error| error.to_string())?;
    let socket = io.into_inner();
    if socket.waiting.is_some() {
        // What was read may be the rest of that answer's request.
        return Err("the end of an answer is not sent".to_owned());
    }
    match read_buf.is_empty() || calls.begun() == begun {
        true => {
            let mut stream = socket.into_inner();
            stream.inner_mut().put_back(read_buf);
            Ok(Some(stream))
        }
        false => Err("more was sent after the last request".to_owned()),
    }
}

// Gives up calls over HTTP/2 whose answers nobody reads, one by one: the other calls of their connection go on.
//
// HTTP/2 lets a caller read a connection and yet not one of its calls. The library waits for that for as long as the
// connection lives, with what the answer holds. When the task of a call is dropped, it resets the call.
//
// Invariant: a call of which there is more to send than the caller wants is reset once nothing of it was sent for the
// patience that it was given, or for up to twice as long; or a moment after its caller may not read it any more.

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
        match self.place.guest() {
            Some(guest) => tokio::spawn(guest.clone().scope_call(call)),
            None => tokio::spawn(call),
        };
    }
}

/// Runs a call until it is answered, or given up. Its connection keeps its `place` until then.
async fn read_in_time(call: impl Future<Output = ()>, _place: Arc<Place>, patience: Duration) {
    let answer = Arc::new(OnceLock::<Arc<Unsent>>::new());
    let mut call = pin!(ANSWER.scope(answer.clone(), call));
    let mut waiting = None;
    let mut ends = None;
    poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(unsent) = answer.get().filter(|unsent| unsent.end().is_some())
            && is_given_up(ends.get_or_insert_with(|| given_up(unsent.end().cloned())), cx)
        {
            tracing::debug!("a call is given up: its caller may not read the answer any more");
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
mod tests;
