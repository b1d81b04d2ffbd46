//! Callers that stop reading, and what the others may notice of them.

use std::{collections::BTreeSet, io, time::Duration};

use rand::RngExt;

use super::{
    fault::{Begun, Strike, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::{history::longest_silence, slow_reader::SlowReaders};

/// How long the callers of a node may be without an answer while nothing but callers that do not read,
/// and a graceful handover, disturb them. The node itself needs less than a fifth of that.
pub const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long a leader that is told to stop may take to end: the node's own limit for answers that nobody
/// takes (5 s), and some more.
const STOPPED_WITHIN: Duration = Duration::from_secs(7);
/// Whoever was answered within this time before counts as somebody who asks.
const LATELY: Duration = Duration::from_secs(1);

impl Stage {
    /// Streams hang on every node.
    pub(super) async fn begin_slow_readers(&mut self) -> Begun {
        let nodes = self.nodes.read().clone();
        let readers = SlowReaders::hang(&nodes, &mut self.cold_keys).await;
        let what = format!("{} streams hang unread", readers.count());
        let bit = readers.count() > 0;
        Begun::new(what, Wound::SlowReaders(readers), bit)
    }

    /// Streams hang on every node while the leadership is handed over, by a transfer or because the
    /// leader is told to stop; nothing else disturbs.
    pub(super) async fn strike_slow_readers(&mut self) -> io::Result<Vec<Strike>> {
        let from_ns = self.recorder.now();
        let asking = self.asking_lately(from_ns);
        let mut begun = self.begin_slow_readers().await;
        self.hold().await;
        let handing_ns = self.recorder.now();
        let (stopped, nemesis, handover) = if self.rng.random_bool(0.5) {
            let handover = self.transfer().await;
            let failed = (!handover.bit).then(|| "the handover failed".to_owned());
            (None, Nemesis::Transfer, handover.broken(failed))
        } else {
            let (stopped, handover) = self.stop_leader().await?;
            (Some(stopped), Nemesis::Rolling, handover)
        };
        let handover = Strike {
            nemesis,
            from_ns: handing_ns,
            to_ns: self.recorder.now(),
            what: handover.what,
            bit: handover.bit,
            broken: handover.broken,
        };
        self.hold().await;
        let to_ns = self.recorder.now();
        let others = asking.iter().filter(|node| Some(**node) != stopped);
        let silences = others.map(|node| (self.silence(*node, from_ns, to_ns), *node));
        let (silence, node) = silences.max().unwrap_or_default();
        if let Wound::SlowReaders(readers) = &mut begun.wound {
            let left = readers.read_on().await;
            begun.bit = left > 0;
            begun.what.push_str(&format!(
                ", {left} of them with an answer when read again; the longest silence was {} ms, for \
                 {}",
                silence.as_millis(),
                who(node)
            ));
        }
        if silence > SILENCE_MAX {
            begun.broken = Some(format!(
                "{} had no answer for {} ms; {} ms are allowed",
                who(node),
                silence.as_millis(),
                SILENCE_MAX.as_millis()
            ));
        }
        self.end(begun.take_wound()).await?;
        if let Some(id) = stopped.and_then(|node| node.try_into().ok()) {
            // Or it would count as one that falls silent in the next strike.
            begun.broken = begun.broken.or(self.unless_back(&[id]).await);
        }
        let hung = self.over(Nemesis::SlowReader, from_ns, begun).await;
        Ok(vec![hung, handover])
    }

    /// The leader is told to stop, hands over, and is started again.
    async fn stop_leader(&mut self) -> io::Result<(u64, Begun)> {
        let (victim, terms) = (self.leader(), self.monitor.terms_passed());
        let asked = tokio::time::Instant::now();
        self.cluster.terminate(victim);
        let ended = self.cluster.ends(victim, STOPPED_WITHIN).await;
        let took = asked.elapsed();
        let broken = match ended {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("it ended: {status}")),
            None => {
                self.cluster.kill(victim);
                Some(format!(
                    "it did not end within {} s",
                    STOPPED_WITHIN.as_secs()
                ))
            }
        };
        let clean = broken.is_none();
        self.cluster.spawn(victim)?;
        let since = self.recorder.now();
        // What does not flow again is found when the strike is over.
        let _ = tokio::time::timeout(SILENCE_MAX, self.recorder.answered_since(since)).await;
        self.handed_over += u64::from(clean && self.monitor.terms_passed() > terms);
        let what = format!(
            "leader {victim} told to stop: ended after {} ms",
            took.as_millis()
        );
        let begun = Begun::new(what, Wound::Healed, ended.is_some()).broken(broken);
        Ok((u64::from(victim), begun))
    }

    /// The nodes whose callers were answered shortly before.
    fn asking_lately(&self, now_ns: u64) -> BTreeSet<u64> {
        let since = now_ns.saturating_sub(LATELY.as_nanos() as u64);
        self.recorder.with(|history| {
            let answered = history.answered();
            let lately = answered.filter(|op| (since..=now_ns).contains(&op.returned()));
            lately.map(|op| op.node).collect()
        })
    }

    /// The longest time that the callers of a node had no answer.
    fn silence(&self, node: u64, from_ns: u64, to_ns: u64) -> Duration {
        let longest = self.recorder.with(|history| {
            let answered = history.answered().filter(|op| op.node == node);
            longest_silence(answered.map(|op| op.returned()), from_ns, to_ns)
        });
        Duration::from_nanos(longest)
    }
}

/// Whose answers are recorded under that node.
fn who(node: u64) -> String {
    match node {
        0 => "the callers with the product's client".to_owned(),
        node => format!("the callers of node {node}"),
    }
}
