//! What can go wrong, one fault at a time or several at once, and the proof that it did.
//!
//! A fault begins, lasts, and ends; some run their whole course in their beginning. Invariant: no
//! fault here breaks more than the promise allows for: what destroys data hits a minority only.

mod disks;
mod edge;
mod links;
mod members;
mod power;
mod processes;
mod readers;

use std::{io, sync::Arc, time::Duration};

use clap::ValueEnum;
use rand::{RngExt, rngs::StdRng};

use crate::{
    cluster::{Cluster, Fence},
    monitor::Monitor,
    network::Port,
    record::Recorder,
    slow_reader::SlowReaders,
    workload::Nodes,
};

/// How long numbers may fail to flow after a fault is over.
pub const RECOVERY: Duration = Duration::from_secs(10);

/// The faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Nemesis {
    /// Nothing goes wrong.
    None,
    /// kill -9 of any node.
    KillOne,
    /// kill -9 of the leader.
    KillLeader,
    /// kill -9 of all at once.
    KillAll,
    /// kill -9, and started again at once, within a lease.
    RestartFast,
    /// SIGSTOP of the leader for longer than its lease, with requests in its sockets.
    PauseLeader,
    /// SIGSTOP of any node.
    PauseOne,
    /// The leader is cut off from all, clients too.
    PartitionLeader,
    /// A minority is cut off from the majority.
    PartitionHalves,
    /// Each node reaches its two neighbours only.
    PartitionRing,
    /// One node is heard of and hears nothing, or the other way round.
    PartitionOneWay,
    /// The leader is cut off from its peers; clients still reach it.
    PeersCut,
    /// The leader, its clock slow, loses first one follower, then the other: what begs for votes
    /// meanwhile gets one the moment that the second follower's promise runs out.
    CutInSteps,
    /// The same, but the second follower is killed and started again within the lease.
    RestartInLease,
    /// The same, but the second follower's answers take longer than a lease, and arrive even when it
    /// is not heard by any more.
    LateAnswers,
    /// Some links take their time.
    SlowLinks,
    /// Some links lose, double and reorder packets.
    FlakyLinks,
    /// One node's clocks run at another rate: within what the lease survives under the `lease`
    /// fence, from half to double speed under the `quorum` fence.
    ClockRate,
    /// One node's wall clock jumps by up to an hour.
    WallClock,
    /// fsync fails with EIO: the node must stop by itself.
    DiskSync,
    /// The disk is full: the node must stop by itself.
    DiskFull,
    /// fsync takes longer than a lease on the leader.
    DiskSlow,
    /// All are killed at once, and what was not synced is gone.
    PowerCut,
    /// The same on one node or on all, where the names of files and directories, too, are gone unless
    /// their directory was synced.
    DiskNames,
    /// The end of a minority's log is cut off.
    WalTruncate,
    /// A bit of a minority's log is flipped.
    WalFlip,
    /// A minority's data directory is emptied.
    DirWiped,
    /// A minority's data directory is replaced by an older copy.
    DirOld,
    /// A follower is away while so much is logged that it must catch up by snapshot.
    SnapshotStorm,
    /// A node is added, another one removed.
    Membership,
    /// The leadership is handed over.
    Transfer,
    /// The leadership is handed over while the old leader hears of its peers with a delay.
    TransferSlow,
    /// All nodes are stopped and started in turn.
    Rolling,
    /// Callers send on streams and do not read the answers, on every node, while the leadership is
    /// handed over: the others must not notice.
    SlowReader,
    /// Two of them at a time, drawn at random.
    Composed,
}

/// What must be mended when a fault ends.
pub(crate) enum Wound {
    Healed,
    Down(Vec<Port>),
    Paused(Port),
    Links,
    Clock(Port),
    LinksAndClock(Port),
    Disk(Port),
    SlowReaders(SlowReaders),
}

/// A fault that happened.
#[derive(Debug, Clone)]
pub struct Strike {
    /// Which.
    pub nemesis: Nemesis,
    /// When it began, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was over.
    pub to_ns: u64,
    /// What was done to whom.
    pub what: String,
    /// Whether it is certain that it happened.
    pub bit: bool,
    /// What the product did that it must not; empty otherwise.
    pub broken: Option<String>,
}

/// What begins to go wrong.
pub(crate) struct Begun {
    what: String,
    wound: Wound,
    bit: bool,
    broken: Option<String>,
}

impl Begun {
    fn new(what: impl Into<String>, wound: Wound, bit: bool) -> Begun {
        Begun {
            what: what.into(),
            wound,
            bit,
            broken: None,
        }
    }

    fn broken(mut self, why: Option<String>) -> Begun {
        self.broken = why;
        self
    }

    fn take_wound(&mut self) -> Wound {
        std::mem::replace(&mut self.wound, Wound::Healed)
    }
}

/// What faults work on.
pub struct Stage {
    /// The processes.
    pub cluster: Cluster,
    /// The history.
    pub recorder: Arc<Recorder>,
    /// Who leads.
    pub monitor: Monitor,
    /// Whom callers call.
    pub nodes: Nodes,
    /// Whom chance comes from.
    pub rng: StdRng,
    /// The members of the cluster.
    pub members: Vec<Port>,
    /// The next node that was never used.
    pub fresh: Port,
    /// How many leader changes were graceful.
    pub handed_over: u64,
    /// How many keys slow readers have asked for.
    pub cold_keys: u64,
}

impl Nemesis {
    /// Whether it uses up a node that was never used, each time.
    pub fn needs_fresh_nodes(self) -> bool {
        use Nemesis::*;
        matches!(self, Membership | WalTruncate | WalFlip | DirWiped | DirOld)
    }

    /// How many bytes of the applied log are to be kept: a node that lags further gets a snapshot.
    pub fn log_keep_bytes(self) -> u64 {
        match self {
            Nemesis::SnapshotStorm | Nemesis::DiskNames => 1_500,
            _ => 50_000,
        }
    }

    /// The step that shows most. A deposed leader that cannot bump any more gives itself away only as
    /// long as its chunk lasts: a large step. Everything else shows most where much is bumped.
    pub fn step(self, seed: u64) -> u64 {
        use Nemesis::*;
        const SMALL: u64 = 200;
        const LARGE: u64 = 100_000;
        match self {
            PauseLeader | PauseOne | PeersCut | CutInSteps | RestartInLease | LateAnswers
            | TransferSlow | PartitionLeader | PartitionHalves | PartitionOneWay | ClockRate => {
                LARGE
            }
            Composed if seed.is_multiple_of(2) => LARGE,
            _ => SMALL,
        }
    }

    /// Whether a leader change is part of it.
    pub fn changes_leader(self) -> bool {
        use Nemesis::*;
        matches!(
            self,
            KillLeader
                | KillAll
                | PauseLeader
                | PartitionLeader
                | PeersCut
                | CutInSteps
                | RestartInLease
                | LateAnswers
                | DiskSlow
                | PowerCut
                | Transfer
                | TransferSlow
                | Rolling
                | SlowReader
                | Composed
        )
    }
}

impl Stage {
    /// Lets one fault run its course, and waits until numbers flow again.
    ///
    /// # Errors
    /// The harness itself cannot go on.
    pub async fn strike(&mut self, nemesis: Nemesis) -> io::Result<Vec<Strike>> {
        if nemesis == Nemesis::Composed {
            return self.strike_two().await;
        }
        if nemesis == Nemesis::SlowReader {
            return self.strike_slow_readers().await;
        }
        let from_ns = self.recorder.now();
        let mut begun = self.begin(nemesis).await?;
        self.hold().await;
        let without_power = match &begun.wound {
            Wound::Down(nodes) if nemesis == Nemesis::DiskNames => nodes.clone(),
            _ => Vec::new(),
        };
        self.end(begun.take_wound()).await?;
        let broken = self.unless_back(&without_power).await;
        begun.broken = begun.broken.or(broken);
        Ok(vec![self.over(nemesis, from_ns, begun).await])
    }

    async fn strike_two(&mut self) -> io::Result<Vec<Strike>> {
        use Nemesis::*;
        // One from each list: what two of one list do would undo each other.
        let mut lists = vec![vec![
            KillOne,
            KillLeader,
            KillLeader,
            KillAll,
            RestartFast,
            PauseLeader,
            PauseOne,
            Transfer,
        ]];
        let mut second = vec![WallClock, SlowReader];
        if self.cluster.preload_works() {
            second.push(ClockRate);
        }
        if self.cluster.network.is_some() {
            second.extend([
                PartitionHalves,
                PartitionOneWay,
                PeersCut,
                SlowLinks,
                FlakyLinks,
            ]);
        }
        if self.cluster.plan.faulty_disks {
            lists[0].extend([PowerCut, DiskNames, DiskSync]);
            second.push(DiskSlow);
        }
        lists.push(second);
        if self.rng.random_bool(0.5) {
            lists.reverse();
        }
        let mut begun = Vec::new();
        for list in lists {
            let nemesis = list[self.rng.random_range(0..list.len())];
            begun.push((nemesis, self.recorder.now(), self.begin(nemesis).await?));
            self.hold().await;
        }
        let mut strikes = Vec::new();
        for (nemesis, from_ns, mut begun) in begun {
            self.end(begun.take_wound()).await?;
            strikes.push((nemesis, from_ns, begun));
        }
        let mut over = Vec::new();
        for (nemesis, from_ns, begun) in strikes {
            over.push(self.over(nemesis, from_ns, begun).await);
        }
        Ok(over)
    }

    async fn over(&mut self, nemesis: Nemesis, from_ns: u64, begun: Begun) -> Strike {
        let to_ns = self.recorder.now();
        let flows = tokio::time::timeout(RECOVERY, self.recorder.answered_since(to_ns)).await;
        let stuck = flows.is_err().then(|| {
            let limit = RECOVERY.as_secs();
            format!("no number within {limit} s after {nemesis:?} was over")
        });
        Strike {
            nemesis,
            from_ns,
            to_ns,
            what: begun.what,
            bit: begun.bit,
            broken: begun.broken.or(stuck),
        }
    }

    /// Everything works again.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn heal(&mut self) -> io::Result<()> {
        if let Some(network) = &self.cluster.network {
            network.mend();
        }
        for id in self.members.clone() {
            self.cluster.resume(id);
            self.mend_disk(id);
            self.set_clock(id, 1.0, 0)?;
            self.cluster.spawn(id)?;
        }
        Ok(())
    }

    async fn begin(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        use Nemesis::*;
        match nemesis {
            None | Composed => Ok(Begun::new("nothing", Wound::Healed, true)),
            KillOne | KillLeader | KillAll | RestartFast | PauseLeader | PauseOne | Rolling => {
                self.begin_process(nemesis).await
            }
            PartitionLeader | PartitionHalves | PartitionRing | PartitionOneWay | PeersCut
            | SlowLinks | FlakyLinks => self.begin_links(nemesis).await,
            CutInSteps | RestartInLease | LateAnswers => self.begin_edge(nemesis).await,
            ClockRate => {
                let (slowest, fastest) = match self.cluster.plan.fence {
                    Fence::Lease => LEASE_RATES,
                    Fence::Quorum => QUORUM_RATES,
                };
                let (victim, rate) = (self.any(), self.rng.random_range(slowest..fastest));
                self.set_clock(victim, rate, 0)?;
                let what = format!("node {victim}'s clocks run at {rate:.2}");
                let bends = self.cluster.bends_clock(victim).await;
                Ok(Begun::new(what, Wound::Clock(victim), bends))
            }
            WallClock => {
                let (victim, off) = (self.any(), self.rng.random_range(-3_600..3_600));
                self.set_clock(victim, 1.0, off)?;
                let what = format!("node {victim}'s wall clock jumps by {off} s");
                let bends = self.cluster.bends_clock(victim).await;
                Ok(Begun::new(what, Wound::Clock(victim), bends))
            }
            PowerCut => Ok(self.cut_power()),
            DiskNames => self.lose_names().await,
            SlowReader => Ok(self.begin_slow_readers().await),
            DiskSync | DiskFull | DiskSlow | WalTruncate | WalFlip | DirWiped | DirOld => {
                self.begin_disk(nemesis).await
            }
            SnapshotStorm | Membership | Transfer | TransferSlow => {
                self.begin_members(nemesis).await
            }
        }
    }

    async fn end(&mut self, wound: Wound) -> io::Result<()> {
        match wound {
            Wound::Healed => {}
            Wound::Down(nodes) => {
                for id in nodes {
                    self.cluster.spawn(id)?;
                }
            }
            Wound::Paused(id) => self.cluster.resume(id),
            Wound::Links => {
                if let Some(network) = &self.cluster.network {
                    network.mend();
                }
            }
            Wound::Clock(id) => self.set_clock(id, 1.0, 0)?,
            Wound::LinksAndClock(id) => {
                if let Some(network) = &self.cluster.network {
                    network.mend();
                }
                self.set_clock(id, 1.0, 0)?;
            }
            Wound::Disk(id) => self.mend_disk(id),
            Wound::SlowReaders(readers) => drop(readers),
        }
        Ok(())
    }

    async fn hold(&mut self) {
        let hold = self.rng.random_range(600..1_800);
        tokio::time::sleep(Duration::from_millis(hold)).await;
    }

    fn set_clock(&mut self, id: Port, rate: f64, wall_offset: i64) -> io::Result<()> {
        if let Some(clock) = &mut self.cluster.node(id).clock {
            clock.set_rate(rate)?;
            clock.set_wall_offset(wall_offset)?;
        }
        Ok(())
    }

    /// Any member that runs.
    fn any(&mut self) -> Port {
        let running: Vec<Port> = self.cluster.running();
        let members = self.members.iter().copied();
        let fit: Vec<Port> = members.filter(|id| running.contains(id)).collect();
        match fit.len() {
            0 => self.members[0],
            many => fit[self.rng.random_range(0..many)],
        }
    }

    /// The leader, or any member where none is known.
    fn leader(&mut self) -> Port {
        let leader = self.monitor.leader().and_then(|id| Port::try_from(id).ok());
        match leader {
            Some(id) if self.members.contains(&id) => id,
            _ => self.any(),
        }
    }

    /// Any member but the leader.
    fn follower(&mut self) -> Port {
        let leader = self.leader();
        let others: Vec<Port> = self
            .members
            .iter()
            .copied()
            .filter(|id| *id != leader)
            .collect();
        match others.len() {
            0 => leader,
            many => others[self.rng.random_range(0..many)],
        }
    }
}

/// Rates of a single node's clocks that the lease fence survives: with a lease of 200 ms, and
/// 300 ms during which followers keep out of elections, it holds while the rates of any two nodes
/// differ by less than 300 / 200 = 1.5.
pub const LEASE_RATES: (f64, f64) = (0.75, 1.4);
/// What is tried under the fence that no clock is part of.
pub const QUORUM_RATES: (f64, f64) = (0.5, 2.0);
