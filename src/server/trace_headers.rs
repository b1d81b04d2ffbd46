//! The trace that a call belongs to, as its headers say it (W3C Trace Context).

use hyper::{HeaderMap, header::HeaderValue};

use crate::node::{NodeContext, TraceContext};

/// The trace that the headers of a call name. `None` if they name none, or no call is traced.
#[inline]
pub fn trace_in(context: &NodeContext, headers: &HeaderMap) -> Option<TraceContext> {
    match context.traces.are_on() {
        true => read(headers),
        false => None,
    }
}

fn read(headers: &HeaderMap) -> Option<TraceContext> {
    let values = |name: &str| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    TraceContext::read(values("traceparent"), values("tracestate"))
}
