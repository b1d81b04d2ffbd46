//! `ratchet-jepsen run`.

use std::{env, path::PathBuf, process::ExitCode};

use clap::Args;
use ratchet_jepsen::{
    cluster::{ClusterConfig, Fence, Product},
    disk::Disk,
    isolate,
    manifest::Manifest,
    nemesis::Nemesis,
    result::Options,
    run,
    workload::Workload,
};

use super::exit::{block_on, failed};

/// One run.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// The faults.
    #[arg(long, value_enum, default_value = "composed")]
    pub nemesis: Nemesis,
    /// The workload of the callers.
    #[arg(long, value_enum, default_value = "mixed")]
    pub workload: Workload,
    /// How many keys the workloads many-keys and skewed have.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// For how long faults are injected.
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// The seed of all random choices of the harness; by default a random one.
    #[arg(long)]
    pub seed: Option<u64>,
    /// The fence that the nodes use.
    #[arg(long, value_enum, default_value = "lease")]
    pub fence: Fence,
    /// After how many milliseconds a key that nobody asks for is evicted from the leader's memory; by default as usual.
    #[arg(long)]
    pub key_idle_ms: Option<u64>,
    /// How many megabytes of keys the leader's memory holds; by default as usual.
    #[arg(long)]
    pub memory_max_mb: Option<u64>,
    /// How many nodes there are; by default 5 for partition-ring, else 3.
    #[arg(long)]
    pub nodes: Option<u8>,
    /// How many callers there are.
    #[arg(long, default_value_t = 16)]
    pub callers: usize,
    /// The step of the namespaces; by default the one under which the nemesis shows most.
    #[arg(long)]
    pub step: Option<u64>,
    /// The program under test; by default `ratchet` beside this program.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// The product under test.
    #[arg(long, value_enum, default_value = "ratchet")]
    pub product: Product,
    /// The planted bug that the program shall have. It must be built with debug assertions.
    #[arg(long)]
    pub bug: Option<String>,
    /// All connections are over TLS, and callers show a certificate and a token.
    #[arg(long)]
    pub secure: bool,
    /// The objects of a StatefulSet whose pods the nodes are, as JSON. It is for the nemesis pods; jepsen/kubernetes renders
    /// it.
    #[arg(long)]
    pub manifest: Option<PathBuf>,
    /// How many operations must be answered; with fewer the verdict is unknown.
    #[arg(long, default_value_t = 1_000)]
    pub ops_min: u64,
    /// How many operations the history has at most, some 200 bytes each. Callers are held back so that it
    /// lasts.
    #[arg(long, default_value_t = 3_000_000)]
    pub ops_max: u64,
    /// How many leader changes there must be; by default 1 if the nemesis changes leaders, else 0.
    #[arg(long)]
    pub changes_min: Option<u64>,
    /// Stop at the first violation.
    #[arg(long)]
    pub until_violation: bool,
    /// Use loopback addresses even where network namespaces are possible.
    #[arg(long)]
    pub loopback: bool,
    /// Where the report, the histories and the nodes' logs go.
    #[arg(long, default_value = "jepsen-report")]
    pub out: PathBuf,
}

/// Runs, prints the verdict, and returns its exit code.
pub fn main(arguments: Arguments) -> ExitCode {
    let mut why_not = "as asked for by --loopback".to_owned();
    if !arguments.loopback && !isolate::is_inside() {
        why_not = isolate::enter();
    }
    let isolated = !arguments.loopback && isolate::is_inside();
    if isolated && let Err(error) = isolate::mount_run() {
        return failed(error);
    }
    if !isolated {
        eprintln!(
            "NO NAMESPACES ({why_not}): all nodes share this machine's loopback. Partitions, one-way \
             links, slow and flaky links CANNOT BE TESTED here; the verdict of such a run is unknown."
        );
    }
    let options = match options(arguments, isolated) {
        Ok(options) => options,
        Err(error) => return failed(error),
    };
    eprintln!("seed {}; {}", options.cluster.seed, options.replay);
    let run = match block_on(run::run(options)) {
        Ok(run) => run,
        Err(error) => return failed(error),
    };
    println!(
        "{}\n{} answered for {} keys, {} unknown, {} leader changes, at most {} unclean, {} faults of which \
         {} took effect, longest outage {} ms\nanswered through {}\nreport: {}",
        run.verdict,
        run.summary.answered,
        run.summary.keys,
        run.summary.unknown,
        run.summary.leader_changes,
        run.summary.unclean_changes,
        run.summary.faults,
        run.summary.took_effect,
        run.summary.longest_outage_ms,
        run.summary.answered_through(),
        run.options.out.join("report.html").display(),
    );
    if let Some(ids) = &run.summary.ids {
        println!("{ids}");
    }
    run.verdict.kind().into()
}

fn options(arguments: Arguments, isolated: bool) -> std::io::Result<Options> {
    if arguments.secure && arguments.product == Product::MaxWins {
        let why = "--secure is for the product ratchet: max-wins has no TLS; leave it out";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let manifest = arguments.manifest.as_deref().map(Manifest::read).transpose()?;
    if manifest.is_some() != (arguments.nemesis == Nemesis::Pods)
        || (manifest.is_some() && (arguments.secure || !isolated))
    {
        let why = "--manifest goes with --nemesis pods, which needs it, and network namespaces; it does not go with --secure";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let seed = arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let own = env::current_exe()?;
    let binary = match (arguments.product, arguments.binary) {
        (Product::MaxWins, _) => own,
        (Product::Ratchet, Some(binary)) => binary.canonicalize().map_err(|error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", binary.display()))
        })?,
        (Product::Ratchet, None) => own.with_file_name("ratchet"),
    };
    let nemesis = arguments.nemesis;
    let ring = nemesis == Nemesis::PartitionRing;
    let nodes = arguments.nodes.unwrap_or(if ring { 5 } else { 3 });
    let faulty_disks = disks_can_fail();
    if !faulty_disks {
        eprintln!(
            "NO FUSE: disks that fail, fill up or lose unsynced writes CANNOT BE TESTED here; the verdict \
             of such a run is unknown."
        );
    }
    let words: Vec<String> = env::args().skip(1).collect();
    let mut replay = format!("ratchet-jepsen {}", words.join(" "));
    if !words.iter().any(|word| word.starts_with("--seed")) {
        replay.push_str(&format!(" --seed {seed}"));
    }
    Ok(Options {
        cluster: ClusterConfig {
            product: arguments.product,
            binary,
            nodes,
            spare: if nemesis.uses_up_nodes() { 12 } else { 0 },
            fence: arguments.fence,
            bug: arguments.bug,
            log_keep_bytes: nemesis.log_keep_bytes(),
            timings: nemesis.timings(),
            key_idle_ms: arguments.key_idle_ms,
            memory_max_mb: arguments.memory_max_mb,
            secure: arguments.secure,
            manifest,
            isolated,
            faulty_disks,
            seed,
        },
        nemesis,
        workload: arguments.workload,
        keys: arguments.keys,
        callers: arguments.callers,
        seconds: arguments.seconds,
        step: arguments.step.unwrap_or_else(|| nemesis.step(seed)),
        ops_min: arguments.ops_min,
        ops_max: arguments.ops_max,
        changes_min: arguments.changes_min.unwrap_or(u64::from(nemesis.changes_leader())),
        until_violation: arguments.until_violation,
        out: arguments.out,
        replay,
    })
}

fn disks_can_fail() -> bool {
    tempfile::tempdir().is_ok_and(|dir| Disk::mount(dir.path(), 0).is_ok())
}
