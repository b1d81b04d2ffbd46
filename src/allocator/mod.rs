//! The leader's memory: hands out the numbers of one Raft term.
//!
//! # One `Next` in this module
//!
//! 1. [`Term::next`] (`term.rs`) asks the fence (`fence.rs`) whether taking numbers now would surely be
//!    wasted, and enters the term's gate (`gate.rs`), so that a graceful handover can wait for it.
//! 2. `memory/take.rs` finds the key's shard, one of 64, and locks it (`memory/shards.rs`).
//! 3. `shard.rs` finds the key's slot in a table (`key_table.rs`: a `key_table/index.rs` over
//!    `key_table/segments.rs`). A key with a section of its own and the section share one slot
//!    (`shard/own_keys.rs`, `section/own_slot.rs`). Other keys point to their sections
//!    (`shard/shared_keys.rs`); where they lie close together, they have 8 bytes each in a page
//!    (`shard/shared_keys/pages.rs`). The cursor (`section/cursor.rs`) takes the numbers:
//!    `cur_seq += increment x count`. No I/O, no allocation.
//! 4. Once or twice in a step the cursor reaches its fast limit, and the section (`section.rs`) is asked.
//!    It knows which numbers the term owns (`section/owned.rs`). The refill rule (`section/refill.rs`)
//!    says when it asks for a bump of its ceiling, and by how much.
//! 5. If too few numbers are left, the call waits at its section (`section/queued_section.rs`,
//!    `section/pending.rs`). The bumper (`bumper.rs`) proposes one log entry for all sections that ask
//!    while the entry before is under way. The answer is the section's next chunk. It is shared out to the
//!    calls that wait, in the order of their arrival, before any other call takes from it.
//!    At the first touch of a section in the term, its record is looked at before: the term's epoch may have given a
//!    chunk, and then nothing is logged (`Memory::take_first`; `record_reader.rs` reads records that are not in
//!    memory, `checkpointer.rs` writes such sections down later).
//! 6. *Then* the fence is checked. If it fails, the numbers are discarded and counted (`held_numbers.rs`).
//! 7. The numbers are answered, or why there are none (`outcome.rs`).
//!
//! # Why the order of the steps is the safety argument
//!
//! Uniqueness comes from the chunk: it comes from this term's own proposal, a bump or an epoch, or was handed off to
//! it, and no other term can get those numbers. Order comes from the fence of that same term: if a successor had
//! answered before the numbers were taken, the fence, which is checked after they were taken, would fail.
//!
//! Numbers of gapless keys do not come from this memory. `term/gapless.rs` has them taken by log entries, and says why
//! that needs no fence; `term/gapless_calls.rs` has the calls. The replicated table holds what a request id was answered with,
//! for them alone.
//!
//! A [`Term`] starts empty, or with the memory that the term before handed off to it, and is never reused. A node that loses
//! the leadership drops it whole, so a late answer to a proposal of an old term finds nothing to write to. `stage.rs` says
//! through which stages it goes; its gate (`gate.rs`) knows at which it is.
//!
//! # Keys that nobody asks for
//!
//! The releaser (`releaser.rs`) evicts them: when the memory is nearly full, and when nobody asked for a key for long. It logs
//! what was used of their sections. Until that is applied, a section is *being evicted*: a call for it waits. `memory/room.rs`
//! says from when on keys are evicted, and makes new keys wait while the memory is full. A file `eviction.rs` at each level
//! moves the hand that goes around the keys:
//!
//! - `memory/eviction.rs` from shard to shard (`memory/round.rs` says which one is next). It also ends an eviction, once the
//!   log says what was used;
//! - `shard/eviction.rs` from table to table within a shard. It keeps the sections that are being evicted;
//! - `shard/own_keys/eviction.rs` from slot to slot. It evicts the keys that have a section of their own;
//! - `shard/shared_keys/eviction.rs` over slots and sections. It evicts the sections that keys share, with all their keys.
//!
//! # A handover
//!
//! `memory_reader.rs` reads the memory, to be sent to the node that is to lead next, while calls go on changing it.
//! `received_memory.rs` builds the same tables on the other node. Tables note which slots are changed
//! (`key_table/changed_slots.rs`). `part.rs` is what travels.
//!
//! This module uses consensus (to propose bumps, and for the lease), storage (to read records at a first touch, and for
//! `Current`), the domain, and metrics. A file whose first paragraph says "Pure." has no I/O and no tokio, and time is an
//! argument (`tests/architecture` checks it).
//!
//! `listing.rs` reads records and the memory for people to look at, and `hot_keys.rs` knows the keys that get most numbers.
//! `unreported.rs` keeps skipped numbers until an entry of the log tells of them.
//!
//! # The folders
//!
//! A folder uses those in the rows below it (`tests/architecture/rooms.rs`). From the top down, a blank line between two rows:
//!
//! * `listing`: records and the memory, for people to look at.
//!
//! * `term`: the term: its gate, its calls, and its end.
//!
//! * `record_reader`: reads the records that are not in memory.
//! * `releaser`: evicts keys that nobody asks for.
//!
//! * `bumper`: proposes the bumps of all sections that ask.
//! * `checkpointer`: writes down what an epoch gave of sections in use.
//! * `memory_reader`: reads the memory for a successor.
//! * `received_memory`: builds the memory that a leader sends.
//!
//! * `memory`: all keys of a term, in 64 shards.
//!
//! * `shard`: the keys of one shard, and their sections.
//!
//! * `part`: the part of a memory that travels.
//!
//! * `section`: what a term owns of a section, and the calls that wait for more.
//!
//! * `gate`: counts the calls inside, and tells when the last one has left.
//! * `held_numbers`: numbers that were taken and not answered yet.
//!
//! * `backlog`: the sections that wait for their bumps, in the order of need.
//! * `fence`: the check after the take.
//! * `floor`: a call that raises a floor, and its answer.
//! * `hot_keys`: the keys that get most numbers.
//! * `key_table`: the table that finds the slot of a key.
//! * `outcome`: the outcome of a call.
//! * `stage`: the stages of a term.
//! * `unreported`: skipped numbers, until an entry of the log tells of them.
//!
//! # Limits
//!
//! - Keys of a shared section are evicted together, once none of them is asked for. They rise to the highest number among
//!   them.
//! - All numbers of a set come from one leader. Its shards share the load of its cores; one key has one
//!   lock.
//! - The first touch of a section in a term waits for a read of the disk, if the section's record is not in memory. If
//!   the section is new or not live any more, it waits for a bump, which is one round of Raft.
//! - An unclean end of a term skips at most one step of each live section, and what calls that
//!   waited had asked for beyond a step.
//! - A handover looks at every key while the term serves, at most 512 under one lock; and at those that changed
//!   meanwhile once the term is closed.

mod backlog;
mod bumper;
mod checkpointer;
mod fence;
mod floor;
mod gate;
mod held_numbers;
mod hot_keys;
mod key_table;
mod listing;
mod memory;
mod memory_reader;
mod outcome;
mod part;
mod received_memory;
mod record_reader;
mod releaser;
mod section;
mod shard;
mod stage;
mod term;
mod unreported;

pub(crate) use bumper::ENTRY_SECTIONS_MAX;
pub use fence::FenceKind;
pub use floor::{Floor, FloorOf, Raised};
pub use held_numbers::{HeldNumbers, burnt_on_this_thread};
pub use hot_keys::{HotKey, HotKeys};
pub use listing::{
    Explained, ListedSection, ListedSections, explain, list_sections, read_accounts,
};
pub use memory::{KEYS_AT_ONCE, room::WAITING_KEY_BYTES};
pub use memory_reader::{MemoryReader, NotSent};
pub use outcome::{ManyNumbers, ManyUnserved, RefusedPlaces, Unserved, UsedId, Why};
pub use part::{MEMORY_FORMAT, MemoryHeader};
pub use received_memory::{NotReceived, ReceivedMemory};
pub use releaser::MemoryLimits;
pub use section::holding::Holding;
pub use shard::Footprint;
pub use stage::TermStage;
pub use term::{Above, SECTION_COUNTS, Term, TermOptions, gapless::GaplessLimits};

#[cfg(test)]
mod tests;
