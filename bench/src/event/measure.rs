//! Measures events: starts the clusters, drives them with a load, and has the events happen.

use std::{
    cell::Cell,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    analysis::{Around, START_MS},
    carry_out::{Done, restart_ended},
    leaders::LeaderWatch,
    options::{Event, EventOptions, FailoverOptions, HandoverOptions},
    plot,
    report::{Report, Side},
    result::{EventResult, Leader, Seen, millis_between},
    skips::Counters,
};
use crate::{
    child::Directory,
    cluster,
    error::Error,
    load::{Load, Overload},
    options::{ClusterOptions, Interface},
    output::Printed,
    recorder::Records,
    target::Target,
    warm,
    workers::{Stopped, TICK, Workers},
};

/// The number of nodes: the smallest cluster that survives the loss of one.
const NODES: u64 = 3;
/// The shortest time from the first answer to the event, and from there to the end, in seconds.
const PART_MIN: f64 = 2.0;
/// How long to wait for the first answer.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(60);

impl FailoverOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If the options contradict each other, a node does not start, end or catch up, a number is out of order, or no number was
    /// received before an event.
    pub async fn run(self) -> Result<Printed, Error> {
        measure(Event::Kill, &self.options).await
    }
}

impl HandoverOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If the options contradict each other, a node does not start, end or catch up, a number is out of order, or no
    /// number was received before an event.
    pub async fn run(self) -> Result<Printed, Error> {
        measure(self.by.into(), &self.options).await
    }
}

async fn measure(event: Event, options: &EventOptions) -> Result<Printed, Error> {
    let load = options.load.load(Overload::Wait).map_err(Error::config)?;
    if matches!(options.load.interface, Interface::Http | Interface::Redis) {
        return Err(Error::config(format!(
            "--interface {}: callers of this interface stay with a connection that has failed; use unary, stream or client",
            options.load.interface.name()
        )));
    }
    if options.at < PART_MIN || options.seconds < options.at + PART_MIN {
        return Err(Error::config(format!(
            "--at {} --seconds {}: at least {PART_MIN} seconds are needed before the event, and after it",
            options.at, options.seconds
        )));
    }
    let directory = Directory::new()?;
    let ours = ("ratchet", options.cluster.binary.clone());
    let theirs = options.against_binary.clone();
    let theirs = theirs.map(|binary| ("against", Some(binary)));
    let mut measured = Vec::new();
    for (name, binary) in [ours].into_iter().chain(theirs) {
        measured.push(Measured::start(&directory, name, binary, options, &load).await?);
    }
    for round in 0..options.repeat as usize {
        for nth in 0..measured.len() {
            // The sides take turns at going first.
            let side = (round + nth) % measured.len();
            measured[side].add_event(event, options, &load).await?;
        }
    }
    let sides = measured.into_iter().map(|one| one.side).collect();
    let report = Report::new(event, options, sides);
    if let Some(path) = &options.plot {
        plot::write(path, &report)?;
    }
    Ok(Printed { json: report.to_json(), text: report.to_text() })
}

/// A cluster that is measured.
struct Measured {
    cluster: Target,
    /// The counts of its nodes when it was last quiet.
    counters: Counters,
    side: Side,
}

impl Measured {
    /// Starts a cluster, and touches its keys.
    async fn start(
        directory: &Directory, name: &'static str, binary: Option<PathBuf>, options: &EventOptions,
        load: &Load,
    ) -> Result<Measured, Error> {
        let cluster_options = ClusterOptions { binary, ..options.cluster.clone() };
        let mut cluster = cluster::start(directory, name, NODES, &cluster_options).await?;
        if options.warm_records > 0 {
            warm::touch_all(&cluster, load, options.warm_records).await?;
            // A handover might leave the keys active: in the memory of the next leader.
            drop(Event::Kill.carry_out(&mut cluster, None).await?);
            restart_ended(&mut cluster).await?;
        }
        warm::touch_all(&cluster, load, load.keys).await?;
        Ok(Measured {
            counters: Counters::read(&cluster).await?,
            cluster,
            side: Side { name, binary: cluster_options.binary, events: Vec::new() },
        })
    }

    /// Drives the cluster with the load, has the event happen, and brings the cluster back to its full strength.
    async fn add_event(
        &mut self, event: Event, options: &EventOptions, load: &Load,
    ) -> Result<(), Error> {
        let name = self.side.name;
        let mut asked = self.cluster.without_processes(name);
        asked.choose(options.load.interface, options.load.via)?;
        // If it led afterwards, before and after could not be compared.
        let asked_follower = asked.first_follower();
        let leaders = LeaderWatch::start(&self.cluster);
        let workers = Workers::start(&asked, load).await?;
        let started = workers.started();
        let (done, mut seen) = self.happen(event, options, asked_follower, &workers).await;
        let last_leader = leaders.led().last().map(|led| led.leader);
        let Stopped { failures, late } =
            workers.stop().await.map_err(|error| error.within(name))?;
        seen.add(&Records { latencies: late, receipts: Vec::new() }, false);
        let done = done?;
        let since_start = |at: Instant| (at - started).as_millis() as u64;
        let took = since_start(done.from)..since_start(done.until) + 1;
        let around = Around::new(&seen.timeline, took.clone()).ok_or_else(|| {
            let why = failures.first.as_deref().unwrap_or("no request was answered");
            Error::other(format!("{name}: no numbers before the event: {why}"))
        })?;
        restart_ended(&mut self.cluster).await?;
        // The numbers that the first touch of a key skips are counted then.
        warm::touch_all(&self.cluster, load, load.keys).await?;
        let counters = Counters::read(&self.cluster).await?;
        let leaders = leaders.led().into_iter().map(|led| Leader {
            term: led.term,
            node: led.leader,
            ms: millis_between(done.from, led.heard),
        });
        self.side.events.push(EventResult {
            event: took,
            around,
            seen,
            failures,
            skips: counters.since(&self.counters, &done.ended),
            leaders: leaders.collect(),
            asked_follower_leads: asked_follower.map(|asked| Some(asked) == last_leader),
            refused: done.refused,
        });
        self.counters = counters;
        self.side.tell_last();
        Ok(())
    }

    /// Has the event happen while `workers` drive the cluster, and looks on until the load is over.
    async fn happen(
        &mut self, event: Event, options: &EventOptions, asked_follower: Option<u64>,
        workers: &Workers,
    ) -> (Result<Done, Error>, Seen) {
        let mut seen = Seen::new();
        until_answered(workers, &mut seen).await;
        let at = Instant::now() + Duration::from_secs_f64(options.at);
        let is_over = Cell::new(false);
        let happening = async {
            tokio::time::sleep_until(at.into()).await;
            let done = event.carry_out(&mut self.cluster, asked_follower).await;
            tokio::time::sleep(Duration::from_secs_f64(options.seconds - options.at)).await;
            is_over.set(true);
            done
        };
        tokio::join!(happening, watch(workers, seen, at, &is_over))
    }
}

/// Waits for the first answer, so that a slow machine has as many seconds before the event as a fast one. The report says if
/// there was none.
async fn until_answered(workers: &Workers, seen: &mut Seen) {
    let given_up = Instant::now() + FIRST_ANSWER_MAX;
    while !workers.have_stopped() && Instant::now() < given_up {
        let receipts = workers.records().receipts;
        // Latencies of the start do not count.
        seen.timeline.add(&receipts);
        if !receipts.is_empty() {
            return;
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Collects the answers to the callers until the load is over. The event begins at `event`.
async fn watch(workers: &Workers, mut seen: Seen, event: Instant, is_over: &Cell<bool>) -> Seen {
    tokio::time::sleep_until((workers.started() + Duration::from_millis(START_MS)).into()).await;
    // The latencies of the start do not count. The timeline leaves the start out by itself.
    seen.timeline.add(&workers.records().receipts);
    while !is_over.get() && !workers.have_stopped() {
        tokio::time::sleep(TICK).await;
        let records = workers.records();
        seen.add(&records, Instant::now() < event);
    }
    seen
}
