//! Measures the cost of a number in the leader's memory, fence included. The term is real: it belongs to
//! a cluster of one node, with a data directory of its own.
//!
//! `cargo bench --bench allocator`

use std::{convert::Infallible, hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::FutureExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    allocator::{FenceKind, GaplessLimits, MemoryLimits, Term, TermOptions},
    clock::BootClock,
    metrics::Metrics,
    node::{Asker, CheckedRequest, Config, Node, Origin, Seams, to_key},
    proto::v1::CurrentRequest,
    sequence::{Key, Namespace, NamespaceConfig, NamespaceId, OwnedKey},
    server,
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, time::Instant};

/// How many keys a message asks for.
const MESSAGE: usize = 1_000;

/// A term whose keys have been asked for once, so that they are warm. Each is so far from the next one.
struct Bench {
    runtime: Runtime,
    node: Option<Node>,
    term: Term,
    /// Its step is so large that no section is bumped again: these benchmarks are about memory.
    namespace: Namespace,
    stride: u64,
    deadline: Instant,
    _dir: TempDir,
}

impl Bench {
    fn new(keys: u64, section_size: u64, stride: u64) -> Bench {
        let runtime = Runtime::new().expect("a runtime");
        let dir = TempDir::new().expect("a temporary directory");
        let config = Config {
            data_dir: dir.path().to_owned(),
            dev: true,
            listen: ([127, 0, 0, 1], 0).into(),
            peer_listen: ([127, 0, 0, 1], 0).into(),
            metrics_listen: None,
            http_listen: None,
            resp_listen: None,
            ..Config::default()
        };
        let (node, term) = runtime.block_on(async {
            let node = server::start_with(config, Seams::default()).await.expect("a node");
            let group = node.context().group.clone();
            // The answer comes once the node leads and the namespaces exist.
            let deadline = Instant::now() + Duration::from_secs(30);
            let answer = node.context().numbers.serve(&book(), Origin::Client, deadline).await;
            answer.expect("an answer");
            let lease = group.leadership().borrow().own.clone();
            let lease = lease.expect("it leads");
            let metrics = Metrics::new();
            let clock = std::sync::Arc::new(BootClock);
            let options = TermOptions {
                fence: FenceKind::Lease,
                memory: MemoryLimits::default(),
                gapless: GaplessLimits {
                    keep: Duration::from_secs(1),
                    bytes_max: 1,
                    count_max: 1_000_000,
                },
            };
            let term = Term::open(group, lease, 1, None, options, clock, metrics);
            (node, term)
        });
        let bench = Bench {
            stride,
            deadline: Instant::now() + Duration::from_secs(3_600),
            // This is the namespace `book` of a fresh cluster, with another step.
            namespace: Namespace::new(
                NamespaceId(1),
                NamespaceConfig { step: 1 << 40, section_size, ..NamespaceConfig::new("book") },
            ),
            runtime,
            node: Some(node),
            term,
            _dir: dir,
        };
        let all: Vec<u64> = (0..keys).map(|key| key * stride).collect();
        for some in all.chunks(65_536) {
            let asked = (bench.term).next_many(
                &bench.namespace,
                some.len(),
                |place| (Key::Id(some[place]), 1),
                |_| Ok::<_, Infallible>(()),
                bench.deadline,
            );
            bench.runtime.block_on(asked).expect("numbers");
        }
        bench
    }

    fn next(&self, key: u64) -> u64 {
        let key = Key::Id(key * self.stride);
        let asked = (self.term).next(&self.namespace, key, 1, self.deadline);
        let range = asked.now_or_never().expect("warm").expect("numbers");
        range.first
    }

    fn next_many(&self, keys: &[u64]) -> Vec<u64> {
        let ask = |place: usize| (Key::Id(keys[place] * self.stride), 1);
        let may_wait = |_| Ok::<_, Infallible>(());
        let asked =
            (self.term).next_many(&self.namespace, keys.len(), ask, may_wait, self.deadline);
        asked.now_or_never().expect("warm").expect("numbers").firsts
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            self.runtime.block_on(node.halt());
        }
    }
}

fn book() -> CheckedRequest<CurrentRequest> {
    let key = to_key(&OwnedKey::Id(0));
    let current = CurrentRequest { namespace: "book".into(), key, ..CurrentRequest::default() };
    CheckedRequest::new(current, Asker::node(1)).expect("a request")
}

fn random_keys(count: usize, below: u64) -> Vec<u64> {
    let mut rng = StdRng::seed_from_u64(1);
    (0..count).map(|_| rng.random_range(0..below)).collect()
}

fn one_at_a_time(c: &mut Criterion) {
    let mut group = c.benchmark_group("take and fence, one thread");
    for (name, keys, section_size, stride) in [
        ("a section per key", 1, 1, 1),
        ("a section per key", 1_000, 1, 1),
        ("a section per key", 1_000_000, 1, 1),
        ("every key of sections of 100 000", 1_000, 100_000, 1),
        ("every key of sections of 100 000", 1_000_000, 100_000, 1),
        ("every 10th key of sections of 100 000", 1_000, 100_000, 10),
        ("every 10th key of sections of 100 000", 1_000_000, 100_000, 10),
    ] {
        let bench = Bench::new(keys, section_size, stride);
        let _entered = bench.runtime.enter();
        let keys_in_turn = random_keys(1 << 20, keys);
        let mut turn = 0;
        group.bench_function(BenchmarkId::new(name, keys), |b| {
            b.iter(|| {
                turn = (turn + 1) % keys_in_turn.len();
                black_box(bench.next(keys_in_turn[turn]))
            });
        });
    }
}

fn many_at_a_time(c: &mut Criterion) {
    let mut group = c.benchmark_group("take and fence, 1 000 keys at a time");
    group.throughput(Throughput::Elements(MESSAGE as u64));
    for keys in [1_000, 1_000_000] {
        let bench = Bench::new(keys, 1, 1);
        let _entered = bench.runtime.enter();
        let keys_in_turn = random_keys(1 << 20, keys);
        let mut messages = keys_in_turn.chunks_exact(MESSAGE).cycle();
        group.bench_function(BenchmarkId::from_parameter(keys), |b| {
            b.iter(|| black_box(bench.next_many(messages.next().expect("it cycles"))));
        });
    }
}

fn fence(c: &mut Criterion) {
    let bench = Bench::new(1, 1, 1);
    let _entered = bench.runtime.enter();
    c.bench_function("the fence alone", |b| {
        b.iter(|| {
            let asked = bench.term.still_leads(bench.deadline).now_or_never();
            assert_eq!(black_box(asked), Some(true));
        });
    });
}

criterion_group!(benches, fence, one_at_a_time, many_at_a_time);
criterion_main!(benches);
