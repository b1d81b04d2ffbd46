//! The faults that a run can ask for, and the needs of each from the cluster.

use clap::ValueEnum;

use crate::cluster::Timings;

/// The faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Nemesis {
    /// No fault.
    None,
    /// kill -9 of any node.
    KillOne,
    /// kill -9 of the leader.
    KillLeader,
    /// kill -9 of all nodes at once.
    KillAll,
    /// kill -9 of any node, which is started again at once, within a lease.
    RestartFast,
    /// SIGSTOP of the leader for longer than its lease, with requests in its sockets.
    PauseLeader,
    /// SIGSTOP of any node.
    PauseOne,
    /// The leader is cut off from its peers and from clients.
    PartitionLeader,
    /// A minority is cut off from the majority.
    PartitionHalves,
    /// Each node reaches its two neighbours only.
    PartitionRing,
    /// One node receives nothing from its peers, or its peers receive nothing from it.
    PartitionOneWay,
    /// The leader is cut off from its peers; clients still reach it.
    PeersCut,
    /// Leases are long. The leader's clock is slow, and it is cut off from one follower, then from the other. A candidate
    /// keeps asking the second follower for its vote, and gets it the moment that follower's promise ends.
    CutInSteps,
    /// Like cut-in-steps, but the second follower is killed and started again within the lease.
    RestartInLease,
    /// Like cut-in-steps with a usual lease, but the second follower's answers take longer than it, and still arrive
    /// when the leader's messages to it no longer do.
    LateAnswers,
    /// Some links are slow.
    SlowLinks,
    /// Some links lose, duplicate and reorder packets.
    FlakyLinks,
    /// One node's clocks run at another rate: at a rate that the lease survives under the `lease` fence, from half to double
    /// speed under the `quorum` fence.
    ClockRate,
    /// The leader's or another node's wall clock jumps by up to six hours, ahead or back.
    WallClock,
    /// All nodes are killed and started again, each with a wall clock that is up to six hours off.
    WrongClocks,
    /// fsync fails with EIO; the node must stop by itself.
    DiskSync,
    /// The disk is full; the node must stop by itself.
    DiskFull,
    /// On the leader alone, fsync takes longer than a lease.
    DiskSlow,
    /// On all nodes, each fsync takes 0.2 to 2 s. Half of the time the leader is killed meanwhile.
    DisksSlow,
    /// One node's disk, mostly the leader's, does not answer an fsync for many seconds; then it does again.
    DiskHangs,
    /// All nodes are killed at once and lose the writes that they had not synced.
    PowerCut,
    /// Like power-cut, on one node or on all. Names of files and directories are lost, too, unless their
    /// directory was synced.
    DiskNames,
    /// A follower loses the end of its log.
    WalTruncate,
    /// One bit of a follower's log is flipped.
    WalFlip,
    /// A follower's data directory is removed.
    DirWiped,
    /// A follower's data directory is replaced by an older copy.
    DirOld,
    /// A follower is away while so much is logged that it can catch up by a snapshot only.
    SnapshotStorm,
    /// A node is added, another one removed.
    Membership,
    /// The leadership is handed over.
    Transfer,
    /// The leadership is handed over while the old leader hears from its peers with a delay.
    TransferSlow,
    /// All nodes are stopped and started in turn.
    Rolling,
    /// On every node, callers send on streams and do not read the answers while the leadership is handed
    /// over; the other callers must not notice.
    SlowReader,
    /// The events that Kubernetes causes to the pods of a manifest: starts, updates, a drain, a lost volume, other addresses,
    /// 3 -> 5 -> 3. It needs --manifest.
    Pods,
    /// Two faults at a time, drawn at random.
    Composed,
}

/// The step of the namespaces under which a fault shows most.
#[derive(Clone, Copy)]
enum Step {
    /// A small step, for most faults: they show most where bumps are frequent.
    Small,
    /// A large step, for deposed leaders: they cannot bump any more, so that they give themselves away only as long as their
    /// chunk lasts.
    Large,
    /// Large for even seeds, small for odd ones.
    BySeed,
}

/// The properties of a nemesis that a run must know before it starts.
#[derive(Clone, Copy)]
struct Profile {
    step: Step,
    changes_leader: bool,
    leaves_majority: bool,
    uses_up_nodes: bool,
    log_keep_bytes: u64,
    timings: Option<Timings>,
}

const STEP_SMALL: u64 = 200;
const STEP_LARGE: u64 = 100_000;

const PLAIN: Profile = Profile {
    step: Step::Small,
    changes_leader: false,
    leaves_majority: true,
    uses_up_nodes: false,
    log_keep_bytes: 50_000,
    timings: None,
};
const CHANGES_LEADER: Profile = Profile { changes_leader: true, ..PLAIN };
/// Timings with the usual ratio, and longer. A node takes longer to start again than a usual lease lasts, and a busy machine
/// misses the few milliseconds between the end of a usual lease and that of the promises.
pub(super) const LONG_LEASE: Timings = Timings { lease_ms: 500, election_timeout_ms: 750 };
/// The applied log is kept short: a node that was away needs a snapshot.
const SHORT_LOG: Profile = Profile { log_keep_bytes: 1_500, ..PLAIN };

impl Nemesis {
    fn profile(self) -> Profile {
        use Nemesis::*;
        match self {
            None | KillOne | RestartFast | WallClock | DiskSync | DiskFull => PLAIN,
            PartitionRing | SlowLinks | FlakyLinks => Profile { leaves_majority: false, ..PLAIN },
            KillLeader | Transfer | Rolling | SlowReader => CHANGES_LEADER,
            KillAll | WrongClocks | PowerCut => {
                Profile { leaves_majority: false, ..CHANGES_LEADER }
            }
            PauseLeader | PartitionLeader | PeersCut | DiskSlow | TransferSlow => {
                Profile { step: Step::Large, ..CHANGES_LEADER }
            }
            CutInSteps | RestartInLease => {
                let timings = Some(LONG_LEASE);
                Profile { step: Step::Large, leaves_majority: false, timings, ..CHANGES_LEADER }
            }
            LateAnswers => Profile { step: Step::Large, leaves_majority: false, ..CHANGES_LEADER },
            PauseOne | PartitionHalves | ClockRate | DiskHangs => {
                Profile { step: Step::Large, ..PLAIN }
            }
            // An election may be under way when the disks become quick, which knows of slow ones.
            PartitionOneWay | DisksSlow => {
                Profile { step: Step::Large, leaves_majority: false, ..PLAIN }
            }
            Composed => Profile { step: Step::BySeed, leaves_majority: false, ..CHANGES_LEADER },
            WalTruncate | WalFlip | DirWiped | DirOld | Membership => {
                Profile { uses_up_nodes: true, ..PLAIN }
            }
            Pods => Profile { leaves_majority: false, uses_up_nodes: true, ..CHANGES_LEADER },
            SnapshotStorm => SHORT_LOG,
            DiskNames => Profile { leaves_majority: false, ..SHORT_LOG },
        }
    }

    /// Whether a majority of nodes lives, with links between them that work, as long as its fault lasts. Then numbers flow
    /// again within a second, as is promised. Otherwise they come back, and nothing says how soon.
    pub fn leaves_majority(self) -> bool {
        self.profile().leaves_majority
    }

    /// Whether its fault ends a process, or pauses one, at one moment, while the others are well.
    pub fn stops_at_once(self) -> bool {
        use Nemesis::*;
        matches!(self, KillOne | KillLeader | RestartFast | PauseOne | PauseLeader)
    }

    /// Whether each of its faults uses up a node that has never run.
    pub fn uses_up_nodes(self) -> bool {
        self.profile().uses_up_nodes
    }

    /// How many bytes of the applied log the nodes keep. A node that lags further behind gets a snapshot.
    pub fn log_keep_bytes(self) -> u64 {
        self.profile().log_keep_bytes
    }

    /// How long leases and promises last; `None`: as usual.
    pub fn timings(self) -> Option<Timings> {
        self.profile().timings
    }

    /// Whether a busy machine hides the effects of its faults, or fails by itself the limits that they are judged by: moments
    /// at the end of a lease, callers that may wait for no more than a second while no process ends, or a disk that is to be
    /// the only slow one.
    pub fn needs_machine(self) -> bool {
        use Nemesis::*;
        matches!(
            self,
            CutInSteps | RestartInLease | LateAnswers | ClockRate | SlowReader | DiskSlow
        )
    }

    /// The step of the namespaces under which it shows most.
    pub fn step(self, seed: u64) -> u64 {
        match self.profile().step {
            Step::Small => STEP_SMALL,
            Step::Large => STEP_LARGE,
            Step::BySeed if seed.is_multiple_of(2) => STEP_LARGE,
            Step::BySeed => STEP_SMALL,
        }
    }

    /// Whether it always changes the leader.
    pub fn changes_leader(self) -> bool {
        self.profile().changes_leader
    }
}
