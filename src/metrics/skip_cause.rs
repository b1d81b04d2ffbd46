//! The causes for which numbers were skipped: the values of the label `cause`. Nobody gets such a number later.

label! {
    /// Why numbers were skipped: they will never be handed out.
    SkipCause as "cause" {
        /// The last leader ended without returning its chunks. Per section that skips at most one step
        /// and what waiting calls had asked for beyond it. Counted when an entry writes the section again, as an upper
        /// bound: nobody knows how much of a chunk was used that no entry tells of.
        leader_change,
        /// The fence failed after the numbers were taken, or a call for several keys ended early for another reason.
        fence,
        /// The caller asked for several keys at once, and its deadline passed while some of them waited.
        deadline,
        /// The numbers were taken, and the caller was gone before it got them.
        cancelled,
        /// A key was raised to the greatest number of the section that it shares: in a graceful handover whose successor
        /// could not take the memory, or because nobody asked for the section and it was evicted.
        shared_section,
        /// A key's floor was raised above them (`ratchet raise`, `ratchet import`). Where a whole section was raised, its
        /// numbers are counted once, not for each id: as many as an id without a number in this term passed over.
        floor,
    }
}
