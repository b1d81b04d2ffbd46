//! The state machine: applies committed entries to the table.
//!
//! Invariants: the index of the applied entries grows one by one, and their terms never go back. A
//! proposal is answered only after its outcome is written.

use std::{collections::BTreeMap, io, sync::Arc};

use futures::{FutureExt, Stream, StreamExt};
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder,
    entry::RaftEntry,
    storage::{EntryResponder, RaftStateMachine},
};

use crate::{
    metrics::{Metrics, SkipCause},
    planted_bugs::{Bug, is_planted},
    sequence::{Bumped, Command, EntryOutcome, NamespaceId, PartTaken, SetId, Table, Taken, apply},
    storage::{
        AppliedTable, AppliedView, ArrivedSnapshot, BeforeApply, BlockingExecutor, Entry,
        IncomingSnapshot, LogId, OutgoingSnapshot, Snapshot, SnapshotData, SnapshotMeta, Store,
        StoreError, StoredMembership, TableChange, Types,
    },
};

/// How many entries are written at once, at most.
const BATCH_ENTRIES_MAX: usize = 64;

/// The state machine of one set.
pub struct StateMachine {
    /// `None` while a blocking task works on the table, and for ever if that task panicked.
    table: Option<AppliedTable>,
    view: AppliedView,
    work: BlockingExecutor,
    before_apply: BeforeApply,
    metrics: Arc<Metrics>,
}

impl StateMachine {
    /// Opens the table of `set`.
    ///
    /// # Errors
    /// If the table cannot be read, or is damaged.
    pub fn open(store: &Arc<Store>, set: SetId) -> Result<Self, StoreError> {
        let table = AppliedTable::open(store, set)?;
        Ok(StateMachine {
            view: table.view(),
            work: store.blocking(),
            before_apply: store.before_apply(),
            metrics: store.metrics().clone(),
            table: Some(table),
        })
    }

    /// A view of the table for readers.
    pub fn view(&self) -> AppliedView {
        self.view.clone()
    }

    fn table(&self) -> Result<&AppliedTable, io::Error> {
        self.table.as_ref().ok_or_else(gone)
    }

    /// Runs `work` on the table, where blocking is allowed.
    async fn with_table<T: Send + 'static>(
        &mut self, work: impl FnOnce(&mut AppliedTable) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, io::Error> {
        let mut table = self.table.take().ok_or_else(gone)?;
        let worked = self.work.run(move || {
            let done = work(&mut table);
            (table, done)
        });
        let (table, done) = worked.await.map_err(io::Error::other)?;
        self.table = Some(table);
        Ok(done?)
    }

    /// Counts what an entry tells of its namespaces.
    fn count(&self, applied: &Applied) {
        let namespaces = self.view.namespaces();
        // Every node enters them in the accounts. The one that proposed the entry counts them in its metrics, although
        // its leadership may be over.
        if self.view.recent_records().leads_last(applied.term) || is_planted(Bug::SkipsCountedByAll)
        {
            for (namespace, numbers) in &applied.skipped {
                let counts = namespaces.counts_of(*namespace, &self.metrics);
                counts.skip(SkipCause::leader_change, *numbers);
            }
        }
        for Ceiling { namespace, ceiling, is_floor, now_ms } in &applied.ceilings {
            let counts = namespaces.counts_of(*namespace, &self.metrics);
            counts.note_ceiling(*now_ms, *ceiling, *is_floor);
        }
    }

    /// A snapshot of the table as it is now.
    async fn snapshot(&self) -> Result<Snapshot, io::Error> {
        let snapshot = self.table()?.snapshot().await?;
        Ok(Snapshot { meta: snapshot.meta().clone(), snapshot: SnapshotData::Outgoing(snapshot) })
    }

    /// Takes in a snapshot that did not come over the network, but from a state machine in this process.
    async fn receive(&self, mut snapshot: OutgoingSnapshot) -> Result<ArrivedSnapshot, io::Error> {
        let mut incoming = IncomingSnapshot::create(&self.view)?;
        while let Some(part) = snapshot.next_part().await {
            incoming.write(&part?)?;
        }
        Ok(incoming.finish()?)
    }
}

fn gone() -> io::Error {
    io::Error::other("the state machine failed before")
}

/// The outcome of an entry.
struct Applied {
    term: u64,
    outcome: EntryOutcome,
    /// How many numbers it counted as skipped by leaders that ended, by namespace.
    skipped: Vec<(NamespaceId, u64)>,
    /// The greatest ceilings of namespaces that it raised.
    ceilings: Vec<Ceiling>,
}

/// The greatest ceiling of a namespace after an entry that raised some.
struct Ceiling {
    namespace: NamespaceId,
    ceiling: u64,
    /// It lies there because a floor was raised.
    is_floor: bool,
    now_ms: u64,
}

/// The greatest ceilings of the namespaces of which an entry raised some. Those of ids count for nothing: most of their numbers
/// stand for times at which nobody asked.
///
/// # Errors
/// [`StoreError`] if the totals of a namespace cannot be read.
///
/// # Panics
/// If the outcome is that of another command.
fn ceilings_after(
    table: &mut TableChange, command: &Command, outcome: &EntryOutcome,
) -> Result<Vec<Ceiling>, StoreError> {
    // The greatest that the entry came to in each namespace, and whether for a floor.
    let mut raised: BTreeMap<NamespaceId, (u64, bool)> = BTreeMap::new();
    let mut note = |namespace, ceiling, is_floor| {
        let greatest = raised.entry(namespace).or_default();
        *greatest = (*greatest).max((ceiling, is_floor));
    };
    let now_ms = match (command, outcome) {
        (Command::Bump { bumps, now_ms, .. }, EntryOutcome::Bumped(answers)) => {
            assert_eq!(bumps.len(), answers.len(), "each bump has an answer");
            for (bump, answer) in bumps.iter().zip(answers) {
                if let Bumped::Chunk(chunk) = answer {
                    note(bump.section.namespace, chunk.new, bump.raise.up_to > 0);
                }
            }
            *now_ms
        }
        (Command::Take { parts, now_ms, .. }, EntryOutcome::Took(answers)) => {
            assert_eq!(parts.len(), answers.len(), "each part has an answer");
            for (part, answer) in parts.iter().zip(answers) {
                let PartTaken::Taken(taken) = answer else { continue };
                let lasts = taken.iter().filter_map(|taken| match taken {
                    Taken::Range(range) => Some(range.last),
                    _ => None,
                });
                lasts.for_each(|last| note(part.namespace, last, false));
            }
            *now_ms
        }
        _ => return Ok(Vec::new()),
    };
    let mut ceilings = Vec::with_capacity(raised.len());
    for (namespace, (greatest, is_floor)) in raised {
        if table.namespace(namespace).is_none_or(|known| known.config.format.is_some()) {
            continue;
        }
        let ceiling = table.totals(namespace)?.ceiling_max;
        let is_floor = is_floor && greatest == ceiling;
        ceilings.push(Ceiling { namespace, ceiling, is_floor, now_ms });
    }
    Ok(ceilings)
}

/// Applies `entries` to the table in one write. Returns what became of each.
fn apply_entries(
    table: &mut AppliedTable, entries: Vec<Entry>,
) -> Result<Vec<Applied>, StoreError> {
    let (mut change, mut meta) = (table.change(), table.meta().clone());
    let mut outcomes = Vec::with_capacity(entries.len());
    for entry in entries {
        let log_id = entry.log_id();
        if let Some(last) = meta.last_applied {
            // Between two batches openraft's own test suite leaves out indexes.
            assert!(
                log_id.index > last.index
                    && (outcomes.is_empty() || log_id.index == last.index + 1),
                "entry {log_id} is applied after entry {last}"
            );
            assert!(
                log_id.committed_leader_id().term >= last.committed_leader_id().term,
                "entry {log_id} is of an earlier term than entry {last}"
            );
        }
        let term = log_id.committed_leader_id().term;
        let (outcome, ceilings) = match entry.payload {
            EntryPayload::Blank => (EntryOutcome::None, Vec::new()),
            EntryPayload::Normal(command) => {
                if let Command::Bump { bumps, .. } = &command {
                    change.read_ahead(bumps.iter().map(|bump| &bump.section))?;
                }
                let outcome = apply(&mut change, term, &command)?;
                let ceilings = ceilings_after(&mut change, &command, &outcome)?;
                (outcome, ceilings)
            }
            EntryPayload::Membership(membership) => {
                let before = meta.membership.membership().nodes().map(|(id, _)| *id);
                change.remove_members(before.filter(|id| membership.get_node(id).is_none()));
                meta.membership = StoredMembership::new(Some(log_id), membership);
                (EntryOutcome::None, Vec::new())
            }
        };
        meta.last_applied = Some(log_id);
        outcomes.push(Applied { term, outcome, skipped: change.take_skipped(), ceilings });
    }
    table.write(change, meta)?;
    Ok(outcomes)
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let meta = self.table()?.meta();
        Ok((meta.last_applied, meta.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(first) = entries.next().await {
            let (entry, responder) = first?;
            let (mut batch, mut responders) = (vec![entry], vec![responder]);
            while batch.len() < BATCH_ENTRIES_MAX
                && let Some(Some(next)) = entries.next().now_or_never()
            {
                let (entry, responder) = next?;
                batch.push(entry);
                responders.push(responder);
            }
            (self.before_apply)().await;
            let outcomes = self.with_table(|table| apply_entries(table, batch)).await?;
            if outcomes.len() != responders.len() {
                let (entries, outcomes) = (responders.len(), outcomes.len());
                return Err(io::Error::other(format!(
                    "{entries} entries have {outcomes} outcomes"
                )));
            }
            for (responder, applied) in responders.into_iter().zip(outcomes) {
                self.count(&applied);
                if let Some(responder) = responder {
                    responder.send(applied.outcome);
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder(Some(self.snapshot().await))
    }

    async fn install_snapshot(
        &mut self, meta: &SnapshotMeta, snapshot: SnapshotData,
    ) -> Result<(), io::Error> {
        let arrived = match snapshot {
            SnapshotData::Arrived(arrived) => arrived,
            SnapshotData::Outgoing(outgoing) => self.receive(outgoing).await?,
        };
        self.with_table(|table| table.install(arrived)).await?;
        let last = meta.last_log_id.map(|last| last.index);
        tracing::info!(log_index = last, "snapshot installed");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        match self.table()?.meta().last_applied {
            Some(_) => Ok(Some(self.snapshot().await?)),
            None => Ok(None),
        }
    }
}

/// Hands one snapshot over. Nothing has to be written before Raft purges what the snapshot covers: the
/// table is on the disk already, in the same log of writes as Raft's log.
pub struct SnapshotBuilder(Option<Result<Snapshot, io::Error>>);

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let built_before = || Err(io::Error::other("the snapshot was handed over before"));
        self.0.take().unwrap_or_else(built_before)
    }
}

#[cfg(test)]
impl StateMachine {
    /// Applies commands as the entries of `term` that follow the last one.
    pub(crate) async fn apply_now(
        &mut self, term: u64, commands: impl IntoIterator<Item = crate::sequence::Command>,
    ) {
        let last = self.applied_state().await.expect("a table").0;
        let entries = (last.map_or(0, |last| last.index + 1)..).zip(commands);
        let entries = entries.map(|(index, command)| {
            let log_id = LogId::new(term.into(), index);
            Ok((Entry::new(log_id, EntryPayload::Normal(command)), None))
        });
        let entries: Vec<_> = entries.collect();
        let applied = self.apply(futures::stream::iter(entries)).await;
        applied.expect("applied");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::BootClock,
        sequence::{Bump, CeilingRaise, ClusterId, Key, NamespaceConfig, SectionId, SectionKey},
        storage::StoreOptions,
    };

    #[tokio::test]
    #[should_panic(expected = "each bump has an answer")]
    async fn an_outcome_that_lacks_an_answer_is_not_passed_over() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let options = StoreOptions::new(Arc::new(BootClock));
        let store = Store::open(dir.path(), "test", 1, options).expect("a store");
        let table = AppliedTable::open(&store, 1).expect("a table");
        let section = SectionId { namespace: NamespaceId(1), key: SectionKey::Id(7) };
        let raise = CeilingRaise { numbers: 100, unused_max: 100, step: 10, up_to: 0 };
        let bumps = vec![Bump { section, raise }];
        let command = Command::Bump { bumps, skipped: vec![], now_ms: 0 };
        let _ = ceilings_after(&mut table.change(), &command, &EntryOutcome::Bumped(vec![]));
    }

    #[tokio::test]
    async fn what_an_entry_accounts_for_is_counted_by_the_node_that_led_its_term_though_nobody_waits_for_it()
     {
        let dir = tempfile::TempDir::new().expect("a directory");
        let options = StoreOptions::new(Arc::new(BootClock));
        let store = Store::open(dir.path(), "test", 1, options).expect("a store");
        let mut machine = StateMachine::open(&store, 1).expect("a table");
        let view = machine.view();
        let create = Command::create_namespace(NamespaceConfig::new("book"));
        machine.apply_now(1, [create, Command::BeginEpoch]).await;
        let book = view.namespaces().by_name("book").cloned().expect("books");
        let section = book.section_of(Key::Id(7));
        let raise = CeilingRaise { numbers: 100, unused_max: 100, step: 10, up_to: 0 };
        let bumps = vec![Bump { section: section.clone(), raise }];
        machine.apply_now(1, [Command::Bump { bumps, skipped: vec![], now_ms: 0 }]).await;
        let checkpoint = || Command::Checkpoint { sections: vec![section.clone()], now_ms: 0 };
        let counted = || store.metrics().skipped(SkipCause::leader_change);
        // Another node leads term 2, and counts what its entry accounts for.
        view.recent_records().leading(1);
        machine.apply_now(2, [Command::BeginEpoch, checkpoint()]).await;
        assert_eq!(counted(), 0);
        // This one leads term 3. The chunks that it gave belong to it.
        view.recent_records().leading(3);
        machine.apply_now(3, [Command::BeginEpoch, checkpoint()]).await;
        assert_eq!(counted(), 10);
        let text = store.metrics().text();
        let sample = "ratchet_namespace_skipped_numbers_total{namespace=\"book\",cause=\"leader_change\"} 10";
        assert!(text.lines().any(|line| line == sample), "{sample} is not in:\n{text}");
        machine.apply_now(4, [Command::BeginEpoch, checkpoint()]).await;
        assert_eq!(counted(), 10);
    }

    #[tokio::test]
    async fn a_snapshot_of_another_cluster_leaves_the_table_as_it_is() {
        let [own, other] = [1, 2].map(|byte| ClusterId::from_random([byte; 16]));
        let dirs = [(); 2].map(|()| tempfile::TempDir::new().expect("a directory"));
        let stores = dirs.each_ref().map(|dir| {
            let options = StoreOptions::new(Arc::new(BootClock));
            Store::open(dir.path(), "test", 1, options).expect("a store")
        });
        let [mut machine, mut elsewhere] =
            stores.each_ref().map(|store| StateMachine::open(store, 1).expect("a table"));
        machine.apply_now(1, [Command::NameCluster(own)]).await;
        elsewhere.apply_now(1, [Command::NameCluster(other), Command::BeginEpoch]).await;
        let before = machine.applied_state().await.expect("a table").0;
        let snapshot = elsewhere.get_current_snapshot().await.expect("a table").expect("entries");
        let refused = machine.install_snapshot(&snapshot.meta, snapshot.snapshot).await;
        let refused = refused.expect_err("another cluster").to_string();
        assert!(refused.contains("cannot replace the table"), "{refused}");
        assert_eq!(machine.applied_state().await.expect("a table").0, before);
        machine.apply_now(1, [Command::BeginEpoch]).await;
        assert_eq!(machine.view().cluster_id(), Some(own));
    }

    #[tokio::test]
    async fn every_node_notes_the_greatest_ceilings_of_namespaces_and_what_raised_them_there() {
        const DAY_MS: u64 = 86_400_000;
        let dir = tempfile::TempDir::new().expect("a directory");
        let options = StoreOptions::new(Arc::new(BootClock));
        let store = Store::open(dir.path(), "test", 1, options).expect("a store");
        let mut machine = StateMachine::open(&store, 1).expect("a table");
        let view = machine.view();
        let create = |name| Command::create_namespace(NamespaceConfig::new(name));
        machine.apply_now(1, [create("book"), create("order"), Command::BeginEpoch]).await;
        let bump = |name: &str, key, up_to, now_ms| {
            let namespaces = view.namespaces();
            let namespace = namespaces.by_name(name).expect("a namespace");
            let section = namespace.section_of(Key::Id(key));
            let raise = CeilingRaise { numbers: 100, unused_max: 100, step: 100, up_to };
            Command::Bump { bumps: vec![Bump { section, raise }], skipped: vec![], now_ms }
        };
        // How many days it takes until a number is reached.
        let days = |limit: u64, now_ms| {
            store.metrics().namespaces().measure(now_ms, |_| Some(limit));
            let text = store.metrics().text();
            let days = |name: &str| {
                let sample =
                    format!("ratchet_namespace_days_left{{namespace=\"{name}\",limit=\"max\"}} ");
                let days = text.lines().find_map(|line| line.strip_prefix(&sample))?;
                Some(days.parse::<f64>().expect("days"))
            };
            ["book", "order"].map(days)
        };
        let first = [bump("book", 1, 0, 0), bump("order", 1, 0, 0), bump("book", 1, 0, DAY_MS)];
        machine.apply_now(1, first).await;
        // It came from 100 to 200 in a day. The other did not rise.
        assert_eq!(days(1_200, DAY_MS), [Some(10.0), None]);
        // Another key is not the fullest, and says nothing.
        machine.apply_now(1, [bump("book", 2, 0, DAY_MS)]).await;
        assert_eq!(days(1_200, DAY_MS), [Some(10.0), None]);
        // A floor brings the limit nearer, and is no rate.
        let floors = [bump("book", 3, 1_000, DAY_MS), bump("order", 1, 1_000, DAY_MS)];
        machine.apply_now(1, floors).await;
        assert_eq!(days(1_200, DAY_MS), [Some(2.0), None]);
    }
}
