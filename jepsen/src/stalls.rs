//! How late the machine wakes threads up: an overloaded machine adds this delay to every limit of time.

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use crate::record::Recorder;

/// For how long the thread sleeps each time.
const SLEEP: Duration = Duration::from_millis(5);
/// Wake-ups that are later than this are noted.
const LATE: Duration = Duration::from_millis(1);

/// A sleep that lasted too long.
#[derive(Debug, Clone, Copy)]
struct Stall {
    from_ns: u64,
    to_ns: u64,
    late: Duration,
}

/// The stalls of the machine. Dropping it ends the thread that notes them.
#[derive(Default)]
pub struct Stalls(Arc<Mutex<Vec<Stall>>>);

impl Stalls {
    /// Starts the thread.
    ///
    /// # Errors
    /// The machine has no thread left.
    pub fn watch(recorder: &Arc<Recorder>) -> std::io::Result<Stalls> {
        let stalls = Stalls::default();
        let (noted, recorder) = (Arc::downgrade(&stalls.0), recorder.clone());
        thread::Builder::new().name("stalls".to_owned()).spawn(move || note(&noted, &recorder))?;
        Ok(stalls)
    }

    /// How late the wake-ups between two moments of the run were, all together.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Duration {
        self.lates(from_ns, to_ns).into_iter().sum()
    }

    /// How late the latest wake-up between two moments of the run was.
    pub fn longest(&self, from_ns: u64, to_ns: u64) -> Duration {
        self.lates(from_ns, to_ns).into_iter().max().unwrap_or_default()
    }

    fn lates(&self, from_ns: u64, to_ns: u64) -> Vec<Duration> {
        let stalls = self.0.lock();
        let between = stalls.iter().filter(|stall| stall.from_ns < to_ns && from_ns < stall.to_ns);
        between.map(|stall| stall.late).collect()
    }
}

fn note(noted: &Weak<Mutex<Vec<Stall>>>, recorder: &Recorder) {
    loop {
        let from_ns = recorder.now();
        thread::sleep(SLEEP);
        let to_ns = recorder.now();
        let late = Duration::from_nanos(to_ns - from_ns).saturating_sub(SLEEP);
        let Some(noted) = noted.upgrade() else {
            return;
        };
        if late > LATE {
            noted.lock().push(Stall { from_ns, to_ns, late });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stalls_that_touch_a_time_are_added_up_and_compared() {
        let stall =
            |from_ns, to_ns, late_ns| Stall { from_ns, to_ns, late: Duration::from_nanos(late_ns) };
        let stalls = vec![stall(0, 10, 4), stall(20, 30, 2), stall(40, 90, 30)];
        let stalls = Stalls(Arc::new(Mutex::new(stalls)));
        let between = |from_ns, to_ns| stalls.between(from_ns, to_ns).as_nanos();
        assert_eq!(
            [between(10, 20), between(9, 21), between(25, 50), between(90, 99)],
            [0, 6, 32, 0]
        );
        let longest = |from_ns, to_ns| stalls.longest(from_ns, to_ns).as_nanos();
        assert_eq!([longest(10, 20), longest(9, 21), longest(25, 50)], [0, 4, 30]);
    }
}
