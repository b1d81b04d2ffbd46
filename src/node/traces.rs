//! Traces: single calls, as a collector of many systems is told of them. A span is a call at one node, or the wait for the
//! leader's answer to it. `context.rs` is the trace that the caller of a call names.
//!
//! The node that a caller asks decides whether a call is traced: as the caller says, or by chance. The leader does as that node
//! says.
//!
//! Invariant: the end of a span waits for nobody, the spans that wait to be sent have a bound, and one for which there is no
//! room is counted. No span has a key or a token. If traces are off, no call has a span.

mod context;

pub use context::{SpanId, TraceContext, TraceId};

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    Config,
    settings::Sample,
    told_call::{About, CallEnd},
};
use crate::{
    laps::{Laps, PHASES},
    metrics::Metrics,
    proto::peer::TraceParent,
    random,
};

/// How many ended spans wait at most until they are sent. One has some 500 bytes.
const WAITING_MAX: usize = 2_048;
/// The name of the span of the wait for the leader.
const FORWARD: &str = "forward";

/// The spans of a node.
#[derive(Debug)]
pub struct Traces {
    tracer: Option<Arc<Tracer>>,
    /// Where the ended ones come, until somebody takes that.
    ended: Mutex<Option<mpsc::Receiver<EndedSpan>>>,
}

#[derive(Debug)]
struct Tracer {
    sample: Sample,
    ended: mpsc::Sender<EndedSpan>,
    metrics: Arc<Metrics>,
}

/// The node that a span tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A node that has been asked.
    Asked,
    /// A node that asks the leader.
    Asking,
}

/// A span under way: a call at a node, from its beginning until it is dropped.
#[derive(Debug)]
pub struct Span {
    tracer: Arc<Tracer>,
    began: Instant,
    told: Mutex<EndedSpan>,
}

/// A span that has ended, with all that is told of it.
#[derive(Debug, Clone)]
pub struct EndedSpan {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// A text for other systems on the way.
    pub state: String,
    /// Its name.
    pub name: &'static str,
    /// The kind of the span.
    pub kind: SpanKind,
    /// When it began.
    pub began: SystemTime,
    /// How long it was.
    pub took: Duration,
    /// The namespace that its call is about.
    pub namespace: Option<String>,
    /// How many keys that has.
    pub keys: usize,
    /// How the call has ended.
    pub end: CallEnd,
    /// For how long it has waited, and for what, if it has waited.
    pub waits: [Duration; PHASES],
}

impl Traces {
    /// As the configuration has it.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        if config.otlp_endpoint.is_none() {
            return Traces { tracer: None, ended: Mutex::default() };
        }
        let (ended, waiting) = mpsc::channel(WAITING_MAX);
        let tracer = Tracer { sample: config.otlp_sample, ended, metrics };
        Traces { tracer: Some(Arc::new(tracer)), ended: Mutex::new(Some(waiting)) }
    }

    /// Whether any call is traced.
    #[inline]
    pub fn are_on(&self) -> bool {
        self.tracer.is_some()
    }

    /// Where ended spans come. `None` if traces are off, or it was taken before.
    pub fn take_ended(&self) -> Option<mpsc::Receiver<EndedSpan>> {
        self.ended.lock().take()
    }

    /// The span of a call of a caller who says this of it. `None` if it is not traced.
    #[inline]
    pub fn of_caller(&self, method: &'static str, said: Option<TraceContext>) -> Option<Arc<Span>> {
        match &self.tracer {
            None => None,
            Some(tracer) => Tracer::of_caller(tracer, method, said),
        }
    }

    /// The span of a call that a peer has forwarded. `None` if it is not traced.
    pub fn of_peer(&self, method: &'static str, said: Option<TraceParent>) -> Option<Arc<Span>> {
        let (tracer, said) = (self.tracer.as_ref()?, said?);
        let said = TraceContext::of_peer(&said.trace_id, &said.span_id, said.state)?;
        Some(Arc::new(Span::within(tracer, method, said)))
    }
}

impl Tracer {
    #[cold]
    fn of_caller(
        tracer: &Arc<Tracer>, method: &'static str, said: Option<TraceContext>,
    ) -> Option<Arc<Span>> {
        let span = match said {
            Some(said) => said.is_sampled.then(|| Span::within(tracer, method, said))?,
            None => tracer.sample.takes(random::u64()).then(|| Span::first(tracer, method))?,
        };
        Some(Arc::new(span))
    }
}

impl Span {
    /// The first span of a trace.
    fn first(tracer: &Arc<Tracer>, name: &'static str) -> Span {
        let trace = (u128::from(random::u64()) << u64::BITS) | u128::from(random::u64());
        Span::new(tracer, (trace.max(1).to_be_bytes(), None, String::new()), name, SpanKind::Asked)
    }

    /// A span in the trace that a caller, or a peer, told of, within the span that it told of.
    fn within(tracer: &Arc<Tracer>, name: &'static str, said: TraceContext) -> Span {
        let TraceContext { trace, span, state, .. } = said;
        Span::new(tracer, (trace, Some(span), state), name, SpanKind::Asked)
    }

    fn new(
        tracer: &Arc<Tracer>, (trace, parent, state): (TraceId, Option<SpanId>, String),
        name: &'static str, kind: SpanKind,
    ) -> Span {
        let told = EndedSpan {
            trace,
            id: id(),
            parent,
            state,
            name,
            kind,
            began: SystemTime::now(),
            took: Duration::ZERO,
            namespace: None,
            keys: 0,
            end: CallEnd::default(),
            waits: [Duration::ZERO; PHASES],
        };
        Span { tracer: tracer.clone(), began: Instant::now(), told: Mutex::new(told) }
    }

    /// That of the wait for the leader, which is asked from now on.
    pub fn asking_leader(&self) -> Span {
        let (trace, parent, state) = {
            let told = self.told.lock();
            (told.trace, told.id, told.state.clone())
        };
        let span = Span::new(&self.tracer, (trace, Some(parent), state), FORWARD, SpanKind::Asking);
        // Another one may be asked meanwhile.
        span.tell_end(CallEnd::Lost);
        span
    }

    /// The message about it to the leader.
    pub fn to_wire(&self) -> TraceParent {
        let told = self.told.lock();
        TraceParent {
            trace_id: told.trace.to_vec().into(),
            span_id: told.id.to_vec().into(),
            state: told.state.clone(),
        }
    }

    /// The trace, as people write it.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.told.lock().trace))
    }

    /// Notes the subject of its call.
    pub fn tell_about(&self, about: About<'_>) {
        let mut told = self.told.lock();
        (told.namespace, told.keys) = (about.namespace(), about.keys);
    }

    /// Notes where the call has waited.
    pub fn tell_waits(&self, laps: &Laps) {
        self.told.lock().waits = laps.all();
    }

    /// How its call has ended. If that is not told, the caller has left.
    pub fn tell_end(&self, end: CallEnd) {
        self.told.lock().end = end;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let told = self.told.get_mut();
        let (state, namespace) = (mem::take(&mut told.state), told.namespace.take());
        let ended = EndedSpan { state, namespace, took: self.began.elapsed(), ..told.clone() };
        // The collector is slow, or away, or the node stops.
        if self.tracer.ended.try_send(ended).is_err() {
            self.tracer.metrics.trace_spans_dropped.inc();
        }
    }
}

/// An id that nobody else has drawn. It is never 0.
fn id() -> SpanId {
    random::u64().max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(sample: &str) -> Traces {
        let config = Config {
            otlp_endpoint: Some("http://127.0.0.1:4317".to_owned()),
            otlp_sample: sample.parse().expect("a sample"),
            ..Config::default()
        };
        Traces::new(&config, Metrics::new())
    }

    fn said(is_sampled: bool) -> Option<TraceContext> {
        let state = "a=1".to_owned();
        Some(TraceContext { trace: [7; 16], span: [8; 8], is_sampled, state })
    }

    #[test]
    fn a_caller_decides_whether_its_call_is_traced_and_chance_if_it_does_not_say() {
        for (sample, of_callers_who_do_not_say) in [("0", false), ("1", true)] {
            let traces = traces(sample);
            let is_traced = |said| traces.of_caller("Next", said).is_some();
            let told = [said(true), said(false), None].map(is_traced);
            assert_eq!(told, [true, false, of_callers_who_do_not_say]);
            assert!(traces.of_peer("Next", None).is_none(), "the node that was asked decides");
        }
        let off = Traces::new(&Config::default(), Metrics::new());
        assert!(off.of_caller("Next", said(true)).is_none() && off.take_ended().is_none());
    }

    #[test]
    fn the_leaders_span_is_within_the_wait_for_it_which_is_within_the_call() {
        let traces = traces("1");
        let call = traces.of_caller("Next", said(true)).expect("traced");
        let waiting = call.asking_leader();
        let led = traces.of_peer("Next", Some(waiting.to_wire())).expect("traced");
        call.tell_end(CallEnd::Answered);
        drop((led, waiting, call));
        let mut ended = traces.take_ended().expect("they are on");
        let [led, waiting, call] = [(); 3].map(|()| ended.try_recv().expect("a span"));
        assert_eq!([led.trace, waiting.trace, call.trace], [[7; 16]; 3]);
        assert_eq!([&led.state, &waiting.state, &call.state], ["a=1"; 3]);
        let parents = [led.parent, waiting.parent, call.parent];
        assert_eq!(parents, [Some(waiting.id), Some(call.id), Some([8; 8])]);
        assert_eq!([call.end, led.end], [CallEnd::Answered, CallEnd::Left]);
        assert_eq!([led.kind, waiting.kind], [SpanKind::Asked, SpanKind::Asking]);
    }

    #[test]
    fn spans_for_which_there_is_no_room_are_counted_and_nobody_waits() {
        let traces = traces("1");
        let spans = |count: usize| (0..count).for_each(|_| drop(traces.of_caller("Next", None)));
        let dropped = || {
            let tracer = traces.tracer.as_ref().expect("they are on");
            tracer.metrics.trace_spans_dropped.get()
        };
        spans(WAITING_MAX);
        assert_eq!(dropped(), 0);
        spans(3);
        assert_eq!(dropped(), 3);
        // Nobody sends them any more.
        drop(traces.take_ended());
        spans(1);
        assert_eq!(dropped(), 4);
    }
}
