//! One run: starts a cluster, callers and faults, decides on the verdict, and writes everything down.

use std::{
    collections::BTreeMap,
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
    accounting::Accounting,
    callers::CallersAtWork,
    changes::Operator,
    checker,
    cluster::{Cluster, Product},
    export,
    exported::Exported,
    final_reads,
    finding::Finding,
    gapless::{GaplessAnswers, GaplessCallers},
    history::{History, Op},
    ids::{Distance, Figures, Findings, SeenIds, start_id_callers},
    monitor::Monitor,
    namespaces,
    nemesis::{Fault, Injector, Nemesis, RECOVERY_MAX},
    network::Port,
    record::Recorder,
    report,
    result::{Options, Run, Summary},
    stalls::Stalls,
    strangers,
    target::{NAMED, OWN},
    verdict::{Criteria, Verdict},
    workload::{COUNT_MAX, Workload, WorkloadConfig, start_callers},
};

/// How long callers are alone before the first fault, and between two looks where there is none.
const UNDISTURBED: Duration = Duration::from_millis(500);
/// How many applications make ids themselves.
const APPLICATIONS: usize = 6;
/// How many callers of ids, and applications, there are beside another workload.
const ID_CALLERS_FEW: usize = 8;
const APPLICATIONS_FEW: usize = 2;

/// Runs. An error of the harness becomes the verdict.
pub async fn run(options: Options) -> Run {
    match attempt(&options).await {
        Ok(run) => run,
        Err(error) => {
            let verdict = Verdict::HarnessError(error.to_string());
            let history = History::default();
            Run {
                summary: Summary::new(&options, &verdict, &history, &[], None, None),
                options,
                verdict,
                history,
                faults: Vec::new(),
                leaderships: Vec::new(),
            }
        }
    }
}

async fn attempt(options: &Options) -> io::Result<Run> {
    fs::create_dir_all(&options.out)?;
    let work = tempfile::Builder::new().prefix("ratchet-jepsen-").tempdir()?;
    let mut injector = start(options, work.path())?;
    let observed = observe(options, &mut injector).await;
    save_logs(&injector.cluster, &options.out);
    let observed = observed?;
    let monitor = &injector.monitor;
    let history = injector.recorder.take();
    let criteria = Criteria {
        nemesis: options.nemesis,
        ops_min: options.ops_min,
        keys_min: options.workload.keys_min(options.keys),
        changes_min: options.changes_min,
        evicted_min: u64::from(options.cluster.releases_keys()),
        evicted: monitor.evicted_keys(),
        step: options.step,
        unclean_changes: monitor.unclean_changes(&injector.handed_over),
        changes: monitor.changes(),
        fence_skips: monitor.fence_skips(),
        waiting_max: 2 * options.callers as u64 * COUNT_MAX,
        accounting: observed.accounting,
        exported: observed.exported,
        panics: injector.cluster.panics(),
        two_leaders: monitor.two_leaders(),
        gapless: observed.gapless,
        ids: observed.ids,
        own_section: |key| key.starts_with(OWN) || key.starts_with(NAMED),
    };
    let verdict = Verdict::decide(&history, &observed.faults, &observed.final_reads, &criteria);
    let summary = Summary::new(
        options,
        &verdict,
        &history,
        &observed.faults,
        Some(&criteria),
        observed.caught_after_s,
    )
    .with_ids(observed.id_figures);
    let run = Run {
        summary,
        options: options.clone(),
        verdict,
        history,
        faults: observed.faults,
        leaderships: monitor.leaderships(),
    };
    write_down(&run)?;
    injector.cluster.check_secrets_untold(&options.out)?;
    Ok(run)
}

fn start(options: &Options, dir: &Path) -> io::Result<Injector> {
    let cluster = Cluster::start(options.cluster.clone(), dir)?;
    let members: Vec<Port> = (1..=options.cluster.nodes).collect();
    let addresses = members.iter().map(|id| (u64::from(*id), cluster.address(*id)));
    let recorder: Arc<Recorder> = Arc::default();
    Ok(Injector {
        stalls: Stalls::watch(&recorder)?,
        next_new_node: options.cluster.nodes + 1,
        nodes: Arc::new(RwLock::new(addresses.collect())),
        cluster,
        recorder,
        monitor: Monitor::default(),
        rng: StdRng::seed_from_u64(options.cluster.seed),
        members,
        handed_over: BTreeMap::new(),
        slow_reader_keys: 0,
    })
}

/// The observations of a run, besides its history.
#[derive(Default)]
struct Observed {
    faults: Vec<Fault>,
    final_reads: Vec<Op>,
    /// The nodes' accounts and counters, unless the run was stopped.
    accounting: Option<Accounting>,
    /// The exports at the end.
    exported: Exported,
    /// The findings on gapless keys.
    gapless: Findings,
    /// The findings on ids, and their figures.
    ids: Findings,
    id_figures: Option<Figures>,
    /// When the first violation was found, if the run stopped at it.
    caught_after_s: Option<f64>,
}

async fn observe(options: &Options, injector: &mut Injector) -> io::Result<Observed> {
    let mut faults: Vec<Fault> = Vec::new();
    if options.nemesis == Nemesis::DiskNames && options.cluster.faulty_disks {
        faults.push(cut_power_while_founded(options, injector).await?);
    }
    let mut client = injector.cluster.client(1);
    let (product, with_ids) = (options.cluster.product, options.asks_for_ids());
    let created = namespaces::create(&mut client, product, options.step, with_ids).await;
    if let Err(error) = created {
        let Some(power_cut) = faults.first_mut() else {
            return Err(error);
        };
        // The cluster must be able to start from the data that the power cut left.
        power_cut.violations.push(Finding::Node.told(error.to_string()));
        return Ok(Observed { faults, ..Observed::default() });
    }
    strangers::are_refused(&injector.cluster.address(1)).await?;
    let mut watching = JoinSet::new();
    injector.monitor.watch(&injector.nodes, &injector.recorder, &mut watching);
    let callers = callers_of_numbers(options, injector);
    let gapless = gapless_callers(options, injector);
    if product == Product::Ratchet {
        let nodes = injector.nodes.clone();
        let operator = Operator::start(nodes, options.step, options.cluster.seed).await?;
        watching.spawn(operator.keep_changing());
    }
    let seen = Watched {
        gapless: gapless.as_ref().map(GaplessCallers::answers).unwrap_or_default(),
        ids: seen_ids(options, injector)?,
    };
    let id_callers = seen.ids.as_ref().map(|ids| id_callers(options, ids));
    let caught_after_s = inject_faults(options, injector, &mut faults, &seen).await?;
    injector.heal()?;
    let healed = injector.recorder.now();
    // A run that stops at a violation is judged by that. Without a fault the final reads alone show whether numbers flow.
    if caught_after_s.is_none()
        && let Some(last) = faults.last_mut()
        && let Some(flow) = injector.recorder.silent_flow(healed, RECOVERY_MAX).await
    {
        let limit = RECOVERY_MAX.as_secs();
        let what = format!("{flow} within {limit} s after all faults were over");
        last.violations.push(Finding::Silence.told(what));
    }
    callers.stop().await;
    if let Some(id_callers) = id_callers {
        id_callers.stop().await;
    }
    let found = match (gapless, caught_after_s) {
        (Some(gapless), None) => gapless.finish().await,
        _ => Findings { violations: seen.gapless.violations(), ..Findings::default() },
    };
    let read = match caught_after_s {
        Some(_) => Observed::default(),
        None => read_at_end(injector, product).await,
    };
    Ok(Observed {
        faults,
        gapless: found,
        ids: seen.ids.as_ref().map(|ids| ids.findings()).unwrap_or_default(),
        id_figures: seen.ids.as_ref().map(|ids| ids.figures()),
        caught_after_s,
        ..read
    })
}

/// Cuts the power while the cluster is founded. Nobody waits for the founding: it goes on after the cut.
async fn cut_power_while_founded(options: &Options, injector: &mut Injector) -> io::Result<Fault> {
    let (mut client, product) = (injector.cluster.client(1), options.cluster.product);
    let founding = tokio::spawn(async move {
        namespaces::found(&mut client, product, &mut String::new()).await;
    });
    let power_cut = injector.cut_power_at_first_start().await?;
    founding.abort();
    Ok(power_cut)
}

/// Reads what the nodes say, once nobody asks any more: the busiest keys, and of our product its accounts and exports.
async fn read_at_end(injector: &Injector, product: Product) -> Observed {
    let final_reads = final_reads::read(injector).await;
    let (accounting, exported) = match product {
        Product::Ratchet => {
            (Some(Accounting::read(injector).await), Exported::read(injector).await)
        }
        Product::MaxWins => (None, Exported::default()),
    };
    Observed { final_reads, accounting, exported, ..Observed::default() }
}

/// The observations of callers beside those of the history.
struct Watched {
    gapless: Arc<GaplessAnswers>,
    /// If ids are asked for.
    ids: Option<Arc<SeenIds>>,
}

impl Watched {
    fn is_violated(&self) -> bool {
        let ids = self.ids.as_ref();
        !self.gapless.violations().is_empty() || ids.is_some_and(|ids| ids.is_violated())
    }
}

fn seen_ids(options: &Options, injector: &Injector) -> io::Result<Option<Arc<SeenIds>>> {
    if !options.asks_for_ids() {
        return Ok(None);
    }
    let distance = Distance::under(options.nemesis, options.cluster.fence);
    let per_second_max = options.ops_max / options.seconds.max(1);
    let (nodes, recorder) = (&injector.nodes, &injector.recorder);
    let nodes = (nodes, &injector.cluster.starts);
    let seen = SeenIds::new(nodes, recorder, distance, per_second_max);
    seen.map(Some).map_err(io::Error::other)
}

/// Callers of numbers, through all interfaces of the product.
fn callers_of_numbers(options: &Options, injector: &Injector) -> CallersAtWork<()> {
    let config = WorkloadConfig {
        workload: options.workload,
        keys: options.keys,
        interfaces: options.cluster.product.interfaces(),
        per_second_max: options.ops_max / options.seconds.max(1),
        seed: options.cluster.seed,
    };
    let (nodes, recorder) = (&injector.nodes, &injector.recorder);
    start_callers(config, options.callers_of_numbers(), nodes, recorder)
}

/// Callers of ids: few where they run beside another workload.
fn id_callers(options: &Options, seen: &Arc<SeenIds>) -> CallersAtWork<()> {
    let (callers, applications) = match options.workload {
        Workload::Ids => (options.callers, APPLICATIONS),
        _ => (ID_CALLERS_FEW, APPLICATIONS_FEW),
    };
    start_id_callers(seen, callers, applications, options.cluster.seed)
}

/// Callers of gapless keys, which the ancestor does not have.
fn gapless_callers(options: &Options, injector: &Injector) -> Option<GaplessCallers> {
    let has_them = options.cluster.product == Product::Ratchet;
    let (nodes, recorder) = (&injector.nodes, &injector.recorder);
    has_them.then(|| GaplessCallers::start(options.cluster.seed, nodes, recorder))
}

/// Injects faults until the time is over. Returns after how many seconds a violation was found, if the run
/// is to stop at one.
async fn inject_faults(
    options: &Options, injector: &mut Injector, faults: &mut Vec<Fault>, seen: &Watched,
) -> io::Result<Option<f64>> {
    let began = Instant::now();
    let end = began + Duration::from_secs(options.seconds);
    tokio::time::sleep(UNDISTURBED).await;
    while Instant::now() < end {
        let new_node_left = injector.next_new_node <= options.cluster.room();
        if options.nemesis == Nemesis::None || (options.nemesis.uses_up_nodes() && !new_node_left) {
            tokio::time::sleep(UNDISTURBED).await;
        } else {
            faults.extend(injector.inject(options.nemesis).await?);
        }
        print_progress(options, injector, faults, began);
        let is_violated = || is_violated(injector, faults) || seen.is_violated();
        if options.until_violation && is_violated() {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
        let pause_ms = injector.rng.random_range(100..400);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    Ok(None)
}

fn is_violated(injector: &Injector, faults: &[Fault]) -> bool {
    faults.last().is_some_and(|fault| !fault.violations.is_empty())
        || !injector.cluster.panics().is_empty()
        || injector.recorder.with(|history| checker::check_order(history).is_err())
}

fn print_progress(options: &Options, injector: &Injector, faults: &[Fault], began: Instant) {
    let leader = injector.monitor.leader();
    eprintln!(
        "{:>5.1} s of {}: {:>7} answered, {:>3} leader changes, leader {}: {}",
        began.elapsed().as_secs_f64(),
        options.seconds,
        injector.recorder.acknowledged(),
        injector.monitor.changes(),
        leader.map_or("?".to_owned(), |id| id.to_string()),
        faults.last().map_or("", |fault| &fault.description),
    );
}

fn save_logs(cluster: &Cluster, out: &Path) {
    for id in 1..=cluster.config.room() {
        let (from, to) = (cluster.log(id), out.join(format!("node-{id}.log")));
        if from.exists()
            && let Err(error) = fs::copy(&from, &to)
        {
            eprintln!("{} could not be kept: {error}", from.display());
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
