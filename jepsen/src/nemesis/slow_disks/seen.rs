//! The observations while disks were slow, and the judgement of them.

use std::{fmt, time::Duration};

use crate::{finding::Finding, history::longest_silence_of, workload::Answered};

/// If the machine woke a thread up so late, a leader may have missed its lease, independently of the disks.
const STALL: Duration = Duration::from_millis(100);

/// The longest time that the caller of warm keys at one node was without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    pub node: u64,
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Silence {
    /// The longest one of all callers between two moments of the run. Without callers nobody was answered.
    pub fn longest(answered: &[Answered], from_ns: u64, to_ns: u64) -> Silence {
        let silences = answered.iter().map(|Answered { node, at_ns }| {
            let (from_ns, to_ns) = longest_silence_of(at_ns.iter().copied(), from_ns, to_ns);
            Silence { node: *node, from_ns, to_ns }
        });
        silences.max_by_key(Silence::lasted).unwrap_or(Silence { node: 0, from_ns, to_ns })
    }

    pub fn lasted(&self) -> Duration {
        Duration::from_nanos(self.to_ns - self.from_ns)
    }
}

/// The observations of a time in which disks were slow, and no process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub silence: Silence,
    /// How many terms began.
    pub terms: u64,
    /// How late the machine woke threads up during that silence, all together.
    pub stalled: Duration,
    /// The latest that it woke one up in the whole time.
    pub longest_stall: Duration,
}

impl Seen {
    /// Whether a term may have ended because of the machine, whatever the disks did.
    pub fn is_stalled(&self) -> bool {
        self.longest_stall >= STALL
    }

    /// The violation, if the node whose disk alone is slow leads one of the terms that began: `leaders` led those.
    pub fn judge_leaders(&self, slow: u64, leaders: &[u64]) -> Option<String> {
        let helps = self.is_stalled() || !leaders.contains(&slow);
        (!helps)
            .then(|| format!("node {slow}, whose disk is slow, leads a term that began meanwhile"))
    }

    /// The violations, if no more than `terms_max` further terms help, and a caller may be without an answer
    /// for `silence_max`.
    pub fn judge(&self, terms_max: u64, silence_max: Duration) -> Vec<(Finding, String)> {
        let mut wrong = Vec::new();
        let (node, lasted) = (self.silence.node, self.silence.lasted());
        if lasted > silence_max + self.stalled {
            let what = format!(
                "the caller of warm keys at node {node} had no answer for {} ms; {} ms are allowed, and {} ms more because \
                 the machine stalled",
                lasted.as_millis(),
                silence_max.as_millis(),
                self.stalled.as_millis()
            );
            wrong.push((Finding::Silence, what));
        }
        let allowed = terms_max + u64::from(self.is_stalled());
        if self.terms > allowed {
            let what = format!("{} terms began; {allowed} are allowed", self.terms);
            wrong.push((Finding::Leadership, what));
        }
        wrong
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, silent_ms) = (self.silence.node, self.silence.lasted().as_millis());
        let terms = self.terms;
        write!(
            f,
            "{terms} terms began, longest silence of warm keys {silent_ms} ms, at node {node}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn seen(silent_ms: u64, terms: u64, longest_stall_ms: u64) -> Seen {
        let longest_stall = Duration::from_millis(longest_stall_ms);
        Seen {
            silence: Silence {
                node: 2,
                from_ns: SECOND_NS,
                to_ns: SECOND_NS + silent_ms * 1_000_000,
            },
            terms,
            stalled: 2 * longest_stall,
            longest_stall,
        }
    }

    fn found(seen: Seen, terms_max: u64) -> Vec<Finding> {
        let judged = seen.judge(terms_max, Duration::from_secs(1));
        judged.into_iter().map(|(finding, _)| finding).collect()
    }

    #[test]
    fn a_caller_of_warm_keys_that_waits_for_a_disk_is_found_and_one_that_waits_for_the_machine_is_not()
     {
        assert_eq!(found(seen(1_000, 0, 0), 0), []);
        assert_eq!(found(seen(1_001, 0, 0), 0), [Finding::Silence]);
        assert_eq!(found(seen(1_100, 0, 50), 0), []);
        assert_eq!(found(seen(1_101, 0, 50), 0), [Finding::Silence]);
    }

    #[test]
    fn a_change_that_does_not_help_is_found_unless_the_machine_stalled_so_long() {
        assert_eq!(found(seen(0, 1, 99), 0), [Finding::Leadership]);
        assert_eq!(found(seen(0, 1, 100), 0), []);
        assert_eq!(found(seen(0, 2, 100), 0), [Finding::Leadership]);
        assert_eq!(found(seen(0, 1, 0), 1), []);
        assert_eq!(found(seen(2_000, 2, 0), 1), [Finding::Silence, Finding::Leadership]);
    }

    #[test]
    fn a_term_of_the_node_whose_disk_is_slow_is_found_unless_the_machine_stalled() {
        let is_found = |leaders: &[u64], longest_stall_ms| {
            seen(0, 1, longest_stall_ms).judge_leaders(1, leaders).is_some()
        };
        assert!(is_found(&[1], 99));
        assert!(is_found(&[2, 1], 0));
        assert!(!is_found(&[2], 0) && !is_found(&[], 0));
        assert!(!is_found(&[1], 100));
    }

    #[test]
    fn the_caller_that_waited_longest_is_named_and_one_that_was_never_answered_waited_all_the_time()
    {
        let all = |node| Answered { node, at_ns: (0..10).map(|at| at * SECOND_NS).collect() };
        let mut answered = vec![all(1), all(2)];
        answered[1].at_ns.remove(5);
        let longest = |answered: &[Answered]| {
            let silence = Silence::longest(answered, SECOND_NS, 9 * SECOND_NS);
            (silence.lasted().as_secs(), silence.node)
        };
        assert_eq!(longest(&answered), (2, 2));
        answered.push(Answered { node: 3, at_ns: Vec::new() });
        assert_eq!(longest(&answered), (8, 3));
        assert_eq!(longest(&[]), (8, 0));
    }
}
