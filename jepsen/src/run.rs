//! One run: a cluster, callers, faults, a verdict.

use std::{
    fs::{self, File},
    io::{self, BufWriter},
    path::Path,
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    checker,
    cluster::Cluster,
    export,
    final_reads::read_finally,
    history::{History, Op},
    judge::{Measure, Verdict, judge},
    monitor::Monitor,
    namespaces::make_namespaces,
    nemesis::{Nemesis, Stage, Strike},
    network::Port,
    nodes::Nodes,
    record::Recorder,
    report,
    result::{Options, Run, summary},
    workload::{Asked, Callers, OWN},
};

/// Runs, judges, and writes everything down.
pub async fn run(options: Options) -> Run {
    match attempt(&options).await {
        Ok(run) => run,
        Err(error) => {
            let verdict = Verdict::HarnessError(error.to_string());
            let history = History::default();
            Run {
                summary: summary(&options, &verdict, &history, &[], 0, None),
                options,
                verdict,
                history,
                strikes: Vec::new(),
                led: Vec::new(),
            }
        }
    }
}

async fn attempt(options: &Options) -> io::Result<Run> {
    fs::create_dir_all(&options.out)?;
    let work = tempfile::Builder::new()
        .prefix("ratchet-jepsen-")
        .tempdir()?;
    let cluster = Cluster::start(options.plan.clone(), work.path())?;
    let members: Vec<Port> = (1..=options.plan.nodes).collect();
    let addresses = members
        .iter()
        .map(|id| (u64::from(*id), cluster.address(*id)));
    let nodes: Nodes = Arc::new(RwLock::new(addresses.collect()));
    let recorder = Arc::new(Recorder::default());
    let monitor = Monitor::default();
    let mut stage = Stage {
        fresh: options.plan.nodes + 1,
        cluster,
        recorder: recorder.clone(),
        monitor: monitor.clone(),
        nodes: nodes.clone(),
        rng: StdRng::seed_from_u64(options.plan.seed),
        members,
        handed_over: 0,
        cold_keys: 0,
    };
    let done = perform(options, &mut stage).await;
    save_logs(&stage.cluster, &options.out);
    let (strikes, finals, caught) = done?;
    let history = recorder.take();
    let measure = Measure {
        nemesis: options.nemesis,
        ops_min: options.ops_min,
        keys_min: options.workload.keys_min(options.keys),
        changes_min: options.changes_min,
        step: options.step,
        unclean_changes: monitor.terms_passed().saturating_sub(stage.handed_over),
        changes: monitor.changes(),
        fence_skips: monitor.fence_skips(),
        own_section: |key| key.starts_with(OWN),
    };
    let verdict = judge(&history, &strikes, &finals, &measure);
    let changes = monitor.changes();
    let run = Run {
        summary: summary(options, &verdict, &history, &strikes, changes, caught),
        options: options.clone(),
        verdict,
        history,
        strikes,
        led: monitor.led(),
    };
    write_down(&run)?;
    Ok(run)
}

type Done = (Vec<Strike>, Vec<Op>, Option<f64>);

async fn perform(options: &Options, stage: &mut Stage) -> io::Result<Done> {
    let mut strikes: Vec<Strike> = Vec::new();
    if options.nemesis == Nemesis::DiskNames && options.plan.faulty_disks {
        strikes.push(stage.cut_power_at_birth().await?);
    }
    if let Err(error) = make_namespaces(options, stage).await {
        let Some(cut) = strikes.first_mut() else {
            return Err(error);
        };
        // From what the power cut left, the cluster must be able to start.
        cut.broken.get_or_insert(error.to_string());
        return Ok((strikes, Vec::new(), None));
    }
    let (recorder, nodes) = (stage.recorder.clone(), stage.nodes.clone());
    let mut watching = JoinSet::new();
    stage.monitor.watch(&nodes, &recorder, &mut watching);
    let asked = Asked {
        workload: options.workload,
        keys: options.keys,
        per_second_max: options.ops_max / options.seconds.max(1),
        seed: options.plan.seed,
    };
    let callers = Callers::start(asked, options.callers, &nodes, &recorder);
    let began = Instant::now();
    let end = began + Duration::from_secs(options.seconds);
    let mut caught = None;
    tokio::time::sleep(Duration::from_millis(500)).await;
    while Instant::now() < end {
        let fresh_left = stage.fresh <= options.plan.nodes + options.plan.spare;
        if options.nemesis == Nemesis::None || (options.nemesis.needs_fresh_nodes() && !fresh_left)
        {
            tokio::time::sleep(Duration::from_millis(500)).await;
        } else {
            strikes.extend(stage.strike(options.nemesis).await?);
        }
        progress(options, stage, &strikes, began);
        let broken = strikes.last().is_some_and(|strike| strike.broken.is_some());
        if options.until_violation && (broken || !is_in_order(&stage.recorder)) {
            caught = Some(began.elapsed().as_secs_f64());
            break;
        }
        let pause = stage.rng.random_range(100..400);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    stage.heal()?;
    let healed = recorder.now();
    // What does not flow again shows in the final reads.
    let _ = tokio::time::timeout(crate::nemesis::RECOVERY, recorder.answered_since(healed)).await;
    callers.stop().await;
    let finals = if caught.is_some() {
        Vec::new()
    } else {
        read_finally(stage).await
    };
    Ok((strikes, finals, caught))
}

fn progress(options: &Options, stage: &Stage, strikes: &[Strike], began: Instant) {
    let what = strikes.last().map_or("", |strike| &strike.what);
    eprintln!(
        "{:>5.1} s of {}: {:>7} answered, {:>3} leader changes, leader {}: {what}",
        began.elapsed().as_secs_f64(),
        options.seconds,
        stage.recorder.acknowledged(),
        stage.monitor.changes(),
        stage
            .monitor
            .leader()
            .map_or("?".to_owned(), |id| id.to_string()),
    );
}

fn save_logs(cluster: &Cluster, out: &Path) {
    for id in 1..=cluster.plan.nodes + cluster.plan.spare {
        let (from, to) = (cluster.log(id), out.join(format!("node-{id}.log")));
        if from.exists()
            && let Err(error) = fs::copy(&from, &to)
        {
            eprintln!("{} was not kept: {error}", from.display());
        }
    }
}

fn write_down(run: &Run) -> io::Result<()> {
    let out = &run.options.out;
    let file = |name: &str| Ok::<_, io::Error>(BufWriter::new(File::create(out.join(name))?));
    export::edn(&run.history, &mut file("history.edn")?)?;
    export::json(&run.history, &mut file("history.json")?)?;
    serde_json::to_writer_pretty(file("summary.json")?, &run.summary).map_err(io::Error::other)?;
    fs::write(out.join("report.html"), report::html(run))
}

/// Whether what was recorded so far is in order.
fn is_in_order(recorder: &Recorder) -> bool {
    recorder.with(|history| checker::check_order(history).is_ok())
}
