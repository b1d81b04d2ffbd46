//! One run: a cluster, callers, faults, a verdict.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;
use tokio::{task::JoinSet, time::Instant};
use tonic::{Code, Status};

use crate::{
    checker,
    client::Target,
    cluster::{Cluster, Plan, Product},
    export,
    history::{Action, History, Op, Outcome},
    judge::{Measure, Verdict, judge, longest_silence},
    monitor::{Led, Monitor},
    nemesis::{Nemesis, Stage, Strike},
    network::Port,
    proto::CreateNamespaceRequest,
    record::Recorder,
    report, slow_reader,
    workload::{self, Asked, Callers, Nodes, OWN, SHARED, SHARED_SECTION_SIZE, Workload},
};

const STARTING: Duration = Duration::from_secs(30);
const FINAL_KEYS_MAX: usize = 30;
const FINAL_TRIES: usize = 20;

/// What a run is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster.
    pub plan: Plan,
    /// What goes wrong.
    pub nemesis: Nemesis,
    /// What callers ask for.
    pub workload: Workload,
    /// How many keys the workloads of many keys have.
    pub keys: u64,
    /// How many callers.
    pub callers: usize,
    /// For how long faults go on.
    pub seconds: u64,
    /// The step of the namespaces.
    pub step: u64,
    /// How many answered operations make the run worth judging.
    pub ops_min: u64,
    /// How many operations the history has at most: callers are held back so that it lasts.
    pub ops_max: u64,
    /// How many leader changes do.
    pub changes_min: u64,
    /// Whether to stop at the first violation.
    pub until_violation: bool,
    /// Where the report, the histories and the nodes' logs go.
    pub out: PathBuf,
    /// The command that repeats it.
    pub replay: String,
}

/// What a run was.
pub struct Run {
    /// What was asked for.
    pub options: Options,
    /// The verdict.
    pub verdict: Verdict,
    /// What callers saw.
    pub history: History,
    /// What went wrong.
    pub strikes: Vec<Strike>,
    /// Who led when.
    pub led: Vec<Led>,
    /// The figures.
    pub summary: Summary,
}

/// A run in figures.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// What went wrong.
    pub nemesis: String,
    /// The verdict in a word.
    pub verdict: String,
    /// Operations answered.
    pub answered: u64,
    /// The keys of those.
    pub keys: usize,
    /// Operations that surely did not happen.
    pub failed: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Leader changes seen.
    pub leader_changes: u64,
    /// Faults that happened, and those of them that surely bit.
    pub strikes: usize,
    /// Faults of which it is certain that they happened.
    pub bit: usize,
    /// The longest time without an answer, in milliseconds.
    pub longest_outage_ms: u64,
    /// After how many seconds the first violation was found, where the run was to stop at it.
    pub caught_after_s: Option<f64>,
}

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
        if options.until_violation && (broken || !stage.recorder.is_in_order()) {
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

async fn make_namespaces(options: &Options, stage: &Stage) -> io::Result<()> {
    let sizes = [(OWN, 1), (SHARED, SHARED_SECTION_SIZE)];
    let ours = sizes.map(|(name, section_size)| CreateNamespaceRequest {
        name: name.to_owned(),
        step: Some(options.step),
        section_size: Some(section_size),
        ..CreateNamespaceRequest::default()
    });
    let mut last = String::new();
    let making = async {
        for namespace in ours.into_iter().chain([slow_reader::namespace()]) {
            while let Err(status) = make_namespace(options, stage, &namespace).await {
                last = status.to_string();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    let made = tokio::time::timeout(STARTING, making).await;
    made.map_err(|_| {
        let limit = STARTING.as_secs();
        io::Error::other(format!(
            "the cluster did not start within {limit} s: {last}"
        ))
    })
}

async fn make_namespace(
    options: &Options,
    stage: &Stage,
    namespace: &CreateNamespaceRequest,
) -> Result<(), Status> {
    let mut client = stage.cluster.client(1);
    if options.plan.product == Product::MaxWins {
        // It knows no namespaces; it only has to be there.
        let target = Target {
            namespace: OWN,
            id: u64::MAX,
        };
        return client.ask(&target, Action::Current).await.map(drop);
    }
    match client.admin().create_namespace(namespace.clone()).await {
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Reads every key through every node, and takes a number of each.
async fn read_finally(stage: &mut Stage) -> Vec<Op> {
    let recorder = stage.recorder.clone();
    let mut finals = Vec::new();
    for target in recorder.targets(FINAL_KEYS_MAX) {
        for id in stage.members.clone() {
            let mut client = stage.cluster.client(id);
            for action in [Action::Current, Action::Next { count: 1 }] {
                for attempt in 1..=FINAL_TRIES {
                    let (process, node) = (recorder.new_process(), u64::from(id));
                    let outcome =
                        workload::ask(&recorder, &mut client, node, process, &target, action).await;
                    if outcome == Outcome::Ok || attempt == FINAL_TRIES {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                finals.extend(recorder.last());
            }
        }
    }
    finals
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

fn summary(
    options: &Options,
    verdict: &Verdict,
    history: &History,
    strikes: &[Strike],
    leader_changes: u64,
    caught_after_s: Option<f64>,
) -> Summary {
    let count = |outcome| {
        history
            .ops
            .iter()
            .filter(|op| op.outcome == outcome)
            .count() as u64
    };
    Summary {
        nemesis: format!("{:?}", options.nemesis),
        verdict: verdict.word().to_owned(),
        answered: count(Outcome::Ok),
        keys: history.keys(),
        failed: count(Outcome::Fail),
        unknown: count(Outcome::Info),
        leader_changes,
        strikes: strikes.len(),
        bit: strikes.iter().filter(|strike| strike.bit).count(),
        longest_outage_ms: longest_outage(history) / 1_000_000,
        caught_after_s,
    }
}

/// The longest time between two answers.
fn longest_outage(history: &History) -> u64 {
    let answered = || history.answered().map(Op::returned);
    let (first, last) = (answered().min(), answered().max());
    longest_silence(answered(), first.unwrap_or(0), last.unwrap_or(0))
}

impl Recorder {
    /// Whether what was recorded so far is in order.
    fn is_in_order(&self) -> bool {
        self.with(|history| checker::check_order(history).is_ok())
    }

    /// Some of the keys that were asked for, the busiest first.
    fn targets(&self, max: usize) -> Vec<Target> {
        let mut busiest: Vec<(usize, String)> = self.with(|history| {
            let mut count: HashMap<&str, usize> = HashMap::new();
            for op in &history.ops {
                *count.entry(&op.key).or_default() += 1;
            }
            let named = count
                .into_iter()
                .map(|(key, times)| (times, key.to_owned()));
            named.collect()
        });
        busiest.sort_unstable_by(|one, other| other.cmp(one));
        let parse = |(_, name): (usize, String)| {
            let (namespace, id) = name.split_once('/')?;
            let namespace = [OWN, SHARED].into_iter().find(|ours| *ours == namespace)?;
            let id = id.parse().ok()?;
            Some(Target { namespace, id })
        };
        busiest.into_iter().take(max).filter_map(parse).collect()
    }

    /// The operation that was recorded last.
    fn last(&self) -> Option<Op> {
        self.with(|history| history.ops.last().cloned())
    }
}
