//! Disks that are slow on all nodes or on the leader alone, and one that hangs.
//!
//! Numbers come from the leader's memory. So callers of warm keys must not notice any of it, and the leadership goes to another
//! node only if that helps: never while all disks are equally slow, once if the leader's alone is, and soon if it hangs.

use std::{io, ops::Range, time::Duration};

use rand::RngExt;
use tokio::time::Instant;

use self::seen::{Seen, Silence};
use super::{
    disks::no_faulty_disks,
    fault::{ActiveFault, Repair},
    injector::Injector,
    recovery::LOOK_EVERY,
};
use crate::{
    callers::CallersAtWork,
    disk::{DiskFaults, Pace},
    finding::Finding,
    network::Port,
    record::Flow,
    workload::{Answered, start_warm_callers},
};

mod seen;

/// How long an fsync takes on a slow disk.
const SLOW: Pace = Pace::Slow(Duration::from_millis(200), Duration::from_millis(2_000));
/// How long disks are slow before the leader may be killed, in milliseconds. The first fsyncs of all end within it.
const SLOW_MS: Range<u64> = 4_000..8_000;
/// How long each fsync of the leader's disk takes if it alone is slow, in milliseconds: longer than twice the shortest election
/// timeout, after which a leader may leave.
const ONE_TAKES_MS: Range<u64> = 700..1_500;
/// How long the leader's disk alone is slow, in milliseconds. A leader that leaves has mostly done so within it.
const ONE_SLOW_MS: Range<u64> = 3_000..5_000;
/// How long a disk hangs, in milliseconds.
const HANGS_MS: Range<u64> = 14_000..17_000;
/// A leader's term ends within this time after its disk began to hang: the node's own limit, 10 s, and a margin.
const TERM_ENDS_MAX: Duration = Duration::from_secs(13);
/// How long a caller of warm keys may be without an answer: as long as the promise allows where a majority lives.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// The same while a leader whose disk hangs, or is slow, hands over. It serves while it waits for its own table. If its disk
/// gets stuck after it has closed its term, it waits for 0.9 s more. Then the next leader begins, with its memory or without.
const HANDOVER_SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long numbers may fail to flow after the leader was killed while all disks are slow, and how many terms that takes: an
/// election, and the first entry of a leader, need several writes one after the other.
const CRASH_MAX: Duration = Duration::from_secs(30);
const CRASH_TERMS_MAX: u64 = 4;

impl Injector {
    /// All disks are slow. Nobody is better off with another leader, so there is none until the leader is killed.
    pub(super) async fn slow_all_disks(&mut self) -> io::Result<ActiveFault> {
        if !self.cluster.config.faulty_disks {
            return Ok(no_faulty_disks());
        }
        let not_whole = self.wait_until_whole().await.err();
        let all = self.members.clone();
        let delayed = self.delayed(&all);
        let calm = self.begin_calm().await;
        all.iter().for_each(|id| self.set_pace(*id, SLOW));
        let lasts_ms = self.rng.random_range(SLOW_MS);
        tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
        let seen = self.end_calm(calm, |_| true).await;
        let took_effect = delayed.iter().zip(self.delayed(&all)).all(|(was, is)| *was < is);
        let description =
            format!("each fsync takes 0.2 to 2 s on all nodes for {lasts_ms} ms: {seen}");
        let mut fault = ActiveFault::new(description, Repair::ResetDisks(all), took_effect);
        fault.found(Finding::Node, not_whole);
        seen.judge(0, SILENCE_MAX)
            .into_iter()
            .for_each(|(finding, what)| fault.found(finding, Some(what)));
        let ends_calmly = self.rng.random_bool(0.5);
        if !ends_calmly {
            self.kill_leader_on_slow_disks(&mut fault).await?;
        }
        Ok(fault)
    }

    /// The leader ends while all disks are slow. Another one leads soon, and not after a race through terms.
    async fn kill_leader_on_slow_disks(&mut self, fault: &mut ActiveFault) -> io::Result<()> {
        let (leader, term) = (self.leader(), self.monitor.term());
        self.cluster.kill(leader);
        let took = self.until_answered().await;
        let terms = self.monitor.term() - term;
        self.cluster.spawn(leader)?;
        let what = format!("after leader {leader} was killed");
        fault.description.push_str(&match took {
            Some(took) => {
                format!("; numbers flowed {} ms {what}, in {terms} terms", took.as_millis())
            }
            None => format!("; no numbers {what}"),
        });
        let limit = CRASH_MAX.as_secs();
        let silent =
            took.is_none().then(|| format!("numbers did not flow within {limit} s {what}"));
        fault.found(Finding::Silence, silent);
        let raced = (terms > CRASH_TERMS_MAX)
            .then(|| format!("{terms} terms began {what}; {CRASH_TERMS_MAX} are allowed"));
        fault.found(Finding::Leadership, raced);
        Ok(())
    }

    /// How long it takes until a number is handed out that was asked for from now on. Gapless numbers do not count: each is a
    /// write, and their callers may give up before two slow disks have it.
    async fn until_answered(&self) -> Option<Duration> {
        let (began, now_ns) = (Instant::now(), self.recorder.now());
        let answered = self.recorder.answered_since(Flow::Numbers, now_ns);
        tokio::time::timeout(CRASH_MAX, answered).await.ok()?;
        Some(began.elapsed())
    }

    /// The leader's disk alone is slow, and no other fault is active. The leader may leave, once. A node whose disk
    /// is quick leads then.
    pub(super) async fn slow_one_disk(&mut self) -> ActiveFault {
        if !self.cluster.config.faulty_disks {
            return no_faulty_disks();
        }
        let not_whole = self.wait_until_whole().await.err();
        let victim = self.leader();
        let node = u64::from(victim);
        let delayed = self.delayed(&[victim]);
        let calm = self.begin_calm().await;
        let term = calm.term;
        let sync_takes = Duration::from_millis(self.rng.random_range(ONE_TAKES_MS));
        self.set_pace(victim, Pace::Slow(sync_takes, sync_takes));
        let lasts_ms = self.rng.random_range(ONE_SLOW_MS);
        tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
        let seen = self.end_calm(calm, |other| other != node).await;
        let took_effect = delayed < self.delayed(&[victim]);
        let takes_ms = sync_takes.as_millis();
        let description =
            format!("fsync takes {takes_ms} ms on leader {victim} for {lasts_ms} ms: {seen}");
        let mut fault =
            ActiveFault::new(description, Repair::ResetDisks(vec![victim]), took_effect);
        fault.found(Finding::Node, not_whole);
        let (terms_max, silence_max) = limits(true);
        seen.judge(terms_max, silence_max)
            .into_iter()
            .for_each(|(finding, what)| fault.found(finding, Some(what)));
        let leaders = self.monitor.leaders_after(term);
        fault.found(Finding::Leadership, seen.judge_leaders(node, &leaders));
        fault
    }

    /// One disk hangs. If it is the leader's, another node leads soon; otherwise none does.
    pub(super) async fn hang_disk(&mut self) -> io::Result<ActiveFault> {
        if !self.cluster.config.faulty_disks {
            return Ok(no_faulty_disks());
        }
        let not_whole = self.wait_until_whole().await.err();
        let leader = self.leader();
        let victim = if self.rng.random_bool(0.25) { self.random_follower() } else { leader };
        let delayed = self.delayed(&[victim]);
        let calm = self.begin_calm().await;
        let begun = Instant::now();
        let end = begun + Duration::from_millis(self.rng.random_range(HANGS_MS));
        self.set_pace(victim, Pace::Hanging);
        let mut fault = ActiveFault::new("", Repair::ResetDisks(vec![victim]), false);
        fault.found(Finding::Node, not_whole);
        let ended = match victim == leader {
            true => self.wait_until_led_by_another(victim, &mut fault).await,
            false => None,
        };
        tokio::time::sleep_until(end).await;
        let seen = self.end_calm(calm, |node| node != u64::from(victim)).await;
        fault.took_effect = delayed < self.delayed(&[victim]);
        let role = if victim == leader { "leader" } else { "follower" };
        let ended = ended.map_or(String::new(), |took| {
            format!(", whose term ended after {} ms", took.as_millis())
        });
        let lasted_ms = begun.elapsed().as_millis();
        fault.description =
            format!("the disk of {role} {victim}{ended} hangs for {lasted_ms} ms: {seen}");
        let (terms_max, silence_max) = limits(victim == leader);
        seen.judge(terms_max, silence_max)
            .into_iter()
            .for_each(|(found, what)| fault.found(found, Some(what)));
        Ok(fault)
    }

    /// Waits until another node than `victim`, whose disk hangs, leads, and then until numbers flow. Returns how long the first
    /// took.
    async fn wait_until_led_by_another(
        &mut self, victim: Port, fault: &mut ActiveFault,
    ) -> Option<Duration> {
        let begun = Instant::now();
        while self.monitor.leader() == Some(victim.into()) {
            if begun.elapsed() > TERM_ENDS_MAX {
                let limit = TERM_ENDS_MAX.as_secs();
                let what =
                    format!("node {victim} still leads {limit} s after its disk began to hang");
                fault.found(Finding::Leadership, Some(what));
                return None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let took = begun.elapsed();
        let what = format!("node {victim}, whose disk hangs, led no more");
        let silent = self.end_outage(self.begin_outage(), &what).await;
        fault.found(Finding::Silence, silent);
        Some(took)
    }

    fn set_pace(&self, id: Port, pace: Pace) {
        if let Some(disk) = self.cluster.disk(id) {
            disk.set_faults(DiskFaults { pace, ..DiskFaults::default() });
        }
    }

    /// How many fsyncs of each of these nodes had to wait.
    fn delayed(&self, nodes: &[Port]) -> Vec<u64> {
        let disks = nodes.iter().filter_map(|id| self.cluster.disk(*id));
        disks.map(|disk| disk.counts().sync_delayed).collect()
    }

    async fn begin_calm(&self) -> Calm {
        let callers = start_warm_callers(&self.nodes, &self.recorder).await;
        Calm { callers, from_ns: self.recorder.now(), term: self.monitor.term() }
    }

    /// The observations since `calm` began of callers of the nodes for which `is_judged` is true.
    async fn end_calm(&self, calm: Calm, is_judged: impl Fn(u64) -> bool) -> Seen {
        let Calm { callers, from_ns, term } = calm;
        // Read before the callers stop: that takes a moment, which is not judged.
        let (to_ns, terms) = (self.recorder.now(), self.monitor.term() - term);
        let answered = callers.stop().await.into_iter();
        let judged: Vec<Answered> = answered.filter(|at| is_judged(at.node)).collect();
        let silence = Silence::longest(&judged, from_ns, to_ns);
        Seen {
            silence,
            terms,
            stalled: self.stalls.between(silence.from_ns, silence.to_ns),
            longest_stall: self.stalls.longest(from_ns, to_ns),
        }
    }
}

/// How many terms may begin because of one disk, and how long a caller of warm keys may be without an answer, by whether it is
/// the disk of a leader that may leave.
fn limits(may_leave: bool) -> (u64, Duration) {
    match may_leave {
        true => (1, HANDOVER_SILENCE_MAX),
        false => (0, SILENCE_MAX),
    }
}

/// A time in which no process ends, and callers ask for warm keys.
struct Calm {
    callers: CallersAtWork<Answered>,
    from_ns: u64,
    term: u64,
}
