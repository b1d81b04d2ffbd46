//! Sends the spans of traced calls to a collector: OTLP over gRPC.
//!
//! Spans that end while a message is on its way form the next message. Invariant: no call waits for any of this. Spans that the
//! collector does not take are counted and not sent again.

use std::{
    fmt::Display,
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::{rare_warning::RareWarning, tls::cas};
use crate::{
    laps::Phase,
    metrics::Metrics,
    node::{CallEnd, Config, EndedSpan, SpanKind as Kind, config::ConfigError},
    version,
};

/// How many spans a message has at most.
const MESSAGE_SPANS_MAX: usize = 512;
/// How long the collector has to take a message.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// How long a node that stops has for the spans that wait by then.
const LAST_EXPORT_MAX: Duration = Duration::from_millis(300);
/// How long the collector is left alone after it failed.
const PAUSE: Duration = Duration::from_secs(1);
/// The flag of a span whose trace is recorded (W3C).
const SAMPLED: u32 = 1;

/// The sender of a node's spans.
pub struct Exporter {
    endpoint: String,
    client: TraceServiceClient<Channel>,
    resource: Resource,
    warning: RareWarning,
}

impl Exporter {
    /// The exporter of a node with this configuration. `None` if it sends none.
    ///
    /// # Errors
    /// [`ConfigError`] if the endpoint is no address, or the file with its CAs cannot be used.
    pub fn new(config: &Config) -> Result<Option<Exporter>, ConfigError> {
        let Some(endpoint) = config.otlp_endpoint.clone() else {
            return Ok(None);
        };
        let channel = channel(&endpoint, config.otlp_ca.as_deref())?;
        let attributes = vec![
            text("service.name", "ratchet".to_owned()),
            text("service.version", version::VERSION.to_owned()),
            text("service.namespace", config.cluster.clone()),
            text("service.instance.id", config.node_id.to_string()),
        ];
        Ok(Some(Exporter {
            endpoint,
            client: TraceServiceClient::new(channel),
            resource: Resource { attributes, ..Resource::default() },
            warning: RareWarning::default(),
        }))
    }

    /// Sends the spans that have `ended`, until the node stops.
    pub async fn run(
        mut self, mut ended: mpsc::Receiver<EndedSpan>, metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) {
        let mut spans = Vec::new();
        let is_stopping = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break true,
                taken = ended.recv_many(&mut spans, MESSAGE_SPANS_MAX) => if taken == 0 {
                    break false;
                },
            }
            let rests = tokio::select! {
                biased;
                is_sent = self.send(&mut spans, EXPORT_MAX, &metrics) => !is_sent,
                () = stop.cancelled() => break true,
            };
            if rests {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break true,
                    () = sleep(PAUSE) => {}
                }
            }
        };
        // Spans of calls that are still answered now are dropped with the process.
        if is_stopping {
            let left = MESSAGE_SPANS_MAX.saturating_sub(spans.len());
            spans.extend(std::iter::from_fn(|| ended.try_recv().ok()).take(left));
            if !spans.is_empty() {
                self.send(&mut spans, LAST_EXPORT_MAX, &metrics).await;
            }
        }
    }

    /// Sends `spans`, and empties them. False if the collector did not take the message within `limit`.
    async fn send(
        &mut self, spans: &mut Vec<EndedSpan>, limit: Duration, metrics: &Metrics,
    ) -> bool {
        let count = spans.len() as u64;
        let message = self.message(spans);
        let sending = self.client.export(message);
        let failed = match timeout(limit, sending).await {
            Ok(Ok(answer)) => {
                let rejected = answer.into_inner().partial_success;
                let rejected = rejected.map_or(0, |rejected| rejected.rejected_spans);
                let rejected = u64::try_from(rejected).unwrap_or(0).min(count);
                metrics.trace_spans.inc_by(count - rejected);
                metrics.trace_spans_dropped.inc_by(rejected);
                None
            }
            Ok(Err(status)) => Some(format!("{}: {}", status.code(), status.message())),
            Err(_) => Some(format!("no answer within {} ms", limit.as_millis())),
        };
        spans.clear();
        let Some(why) = failed else {
            return true;
        };
        metrics.trace_spans_dropped.inc_by(count);
        if self.warning.is_due() {
            let endpoint = &self.endpoint;
            tracing::warn!(
                endpoint,
                why,
                "the collector of traces did not take spans; they are dropped"
            );
        }
        false
    }

    fn message(&self, spans: &[EndedSpan]) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "ratchet".to_owned(),
            version: version::VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.iter().map(to_wire).collect(),
            ..ScopeSpans::default()
        };
        let of_node = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![of_node] }
    }
}

/// The connection to the collector, over TLS if `ca` names the file with its CAs. It is made at its first use.
fn channel(endpoint: &str, ca: Option<&Path>) -> Result<Channel, ConfigError> {
    let wrong = |error: &dyn Display| {
        ConfigError(format!(
            "otlp_endpoint is {endpoint:?}: {error}; give http://host:port, or https://host:port with otlp_ca"
        ))
    };
    let mut at = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| wrong(&error))?;
    if let Some(path) = ca {
        let trusted = Certificate::from_pem(cas("otlp_ca", path).map_err(ConfigError)?);
        let tls = ClientTlsConfig::new().ca_certificate(trusted).timeout(EXPORT_MAX);
        at = at.tls_config(tls).map_err(|error| wrong(&error))?;
    }
    Ok(at.connect_timeout(EXPORT_MAX).connect_lazy())
}

fn to_wire(span: &EndedSpan) -> Span {
    let began = span.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let mut attributes = vec![text("ratchet.outcome", span.end.to_string())];
    if let Some(namespace) = &span.namespace {
        attributes.push(text("ratchet.namespace", namespace.clone()));
    }
    if span.keys > 0 {
        attributes.push(attribute("ratchet.keys", Value::IntValue(span.keys as i64)));
    }
    for (phase, waited) in Phase::ALL.iter().zip(&span.waits).filter(|(_, span)| !span.is_zero()) {
        let ms = Value::DoubleValue(waited.as_secs_f64() * 1e3);
        attributes.push(attribute(&format!("ratchet.{}_ms", phase.name()), ms));
    }
    let kind = match span.kind {
        Kind::Asked => SpanKind::Server,
        Kind::Asking => SpanKind::Client,
    };
    let is_error = matches!(span.end, CallEnd::Refused(..) | CallEnd::Lost | CallEnd::Left);
    let status =
        is_error.then(|| Status { message: span.end.to_string(), code: StatusCode::Error.into() });
    Span {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        trace_state: span.state.clone(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
        flags: SAMPLED,
        name: span.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(began),
        end_time_unix_nano: nanos(began + span.took),
        attributes,
        status,
        ..Span::default()
    }
}

fn text(key: &str, value: String) -> KeyValue {
    attribute(key, Value::StringValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
