//! Tables with millions of sections.

use std::sync::Arc;

use openraft::{EntryPayload, entry::RaftEntry, storage::RaftStateMachine};
use ratchet::{
    clock::BootClock,
    consensus::StateMachine,
    node::Config,
    sequence::{Bump, CeilingRaise, Command, SectionId, SectionKey},
    storage::{Entry, LogId, Store, StoreOptions},
};

use super::eventually;

/// How many sections one entry bumps.
const BUMPS: u64 = 8_192;

/// Fills a stopped node's table, past the log and Raft: by the state machine's own code.
pub async fn fill(config: &Config, sections: u64) {
    let options = StoreOptions::new(Arc::new(BootClock));
    let open = || Store::open(&config.data_dir, "test", config.node_id, options.clone());
    // The node that was stopped may still be letting go of the directory.
    let store = eventually("the directory", async || open().ok()).await;
    let mut machine = StateMachine::open(&store, 1).expect("a table");
    let namespace = machine.view().namespaces().by_name("book").expect("book").id;
    let last = machine.applied_state().await.expect("a table").0;
    let mut last = last.expect("a table in use");
    for first in (0..sections).step_by(BUMPS as usize) {
        let bump = |key| Bump {
            section: SectionId { namespace, key: SectionKey::Id(key) },
            raise: CeilingRaise { numbers: 10_000, unused_max: 10_000, step: 10_000, up_to: 0 },
        };
        let keys = first..sections.min(first + BUMPS);
        last = LogId::new(*last.committed_leader_id(), last.index + 1);
        let command = Command::Bump { bumps: keys.map(bump).collect(), skipped: vec![], now_ms: 0 };
        let entry: Entry = Entry::new(last, EntryPayload::Normal(command));
        let entries = futures::stream::iter([Ok((entry, None))]);
        machine.apply(entries).await.expect("applied");
    }
}
