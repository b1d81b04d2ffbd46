//! The faults of a run: a random composition that the seed decides.

use std::{collections::BTreeSet, time::Duration};

use rand::{
    RngExt,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    admin::Job,
    cluster::{Cluster, Condition},
    delayed_faults::DelayedFault,
    disk::Mood,
    fault::Fault,
    network::{Host, Weather},
};

/// The action that ends a fault.
#[derive(Debug, Clone, Copy)]
enum Remedy {
    Restart(Host),
    MendLinks,
    CalmDown,
    MendDisk(Host),
}

/// The slowest and the fastest clock: the longest lease, 245 ms, must end within the 300 ms for which
/// its followers, whose timers are true, keep their promise.
const RATES: std::ops::Range<f64> = 0.85..1.25;

/// How many nodes a cluster has at most.
const NODES_MAX: usize = 6;

/// The faults of one run.
pub struct Faults {
    rng: StdRng,
    kinds: Vec<Fault>,
    /// When the next one is due.
    next: Duration,
    pause_ms: u64,
    remedies: Vec<(Duration, Remedy)>,
    delayed: Vec<(Duration, DelayedFault)>,
    usual: Weather,
    next_id: Host,
    /// None once the run is healed, so that the operators finish the jobs that they have begun.
    jobs: Option<UnboundedSender<Job>>,
}

impl Faults {
    /// Faults of these kinds from `start` on, with `usual` weather in between.
    pub fn new(
        mut rng: StdRng, kinds: Vec<Fault>, start: Duration, usual: Weather, founders: u64,
        jobs: UnboundedSender<Job>,
    ) -> Faults {
        Faults {
            kinds,
            next: start,
            pause_ms: rng.random_range(200..2_000),
            remedies: Vec::new(),
            delayed: Vec::new(),
            usual,
            next_id: founders + 1,
            jobs: Some(jobs),
            rng,
        }
    }

    /// The kinds of faults of this run.
    pub fn kinds(&self) -> String {
        format!("{:?}", self.kinds)
    }

    /// Ends the faults whose time is over; begins new ones while `more` is true.
    pub fn step(&mut self, cluster: &mut Cluster<'_>, more: bool) {
        let now = cluster.now();
        for ended in cluster.clear_away() {
            let after = self.rng.random_range(50..500);
            self.remedy(now, after, Remedy::Restart(ended));
        }
        for remedy in due(&mut self.remedies, now) {
            self.mend(cluster, remedy);
        }
        for fault in due(&mut self.delayed, now) {
            self.strike_delayed(cluster, fault);
        }
        if more && now >= self.next {
            let kind = *self.kinds.choose(&mut self.rng).expect("some");
            self.strike(cluster, kind);
            let pause = self.rng.random_range(self.pause_ms / 4..self.pause_ms);
            self.next = now + Duration::from_millis(pause);
        }
    }

    /// Ends all faults: links, disks and weather are well, and every node runs.
    pub fn heal(&mut self, cluster: &mut Cluster<'_>) {
        cluster.world.trace.event(cluster.now(), "heal", "all");
        self.remedies.clear();
        self.delayed.clear();
        self.jobs = None;
        self.mend(cluster, Remedy::MendLinks);
        self.usual = Weather { delay_ms: 3, lost: 0, twice: 0, late: 0 };
        self.mend(cluster, Remedy::CalmDown);
        for id in cluster.world.members() {
            self.mend(cluster, Remedy::MendDisk(id));
            self.mend(cluster, Remedy::Restart(id));
        }
    }

    fn remedy(&mut self, now: Duration, after_ms: u64, remedy: Remedy) {
        let at = now + Duration::from_millis(after_ms);
        self.remedies.push((at, remedy));
    }

    fn mend(&mut self, cluster: &mut Cluster<'_>, remedy: Remedy) {
        let world = cluster.world.clone();
        match remedy {
            Remedy::Restart(id) => {
                if world.with(id, |machine| machine.condition == Condition::Down) {
                    world.trace.event(cluster.now(), "restart", format!("node {id}"));
                    cluster.restart(id);
                }
            }
            Remedy::MendLinks => world.network.mend(),
            Remedy::CalmDown => world.network.set_weather(self.usual),
            Remedy::MendDisk(id) => world.with(id, |machine| machine.disk.set(Mood::Well)),
        }
    }

    fn strike_delayed(&mut self, cluster: &mut Cluster<'_>, fault: DelayedFault) {
        let (world, now) = (cluster.world.clone(), cluster.now());
        world.trace.event(now, "delayed fault", format!("{fault:?}"));
        match fault {
            DelayedFault::Crash(id) => self.crash(cluster, id),
            DelayedFault::Cut(one, other) => {
                self.part(cluster, &BTreeSet::from([one]), &BTreeSet::from([other]));
                let lasting = self.rng.random_range(100..3_000);
                self.remedy(now, lasting, Remedy::MendLinks);
            }
            DelayedFault::Transfer(asked) => self.have_done(Job::Transfer { asked, to: None }),
            DelayedFault::Stop(id) => cluster.world.stop(id, now),
        }
    }

    fn have_done(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Nobody listens once the run is over.
            let _ = jobs.send(job);
        }
    }

    fn crash(&mut self, cluster: &mut Cluster<'_>, id: Host) {
        if !cluster.world.running().contains(&id) {
            return;
        }
        let now = cluster.now();
        cluster.crash(id, "fault");
        // Often back before a lease has run out.
        let after = match self.rng.random_bool(0.5) {
            true => self.rng.random_range(1..150),
            false => self.rng.random_range(150..2_000),
        };
        self.remedy(now, after, Remedy::Restart(id));
    }

    fn part(&mut self, cluster: &Cluster<'_>, one: &BTreeSet<Host>, other: &BTreeSet<Host>) {
        for &a in one {
            for &b in other {
                cluster.world.network.cut(a, b);
                cluster.world.network.cut(b, a);
            }
        }
    }

    /// Slows down the messages of `id` to `others`, and some of their messages.
    fn slow_down(&mut self, cluster: &Cluster<'_>, id: Host, others: &BTreeSet<Host>, by_ms: u64) {
        for &other in others {
            cluster.world.network.slow_down(id, other, by_ms);
            if self.rng.random_bool(0.5) {
                cluster.world.network.slow_down(other, id, by_ms);
            }
        }
    }

    fn strike(&mut self, cluster: &mut Cluster<'_>, fault: Fault) {
        let world = cluster.world.clone();
        let now = cluster.now();
        let members = world.members();
        let list: Vec<Host> = members.iter().copied().collect();
        let Some(&any) = list.choose(&mut self.rng) else {
            return;
        };
        let leader = world.leader().unwrap_or(any);
        let others_of = |id: Host| -> BTreeSet<Host> {
            members.iter().copied().filter(|other| *other != id).collect()
        };
        let lasting = self.rng.random_range(100..3_000);
        let mut told = format!("{fault:?}");
        match fault {
            Fault::Crash => self.crash(cluster, any),
            Fault::CrashLeader => self.crash(cluster, leader),
            Fault::CrashFarLeader => {
                let by = self.rng.random_range(20..100);
                self.slow_down(cluster, leader, &others_of(leader), by);
                let after = Duration::from_millis(self.rng.random_range(2 * by..10 * by));
                told = format!("{told} {leader} by {by} ms, after {after:?}");
                self.delayed.push((now + after, DelayedFault::Crash(leader)));
                self.remedy(now, lasting.max(1_000), Remedy::MendLinks);
            }
            Fault::CrashSome => {
                let count = self.rng.random_range(1..=list.len());
                let some: Vec<Host> = list.sample(&mut self.rng, count).copied().collect();
                some.into_iter().for_each(|id| self.crash(cluster, id));
            }
            Fault::CrashAll => list.into_iter().for_each(|id| self.crash(cluster, id)),
            Fault::ForgetPromises => {
                let followers = others_of(leader);
                self.part(cluster, &BTreeSet::from([leader]), &followers);
                for follower in followers {
                    if world.running().contains(&follower) {
                        cluster.crash(follower, "fault");
                        let after = self.rng.random_range(1..20);
                        self.remedy(now, after, Remedy::Restart(follower));
                    }
                }
                self.remedy(now, lasting.max(1_000), Remedy::MendLinks);
            }
            Fault::IsolateLeader | Fault::Isolate => {
                let id = if fault == Fault::Isolate { any } else { leader };
                told = format!("{told} {id}");
                self.part(cluster, &BTreeSet::from([id]), &others_of(id));
                self.remedy(now, lasting, Remedy::MendLinks);
            }
            Fault::Halves => {
                let mut shuffled = list;
                shuffled.shuffle(&mut self.rng);
                let half = shuffled.split_off(shuffled.len() / 2);
                told = format!("{told} {shuffled:?} {half:?}");
                let (one, other) = (shuffled.into_iter().collect(), half.into_iter().collect());
                self.part(cluster, &one, &other);
                self.remedy(now, lasting, Remedy::MendLinks);
            }
            Fault::OneWay => {
                let id = *[any, leader].choose(&mut self.rng).expect("two");
                let outgoing = self.rng.random_bool(0.5);
                told = format!("{told} {id} outgoing: {outgoing}");
                for other in others_of(id) {
                    match outgoing {
                        true => world.network.cut(id, other),
                        false => world.network.cut(other, id),
                    }
                }
                self.remedy(now, lasting, Remedy::MendLinks);
            }
            Fault::SlowLinks => {
                let id = *[any, leader].choose(&mut self.rng).expect("two");
                let by = self.rng.random_range(20..300);
                told = format!("{told} {id} by {by} ms");
                self.slow_down(cluster, id, &others_of(id), by);
                self.remedy(now, lasting, Remedy::MendLinks);
            }
            Fault::Storm => {
                world.network.set_weather(Weather {
                    delay_ms: self.rng.random_range(20..120),
                    lost: self.rng.random_range(0..200),
                    twice: self.rng.random_range(100..500),
                    late: self.rng.random_range(0..100),
                });
                self.remedy(now, lasting, Remedy::CalmDown);
            }
            Fault::Clocks => {
                for id in list {
                    let rate = match self.rng.random_range(0..3) {
                        0 => RATES.start,
                        1 => RATES.end,
                        _ => self.rng.random_range(RATES),
                    };
                    world.with(id, |machine| machine.clock.set_rate(now, rate));
                }
            }
            Fault::SlowDisk | Fault::HangingDisk | Fault::FailingDisk => {
                let id = *[any, leader].choose(&mut self.rng).expect("two");
                let mood = match fault {
                    Fault::SlowDisk => {
                        Mood::Slow { shortest_ms: 1, longest_ms: self.rng.random_range(50..500) }
                    }
                    Fault::HangingDisk if self.rng.random_bool(0.5) => Mood::Stuck,
                    Fault::HangingDisk => Mood::Hanging,
                    _ => Mood::Failing,
                };
                told = format!("{told} {id}");
                world.with(id, |machine| machine.disk.set(mood));
                self.remedy(now, lasting, Remedy::MendDisk(id));
            }
            Fault::SlowDisks => {
                for id in list {
                    let mood = Mood::Slow { shortest_ms: 200, longest_ms: 2_000 };
                    world.with(id, |machine| machine.disk.set(mood));
                    self.remedy(now, lasting, Remedy::MendDisk(id));
                }
            }
            Fault::Transfer => {
                let to = self.rng.random_bool(0.5);
                let to = to.then_some(another(any, &list));
                self.have_done(Job::Transfer { asked: any, to });
            }
            Fault::HitHandover => {
                let running = Vec::from_iter(&others_of(leader) & &world.running());
                let successor = running.choose(&mut self.rng);
                let (Some(leader), Some(&successor)) = (world.leader(), successor) else {
                    return;
                };
                match self.rng.random_bool(0.3) {
                    true => cluster.world.stop(leader, now),
                    false => self.have_done(Job::Transfer { asked: leader, to: Some(successor) }),
                }
                world.trace.event(now, "handover to hit", format!("of {leader}"));
                let then = DelayedFault::to_handover(&mut self.rng, leader, successor, &list);
                let after = Duration::from_millis(DelayedFault::after_ms(&mut self.rng));
                told = format!("{told} of {leader} to {successor}: {then:?} after {after:?}");
                self.delayed.push((now + after, then));
            }
            Fault::Stop => {
                let id = *[any, leader].choose(&mut self.rng).expect("two");
                world.stop(id, now);
            }
            Fault::Grow => {
                if list.len() < NODES_MAX {
                    let id = self.next_id;
                    self.next_id += 1;
                    cluster.add(id, &mut self.rng);
                    told = format!("{told} by {id}");
                    self.have_done(Job::Grow { asked: any, id });
                }
            }
            Fault::Shrink => {
                if list.len() > 3 {
                    let id = *list.choose(&mut self.rng).expect("some");
                    told = format!("{told} by {id}");
                    self.have_done(Job::Shrink { asked: any, id });
                }
            }
        }
        world.trace.event(now, "fault", told);
    }
}

/// Takes the items that are due at `now` out of `waiting`.
fn due<T>(waiting: &mut Vec<(Duration, T)>, now: Duration) -> Vec<T> {
    let due = waiting.extract_if(.., |(at, _)| *at <= now);
    due.map(|(_, what)| what).collect()
}

fn another(any: Host, list: &[Host]) -> Host {
    list.iter().copied().find(|id| *id != any).unwrap_or(any)
}
