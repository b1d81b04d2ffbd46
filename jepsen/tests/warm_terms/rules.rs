//! The protocol's parameters, the margins that can be left out, and the bounds of the search.

/// The protocol's parameters, and the bounds of the search.
#[derive(Clone, Copy)]
pub struct Rules {
    pub nodes: usize,
    /// K: for how many epochs a section stays live after its record was written.
    pub live_epochs: u8,
    /// The steps that a bump may choose from.
    pub steps: &'static [u8],
    /// How many numbers a bump brings beyond a full step, because calls wait for them.
    pub extra: u8,
    /// The namespace's `max`, until it is raised.
    pub max: u8,
    /// How many steps an idle section may skip in all.
    pub idle_steps: u8,
    /// The parts that are searched beside the rest.
    pub with: &'static [Part],
    /// The margins that are left out.
    pub without: &'static [Margin],
    pub check: Check,
    // The bounds: the last term, and the greatest number that is taken.
    pub terms: u8,
    pub numbers: u8,
}

/// A part of the protocol that most searches leave out: each adds states.
#[derive(Clone, Copy, PartialEq)]
pub enum Part {
    /// A section that nobody asks for is evicted, while its term goes on.
    Releases,
    /// Floors are raised, by bumps that bring nothing else.
    Floors,
    /// The namespace is deleted, and created again under its name.
    Deletions,
    /// Nodes keep records in memory beside the table, and a new leader looks there first.
    RecentRecords,
    /// The key is gapless: each number is taken by an entry, and no chunk is given.
    Gapless,
}

/// The property that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A number that is handed out twice.
    Unique,
    /// A number that is not above all that the same term and earlier terms handed out before.
    Order,
    /// A number that is not above all of the same term before it, not above all of earlier terms, or not
    /// below all of later terms, in any order in which they are handed out. `Unique` and `Order` follow.
    Strict,
    /// More skipped numbers than one step for each epoch since the last number, or more than
    /// `idle_steps` steps of a section that nobody touched meanwhile.
    Gap,
    /// An event that must be possible, so that the search is not vacuous.
    Happens(Event),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Numbers of the epochs' chunks were taken in two epochs.
    EpochChunksUsed,
    /// A successor took a number of a chunk that it took over.
    SuccessorWentOn,
    /// A section that was not live any more was bumped.
    BumpedBeyondK,
    Checkpointed,
    /// A leader read a chunk that begins right above a number taken in the same epoch.
    ReturnedUsed,
    /// A call inside took a number of a bump that was under way when the memory was lost.
    TakenOnceAbandoned,
    /// A section that had been evicted was bumped in the same term.
    BumpedOnceReleased,
    /// A floor was raised in two epochs.
    RaisedInTwoEpochs,
    /// The key was bumped after the namespace was deleted and created again.
    BumpedOnceDeleted,
    /// A leader found an epoch's chunk in a record that it had in memory.
    RecentRecordUsed,
    /// Entries took numbers in two epochs.
    TookInTwoEpochs,
}

/// The margins that can be left out. The table in main.rs has the effects of leaving each out.
#[derive(Clone, Copy, PartialEq)]
pub enum Margin {
    // First touches.
    ReadAfterOwnEntry,
    OwnEpoch,
    ReadBeforeBump,
    TouchOnce,
    CurrentBelowOwnEpoch,
    // The arithmetic of a record.
    EarlierEpochsCount,
    SameK,
    NotClipped,
    TrimAboveFloor,
    TrimStaysLive,
    // The ledger.
    WriterAlone,
    NoWriteAfterHandOff,
    EpochAfterHandOffCounts,
    EpochClearsHandOff,
    TakeOverClearsHandOff,
    NamedSuccessor,
    Digest,
    // The end of a term.
    EmptyToHandOff,
    EmptyToTrim,
    BumpsAwaited,
    WritesEndBeforeTrims,
    SentWhole,
    EndsOnce,
    TrimsOrSuccessor,
    TrimsBeforeReturn,
    UsedUpIsTrimmed,
    ClosedForGood,
    // A memory that is lost.
    AbandonedTouchesNothing,
    AbandonedAnswersNoCurrent,
    AbandonedBumpsNothing,
    AbandonedTrimsNothing,
    AbandonedHandsNothingOff,
    AbandonedReturnsNothing,
    // The successor.
    TakesOverWhatItHolds,
    MemoryUsedOnce,
    // `Part::Releases`.
    NothingTakenWhileEvicting,
    ReleaseAwaited,
    ReleaseToWhatWasUsed,
    // `Part::Floors`.
    FloorGivesNoStep,
    RaisedOnceCommitted,
    // `Part::Deletions`.
    TombstoneCountsEpochs,
    // `Part::RecentRecords`.
    WrittenReplaces,
    FillLooksAgain,
    // `Part::Gapless`.
    TakeGivesNoStep,
    TookOnceCommitted,
}

pub const K1: Rules = Rules {
    nodes: 2,
    live_epochs: 1,
    steps: &[1],
    extra: 0,
    max: u8::MAX,
    idle_steps: 2,
    with: &[],
    without: &[],
    check: Check::Strict,
    terms: 5,
    numbers: 5,
};
pub const K2: Rules = Rules { live_epochs: 2, idle_steps: 3, ..K1 };
/// As the program has it (`EPOCHS_LIVE`).
pub const K8: Rules = Rules { live_epochs: 8, idle_steps: 9, ..K1 };

/// With `?`, leaves an action that is not possible.
pub fn possible(yes: bool) -> Option<()> {
    yes.then_some(())
}

impl Rules {
    pub fn keep(&self, margin: Margin) -> bool {
        !self.without.contains(&margin)
    }

    pub fn has(&self, part: Part) -> bool {
        self.with.contains(&part)
    }

    /// Whether the entries that a node has applied while it does not lead can matter.
    pub fn follows_views(&self) -> bool {
        !self.keep(Margin::ReadAfterOwnEntry) || self.has(Part::RecentRecords)
    }

    /// Nobody is elected after this term.
    pub fn is_last(&self, term: u8) -> bool {
        term == self.terms
    }

    /// The checks that must know which epoch the greatest number belongs to.
    pub fn knows_epoch_of_top(&self) -> bool {
        self.check == Check::Gap || self.check == Check::Happens(Event::ReturnedUsed)
    }
}
