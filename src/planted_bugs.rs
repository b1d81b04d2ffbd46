//! Bugs that a test build can have, one at a time. They show that the tests of the promise would notice.
//!
//! Invariant: a build without debug assertions, such as a release, has no such bug: there the compiler sees that
//! [`is_planted`] is never true. Another build has one only if `RATCHET_PLANTED_BUG` names it.

use std::{env, sync::OnceLock};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Numbers are answered whatever the fence says.
    NoFence,
    /// The fence is checked before numbers are taken: once for the next 64 requests.
    FenceBeforeTaking,
    /// The leader counts on its lease for as long as its followers keep their promise.
    LeaseNotShortened,
    /// A restarted node takes part in elections at once.
    NoVoteRefusal,
    /// The first chunk of a section in a term is the one that the local table names as bumped last.
    ChunkFromLocalRead,
    /// A chunk that an earlier epoch gave, and that was not written down, is given again.
    EpochNotCounted,
    /// A new leader goes by records that it read before its epoch was applied: they lack what was applied together
    /// with the first entry of its term.
    EpochReadEarly,
    /// An acknowledgement counts from the latest message that was sent, answered or not.
    LeaseFromPipelinedAcknowledgements,
    /// Numbers that a crashed leader left are counted in the accounts as handed out.
    SkipsNotAccounted,
    /// A node that was elected lets more than a second pass before it hands out numbers.
    TermOpensLate,
    /// The leadership is handed over while numbers are still handed out.
    OpenDuringTransfer,
    /// A term hands its memory off to its successor while calls still take numbers.
    HandOffBeforeEmpty,
    /// A node takes over from a term whose memory it does not hold.
    StrangerTakesOver,
    /// Keys in pages that take numbers while a memory is sent to a successor arrive there as they were before.
    PageChangesNotSent,
    /// Keys that are names and take numbers while a memory is sent to a successor arrive there as they were before.
    NameChangesNotSent,
    /// The last number of a key in a page is told to be the floor of its section.
    CurrentOfPageAtFloor,
    /// The numbers that were used of a section are not logged when its key is evicted from the memory.
    ReleaseNotLogged,
    /// The rest of a section's numbers is used up, without a word, when its key is evicted from the memory.
    ReleaseSkipsRest,
    /// A namespace hands out numbers of more keys than its `keys_max`.
    KeysMaxIgnored,
    /// An export tells what was used of a section when it was written, and not its ceiling.
    ExportTellsFloor,
    /// Snapshots lack the sections.
    CeilingMissingFromSnapshot,
    /// Logs and votes are acknowledged without an fsync.
    WriteNotSynced,
    /// Directories are not synced after a file is created or renamed in them.
    NamesNotSynced,
    /// Numbers of gapless keys are answered before the entry that takes them is committed.
    GaplessAnsweredBeforeCommit,
    /// A request id in a gapless namespace is forgotten as soon as the next numbers are taken.
    RequestIdForgotten,
    /// A message whose request id is remembered for a retry window takes numbers again when it is sent again.
    RetryWindowIgnored,
    /// A copy of a message that comes after its request id was forgotten takes numbers.
    LateCopyTaken,
    /// A gapless call without an id is sent to the next leader if the answer of the first one is lost.
    LostCallAskedAgain,
    /// A deleted namespace does not count what the epochs after its last records gave: a namespace that is created again
    /// under its name begins too low.
    TombstoneIgnoresEpochs,
    /// A gapless namespace that is deleted forgets what it handed out: one that is created under its name begins too low.
    GaplessTombstoneForgets,
    /// The records that a new leader finds in memory have the steps that their sections had first.
    StepInMemoryStays,
    /// A raised floor is answered before the ceiling that it needs is committed.
    RaiseBeforeCommit,
    /// After the floor of a section was raised, its keys take what they could take before without asking it.
    SectionFloorLeavesFastPath,
    /// A worker id is leased again before the time up to which its last holder may use it has passed, and from now on.
    WorkerReusedBeforeCeiling,
    /// A node makes ids above the ceiling of its lease, and does not renew it.
    CeilingNotWaitedFor,
    /// A node forgets its worker ids now and then, and goes on with others, within the same unit of time.
    WorkerChangedWithinItsTime,
    /// A node whose ids of the present time are used up begins again with those that it made of it.
    CounterLaps,
    /// The date in ids is that of the leader's clock, without a look at the log.
    DateNotLogged,
    /// The numbers that leaders left unused are counted by every node that applies the entry which accounts for it.
    SkipsCountedByAll,
    /// A leader believes its wall clock, whatever those of a majority show.
    ClockBelievedAtStart,
    /// A leader gives its term up as soon as its disk is slow, whether or not that helps.
    SlowDiskEndsTerm,
    /// A leader keeps its term although its disk hangs, and those of the others do not.
    HungDiskKeepsTerm,
    /// A follower answers heartbeats only when its disk is done with the entries that came before them.
    HeartbeatsWaitForDisk,
}

const NAMES: [(&str, Bug); 43] = [
    ("no-fence", Bug::NoFence),
    ("fence-before-taking", Bug::FenceBeforeTaking),
    ("lease-not-shortened", Bug::LeaseNotShortened),
    ("no-vote-refusal", Bug::NoVoteRefusal),
    ("chunk-from-local-read", Bug::ChunkFromLocalRead),
    ("epoch-not-counted", Bug::EpochNotCounted),
    ("epoch-read-early", Bug::EpochReadEarly),
    ("lease-from-pipelined-acknowledgements", Bug::LeaseFromPipelinedAcknowledgements),
    ("skips-not-accounted", Bug::SkipsNotAccounted),
    ("term-opens-late", Bug::TermOpensLate),
    ("open-during-transfer", Bug::OpenDuringTransfer),
    ("hand-off-before-empty", Bug::HandOffBeforeEmpty),
    ("stranger-takes-over", Bug::StrangerTakesOver),
    ("page-changes-not-sent", Bug::PageChangesNotSent),
    ("name-changes-not-sent", Bug::NameChangesNotSent),
    ("current-of-page-at-floor", Bug::CurrentOfPageAtFloor),
    ("release-not-logged", Bug::ReleaseNotLogged),
    ("release-skips-rest", Bug::ReleaseSkipsRest),
    ("keys-max-ignored", Bug::KeysMaxIgnored),
    ("export-tells-floor", Bug::ExportTellsFloor),
    ("ceiling-missing-from-snapshot", Bug::CeilingMissingFromSnapshot),
    ("write-not-synced", Bug::WriteNotSynced),
    ("names-not-synced", Bug::NamesNotSynced),
    ("gapless-answered-before-commit", Bug::GaplessAnsweredBeforeCommit),
    ("request-id-forgotten", Bug::RequestIdForgotten),
    ("retry-window-ignored", Bug::RetryWindowIgnored),
    ("late-copy-taken", Bug::LateCopyTaken),
    ("lost-call-asked-again", Bug::LostCallAskedAgain),
    ("tombstone-ignores-epochs", Bug::TombstoneIgnoresEpochs),
    ("gapless-tombstone-forgets", Bug::GaplessTombstoneForgets),
    ("step-in-memory-stays", Bug::StepInMemoryStays),
    ("raise-before-commit", Bug::RaiseBeforeCommit),
    ("section-floor-leaves-fast-path", Bug::SectionFloorLeavesFastPath),
    ("worker-reused-before-ceiling", Bug::WorkerReusedBeforeCeiling),
    ("ceiling-not-waited-for", Bug::CeilingNotWaitedFor),
    ("worker-changed-within-its-time", Bug::WorkerChangedWithinItsTime),
    ("counter-laps", Bug::CounterLaps),
    ("date-not-logged", Bug::DateNotLogged),
    ("skips-counted-by-all", Bug::SkipsCountedByAll),
    ("clock-believed-at-start", Bug::ClockBelievedAtStart),
    ("slow-disk-ends-term", Bug::SlowDiskEndsTerm),
    ("hung-disk-keeps-term", Bug::HungDiskKeepsTerm),
    ("heartbeats-wait-for-disk", Bug::HeartbeatsWaitForDisk),
];

/// True if this process has `bug`.
#[inline]
pub fn is_planted(bug: Bug) -> bool {
    static PLANTED: OnceLock<Option<Bug>> = OnceLock::new();
    let planted = || {
        let bug = asked_for().expect("`ratchet start` has checked it");
        bug.inspect(|bug| tracing::warn!(?bug, "THIS NODE HAS A PLANTED BUG"))
    };
    cfg!(debug_assertions) && *PLANTED.get_or_init(planted) == Some(bug)
}

/// The bug that the environment asks for.
///
/// # Errors
/// This build has no such bug. A node that started all the same would be taken for one that has it.
pub fn asked_for() -> Result<Option<Bug>, String> {
    let Some(name) = env::var_os("RATCHET_PLANTED_BUG") else {
        return Ok(None);
    };
    match NAMES.iter().find(|(known, _)| cfg!(debug_assertions) && name == *known) {
        Some((_, bug)) => Ok(Some(*bug)),
        None => Err(format!(
            "RATCHET_PLANTED_BUG is {name:?}, and this build has no such bug: unset it, or name one of src/planted_bugs.rs; a build \
             without debug assertions has none"
        )),
    }
}
