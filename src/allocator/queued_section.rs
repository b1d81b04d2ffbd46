//! A section and the calls that wait for its next bump.
//!
//! Invariant: while calls wait, no other call takes numbers from the section, and those that wait are
//! served in the order of their arrival.

use tokio::sync::oneshot;

use super::{
    cursor::Cursor,
    held::Shortage,
    pending::{Answer, PendingBump, RaiseAnswer, Served, Waiter, Waiters, Want},
    refill::BumpSize,
    section::{Section, Take},
};
use crate::sequence::{Key, Namespace, NamespaceConfig, OwnedKey};

/// A section and its pending bump.
#[derive(Debug)]
pub struct QueuedSection {
    /// The section.
    pub section: Section,
    pending: PendingBump,
}

/// Finds the cursors of a section's keys.
pub trait Cursors {
    /// The cursor of the key that a call waits for.
    fn of(&mut self, waiter: &Waiter) -> Option<&mut Cursor>;
}

/// The cursor of a section's only key.
impl Cursors for Cursor {
    fn of(&mut self, _: &Waiter) -> Option<&mut Cursor> {
        Some(self)
    }
}

impl QueuedSection {
    /// A section that no call waits for.
    pub fn new(section: Section) -> Self {
        QueuedSection {
            section,
            pending: PendingBump::default(),
        }
    }

    /// Takes the next `count` (at least 1) numbers of the key at `cursor`, or waits for them. Also answers
    /// whether a bump must be asked for. `hash` is the key's.
    pub fn take(
        &mut self,
        cursor: &mut Cursor,
        config: &NamespaceConfig,
        (hash, key): (u64, Key<'_>),
        count: u64,
    ) -> (Answer, bool) {
        let take = match self.pending.has_waiters() {
            true => Take::TooFew,
            false => self.section.take(cursor, config, count),
        };
        match take {
            Take::Range { range, refill } => {
                let bump = refill.is_some_and(|size| self.pending.refill(size));
                (Answer::Taken(Ok(range)), bump)
            }
            Take::Exhausted { left } => (Answer::Taken(Err(Shortage::Exhausted { left })), false),
            Take::OverQuota { keys_max } => {
                (Answer::Taken(Err(Shortage::OverQuota { keys_max })), false)
            }
            Take::TooFew => {
                let (reply, later) = oneshot::channel();
                let bump = self.wait(cursor, (hash, key), Want::Numbers { count, reply });
                (Answer::Later(later), bump)
            }
        }
    }

    /// Moves the key at `cursor` above `at_least`, or waits for that. Otherwise as [`QueuedSection::take`].
    pub fn raise(
        &mut self,
        cursor: &mut Cursor,
        config: &NamespaceConfig,
        key: (u64, Key<'_>),
        at_least: u64,
    ) -> (RaiseAnswer, bool) {
        // A call that waits was there before: it gets its numbers from below the floor.
        if !self.pending.has_waiters()
            && let Some(raised) = self.section.raise(cursor, config, at_least)
        {
            return (RaiseAnswer::Done(raised), false);
        }
        let (reply, later) = oneshot::channel();
        let bump = self.wait(cursor, key, Want::Floor { at_least, reply });
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
    pub fn propose_bump(
        &mut self,
        cursors: &mut impl Cursors,
        namespace: &Namespace,
    ) -> Option<BumpSize> {
        let config = &namespace.config;
        let (mut size, waiters) = self.pending.propose()?;
        // The calls for one key use up the same numbers. Of several keys each has the whole chunk.
        let is_one_key = config.section_size == 1;
        let mut counts = 0u64;
        for waiter in waiters {
            let needed = match waiter.want {
                Want::Numbers { count, .. } => {
                    counts = match is_one_key {
                        true => counts.saturating_add(count),
                        false => count,
                    };
                    let left =
                        (cursors.of(waiter)).map_or(0, |cursor| self.section.left(cursor, config));
                    let unused = counts.max(self.section.step_within_bounds(config));
                    BumpSize::fill(unused, left)
                }
                // The key passes over all that it brings, but for the one number that a bump brings at least. Its
                // neighbours in the section do not move. Calls that wait behind it ask for a further bump.
                Want::Floor { at_least, .. } => {
                    BumpSize::floor(at_least, if is_one_key { 1 } else { u64::MAX })
                }
            };
            size = Some(size.map_or(needed, |size| size.covering(needed)));
        }
        if size.is_none() {
            self.pending.end();
        }
        size
    }

    /// Serves the calls that waited for a bump, in their order, and adds them to `served`. True if a
    /// further bump must be asked for.
    pub fn serve(
        &mut self,
        cursors: &mut impl Cursors,
        config: &NamespaceConfig,
        served: &mut Vec<Served>,
    ) -> bool {
        let mut waiters = self.pending.end();
        let mut bump = false;
        while let Some(waiter) = waiters.pop_front() {
            // A floor is raised although nobody waits for it any more: the ceiling was raised for it.
            let is_wanted = !waiter.is_gone() || matches!(waiter.want, Want::Floor { .. });
            let Some(cursor) = cursors.of(&waiter).filter(|_| is_wanted) else {
                continue;
            };
            let (done, refill) = match serve_one(&mut self.section, cursor, config, waiter) {
                Ok(done) => done,
                Err(waiter) => {
                    waiters.push_front(waiter);
                    break;
                }
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
            if let Some(cursor) = cursors.of(waiter) {
                cursor.stop_fast_path();
            }
        }
        self.pending.wait_on(waiters);
        true
    }

    /// Ends the pending bump and drops the calls that wait for it: their namespace is gone.
    pub fn drop_waiters(&mut self) {
        self.pending.end();
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

/// Serves a call that waits, and says what refill the section wants then. Gives it back if it needs a further bump.
fn serve_one(
    section: &mut Section,
    cursor: &mut Cursor,
    config: &NamespaceConfig,
    waiter: Waiter,
) -> Result<(Served, Option<BumpSize>), Waiter> {
    let Waiter { hash, key, want } = waiter;
    match want {
        Want::Numbers { count, reply } => {
            let (taken, refill) = match section.take(cursor, config, count) {
                Take::Range { range, refill } => (Ok(range), refill),
                Take::Exhausted { left } => (Err(Shortage::Exhausted { left }), None),
                Take::OverQuota { keys_max } => (Err(Shortage::OverQuota { keys_max }), None),
                Take::TooFew => {
                    let want = Want::Numbers { count, reply };
                    return Err(Waiter { hash, key, want });
                }
            };
            let served = Served::Numbers {
                count,
                taken,
                reply,
            };
            Ok((served, refill))
        }
        Want::Floor { at_least, reply } => match section.raise(cursor, config, at_least) {
            Some(raised) => Ok((Served::Floor { raised, reply }, None)),
            None => {
                let want = Want::Floor { at_least, reply };
                Err(Waiter { hash, key, want })
            }
        },
    }
}
