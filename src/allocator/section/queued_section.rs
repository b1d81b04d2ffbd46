//! A section and the calls that wait for its next bump.
//!
//! Invariant: while calls wait, no other call takes numbers from the section, and those that wait are
//! served in the order of their arrival.

use tokio::sync::oneshot;

use super::{
    Section, SectionAnswer,
    answers::{RaiseAnswer, TakeAnswer},
    cursor::Cursor,
    pending::{PendingBump, ServedCall, Waiter, Waiters, Want},
    refill::BumpSize,
};
use crate::{
    allocator::floor::{Floor, FloorOf},
    sequence::{CeilingRaise, Key, Namespace, NamespaceConfig, OwnedKey},
    storage::LowDisk,
};

/// A section and its pending bump.
#[derive(Debug)]
pub struct QueuedSection {
    /// The section.
    pub section: Section,
    pending: PendingBump,
}

/// The cursors of a section's keys.
pub trait Cursors {
    /// Lets `act` work with the cursor of a key, whose hash is `hash`. `None` if the key is not there.
    fn with<R>(&mut self, hash: u64, key: Key<'_>, act: impl FnOnce(&mut Cursor) -> R)
    -> Option<R>;
}

/// The cursor of a section's only key.
impl Cursors for Cursor {
    fn with<R>(&mut self, _: u64, _: Key<'_>, act: impl FnOnce(&mut Cursor) -> R) -> Option<R> {
        Some(act(self))
    }
}

impl QueuedSection {
    /// A section that no call waits for.
    pub fn new(section: Section) -> Self {
        QueuedSection { section, pending: PendingBump::default() }
    }

    /// Takes the next `count` (at least 1) numbers of the key at `cursor`, or waits for them. Also answers
    /// whether a bump must be asked for. `hash` is the key's.
    pub fn take(
        &mut self, cursor: &mut Cursor, config: &NamespaceConfig, (hash, key): (u64, Key<'_>),
        count: u64,
    ) -> (TakeAnswer, bool) {
        let take = match self.pending.has_waiters() {
            true => SectionAnswer::TooFew,
            false => self.section.take(cursor, config, count),
        };
        match take {
            SectionAnswer::Range { range, refill } => {
                let bump = refill.is_some_and(|size| self.pending.refill(size));
                (TakeAnswer::Done(Ok(range)), bump)
            }
            SectionAnswer::Refused(why) => (TakeAnswer::Done(Err(why)), false),
            SectionAnswer::TooFew => {
                let (reply, later) = oneshot::channel();
                let bump = self.wait(cursor, (hash, key), Want::Numbers { count, reply });
                (TakeAnswer::Later(later), bump)
            }
        }
    }

    /// Moves the key at `cursor` above `floor`, or waits for that. Otherwise as [`QueuedSection::take`].
    pub fn raise(
        &mut self, cursor: &mut Cursor, config: &NamespaceConfig, key: (u64, Key<'_>), floor: Floor,
    ) -> (RaiseAnswer, bool) {
        // A call that waits was there before: it gets its numbers from below the floor.
        if !self.pending.has_waiters()
            && let Some(raised) = self.section.raise(cursor, config, floor.at_least)
        {
            return (RaiseAnswer::Done(raised), false);
        }
        // As in `wait`.
        cursor.stop_fast_path();
        self.wait_for_floor(FloorOf::Key, key, floor)
    }

    /// Moves all keys of the section above `at_least`, or waits for that. `key` is one of them, which need not be there.
    /// Also answers whether a bump must be asked for.
    pub fn raise_section(
        &mut self, config: &NamespaceConfig, key: (u64, Key<'_>), at_least: u64,
    ) -> (RaiseAnswer, bool) {
        // As in `raise`.
        if !self.pending.has_waiters()
            && let Some(raised) = self.section.raise_section(config, at_least)
        {
            return (RaiseAnswer::Done(raised), false);
        }
        self.wait_for_floor(FloorOf::Section, key, at_least.into())
    }

    /// Makes a call wait until a floor is raised.
    fn wait_for_floor(
        &mut self, of: FloorOf, (hash, key): (u64, Key<'_>), floor: Floor,
    ) -> (RaiseAnswer, bool) {
        let (reply, later) = oneshot::channel();
        let want = Want::Floor { of, floor, reply };
        let key = OwnedKey::from(key);
        let bump = self.pending.wait(Waiter { hash, key, want });
        (RaiseAnswer::Later(later), bump)
    }

    /// Makes a call wait. True if a bump must be asked for.
    fn wait(&mut self, cursor: &mut Cursor, (hash, key): (u64, Key<'_>), want: Want) -> bool {
        // Later calls for this key stand behind this one.
        cursor.stop_fast_path();
        let key = OwnedKey::from(key);
        self.pending.wait(Waiter { hash, key, want })
    }

    /// By how much the section is to be bumped now: enough for a refill that was asked for, and for all
    /// calls that wait. `None` if nobody wants the bump any more.
    pub fn next_bump(
        &mut self, cursors: &mut impl Cursors, namespace: &Namespace,
    ) -> Option<CeilingRaise> {
        let config = &namespace.config;
        let (mut size, waiters) = self.pending.propose()?;
        // The calls for one key use up the same numbers. Of several keys each has the whole chunk.
        let is_one_key = !config.shares_sections();
        let mut counts = 0u64;
        let owned_to = self.section.owned().map_or(0, |owned| owned.ceiling);
        for waiter in waiters {
            let needed = match waiter.want {
                // It is refused: `max` was lowered meanwhile.
                Want::Floor { floor, .. } if floor.at_least > config.max => continue,
                Want::Numbers { count, .. } => {
                    counts = match is_one_key {
                        true => counts.saturating_add(count),
                        false => count,
                    };
                    let left = cursors.with(waiter.hash, waiter.key.as_key(), |cursor| {
                        self.section.left(cursor, config)
                    });
                    let left = left.unwrap_or(0);
                    let unused = counts.max(self.section.step_within_bounds(config));
                    BumpSize::fill(unused, left)
                }
                // A floor above the ceiling uses up all numbers up to `at_least`, if no other key of the section stays below
                // it. Unused are those from there to `reach` then, and one number at least. Otherwise nobody knows here how
                // many are unused: neighbours do not move, or the ceiling has reached the floor already, which only waited
                // behind a call that has left. Calls that wait behind this one ask for a further bump.
                Want::Floor { of, floor, .. } => {
                    let all_pass = is_one_key || of == FloorOf::Section;
                    let uses_all = all_pass && floor.at_least > owned_to;
                    let beyond = (floor.reach - floor.at_least).max(1);
                    BumpSize::floor(floor.reach, if uses_all { beyond } else { u64::MAX })
                }
            };
            size = Some(size.map_or(needed, |size| size.covering(needed)));
        }
        let Some(BumpSize { numbers, unused_max, up_to }) = size else {
            self.pending.end();
            return None;
        };
        let step = match (numbers, up_to) {
            // For floors alone. One of 0 raises nothing: it asks where a key stands. The section exists from then on, also once
            // the log says that no number of it was used. So its record needs a step.
            (0, 1..) => 0,
            (0, 0) | (1.., _) => self.section.step_within_bounds(config),
        };
        Some(CeilingRaise { numbers, unused_max, step, up_to })
    }

    /// Serves the calls that waited for a bump, in their order, and adds them to `served`. True if a
    /// further bump must be asked for.
    pub fn serve(
        &mut self, cursors: &mut impl Cursors, config: &NamespaceConfig,
        served: &mut Vec<ServedCall>,
    ) -> bool {
        let mut waiters = self.pending.end();
        let mut bump = false;
        while let Some(waiter) = waiters.pop_front() {
            // A floor is raised although nobody waits for it any more: the ceiling was raised for it.
            let is_wanted = !waiter.is_gone() || matches!(waiter.want, Want::Floor { .. });
            if !is_wanted {
                continue;
            }
            let Waiter { hash, key, want } = waiter;
            let asked = (hash, key.as_key());
            let (done, refill) = match serve_one(&mut self.section, cursors, config, asked, want) {
                Some(Ok(done)) => done,
                Some(Err(want)) => {
                    waiters.push_front(Waiter { hash, key, want });
                    break;
                }
                None => continue,
            };
            bump |= refill.is_some_and(|size| self.pending.refill(size));
            served.push(done);
        }
        if waiters.is_empty() {
            return bump;
        }
        for waiter in &waiters {
            // An earlier call for the same key may have been served just now and have set the fast
            // limit: later calls would overtake this one.
            cursors.with(waiter.hash, waiter.key.as_key(), Cursor::stop_fast_path);
        }
        self.pending.wait_on(waiters);
        true
    }

    /// Ends the pending bump and drops the calls that wait for it: their namespace is gone.
    pub fn drop_waiters(&mut self) {
        self.pending.end();
    }

    /// Ends the pending bump and refuses the calls that waited for it, which it adds to `served`: the section is new, and
    /// the leader's disk is low.
    pub fn refuse(&mut self, low: LowDisk, served: &mut Vec<ServedCall>) {
        let waiters = self.pending.end().into_iter();
        served.extend(waiters.map(|waiter| waiter.refuse(low)));
    }

    /// How many calls wait while the term has nothing of the section.
    pub fn first_waiters(&self) -> usize {
        match self.section.owned() {
            None => self.pending.waiters(),
            Some(_) => 0,
        }
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.pending.waiters()
    }

    /// True if no bump is pending.
    pub fn is_quiet(&self) -> bool {
        self.pending.is_none()
    }

    /// The calls that wait.
    pub fn into_waiters(mut self) -> Waiters {
        self.pending.end()
    }
}

/// Serves a call that waits, and says what refill the section wants then. Returns the demand if it needs a further
/// bump. `None` if its key is not there.
fn serve_one(
    section: &mut Section, cursors: &mut impl Cursors, config: &NamespaceConfig,
    (hash, key): (u64, Key<'_>), want: Want,
) -> Option<Result<(ServedCall, Option<BumpSize>), Want>> {
    match want {
        Want::Numbers { count, reply } => {
            let take = |cursor: &mut Cursor| section.take(cursor, config, count);
            let (taken, refill) = match cursors.with(hash, key, take)? {
                SectionAnswer::Range { range, refill } => (Ok(range), refill),
                SectionAnswer::Refused(shortage) => (Err(shortage), None),
                SectionAnswer::TooFew => return Some(Err(Want::Numbers { count, reply })),
            };
            let served = ServedCall::Numbers { count, taken, reply };
            Some(Ok((served, refill)))
        }
        Want::Floor { of, floor, reply } => {
            let at_least = floor.at_least;
            let raise = |cursor: &mut Cursor| section.raise(cursor, config, at_least);
            let raised = match of {
                FloorOf::Key => cursors.with(hash, key, raise)?,
                FloorOf::Section => section.raise_section(config, at_least),
            };
            let again = |reply| Want::Floor { of, floor, reply };
            Some(match raised {
                Some(raised) => Ok((ServedCall::Floor { raised, reply }, None)),
                None => Err(again(reply)),
            })
        }
    }
}
