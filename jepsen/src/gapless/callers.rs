//! All callers of gapless keys: started together, stopped together, and their numbers judged.

use std::{sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::StdRng};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{
    NAMESPACES,
    answers::GaplessAnswers,
    asked::{Caller, Shared},
    named, recreated, targets, unnamed, with_client,
};
use crate::{
    client::{Client, DEADLINE},
    history::{Action, Interface},
    ids::Findings,
    nodes::KnownNodes,
    record::{Flow, Recorder},
    target::Target,
    workload::ProductClient,
};

/// How many callers give ids of their own.
const NAMED: u64 = 2;
/// How many callers share each client of the product.
const WITH_CLIENT: u64 = 3;
/// How long the clients wait for an answer. One outlasts the faults, so that none of its callers is told that an outcome is
/// not known; the other one gives up in the middle of them.
const PATIENCE: [Duration; 2] = [Duration::from_secs(30), DEADLINE];
/// The interfaces of the callers that give no ids.
const UNNAMED: [Interface; 4] =
    [Interface::Unary, Interface::Stream, Interface::Http, Interface::Resp];
/// How long a healed cluster may take to answer each caller's last request.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(20);

/// The callers at work, and the answers that they got.
pub struct GaplessCallers {
    callers: JoinSet<()>,
    stop: watch::Sender<bool>,
    shared: Shared,
}

impl GaplessCallers {
    /// Starts the callers.
    pub fn start(seed: u64, nodes: &KnownNodes, recorder: &Arc<Recorder>) -> GaplessCallers {
        let (answers, nodes, recorder) = (Arc::default(), nodes.clone(), recorder.clone());
        recorder.begin(Flow::Gapless);
        let shared = Shared { answers, nodes, recorder };
        let (stop, mut seeds) = (watch::Sender::new(false), seed.wrapping_add(1_000)..);
        let mut rng = || StdRng::seed_from_u64(seeds.next().unwrap_or_default());
        let [(_, invoices), (_, receipts), (_, tickets)] = NAMESPACES;
        let mut all = GaplessCallers { callers: JoinSet::new(), stop, shared: shared.clone() };
        for place in 0..NAMED {
            let (shared, name) = (shared.clone(), place.to_string());
            all.spawn(named::Caller { shared, name, keys: invoices, rng: rng() });
        }
        let each = receipts / PATIENCE.len() as u64;
        for (patience, of_client) in PATIENCE.into_iter().zip(0..) {
            let client = Arc::new(ProductClient::new(shared.nodes.clone(), patience));
            for place in 0..WITH_CLIENT {
                let (shared, client) = (shared.clone(), client.clone());
                let name = format!("{of_client}-{place}");
                let keys = of_client * each..(of_client + 1) * each;
                all.spawn(with_client::Caller { shared, name, client, keys, rng: rng() });
            }
        }
        for interface in UNNAMED {
            let (shared, keys) = (shared.clone(), tickets);
            all.spawn(unnamed::Caller { shared, interface, keys, rng: rng(), connection: None });
        }
        all.spawn(recreated::Caller { shared, rng: rng(), last: 0, goes_on: false });
        all
    }

    fn spawn(&mut self, mut caller: impl Caller) {
        let stopped = self.stop.subscribe();
        self.callers.spawn(async move {
            for number in 0.. {
                if *stopped.borrow() {
                    return;
                }
                caller.call(number).await;
            }
        });
    }

    /// The answers to the callers so far.
    pub fn answers(&self) -> Arc<GaplessAnswers> {
        self.shared.answers.clone()
    }

    /// Stops them, each after the answer to its last request, and looks for missing numbers.
    pub async fn finish(mut self) -> Findings {
        let answers = self.answers();
        self.stop.send_replace(true);
        let ended = async {
            while let Some(ended) = self.callers.join_next().await {
                ended.expect("a caller panicked");
            }
        };
        if timeout(LAST_ANSWER_MAX, ended).await.is_err() {
            let why = "a gapless request was not answered after the cluster was healed";
            answers.violated(why.to_owned());
        } else {
            for target in targets() {
                self.judge(&target).await;
            }
        }
        let unanswered = NAMESPACES.into_iter().filter(|(namespace, _)| {
            let mut of_namespace = targets().filter(|target| target.namespace == *namespace);
            of_namespace.all(|target| answers.answered_ranges(&target.name()) == 0)
        });
        let shortcomings = unanswered.map(|(namespace, _)| {
            format!("no number of the gapless namespace {namespace} was handed out")
        });
        Findings { violations: answers.violations(), shortcomings: shortcomings.collect() }
    }

    async fn judge(&self, target: &Target) {
        let answers = &self.shared.answers;
        match timeout(LAST_ANSWER_MAX, self.last_of(target)).await {
            Ok(last) => answers.judge(&target.name(), last),
            Err(_) => {
                let name = target.name();
                answers.violated(format!("gapless key {name} could not be read in the end"));
            }
        }
    }

    /// The last number of a key, from a healed cluster.
    async fn last_of(&self, target: &Target) -> u64 {
        let nodes = self.shared.nodes.read().clone();
        for (_, address) in nodes.iter().cycle() {
            let mut client = Client::new(address.clone());
            if let Ok((last, _)) = client.ask(target, Action::Current).await {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        0
    }
}
