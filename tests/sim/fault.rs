//! The kinds of faults.

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Crash,
    CrashLeader,
    /// The leader crashes while its links are slow: nobody else knows the last committed entries.
    CrashFarLeader,
    CrashSome,
    CrashAll,
    /// All followers restart quickly while the leader is cut off: do they keep their promises?
    ForgetPromises,
    IsolateLeader,
    Isolate,
    Halves,
    OneWay,
    SlowLinks,
    Storm,
    Clocks,
    SlowDisk,
    /// The disks of all nodes are slow.
    SlowDisks,
    HangingDisk,
    FailingDisk,
    Transfer,
    /// A transfer, or a stop of the leader, that is hit in the middle.
    HitHandover,
    /// The leader, or any other node, is told to stop.
    Stop,
    Grow,
    Shrink,
}

const ALL: [Fault; 22] = [
    Fault::Crash,
    Fault::CrashLeader,
    Fault::CrashFarLeader,
    Fault::CrashSome,
    Fault::CrashAll,
    Fault::ForgetPromises,
    Fault::IsolateLeader,
    Fault::Isolate,
    Fault::Halves,
    Fault::OneWay,
    Fault::SlowLinks,
    Fault::Storm,
    Fault::Clocks,
    Fault::SlowDisk,
    Fault::SlowDisks,
    Fault::HangingDisk,
    Fault::FailingDisk,
    Fault::Transfer,
    Fault::HitHandover,
    Fault::Stop,
    Fault::Grow,
    Fault::Shrink,
];

/// Some kinds of faults. Half of the runs, at random, have handovers among them.
pub fn some_kinds(rng: &mut StdRng) -> Vec<Fault> {
    let count = rng.random_range(2..=6);
    let mut kinds = Vec::from_iter(ALL.sample(rng, count).copied());
    if rng.random_bool(0.5) {
        kinds.extend([Fault::Transfer, Fault::HitHandover]);
    }
    kinds
}
