//! The desk, which leases of worker ids are asked of: one task proposes what callers ask. Asks that arrive while an entry is
//! under way are collected into the next one.
//!
//! Invariant: an answer is what the caller's own entry did. Nothing is answered from the table, which is read only to
//! choose a worker id that is free.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::sync::{mpsc, oneshot};

use super::free_workers::FreeWorkers;
use crate::{
    consensus::{Group, TermLease},
    node::wall_clock::ids_time::IdsTime,
    proto::Refusal,
    sequence::{
        AHEAD_MAX_MS, Command, EntryOutcome, NamespaceId, WorkerAct, WorkerAnswer, WorkerAsk,
    },
    storage::read_workers,
};

/// How far a lease reaches above the leader's time, in milliseconds. So long a worker id is not free after its holder
/// is gone, and so long a holder goes on while no leader answers.
pub const AHEAD_MS: u64 = 10_000;
const _: () = assert!(AHEAD_MS <= AHEAD_MAX_MS);

/// How many asks an entry has at most: some 100 KB, and 500 KB with the longest names of holders.
const ENTRY_ASKS_MAX: usize = 4_096;

/// Takes asks for worker ids.
pub struct WorkerDesk {
    calls: mpsc::UnboundedSender<DeskCall>,
}

/// A request for a lease, or a change of one.
#[derive(Debug)]
pub enum DeskRequest {
    /// A lease of any worker id that is free.
    Lease {
        /// The name that the holder gives itself, for the list of workers.
        holder: String,
        /// How many worker ids the namespace has.
        workers: u32,
        /// Whether the holder has one already: then half of them stay free.
        is_further: bool,
    },
    /// A later ceiling.
    Renew {
        /// The worker id.
        worker: u32,
        /// The lease's token.
        token: u64,
    },
    /// A change that depends on neither the table nor the time.
    Act {
        /// The worker id.
        worker: u32,
        /// The change.
        act: WorkerAct,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub enum DeskAnswer {
    /// The caller's entry did this to this worker id.
    Done(u32, WorkerAnswer),
    /// No worker id is free. The first one may be in so many milliseconds.
    NoneFree {
        /// From 1 on.
        in_ms: u64,
    },
    /// A further worker id is not leased: too few are free.
    NoneToSpare,
    /// It was not proposed, or the outcome is not known. Asking again is safe: a lease that nobody was told of is nobody's.
    Unknown,
    /// The table cannot be read. The text says why.
    Unreadable(String),
    /// The leader's clock is not believed.
    Refused(Refusal),
}

/// A request in a term, and where its caller waits.
struct DeskCall {
    lease: Arc<TermLease>,
    namespace: NamespaceId,
    request: DeskRequest,
    reply: oneshot::Sender<DeskAnswer>,
}

impl WorkerDesk {
    /// Opens the desk. Its task ends with it.
    pub fn open(group: Arc<Group>, time: IdsTime) -> Self {
        let (calls, receiver) = mpsc::unbounded_channel();
        let tasks = group.this_node.tasks.clone();
        let clerk = Clerk { group, time };
        tasks.spawn("worker ids", clerk.run(receiver));
        WorkerDesk { calls }
    }

    /// Has a request of a caller carried out in the term of `lease`.
    pub async fn ask(
        &self, lease: &Arc<TermLease>, namespace: NamespaceId, request: DeskRequest,
    ) -> DeskAnswer {
        let (reply, answer) = oneshot::channel();
        let call = DeskCall { lease: lease.clone(), namespace, request, reply };
        match self.calls.send(call) {
            // The task drops a call when the node stops.
            Ok(()) => answer.await.unwrap_or(DeskAnswer::Unknown),
            Err(_) => DeskAnswer::Unknown,
        }
    }
}

/// Does what is asked at the desk.
struct Clerk {
    group: Arc<Group>,
    time: IdsTime,
}

/// Asks that are proposed together.
#[derive(Default)]
struct DeskEntry {
    asks: Vec<WorkerAsk>,
    /// Where the caller of each ask waits.
    replies: Vec<oneshot::Sender<DeskAnswer>>,
}

impl DeskEntry {
    fn add(&mut self, ask: WorkerAsk, reply: oneshot::Sender<DeskAnswer>) {
        self.asks.push(ask);
        self.replies.push(reply);
    }

    /// The worker ids of a namespace that are asked for.
    fn busy(&self, namespace: NamespaceId) -> BTreeSet<u32> {
        let asks = self.asks.iter().filter(|ask| ask.namespace == namespace);
        asks.map(|ask| ask.worker).collect()
    }
}

impl Clerk {
    async fn run(self, mut calls: mpsc::UnboundedReceiver<DeskCall>) {
        while let Some(first) = calls.recv().await {
            let mut waiting = vec![first];
            while waiting.len() < ENTRY_ASKS_MAX
                && let Ok(call) = calls.try_recv()
            {
                waiting.push(call);
            }
            self.serve(waiting).await;
        }
    }

    /// Serves the calls of the latest term. Those of earlier terms, and of callers that have gone, are dropped.
    async fn serve(&self, calls: Vec<DeskCall>) {
        let Some(lease) = (calls.iter().map(|call| &call.lease)).max_by_key(|lease| lease.term())
        else {
            return;
        };
        let lease = lease.clone();
        let in_term =
            |call: &DeskCall| call.lease.term() == lease.term() && !call.reply.is_closed();
        let calls: Vec<DeskCall> = calls.into_iter().filter(in_term).collect();
        if calls.is_empty() {
            return;
        }
        let now_ms = match self.time.now_ms(lease.term()) {
            Ok(now_ms) => now_ms,
            Err(why) => {
                // The look at the time has counted one call that is refused.
                self.group.set_metrics.clock_refusals.inc_by(calls.len() as u64 - 1);
                return refuse(calls, &why);
            }
        };
        let DeskEntry { asks, replies } = self.entry_of(calls, now_ms).await;
        if asks.is_empty() {
            return;
        }
        let workers: Vec<u32> = asks.iter().map(|ask| ask.worker).collect();
        let command = Command::Workers { asks, now_ms };
        let proposed = tokio::select! {
            biased;
            proposed = self.group.propose(lease.term(), command) => proposed,
            // A leader that is cut off would wait, and keep the calls of its next term waiting.
            () = lease.until_void() => return,
        };
        match proposed {
            // Every ask has an answer.
            Ok(EntryOutcome::Workers(answers)) if answers.len() == replies.len() => {
                self.group.set_metrics.worker_entries.inc();
                for ((reply, worker), answer) in replies.into_iter().zip(workers).zip(answers) {
                    if let WorkerAnswer::Leased(record) = &answer {
                        let is_sound = record.from_ms <= record.ceiling_ms;
                        assert!(is_sound, "a lease that ends before it begins: {record:?}");
                    }
                    // The caller may have gone. Nobody uses the worker id then.
                    let _ = reply.send(DeskAnswer::Done(worker, answer));
                }
            }
            // The callers see that nobody answers, and look for the leader.
            Ok(outcome) => {
                tracing::error!(?outcome, "worker ids: not the outcome of such an entry")
            }
            Err(error) => tracing::info!(%error, "an entry for worker ids"),
        }
    }

    /// The entry that carries the requests out. Renewals and releases come first, so that nobody is given what they name.
    async fn entry_of(&self, calls: Vec<DeskCall>, now_ms: u64) -> DeskEntry {
        let up_to_ms = now_ms.saturating_add(AHEAD_MS);
        let (mut entry, mut leases) = (DeskEntry::default(), BTreeMap::new());
        for call in calls {
            let (worker, act) = match call.request {
                DeskRequest::Lease { holder, workers, is_further } => {
                    let of_namespace = leases.entry((call.namespace, workers));
                    let of_namespace: &mut Vec<_> = of_namespace.or_default();
                    of_namespace.push((holder, is_further, call.reply));
                    continue;
                }
                DeskRequest::Renew { worker, token } => {
                    (worker, WorkerAct::Renew { token, up_to_ms })
                }
                DeskRequest::Act { worker, act } => (worker, act),
            };
            let namespace = call.namespace;
            let ask = WorkerAsk { namespace, worker, act };
            entry.add(ask, call.reply);
        }
        for ((namespace, workers), leases) in leases {
            let mut free = match read_workers(&self.group.view, namespace).await {
                Ok(last) => FreeWorkers::new(workers, &last, &entry.busy(namespace), now_ms),
                Err(error) => {
                    for (_, _, reply) in leases {
                        // The caller may have gone.
                        let _ = reply.send(DeskAnswer::Unreadable(error.to_string()));
                    }
                    continue;
                }
            };
            for (holder, is_further, reply) in leases {
                if is_further && !free.has_to_spare() {
                    // As above.
                    let _ = reply.send(DeskAnswer::NoneToSpare);
                    continue;
                }
                match free.choose(&holder) {
                    Ok(worker) => {
                        let act = WorkerAct::Lease { holder, up_to_ms };
                        let ask = WorkerAsk { namespace, worker, act };
                        entry.add(ask, reply);
                    }
                    Err(until_ms) => {
                        let until_ms = until_ms.unwrap_or(up_to_ms);
                        let in_ms = until_ms.saturating_sub(now_ms).saturating_add(1);
                        // As above.
                        let _ = reply.send(DeskAnswer::NoneFree { in_ms });
                    }
                }
            }
        }
        entry
    }
}

/// Tells all callers why nothing is done.
fn refuse(calls: Vec<DeskCall>, why: &Refusal) {
    for call in calls {
        // The caller may have gone.
        let _ = call.reply.send(DeskAnswer::Refused(why.clone()));
    }
}
