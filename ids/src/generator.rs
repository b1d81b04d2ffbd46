//! Makes ids for the holder of a worker id. Pure.
//!
//! The holder owns the times in (`from_ms`, ceiling]: nobody else makes ids of that worker at them. A unit of time, a
//! millisecond or a second, belongs to the chunk that its first millisecond lies in. So chunks that do not overlap give
//! ids that differ, and later chunks give greater ids.

use std::ops::Range;

use crate::{
    encode::{EncodeError, Fixed, fitting},
    field::Kind,
    format::Format,
};

/// Makes ids of one worker. Each id is greater than the one before, as long as its caller chooses the same, and unless the
/// format's counter runs on: then ids of one unit of time are in no order.
#[derive(Debug, Clone)]
pub struct Generator {
    epoch_ms: u64,
    tick_ms: u64,
    /// The first millisecond of the format's last unit of time.
    last_ms: u64,
    /// How many ids a unit of time has.
    capacity: u64,
    /// The amount that constants and worker add to each id.
    base: u128,
    /// The amount that one unit of time adds.
    time_place: u128,
    /// The amount that one step of the counter adds.
    stride: u128,
    /// Whether counters go on in the next unit of time where they stood.
    runs_on: bool,
    random: Random,

    ceiling_ms: u64,
    /// The first millisecond of the current unit of time. 0 before the first one.
    tick_first_ms: u64,
    /// The first millisecond of the one after it.
    next_tick_ms: u64,
    /// The id of the current unit of time whose counter is 0.
    tick_base: u128,
    /// One, or one for each value of a parameter.
    counters: Box<[Counter]>,
    /// The unit of time of the last id, by its first millisecond. 0 before the first id.
    used_ms: u64,
}

/// A counter of the ids of a unit of time.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// Its value in the next id.
    next: u64,
    /// How many ids are left of the unit of time that it last counted.
    left: u64,
    /// The first millisecond of that.
    tick_first_ms: u64,
}

/// The field that cannot be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Random {
    place: u128,
    /// How many values it has. 0 if there is no such field.
    size: u64,
}

/// Why there is no id now, and when there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// There are ids from this time on, in milliseconds since 1970.
    Until(u64),
    /// There are ids once the ceiling is higher.
    Ceiling,
    /// Never: the format's last time is used up, or has passed.
    Ended,
}

impl Generator {
    /// Makes ids of `worker` at the times above `from_ms` and up to `ceiling_ms`.
    ///
    /// # Errors
    /// [`EncodeError`] if the format has no worker, or not so many.
    pub fn new(
        format: &Format, worker: u64, from_ms: u64, ceiling_ms: u64,
    ) -> Result<Generator, EncodeError> {
        let field = format.field(Kind::Worker).ok_or(EncodeError::NoWorker)?;
        let base = format.constants + fitting(field, worker)?;
        let random = format.field(Kind::Random);
        let (epoch_ms, tick_ms) = (format.tick_first_ms(0), format.tick_ms());
        let capacity = format.capacity();
        let runs_on = format.counter_runs_on();
        let counter = Counter {
            next: match runs_on {
                true => beginning(worker, from_ms, capacity),
                false => 0,
            },
            left: 0,
            tick_first_ms: 0,
        };
        // There are at most 1 024.
        let counters = format.spec.counted_by().map_or(1, |field| field.size as usize);
        let generator = Generator {
            epoch_ms,
            tick_ms,
            last_ms: format.last_ms() - (tick_ms - 1),
            capacity,
            base,
            time_place: format.time_place(),
            stride: format.field(Kind::Sequence).map_or(0, |field| field.place),
            random: Random {
                place: random.map_or(0, |field| field.place),
                size: random.map_or(0, |field| field.size),
            },
            runs_on,
            ceiling_ms,
            tick_first_ms: 0,
            next_tick_ms: 0,
            tick_base: base,
            counters: vec![counter; counters].into(),
            used_ms: 0,
        };
        // Nothing is made at the epoch itself.
        let next_tick_ms = generator.unit_after(from_ms);
        Ok(Generator { next_tick_ms, ..generator })
    }

    /// Raises the ceiling. A lower one is ignored: the leased time stays leased.
    pub fn extend(&mut self, ceiling_ms: u64) {
        self.ceiling_ms = self.ceiling_ms.max(ceiling_ms);
    }

    /// Up to which time ids may be made, in milliseconds since 1970.
    pub fn ceiling_ms(&self) -> u64 {
        self.ceiling_ms
    }

    /// The greatest time in an id that was made, in milliseconds since 1970; 0 if there is none. Of a second it is the
    /// first millisecond. A generator that goes on above it makes no id twice.
    pub fn used_ms(&self) -> u64 {
        self.used_ms
    }

    /// Takes up to `count_max` ids with the fields that their caller chose, all of one unit of time: as many as that has left,
    /// or as there are until a counter that runs on comes to 0, and at least 1 (none if `count_max` is 0). If `now_ms` goes
    /// back, the ids go on in the last unit of time.
    ///
    /// # Errors
    /// [`NotYet`] if there is no id at `now_ms`.
    #[inline]
    pub fn take(&mut self, now_ms: u64, fixed: Fixed, count_max: u64) -> Result<Run, NotYet> {
        if now_ms >= self.next_tick_ms {
            self.enter(now_ms)?;
        }
        // Values that were fixed for another format may name a counter that is not there.
        let last = self.counters.len() - 1;
        let counter = &mut self.counters[fixed.counter.min(last)];
        if counter.tick_first_ms != self.tick_first_ms {
            counter.enter(self.tick_first_ms, self.capacity, self.runs_on);
        }
        if counter.left == 0 {
            return Err(self.when(self.next_tick_ms));
        }
        let counters = counter.take(count_max, self.capacity);
        if !counters.is_empty() {
            self.used_ms = self.tick_first_ms;
        }
        Ok(Run {
            base: self.tick_base + fixed.id,
            stride: self.stride,
            counters,
            random: self.random,
        })
    }

    /// Goes to the unit of time that `now_ms`, which lies after the current one, is in.
    fn enter(&mut self, now_ms: u64) -> Result<(), NotYet> {
        let tick = (now_ms - self.epoch_ms) / self.tick_ms;
        let first_ms = self.epoch_ms + tick * self.tick_ms;
        self.check(first_ms)?;
        self.tick_first_ms = first_ms;
        self.next_tick_ms = first_ms.saturating_add(self.tick_ms);
        self.tick_base = self.base + u128::from(tick) * self.time_place;
        Ok(())
    }

    /// When there is an id, if not before `first_ms`, the first millisecond of a unit of time.
    #[cold]
    pub(crate) fn when(&self, first_ms: u64) -> NotYet {
        let first_ms = first_ms.max(self.next_tick_ms);
        match self.check(first_ms) {
            Ok(()) => NotYet::Until(first_ms),
            Err(not_yet) => not_yet,
        }
    }

    /// The first millisecond of the unit of time in which ids were made last, and that of the one after it.
    #[inline]
    pub(crate) fn unit(&self) -> (u64, u64) {
        (self.tick_first_ms, self.next_tick_ms)
    }

    /// The first millisecond of the unit of time after that of `ms`.
    pub(crate) fn unit_after(&self, ms: u64) -> u64 {
        let tick = ms.saturating_sub(self.epoch_ms) / self.tick_ms;
        let after = tick.saturating_add(1).saturating_mul(self.tick_ms);
        self.epoch_ms.saturating_add(after)
    }

    /// Whether a unit of time may be used, given its first millisecond.
    fn check(&self, first_ms: u64) -> Result<(), NotYet> {
        if first_ms > self.last_ms {
            Err(NotYet::Ended)
        } else if first_ms > self.ceiling_ms {
            Err(NotYet::Ceiling)
        } else {
            Ok(())
        }
    }
}

impl Counter {
    /// Begins a unit of time, of which all ids are left.
    fn enter(&mut self, tick_first_ms: u64, capacity: u64, runs_on: bool) {
        self.tick_first_ms = tick_first_ms;
        self.left = capacity;
        if !runs_on {
            self.next = 0;
        }
    }

    /// Counts up to `count_max` ids: no more than are left, and none beyond the greatest value.
    #[inline]
    fn take(&mut self, count_max: u64, capacity: u64) -> Range<u64> {
        let first = self.next;
        let end = first + count_max.min(self.left).min(capacity - first);
        self.left -= end - first;
        self.next = if end == capacity { 0 } else { end };
        first..end
    }
}

/// Where the counters of a lease begin that run on: anywhere. If they began at 0, a holder that makes few ids under each of its
/// leases would seldom come to the higher values.
fn beginning(worker: u64, from_ms: u64, capacity: u64) -> u64 {
    // This is the end of SplitMix64, which spreads neighbouring numbers over all 64 bits.
    let mut mixed = from_ms.wrapping_add(worker.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % capacity
}

/// Ids of one unit of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    base: u128,
    stride: u128,
    counters: Range<u64>,
    random: Random,
}

impl Run {
    /// How many ids there are.
    pub fn count(&self) -> u64 {
        self.counters.end - self.counters.start
    }

    /// The ids, in order. `random` is called for each one if the format has a field for it; all its bits should be
    /// random.
    #[inline]
    pub fn ids(self, mut random: impl FnMut() -> u64) -> impl Iterator<Item = u128> {
        self.counters.map(move |counter| {
            let id = self.base + self.stride * u128::from(counter);
            match self.random.size {
                0 => id,
                size => id + self.random.place * u128::from(random() % size),
            }
        })
    }

    /// As [`Run::ids`], as numbers of 64 bits, which are made faster. `None` if they do not fit.
    #[inline]
    pub fn numbers(&self, mut random: impl FnMut() -> u64) -> Option<impl Iterator<Item = u64>> {
        let base = self.base;
        let Random { place, size } = self.random;
        let greatest = base
            + self.stride * u128::from(self.counters.end.saturating_sub(1))
            + place * u128::from(size.saturating_sub(1));
        u64::try_from(greatest).ok()?;
        // Parts that add up to the greatest one fit as well.
        let [base, stride, place] = [base, self.stride, place].map(|part| part as u64);
        let counters = self.counters.clone();
        Some(counters.map(move |counter| {
            let id = base + stride * counter;
            match size {
                0 => id,
                size => id + place * (random() % size),
            }
        }))
    }
}

#[cfg(test)]
mod tests;
