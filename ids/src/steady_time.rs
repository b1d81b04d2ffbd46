//! A time that never goes back, from a clock that may jump. Pure.
//!
//! Two lines are kept. The *reference* is the best guess of the true time. It follows the wall clock, and the leader's time
//! more than that; it may jump. Callers see the *steady* time: it runs after the reference, and never goes back. If it is
//! behind by more than a second, it jumps; if it is ahead by more than a second, it runs at half speed; a smaller distance is
//! made good slowly.
//!
//! Readings of the monotonic clock are in nanoseconds from any point on, and must grow.

const MS_NS: u64 = 1_000_000;

/// A difference above this is a step: it is not made good unnoticed.
const STEP_MS: u64 = 1_000;

/// How long a step of the wall clock must last before it is believed.
const PATIENCE_NS: u64 = 60_000 * MS_NS;

/// How fast a small difference is made good: one part in 2^5, about 3 %.
const SLOW_SHIFT: u32 = 5;

/// How fast the time comes back when it is ahead by a step: one part in 2, half speed.
const HALF_SHIFT: u32 = 1;

/// A time in milliseconds since 1970 that never goes back.
#[derive(Debug, Clone)]
pub struct SteadyTime {
    steady: Steady,
    reference: Reference,
}

impl SteadyTime {
    /// Begins with the wall clock, in milliseconds since 1970, at a reading of the monotonic clock.
    pub fn new(mono_ns: u64, wall_ms: u64) -> SteadyTime {
        SteadyTime {
            steady: Steady::new(mono_ns, wall_ms),
            reference: Reference::new(mono_ns, wall_ms),
        }
    }

    /// The time at a reading of the monotonic clock. A reading before that of the last call that changed something counts
    /// as that one.
    #[inline]
    pub fn now_ms(&self, mono_ns: u64) -> u64 {
        self.steady.at(mono_ns).ms
    }

    /// Takes a reading of the wall clock into account; to be called every 100 ms or so. Returns by how many milliseconds that
    /// clock is ahead (negative: behind) if it differs by more than a second and is followed from now on: at once if it is
    /// ahead, at half speed if it is behind.
    pub fn observe(&mut self, mono_ns: u64, wall_ms: u64) -> Option<i64> {
        let followed = self.reference.observe(mono_ns, wall_ms);
        self.steady.run_after(mono_ns, self.reference.at(mono_ns));
        followed
    }

    /// Takes the leader's time into account, which counts more than the own wall clock: a step is followed at once, and a
    /// wall clock that differs from it must do so anew for as long. Returns as [`SteadyTime::observe`] does.
    pub fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Option<i64> {
        let followed = self.reference.told(mono_ns, leader_ms);
        self.steady.run_after(mono_ns, self.reference.at(mono_ns));
        followed
    }
}

/// A point in time, to the nanosecond.
#[derive(Debug, Clone, Copy)]
struct Point {
    ms: u64,
    /// Beyond `ms`; below [`MS_NS`].
    ns: u64,
}

impl Point {
    /// The point `ns` later. At the greatest time it stays there.
    fn after(self, ns: u64) -> Point {
        let ns = self.ns.saturating_add(ns);
        match self.ms.checked_add(ns / MS_NS) {
            Some(ms) => Point { ms, ns: ns % MS_NS },
            None => Point { ms: u64::MAX, ns: 0 },
        }
    }
}

/// The time that callers see.
#[derive(Debug, Clone)]
struct Steady {
    mono_ns: u64,
    /// The time at `mono_ns`.
    from: Point,
    /// The distance that is still to be made good after that: the time runs faster or slower until it is.
    left_ns: u64,
    is_ahead: bool,
    /// How fast: one part in 2^`shift`.
    shift: u32,
}

impl Steady {
    fn new(mono_ns: u64, wall_ms: u64) -> Steady {
        Steady {
            mono_ns,
            from: Point { ms: wall_ms, ns: 0 },
            left_ns: 0,
            is_ahead: false,
            shift: SLOW_SHIFT,
        }
    }

    fn at(&self, mono_ns: u64) -> Point {
        let elapsed = mono_ns.saturating_sub(self.mono_ns);
        let made_good = self.left_ns.min(elapsed >> self.shift);
        let elapsed = match self.is_ahead {
            true => elapsed - made_good,
            false => elapsed.saturating_add(made_good),
        };
        self.from.after(elapsed)
    }

    /// Makes the difference to `reference_ms`, the true time at `mono_ns`, good from there on.
    fn run_after(&mut self, mono_ns: u64, reference_ms: u64) {
        self.from = self.at(mono_ns);
        self.mono_ns = self.mono_ns.max(mono_ns);
        let was_at_half_speed = self.is_ahead && self.shift == HALF_SHIFT;
        let difference_ms = reference_ms.abs_diff(self.from.ms);
        self.is_ahead = self.from.ms > reference_ms;
        self.shift = SLOW_SHIFT;
        self.left_ns = difference_ms.saturating_mul(MS_NS);
        if self.is_ahead && (difference_ms > STEP_MS || was_at_half_speed) {
            self.shift = HALF_SHIFT;
        } else if difference_ms > STEP_MS {
            self.from.ms = reference_ms;
            self.left_ns = 0;
        }
    }
}

/// The best guess of the true time.
#[derive(Debug, Clone)]
struct Reference {
    mono_ns: u64,
    /// The time at `mono_ns`.
    ms: u64,
    /// The last reading of the wall clock, and when it was.
    wall: (u64, u64),
    /// Since when the wall clock differs by a step.
    step_since_ns: Option<u64>,
}

impl Reference {
    fn new(mono_ns: u64, wall_ms: u64) -> Reference {
        Reference { mono_ns, ms: wall_ms, wall: (mono_ns, wall_ms), step_since_ns: None }
    }

    fn at(&self, mono_ns: u64) -> u64 {
        later(self.mono_ns, self.ms, mono_ns)
    }

    fn set(&mut self, mono_ns: u64, ms: u64) {
        self.mono_ns = mono_ns;
        self.ms = ms;
        self.step_since_ns = None;
    }

    fn observe(&mut self, mono_ns: u64, wall_ms: u64) -> Option<i64> {
        let now_ms = self.at(mono_ns);
        let (wall_ns, last_wall_ms) = std::mem::replace(&mut self.wall, (mono_ns, wall_ms));
        if wall_ms.abs_diff(now_ms) <= STEP_MS {
            self.set(mono_ns, wall_ms);
            return None;
        }
        let jumped = later(wall_ns, last_wall_ms, mono_ns).abs_diff(wall_ms) > STEP_MS;
        let since = self.step_since_ns.filter(|_| !jumped).unwrap_or(mono_ns);
        self.step_since_ns = Some(since);
        if mono_ns.saturating_sub(since) < PATIENCE_NS {
            return None;
        }
        self.set(mono_ns, wall_ms);
        Some(difference(wall_ms, now_ms))
    }

    fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Option<i64> {
        let now_ms = self.at(mono_ns);
        if leader_ms.abs_diff(now_ms) <= STEP_MS {
            self.step_since_ns = None;
            return None;
        }
        self.set(mono_ns, leader_ms);
        Some(difference(leader_ms, now_ms))
    }
}

/// The time at `mono_ns` by a clock that showed `ms` at `from_ns`.
fn later(from_ns: u64, ms: u64, mono_ns: u64) -> u64 {
    ms.saturating_add(mono_ns.saturating_sub(from_ns) / MS_NS)
}

/// How far `a` is ahead of `b`, as far as that fits.
fn difference(a: u64, b: u64) -> i64 {
    let size = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -size } else { size }
}

#[cfg(test)]
mod tests;
