//! Numbers of many keys, in slices, with one check of the fence.
//!
//! Invariant: what such a call was given is answered, or counted as skipped. A handover skips of it only what a key that
//! comes twice got out of order.

use std::collections::HashSet;

use tokio::{sync::oneshot, time::Instant};

use super::{Term, Why};
use crate::{
    allocator::{
        held_numbers::{Delivery, HeldNumbers},
        memory::{KEYS_AT_ONCE, KeyBatch},
        outcome::{ManyNumbers, ManyUnserved, RefusedPlaces},
        section::answers::TakeAnswer,
    },
    laps::{self, Phase},
    metrics::NamespaceCounts,
    sequence::{Key, Namespace, SkippedBy},
};

impl Term {
    /// Hands out the next numbers of many keys with one check of the fence. `ask` says for each place
    /// which key it is and how many numbers it wants (at least 1). A key gets all of them or, if too few
    /// are left in the namespace, none. A key that comes twice gets two ranges, in the order of its
    /// places.
    ///
    /// Up to [`KEYS_AT_ONCE`] keys are taken at once. After each such slice others get their turn.
    /// `may_wait` is told how many of them wait, before more are taken. If it fails, they may not, and the call ends.
    ///
    /// If the term is closed meanwhile, the call leaves with what it has, so that a handover skips none of it: the keys whose
    /// turn is still to come, and those that wait for too long, get none, with [`Why::LeftToNextLeader`].
    ///
    /// # Errors
    /// As [`Term::next`], for all keys together, but for the keys that [`ManyNumbers`] names with what they are refused for;
    /// and [`ManyUnserved::MayNotWait`]. Numbers that were taken for some of the keys are then burnt, and counted
    /// as skipped.
    pub async fn next_many<'k, R>(
        &self, namespace: &Namespace, keys: usize, ask: impl Fn(usize) -> (Key<'k>, u64),
        mut may_wait: impl FnMut(usize) -> Result<(), R>, deadline: Instant,
    ) -> Result<ManyNumbers, ManyUnserved<R>> {
        assert!(!namespace.config.gapless, "a chunk would leave a gap");
        // The message stays inside the gate while some of its keys wait: the numbers that its other keys
        // took must be answered, or known to be burnt, before a handover tells what was used.
        let _inside = self.enter()?;
        let mut answer = ManyNumbers::of(keys);
        let counts = self.counts(namespace);
        let mut held = HeldNumbers::new(&*counts, 0);
        let mut waiting = Vec::new();
        let asked = KeyBatch { namespace, ask };
        // All that may come between two slices, and why the answer stays right:
        //
        // - Other calls take numbers of keys whose turn is still to come. They are concurrent with this one, which has not
        //   returned: either order is right. That holds for messages of the same stream as well.
        // - A key that comes again in a later slice gets greater numbers: the place before took its own, and what it took
        //   them from only goes on; or it waits, and the later one stands behind it.
        // - The key is evicted. The log says what was used of it before it is taken again. If its namespace was deleted
        //   meanwhile, the log says nothing, and nothing is taken again (`take_unknown`).
        // - The gate closes. The next leader has the numbers of the keys that are left. The handover waits for this call, which
        //   waits `STAY_MAX` at most for numbers that are not there (`in_time`).
        // - The term is lost. The numbers that were taken before fail the fence, which is checked after the last slice; callers
        //   that wait are told.
        // - The caller leaves, or may not wait. `held` counts what was taken.
        for from in (0..keys).step_by(KEYS_AT_ONCE) {
            if from > 0 {
                tokio::task::yield_now().await;
                laps::lap(Phase::Queue);
                if self.memory.gate().is_closed() {
                    (from..keys).for_each(|place| answer.refuse(place, Why::LeftToNextLeader));
                    break;
                }
            }
            let places = from..keys.min(from + KEYS_AT_ONCE);
            let before = waiting.len();
            let note = |place, count, taken| match taken {
                TakeAnswer::Done(taken) => held.add(answer.note(place, taken, count)),
                TakeAnswer::Later(later) => waiting.push((place, count, later)),
            };
            for need in self.memory.take_many(&asked, places, note) {
                self.ask_for(need);
            }
            may_wait(waiting.len() - before).map_err(ManyUnserved::MayNotWait)?;
        }
        if !waiting.is_empty()
            && let Err(error) = self.wait_for_all(waiting, &mut answer, &mut held, deadline).await
        {
            self.memory.skip(namespace, error.skipped_by(), held.release());
            return Err(error.into());
        }
        if let Some(late) = answer.take_out(|why| *why == Why::LeftToNextLeader) {
            let dropped = held.split(drop_disordered(&mut answer, late, &asked.ask));
            self.memory.skip(namespace, SkippedBy::Fence, dropped);
            if held.is_empty() {
                return Err(Why::AskLeader.into());
            }
        }
        answer.sort();
        // Not earlier: if a successor answered before the numbers were taken, the fence fails now.
        let answered = keys - answer.refused();
        self.pass_fence(namespace, held, answered as u64, deadline).await?;
        let taken = |place| (answer.firsts[place] > 0).then(|| (asked.ask)(place));
        self.hot_keys.note_many(namespace, keys, taken);
        Ok(answer)
    }

    /// Waits for the numbers of many keys, and notes what they got. If the term is closed meanwhile, those that have none by
    /// then are late.
    ///
    /// # Errors
    /// As [`Term::in_time`]. The numbers that the others were given are held all the same.
    #[cold]
    async fn wait_for_all(
        &self, waiting: Vec<WaitingKey>, answer: &mut ManyNumbers,
        held: &mut HeldNumbers<&NamespaceCounts>, deadline: Instant,
    ) -> Result<(), Why> {
        let mut left = waiting.into_iter();
        let mut failed = None;
        for (place, count, later) in left.by_ref() {
            match Box::pin(self.wait(later, deadline)).await {
                Ok(taken) => held.add(answer.note(place, taken, count)),
                Err(error) => {
                    failed = Some((place, error));
                    break;
                }
            }
        }
        let Some((place, error)) = failed else {
            return Ok(());
        };
        let is_handover = self.memory.gate().is_closed() && !self.lease.is_void();
        answer.refuse(place, Why::LeftToNextLeader);
        // From behind: of two places of one key the first one was served first.
        for (place, count, mut later) in left.rev() {
            match later.try_recv() {
                Ok(delivery) => held.add(answer.note(place, delivery.accept(), count)),
                Err(_) => answer.refuse(place, Why::LeftToNextLeader),
            }
        }
        match error {
            Why::AskLeader if is_handover => Ok(()),
            error => Err(error),
        }
    }
}

/// A key that waits: its place in the message, how many numbers it wants, and where they come.
type WaitingKey = (usize, u64, oneshot::Receiver<Delivery>);

/// Takes the numbers away that a key has behind a place where it is late: it would get greater ones there. It is late at these
/// places, too. Returns how many numbers they are.
#[cold]
fn drop_disordered<'k>(
    answer: &mut ManyNumbers, late: RefusedPlaces, ask: impl Fn(usize) -> (Key<'k>, u64),
) -> u64 {
    let late: HashSet<usize> = late.places.into_iter().map(|(place, _)| place).collect();
    let (mut late_keys, mut dropped) = (HashSet::new(), 0);
    for place in 0..answer.firsts.len() {
        let (key, count) = ask(place);
        let has_numbers = answer.firsts[place] > 0;
        if late.contains(&place) || has_numbers && late_keys.contains(&key) {
            late_keys.insert(key);
            answer.refuse(place, Why::LeftToNextLeader);
            answer.firsts[place] = 0;
            dropped += if has_numbers { count } else { 0 };
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_late_drops_its_later_numbers_and_the_other_keys_and_its_earlier_ones_stay() {
        // Key 5 got its numbers at place 0, is late at place 2, and was served again at places 3 and 5.
        let asked = [(5, 1), (6, 2), (5, 4), (5, 8), (6, 16), (5, 32), (7, 64), (5, 128)];
        let ask = |place: usize| (Key::Id(asked[place].0), asked[place].1);
        let mut answer = ManyNumbers::of(asked.len());
        answer.firsts = vec![1, 1, 0, 6, 3, 14, 0, 0];
        answer.refuse(7, Why::Exhausted { left: 3 });
        let late_at = |places: &[usize]| RefusedPlaces {
            why: Why::LeftToNextLeader,
            places: places.iter().map(|place| (*place, 0)).collect(),
        };
        assert_eq!(drop_disordered(&mut answer, late_at(&[6, 2]), ask), 8 + 32);
        assert_eq!(answer.firsts, [1, 1, 0, 0, 3, 0, 0, 0]);
        let late = answer.take_out(|why| *why == Why::LeftToNextLeader).expect("late keys");
        assert_eq!(late, late_at(&[2, 3, 5, 6]));
        let exhausted = RefusedPlaces { why: Why::Exhausted { left: 3 }, places: vec![(7, 3)] };
        assert_eq!(answer.refused, [exhausted]);
        let again = drop_disordered(&mut answer, late, ask);
        assert_eq!(again, 0, "nothing is out of order any more");
    }
}
