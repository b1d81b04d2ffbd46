//! Traces, as a collector receives them: a call is one trace at all nodes that had it, and a collector that is away holds
//! nobody.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use parking_lot::Mutex;
use ratchet::{
    node::Config,
    proto::v1::{CurrentRequest, NextManyRequest, NextRequest},
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig},
};

use crate::common::{
    PATIENCE,
    certificates::Certificates,
    cluster::Cluster,
    disk::{Fsync, Reads, on_disks},
    eventually, http, id, other_than,
    processes::ratchet,
    rust_client, until, with_http,
};

/// The trace of a caller, and its span in it.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A key and a token, which no span has.
const KEY: u64 = 918_273_645_546;
const TOKEN: &str = "not-to-be-told";

/// A span as it was received, and which node had sent it.
#[derive(Debug, Clone)]
struct Received {
    node: String,
    span: Span,
}

impl Received {
    /// How long it took.
    fn took(&self) -> Duration {
        Duration::from_nanos(self.span.end_time_unix_nano - self.span.start_time_unix_nano)
    }
}

/// A collector of traces.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Vec<Received>>>,
    /// How many messages have come.
    messages: Arc<AtomicU64>,
    /// If it is there, the collector answers only a message that gets a permit.
    holds: Option<Arc<Semaphore>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self, message: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.messages.fetch_add(1, Ordering::SeqCst);
        if let Some(holds) = &self.holds {
            holds.acquire().await.expect("it is not closed").forget();
        }
        for of_node in message.into_inner().resource_spans {
            let resource = of_node.resource.expect("a resource");
            let node = text_of(&resource.attributes, "service.instance.id").expect("a node");
            assert_eq!(text_of(&resource.attributes, "service.name").as_deref(), Some("ratchet"));
            let spans = of_node.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let received = spans.map(|span| Received { node: node.clone(), span });
            self.received.lock().extend(received);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        Value::DoubleValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A collector that listens. When it is dropped, it and its connections are gone.
struct Listening {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Collector {
    /// Has it listen, on threads of its own.
    fn listen(&self) -> Listening {
        self.serve(Server::builder())
    }

    /// Has it listen over TLS alone, with the certificate of a node.
    fn listen_over_tls(&self, certificates: &Certificates, node: u64) -> Listening {
        let [certificate, key] =
            ["crt", "key"].map(|end| certificates.read(&format!("node-{node}.{end}")));
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        self.serve(Server::builder().tls_config(tls).expect("a certificate"))
    }

    fn serve(&self, mut server: Server) -> Listening {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let service = TraceServiceServer::new(self.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let server = server.add_service(service);
            let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
            serving.await.expect("it serves");
        });
        Listening { address, runtime: Some(runtime) }
    }

    /// The spans of a trace, by their names at the nodes, once there are so many.
    async fn spans_of(&self, trace: &str, count: usize) -> Vec<Received> {
        eventually("the spans of a trace", async || {
            let received = self.received.lock();
            let of_trace = received.iter().filter(|one| hex(&one.span.trace_id) == trace);
            let found: Vec<Received> = of_trace.cloned().collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }
}

/// Has the node send its spans there. Without a word of their callers, calls are not traced.
fn traced(to: SocketAddr) -> impl Fn(&mut Config) {
    move |config| {
        config.otlp_endpoint = Some(format!("http://{to}"));
        config.otlp_sample = "0".parse().expect("a sample");
        with_http(config);
    }
}

/// A message of a caller whose call is a part of this trace.
fn in_trace<T>(message: T, trace: &str, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    let parent = format!("00-{trace}-{CALLER}-{flags}");
    request.metadata_mut().insert("traceparent", parent.parse().expect("a header"));
    request.metadata_mut().insert("tracestate", "shop=7".parse().expect("a header"));
    request
}

fn next() -> NextRequest {
    NextRequest { namespace: "book".to_owned(), key: id(KEY), ..NextRequest::default() }
}

/// Prints the spans of a trace as they were received, for docs/monitor.md: the parent of each, and how long it took.
fn print_received(spans: &[Received]) {
    let mut in_order: Vec<&Received> = spans.iter().collect();
    in_order.sort_by_key(|one| one.span.start_time_unix_nano);
    for received in in_order {
        let Received { node, span } = received;
        let parent = spans.iter().find(|one| one.span.span_id == span.parent_span_id);
        let parent = parent.map_or_else(
            || hex(&span.parent_span_id),
            |one| format!("{} at node {}", one.span.name, one.node),
        );
        println!("{} at node {node}, a part of {parent}: {:?}", span.name, received.took());
    }
}

/// Sees that these three spans are a call that `asked` forwarded to `leader`, on behalf of the caller.
fn assert_forwarded(spans: &[Received], [asked, leader]: [u64; 2], method: &str) {
    let kinds: BTreeMap<(String, String), &Span> =
        (spans.iter()).map(|one| ((one.node.clone(), one.span.name.clone()), &one.span)).collect();
    assert_eq!(kinds.len(), 3, "{:?}", kinds.keys());
    let of = |node: u64, name: &str| kinds[&(node.to_string(), name.to_owned())];
    let [call, wait, led] = [of(asked, method), of(asked, "forward"), of(leader, method)];
    assert_eq!(hex(&call.parent_span_id), CALLER);
    assert_eq!(wait.parent_span_id, call.span_id);
    assert_eq!(led.parent_span_id, wait.span_id);
    let kinds = [call, wait, led].map(|span| span.kind());
    assert_eq!(kinds, [SpanKind::Server, SpanKind::Client, SpanKind::Server]);
    for span in [call, wait, led] {
        assert_eq!(span.trace_state, "shop=7");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert_eq!(text_of(&span.attributes, "ratchet.outcome").as_deref(), Some("ok"));
    }
    for span in [call, led] {
        assert_eq!(text_of(&span.attributes, "ratchet.namespace").as_deref(), Some("book"));
        assert_eq!(text_of(&span.attributes, "ratchet.keys").as_deref(), Some("1"));
    }
    // One machine, one clock: a span within another one is not longer.
    let took = |span: &Span| span.end_time_unix_nano - span.start_time_unix_nano;
    assert!(took(call) >= took(wait) && took(wait) >= took(led), "{call:?} {wait:?} {led:?}");
}

fn assert_tells_no_secret(collector: &Collector) {
    let told = format!("{:?}", collector.received.lock());
    assert!(told.contains("ratchet.outcome"), "{told}");
    assert!(!told.contains(&KEY.to_string()) && !told.contains(TOKEN), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_call_is_one_trace_of_both_nodes_within_the_span_of_its_caller() {
    let collector = Collector::default();
    let listening = collector.listen();
    let cluster = Cluster::start(3, traced(listening.address)).await;
    let leader = cluster.leader().await;
    let asked = other_than(leader);
    let mut client = cluster.client(asked);
    client.sequencer.next(in_trace(next(), TRACE, "01")).await.expect("a number");
    let spans = collector.spans_of(TRACE, 3).await;
    assert_forwarded(&spans, [asked, leader], "ratchet.v1.Sequencer/Next");
    print_received(&spans);

    // Each message of a stream is a call of its own, in the trace of the stream.
    let trace = TRACE.replace("0a", "0b");
    let message = || NextManyRequest {
        namespace: "book".to_owned(),
        ids: vec![KEY],
        timeout_ms: PATIENCE.as_millis() as u64,
        ..NextManyRequest::default()
    };
    let messages = tokio_stream::iter([message(), message()]);
    let answers = client.sequencer.next_many(in_trace(messages, &trace, "01")).await;
    let mut answers = answers.expect("a stream").into_inner();
    while let Some(answer) = answers.message().await.expect("an answer") {
        assert_eq!(answer.failure, None);
    }
    let spans = collector.spans_of(&trace, 6).await;
    let call_ids = |spans: &[Received]| -> Vec<String> {
        let calls = spans.iter().filter(|one| hex(&one.span.parent_span_id) == CALLER);
        calls.map(|one| hex(&one.span.span_id)).collect()
    };
    let calls = call_ids(&spans);
    assert_eq!(calls.len(), 2);
    for call in calls {
        let is_of =
            |one: &&Received, parents: &[String]| parents.contains(&hex(&one.span.parent_span_id));
        let wait = spans.iter().find(|one| is_of(one, slice::from_ref(&call))).expect("a wait");
        let led = spans.iter().find(|one| is_of(one, &[hex(&wait.span.span_id)])).expect("a call");
        let asking = spans.iter().find(|one| hex(&one.span.span_id) == call).expect("a call");
        let of_call = [asking, wait, led].map(Received::clone);
        assert_forwarded(&of_call, [asked, leader], "ratchet.v1.Sequencer/NextMany");
    }

    let trace = TRACE.replace("0a", "0c");
    let port = cluster.nodes[&asked].addresses().http.expect("a port");
    let headers = format!("traceparent: 00-{trace}-{CALLER}-01\r\ntracestate: shop=7\r\n");
    let page = http(port, "POST /v1/namespaces/book/keys/918273645546:next", &headers, "").await;
    assert_eq!(page.status, 200, "{}", page.body);
    let spans = collector.spans_of(&trace, 3).await;
    assert_forwarded(&spans, [asked, leader], "ratchet.v1.Sequencer/Next");
    assert_tells_no_secret(&collector);
}

/// For how long a disk hangs under a call. That the call waits for it cannot be awaited.
const HANGS: Duration = Duration::from_millis(50);

/// Whether a call mostly waited for this part, while a disk hung.
fn is_mostly(received: &Received, part: &str) -> bool {
    let waited = text_of(&received.span.attributes, part);
    let waited: f64 = waited.map_or(0.0, |waited| waited.parse().expect("a number"));
    let waited = Duration::from_secs_f64(waited / 1_000.0);
    waited >= HANGS && 2 * waited >= received.took()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_the_leaders_own_disk_is_told_so() {
    let collector = Collector::default();
    let listening = collector.listen();
    let (cluster, disks) = on_disks(1, traced(listening.address)).await;
    let mut key = KEY;
    // Something else may be written just then.
    eventually("a call that mostly waited for the disk", async || {
        // A new key needs a log entry.
        key += 1;
        let trace = format!("{key:032x}");
        let call = in_trace(NextRequest { key: id(key), ..next() }, &trace, "01");
        let mut client = cluster.client(1);
        let hanging = disks[&1].hang_then(Fsync::Succeeds);
        let calling = tokio::spawn(async move { client.sequencer.next(call).await });
        until("the disk hangs", || disks[&1].hanging() > 0).await;
        tokio::time::sleep(HANGS).await;
        drop(hanging);
        calling.await.expect("no panic").expect("a number");
        let spans = collector.spans_of(&trace, 1).await;
        is_mostly(&spans[0], "ratchet.write_ms").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_record_of_the_leaders_disk_is_told_so() {
    let collector = Collector::default();
    let listening = collector.listen();
    let mut cluster = Cluster::configured(1, traced(listening.address));
    let (reads, mut seams) = (Reads::default(), cluster.seams(1));
    seams.storage = reads.under(&seams.storage);
    cluster.start_node_with(1, seams).await;
    cluster.all_answer().await;
    let mut key = KEY;
    eventually("a call that mostly waited for a read", async || {
        // Of a new key nothing is in memory.
        key += 1;
        let trace = format!("{key:032x}");
        let asked = CurrentRequest {
            namespace: "book".to_owned(),
            key: id(key),
            ..CurrentRequest::default()
        };
        let call = in_trace(asked, &trace, "01");
        let mut client = cluster.client(1);
        let hanging = reads.hang();
        let calling = tokio::spawn(async move { client.sequencer.current(call).await });
        until("the read hangs", || reads.hanging() > 0).await;
        tokio::time::sleep(HANGS).await;
        drop(hanging);
        calling.await.expect("no panic").expect("no number was handed out");
        let spans = collector.spans_of(&trace, 1).await;
        is_mostly(&spans[0], "ratchet.read_ms").then_some(())
    })
    .await;
}

tokio::task_local! {
    /// The current span of a task of the application.
    static SPAN: String;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_the_rust_client_is_a_part_of_the_span_in_which_it_is_made() {
    let collector = Collector::default();
    let listening = collector.listen();
    let cluster = Cluster::start(1, traced(listening.address)).await;
    let client = rust_client::builder([cluster.address(1)])
        .traceparent(|| SPAN.try_with(String::clone).ok())
        .build()
        .expect("a client");
    // The call is in no span, over the stream that the others use as well.
    client.next("book", KEY).await.expect("a number");
    let of_task = |task: u64| TRACE.replace("0a", &format!("{task:02x}"));
    let mut tasks = JoinSet::new();
    // At the same time, and of one key: without spans, they would be merged.
    for task in 1..=20 {
        let (client, span) = (client.clone(), format!("00-{}-{CALLER}-01", of_task(task)));
        tasks.spawn(SPAN.scope(span, async move {
            client.next("book", KEY).await.expect("a number");
            client.current("book", KEY).await.expect("an answer");
        }));
    }
    tasks.join_all().await;
    for task in 1..=20 {
        let spans = collector.spans_of(&of_task(task), 2).await;
        let mut names: Vec<&str> = spans.iter().map(|one| one.span.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["ratchet.v1.Sequencer/Current", "ratchet.v1.Sequencer/NextMany"]);
        for one in &spans {
            assert_eq!(hex(&one.span.parent_span_id), CALLER);
            assert_eq!(text_of(&one.span.attributes, "ratchet.keys").as_deref(), Some("1"));
        }
    }
    // Spans come in the order in which they end.
    assert_eq!(collector.received.lock().len(), 2 * 20);
    assert_tells_no_secret(&collector);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_records_nothing_is_not_recorded_and_a_refused_call_is_an_error() {
    let collector = Collector::default();
    let listening = collector.listen();
    let cluster = Cluster::start(1, traced(listening.address)).await;
    let mut client = cluster.client(1);
    client.sequencer.next(in_trace(next(), TRACE, "00")).await.expect("a number");
    client.sequencer.next(Request::new(next())).await.expect("a number");
    let unknown = NextRequest { namespace: "none".to_owned(), ..next() };
    let refused = client.sequencer.next(in_trace(unknown, TRACE, "01")).await;
    refused.expect_err("there is no such namespace");
    // Spans come in the order in which they end.
    let spans = collector.spans_of(TRACE, 1).await;
    assert_eq!(collector.received.lock().len(), 1);
    let status = spans[0].span.status.clone().expect("a status");
    assert_eq!(status.code(), StatusCode::Error);
    assert_eq!(status.message, "NAMESPACE_NOT_FOUND (NOT_FOUND)");

    // It is refused before the node is asked.
    let trace = TRACE.replace("0a", "0c");
    let port = cluster.nodes[&1].addresses().http.expect("a port");
    let headers = format!("traceparent: 00-{trace}-{CALLER}-01\r\n");
    let body = serde_json::json!({ "ids": vec![KEY; 4_097] }).to_string();
    let page = http(port, "POST /v1/namespaces/book:next", &headers, &body).await;
    assert_eq!(page.status, 400, "{}", page.body);
    let spans = collector.spans_of(&trace, 1).await;
    let status = spans[0].span.status.clone().expect("a status");
    assert_eq!(status.message, "INVALID_REQUEST (INVALID_ARGUMENT)");
    assert_eq!(text_of(&spans[0].span.attributes, "ratchet.keys").as_deref(), Some("4097"));

    let trace = TRACE.replace("0a", "0b");
    let mut unknown = in_trace(next(), &trace, "01");
    let token = format!("Bearer {TOKEN}");
    unknown.metadata_mut().insert("authorization", token.parse().expect("a header"));
    let refused = client.sequencer.next(unknown).await.expect_err("nobody knows the token");
    assert_eq!(refused.code(), Code::Unauthenticated);
    collector.spans_of(&trace, 1).await;
    assert_tells_no_secret(&collector);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_slow_or_away_holds_no_call_and_what_it_does_not_take_is_counted() {
    /// How long a node waits for a collector's answer. Then it drops what it sent.
    const EXPORT_MAX: Duration = Duration::from_secs(10);
    let began = Instant::now();
    let holds = Arc::new(Semaphore::new(0));
    let collector = Collector { holds: Some(holds.clone()), ..Collector::default() };
    let listening = collector.listen();
    let all_are_traced = |config: &mut Config| {
        traced(listening.address)(config);
        config.otlp_sample = "1".parse().expect("a sample");
    };
    let cluster = Cluster::start(1, all_are_traced).await;
    let metrics = &cluster.nodes[&1].context().metrics;
    let mut client = cluster.client(1);
    client.next(1).await.expect("a number");
    until("the collector holds a message", || collector.messages.load(Ordering::SeqCst) > 0).await;
    let dropped = metrics.trace_spans_dropped.get();
    assert!(dropped == 0 || began.elapsed() >= EXPORT_MAX, "{dropped}");
    // It has answered nothing: the spans that find no room are dropped, and the calls are answered.
    let mut calls = 0;
    while metrics.trace_spans_dropped.get() == 0 {
        client.next_of_each(vec![1]).await.expect("a number");
        calls += 1;
        assert!(calls < 100_000, "the spans that wait have no bound");
    }
    holds.add_permits(1 << 20);
    until("the spans that waited are sent", || metrics.trace_spans.get() > 0).await;

    let sent = metrics.trace_spans.get();
    drop(listening);
    let before = metrics.trace_spans_dropped.get();
    eventually("spans are dropped: nobody listens", async || {
        client.next(1).await.expect("a number");
        (metrics.trace_spans_dropped.get() > before).then_some(())
    })
    .await;
    assert!(metrics.trace_spans.get() >= sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_go_over_tls_to_a_collector_whose_ca_the_node_was_given_and_to_no_other() {
    let certificates = Certificates::new();
    certificates.node(1, "127.0.0.1", &[]);
    let collector = Collector::default();
    let listening = collector.listen_over_tls(&certificates, 1);
    let address = listening.address;
    let over_tls = |ca: String| {
        move |config: &mut Config| {
            traced(address)(config);
            config.otlp_endpoint = Some(format!("https://{address}"));
            config.otlp_ca = Some(ca.clone().into());
        }
    };
    let cluster = Cluster::start(1, over_tls(certificates.path("ca.crt"))).await;
    let traced_call = in_trace(next(), TRACE, "01");
    cluster.client(1).sequencer.next(traced_call).await.expect("a number");
    collector.spans_of(TRACE, 1).await;

    let others = Certificates::new();
    let cluster = Cluster::start(1, over_tls(others.path("ca.crt"))).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let trace = TRACE.replace("0a", "0b");
    let traced_call = in_trace(next(), &trace, "01");
    cluster.client(1).sequencer.next(traced_call).await.expect("a number");
    until("the span is dropped", || metrics.trace_spans_dropped.get() > 0).await;
    assert_eq!(collector.received.lock().len(), 1, "that of the first node");
}

#[test]
fn a_node_does_not_start_with_a_collector_or_a_sample_that_is_none() {
    for (flag, value, told) in [
        ("--otlp-endpoint", "https://collector:4317", "otlp_ca is not set"),
        ("--otlp-endpoint", "collector:4317", "http://host:port"),
        ("--otlp-endpoint", "http://collector", "http://host:port"),
        ("--otlp-sample", "2", "2 is no part of all calls"),
    ] {
        let mut command = ratchet();
        let dir = tempfile::tempdir().expect("a directory");
        command.args(["start", "--dev", "--data-dir"]).arg(dir.path()).args([flag, value]);
        let ended = command.output().expect("it runs");
        let why = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && why.contains(told), "{flag} {value}: {why}");
        assert!(why.contains(&flag.replace("--", "")) || why.contains("otlp_endpoint"), "{why}");
    }
    let mut command = ratchet();
    let dir = tempfile::tempdir().expect("a directory");
    command.args(["start", "--dev", "--data-dir"]).arg(dir.path());
    command.args(["--otlp-endpoint", "https://collector:4317", "--otlp-ca", "/nowhere.crt"]);
    let ended = command.output().expect("it runs");
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(why.contains("otlp_ca /nowhere.crt: "), "{why}");
    assert_eq!(ended.status.code(), Some(78), "{why}");
    let mut command = ratchet();
    let dir = tempfile::tempdir().expect("a directory");
    let endpoint = "http://me:secret@collector:4317";
    command
        .args(["start", "--dev", "--data-dir"])
        .arg(dir.path())
        .args(["--otlp-endpoint", endpoint]);
    let why = command.output().expect("it runs").stderr;
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("otlp_endpoint") && !why.contains("secret"), "{why}");
}
