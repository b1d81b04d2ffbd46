//! The faults that can be asked for.

use clap::ValueEnum;

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
