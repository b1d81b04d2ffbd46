//! The ceilings that are kept of all ids of 32 bits in sections of 100 000, as WeChat's seqsvr has them.

use super::*;
use crate::storage::codec;

const SECTION_SIZE: u64 = 100_000;
/// The bytes of a section's key in the table: set, kind, generation, kind, namespace, kind, section.
const KEY_BYTES: usize = 4 + 1 + 4 + 1 + 4 + 1 + 8;

#[tokio::test]
async fn all_ids_of_32_bits_in_sections_of_100_000_have_343_600_bytes_of_ceilings() {
    let dir = TempDir::new().expect("a directory");
    let open = || Store::open(dir.path(), "test", 1, StoreOptions::new(Arc::new(BootClock)));
    let store = open().expect("a store");
    let mut machine = StateMachine::open(&store, 1).expect("a table");
    let view = machine.view();
    let step = 10_000;
    let create = Command::create_namespace(NamespaceConfig {
        section_size: SECTION_SIZE,
        step,
        ..NamespaceConfig::new("uid")
    });
    machine.apply_now(1, [create, Command::BeginEpoch]).await;
    let uids = view.namespaces().by_name("uid").cloned().expect("uids");
    let firsts: Vec<u64> = (0..1 << 32).step_by(SECTION_SIZE as usize).collect();
    let mut logged = 0;
    for entry in bumps_of(&uids, &firsts) {
        logged += codec::encode(&entry).expect("an entry").len();
        machine.apply_now(1, [entry]).await;
    }
    machine.apply_now(2, [Command::BeginEpoch]).await;
    let memory = memory_of(2, view.clone());
    let (mut ceilings, mut records) = (0, 0);
    for id in &firsts {
        let (answer, _) = memory.take(&uids, Key::Id(*id), 1);
        assert_eq!(first_of(&answer), Some(step + 1), "{id}");
        let record = view.section(&uids.section_of(Key::Id(*id)));
        let record = record.expect("a record");
        assert_eq!(record.max_seq, step);
        ceilings += size_of_val(&record.max_seq);
        records += KEY_BYTES + codec::encode_record(&record).expect("a record").len();
    }
    assert_eq!((firsts.len(), ceilings), (42_950, 343_600));
    let footprint = memory.shards().footprint();
    assert_eq!((footprint.keys, footprint.sections), (42_950, 42_950));
    drop((memory, machine, view, store));
    // Opened again, the table is in a file.
    let store = loop {
        match open() {
            // Its writer is still letting go of the directory.
            Err(error) if error.to_string().contains("in use") => tokio::task::yield_now().await,
            opened => break opened.expect("a store"),
        }
    };
    let files = store.disk_usage().expect("measured").table_bytes;
    println!(
        "ceilings: {ceilings} bytes; bumps in log entries: {logged}; keys and records of the table: {records}, on the \
         disk {files}; the leader's memory, with one key in each section: {}",
        footprint.bytes,
    );
    assert!(records < 50 * firsts.len() && footprint.bytes < 300 * firsts.len());
}
