//! Callers that stop reading, and their effects on the other callers.

use std::{collections::BTreeSet, io, time::Duration};

use rand::RngExt;

use super::{
    fault::{ActiveFault, Fault, Repair},
    injector::Injector,
    kind::Nemesis,
    recovery::Limit,
};
use crate::{
    finding::Finding, history::longest_silence, network::Port, slow_reader::SlowReaders,
    workload::PRODUCT_CLIENT_NODE,
};

/// How long the callers of a node may be without an answer while only slow readers and a graceful handover
/// disturb them. The node itself needs less than a fifth of that.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long a leader that is told to stop may take to end: the node's own limit for answers that nobody
/// reads (5 s), and a margin.
const STOPPING_MAX: Duration = Duration::from_secs(7);
/// A node counts as being asked if it answered within this time.
const RECENT: Duration = Duration::from_secs(1);

/// A handover while streams hang.
struct Handover {
    fault: Fault,
    /// The leader that was stopped for it.
    stopped: Option<Port>,
}

/// The longest time that the callers of one node were without an answer.
struct Silence {
    node: u64,
    lasted: Duration,
}

impl Injector {
    /// Opens streams on every node and does not read their answers.
    pub(super) async fn begin_slow_readers(&mut self) -> ActiveFault {
        let nodes = self.nodes.read().clone();
        let readers = SlowReaders::open(&nodes, &mut self.slow_reader_keys).await;
        let count = readers.count();
        let description = format!("{count} streams hang unread");
        ActiveFault::new(description, Repair::EndSlowReaders(readers), count > 0)
    }

    /// Streams hang on every node while the leadership is handed over, by a transfer or because the leader
    /// is told to stop. Nothing else disturbs.
    pub(super) async fn inject_slow_readers(&mut self) -> io::Result<Vec<Fault>> {
        let from_ns = self.recorder.now();
        let asked = self.recently_asked(from_ns);
        let mut fault = self.begin_slow_readers().await;
        self.wait_fault_duration().await;
        let handover = self.hand_over().await?;
        self.wait_fault_duration().await;
        let to_ns = self.recorder.now();
        let stopped = handover.stopped.map(u64::from);
        let others = asked.into_iter().filter(|node| Some(*node) != stopped);
        let silence = self.longest_silence(others, from_ns, to_ns);
        read_on(&mut fault, &silence).await;
        if silence.lasted > SILENCE_MAX {
            let what = format!(
                "{} had no answer for {} ms; {} ms are allowed",
                callers_of(silence.node),
                silence.lasted.as_millis(),
                SILENCE_MAX.as_millis()
            );
            fault.found(Finding::Silence, Some(what));
        }
        self.repair(fault.take_repair())?;
        if let Some(id) = handover.stopped {
            // Otherwise its silence would count in the next fault.
            let not_back = self.wait_until_back(&[id]).await;
            fault.found(Finding::Node, not_back);
        }
        let unread = self.conclude((Nemesis::SlowReader, Limit::Promised), from_ns, fault).await;
        Ok(vec![unread, handover.fault])
    }

    async fn hand_over(&mut self) -> io::Result<Handover> {
        let from_ns = self.recorder.now();
        let (stopped, nemesis, fault) = if self.rng.random_bool(0.5) {
            let fault = self.transfer().await;
            let failed = (!fault.took_effect).then(|| "the handover failed".to_owned());
            (None, Nemesis::Transfer, fault.with_violation(failed))
        } else {
            let victim = self.leader();
            let fault = self.restart_gracefully(victim).await?;
            (Some(victim), Nemesis::Rolling, fault)
        };
        let fault = Fault {
            nemesis,
            from_ns,
            to_ns: self.recorder.now(),
            description: fault.description,
            took_effect: fault.took_effect,
            violations: fault.violations,
        };
        Ok(Handover { fault, stopped })
    }

    /// Tells the leader to stop, so that it hands over, and starts it again.
    async fn restart_gracefully(&mut self, leader: Port) -> io::Result<ActiveFault> {
        let asked = tokio::time::Instant::now();
        let violation = self.stop(leader, STOPPING_MAX).await;
        let took_ms = asked.elapsed().as_millis();
        self.cluster.spawn(leader)?;
        let since = self.recorder.now();
        // If numbers do not flow again, the check at the end of the fault notices.
        let _ = self.recorder.silent_flow(since, SILENCE_MAX).await;
        let description = format!("leader {leader} told to stop: ended after {took_ms} ms");
        let fault = ActiveFault::new(description, Repair::Nothing, true);
        Ok(fault.with_violation(violation))
    }

    /// The nodes whose callers were answered recently.
    fn recently_asked(&self, now_ns: u64) -> BTreeSet<u64> {
        let since = now_ns.saturating_sub(RECENT.as_nanos() as u64);
        self.recorder.with(|history| {
            let answered = history.answered();
            let recent = answered.filter(|op| (since..=now_ns).contains(&op.returned()));
            recent.map(|op| op.node).collect()
        })
    }

    fn longest_silence(
        &self, nodes: impl Iterator<Item = u64>, from_ns: u64, to_ns: u64,
    ) -> Silence {
        let silences = nodes.map(|node| {
            let lasted = self.recorder.with(|history| {
                let answered = history.answered().filter(|op| op.node == node);
                longest_silence(answered.map(|op| op.returned()), from_ns, to_ns)
            });
            (Duration::from_nanos(lasted), node)
        });
        let (lasted, node) = silences.max().unwrap_or_default();
        Silence { node, lasted }
    }
}

/// Reads the answers of each stream, which shows that it hung until now, and describes the observations.
async fn read_on(fault: &mut ActiveFault, silence: &Silence) {
    let Repair::EndSlowReaders(readers) = &mut fault.repair else {
        return;
    };
    let hung = readers.read_on().await;
    fault.took_effect = hung > 0;
    fault.description.push_str(&format!(
        ", {hung} of them with all answers when read again; the longest silence was {} ms, for {}",
        silence.lasted.as_millis(),
        callers_of(silence.node)
    ));
}

fn callers_of(node: u64) -> String {
    match node {
        PRODUCT_CLIENT_NODE => "the callers with the product's client".to_owned(),
        node => format!("the callers of node {node}"),
    }
}
