//! Measures how much memory a key costs, and how long a shard's lock is held at most.
//!
//! ```text
//! measure="cargo test --workspace --lib -- --ignored --nocapture --exact"
//! KEYS=10000000 $measure allocator::shard::tests::size::bytes_of_resident_memory_for_each_key
//! KEYS=10000000 $measure allocator::shard::tests::size::bytes_of_resident_memory_for_each_uid_of_dense_sections
//! ```

use std::time::Instant as StdInstant;

use super::*;

/// As many as the memory has.
const SHARDS: usize = 64;
/// How many keys are touched for the first time before any of their bumps is answered.
const WAVE: u64 = 65_536;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1_024
}

#[test]
#[ignore = "it measures: the first comment of this file has the commands"]
fn bytes_of_resident_memory_for_each_key() {
    let keys = std::env::var("KEYS").map_or(1_000_000, |keys| keys.parse().unwrap());
    let namespace = Namespace::new(NamespaceId(1), NamespaceConfig::new("book"));
    let hasher = Hasher::new(1);
    let find = |id| {
        let hash = hasher.key(namespace.id, Key::Id(id));
        (hash, (hash >> 32) as usize % SHARDS)
    };
    let counts = Metrics::new().namespaces().others().shared();
    let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
    let before = resident();
    let mut longest = Duration::ZERO;
    let mut served = Vec::new();
    for wave in (0..keys).step_by(WAVE as usize) {
        let mut waiting = Vec::new();
        for id in wave..(wave + WAVE).min(keys) {
            let (hash, shard) = find(id);
            let began = StdInstant::now();
            shards[shard].insert(&hasher, hash, &namespace, Key::Id(id));
            let taken = shards[shard].take(hash, &namespace, Key::Id(id), 1);
            let (answer, place) = taken.unwrap();
            longest = longest.max(began.elapsed());
            waiting.push((shard, place.unwrap(), answer));
        }
        for (shard, place, _) in &waiting {
            shards[*shard].next_bump(*place, &namespace).unwrap();
        }
        for (shard, place, _answer) in waiting {
            let (old, new) = (0, 10_000);
            let chunk = Chunk { old, new };
            let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
            let shard = &mut shards[shard];
            let change = shard.add_chunk(place, chunk, &namespace.config, now, bump_time);
            assert!(change.is_none());
            assert!(!shard.serve(&hasher, place, &namespace, &mut served));
            served.drain(..).for_each(|one| one.tell(&counts));
        }
    }
    let resident = resident() - before;
    let counted: usize = shards.iter().map(|shard| shard.footprint().bytes).sum();
    let began = StdInstant::now();
    drop(shards);
    println!(
        "{keys} keys: {:.1} bytes of resident memory a key, {:.1} counted; \
         the longest first touch took {longest:?}; dropped in {:?}",
        resident as f64 / keys as f64,
        counted as f64 / keys as f64,
        began.elapsed(),
    );
}

/// Takes one number of each id, in shared sections of 100 000, and tells what they cost.
fn measure_uids(ids: impl Iterator<Item = u64>) {
    let config = NamespaceConfig { section_size: 100_000, ..NamespaceConfig::new("uid") };
    let namespace = Namespace::new(NamespaceId(1), config);
    let hasher = Hasher::new(1);
    let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
    let before = resident();
    for id in ids {
        let key = Key::Id(id);
        let hash = hasher.key(namespace.id, key);
        let section_hash = hasher.section(hash, &namespace, key);
        let shard = &mut shards[(section_hash >> 32) as usize % SHARDS];
        let (place, is_new) = shard.insert(&hasher, hash, &namespace, key);
        if is_new {
            let (old, new) = (0, 10_000);
            let chunk = Chunk { old, new };
            let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
            let change = shard.add_chunk(place, chunk, &namespace.config, now, bump_time);
            assert!(change.is_none());
        }
        let taken = shard.take(hash, &namespace, key, 1);
        assert!(matches!(taken, Some((TakeAnswer::Done(Ok(_)), None))));
    }
    let resident = resident() - before;
    let footprints = shards.iter().map(Shard::footprint);
    let (keys, counted) =
        footprints.fold((0, 0), |sum, part| (sum.0 + part.keys, sum.1 + part.bytes));
    println!(
        "{keys} uids: {:.1} bytes of resident memory a uid, {:.1} counted",
        resident as f64 / keys as f64,
        counted as f64 / keys as f64,
    );
}

fn uids() -> u64 {
    std::env::var("KEYS").map_or(1_000_000, |keys| keys.parse().unwrap())
}

#[test]
#[ignore = "it measures: the first comment of this file has the commands"]
fn bytes_of_resident_memory_for_each_uid_of_dense_sections() {
    measure_uids(0..uids());
}

#[test]
#[ignore = "it measures: the first comment of this file has the commands"]
fn bytes_of_resident_memory_for_each_uid_of_dense_sections_asked_for_in_any_order() {
    // 7 919 is prime and does not divide the number of uids, so that each id comes once.
    assert!(!uids().is_multiple_of(7_919));
    measure_uids((0..uids()).map(|n| n * 7_919 % uids()));
}

#[test]
#[ignore = "it measures: the first comment of this file has the commands"]
fn bytes_of_resident_memory_for_each_uid_of_sparse_sections() {
    measure_uids((0..uids()).map(|n| n * 10));
}
