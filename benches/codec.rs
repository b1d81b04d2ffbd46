//! Measures the cost of reading and writing messages on the wire and log entries.
//!
//! `cargo bench --bench codec`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;
use ratchet::{
    proto::v1::{NextManyRequest, NextManyResponse, NextRequest, key::Kind},
    sequence::{Bump, CeilingRaise, Command, NamespaceId, SectionId, SectionKey},
    storage::codec,
};

/// How many keys a message or a log entry carries.
const KEYS: u64 = 1_000;

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("wire");
    let request = NextManyRequest {
        id: 7,
        namespace: "book".into(),
        ids: (0..KEYS).collect(),
        ..NextManyRequest::default()
    };
    let response = NextManyResponse {
        id: 7,
        firsts: (0..KEYS).map(|n| 1_000_000 + n).collect(),
        increment: 1,
        ..NextManyResponse::default()
    };
    let one = NextRequest {
        namespace: "book".into(),
        key: Some(ratchet::proto::v1::Key { kind: Some(Kind::Id(1_000_000)) }),
        count: Some(1),
        route_version: 1,
        members_version: Some(1),
        request_id: None,
        retry_window_ms: None,
        made_ms: None,
    };
    let bytes = one.encode_to_vec();
    group.bench_function("read a request for one number", |b| {
        b.iter(|| NextRequest::decode(black_box(&bytes[..])).expect("a request"));
    });
    group.throughput(Throughput::Elements(KEYS));
    let bytes = request.encode_to_vec();
    group.bench_function("read a request for 1 000 keys", |b| {
        b.iter(|| NextManyRequest::decode(black_box(&bytes[..])).expect("a request"));
    });
    group.bench_function("write an answer for 1 000 keys", |b| {
        b.iter(|| black_box(&response).encode_to_vec());
    });
}

fn entries(c: &mut Criterion) {
    let mut group = c.benchmark_group("log entry");
    group.throughput(Throughput::Elements(KEYS));
    let bumps = (0..KEYS).map(|id| Bump {
        section: SectionId { namespace: NamespaceId(1), key: SectionKey::Id(id) },
        raise: CeilingRaise { numbers: 10_000, unused_max: 10_000, step: 10_000, up_to: 0 },
    });
    let command = Command::Bump { bumps: bumps.collect(), skipped: vec![], now_ms: 0 };
    let bytes = codec::encode_record(&command).expect("it fits");
    group.bench_function("write 1 000 bumps", |b| {
        b.iter(|| codec::encode_record(black_box(&command)).expect("it fits"));
    });
    group.bench_function("read 1 000 bumps", |b| {
        b.iter(|| codec::decode_record::<Command>(black_box(&bytes)).expect("a command"));
    });
}

criterion_group!(benches, messages, entries);
criterion_main!(benches);
