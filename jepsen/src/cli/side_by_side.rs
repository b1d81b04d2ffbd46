//! Runs beside each other, where none disturbs another.
//!
//! Most runs wait half of the time: for a cluster to start, for a fault to last, for numbers to flow again. Some show, or are
//! judged by, moments that a busy machine misses. These have the machine to themselves.

use std::{collections::VecDeque, io, thread};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;

/// Which runs there are, and how many at a time.
#[derive(Args, Clone, Copy)]
pub struct SideBySide {
    /// How many runs go on at a time, of those that do not need the machine alone.
    #[arg(long, default_value_t = 1)]
    side_by_side: usize,
    /// Run only a part: a script may use the rest of the processor for something else.
    #[arg(long, value_enum, default_value = "all")]
    pub part: Part,
}

/// A part of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// All runs.
    All,
    /// The runs that need the machine alone.
    Alone,
    /// The other runs.
    Others,
}

/// Does each job, and returns the results, in no particular order. Jobs that need the machine alone come first, one after the
/// other. Then the others come side by side.
///
/// # Errors
/// A job failed. Jobs that had not begun are left out.
pub fn do_each<J: Sync, R: Send>(
    jobs: &[J], how: SideBySide, needs_machine: impl Fn(&J) -> bool,
    work: impl Fn(&J) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    let (mut alone, mut others): (Vec<&J>, Vec<&J>) =
        jobs.iter().partition(|job| needs_machine(job));
    match how.part {
        Part::All => {}
        Part::Alone => others.clear(),
        Part::Others => alone.clear(),
    }
    let mut done = alone.into_iter().map(&work).collect::<io::Result<Vec<R>>>()?;
    let waiting = Mutex::new(VecDeque::from(others));
    let worker = || -> io::Result<Vec<R>> {
        let mut done = Vec::new();
        loop {
            let Some(job) = waiting.lock().pop_front() else {
                return Ok(done);
            };
            match work(job) {
                Ok(result) => done.push(result),
                Err(error) => {
                    waiting.lock().clear();
                    return Err(error);
                }
            }
        }
    };
    let of_workers = thread::scope(|scope| {
        let workers: Vec<_> = (0..how.side_by_side.max(1)).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("a worker panicked"));
        ended.collect::<io::Result<Vec<_>>>()
    })?;
    done.extend(of_workers.into_iter().flatten());
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Condvar;

    use super::*;

    /// How long a job waits for another one beside it.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[derive(Default)]
    struct Running {
        now: usize,
        most: usize,
    }

    #[test]
    fn jobs_run_two_at_a_time_and_those_that_need_the_machine_run_alone() {
        let jobs: Vec<usize> = (0..8).collect();
        let needs_machine = |job: &usize| job.is_multiple_of(4);
        let (running, more) = (Mutex::new(Running::default()), Condvar::new());
        let how = SideBySide { side_by_side: 2, part: Part::All };
        let done = do_each(&jobs, how, needs_machine, |job| {
            let mut running = running.lock();
            running.now += 1;
            running.most = running.most.max(running.now);
            match needs_machine(job) {
                true => assert_eq!(running.now, 1, "job {job} is not alone"),
                false => {
                    more.notify_all();
                    more.wait_while_for(&mut running, |running| running.most < 2, PATIENCE);
                    assert_eq!(running.most, 2);
                }
            }
            running.now -= 1;
            Ok(*job)
        });
        let mut done = done.expect("no job failed");
        done.sort_unstable();
        assert_eq!(done, jobs);
    }

    #[test]
    fn one_after_the_other_they_run_in_their_order_and_none_begins_after_one_that_failed() {
        let jobs = [1, 2, 3, 4];
        let begun = Mutex::new(Vec::new());
        let failed = do_each(
            &jobs,
            SideBySide { side_by_side: 1, part: Part::All },
            |job| *job == 2,
            |job| {
                begun.lock().push(*job);
                match job {
                    3 => Err(io::Error::other("the third")),
                    _ => Ok(()),
                }
            },
        );
        assert_eq!(failed.expect_err("one failed").to_string(), "the third");
        assert_eq!(begun.into_inner(), [2, 1, 3]);
    }

    #[test]
    fn each_job_is_in_one_part() {
        let of = |part| {
            let how = SideBySide { side_by_side: 1, part };
            do_each(&[1, 2, 3], how, |job| *job == 2, |job| Ok(*job)).expect("no job failed")
        };
        assert_eq!(
            [of(Part::Alone), of(Part::Others), of(Part::All)],
            [vec![2], vec![1, 3], vec![2, 1, 3]]
        );
    }
}
