//! Callers of a gapless namespace, beside the others of a run: each asks with a request id until it is answered, and
//! now and then once more. Each request gets its numbers once, and in the end none is missing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tonic::Code;

use crate::{
    client::{Answer, Client},
    history::{Action, Interface, Op, Outcome},
    nodes::KnownNodes,
    proto::CreateNamespaceRequest,
    record::Recorder,
    target::Target,
};

/// The namespace in which they ask.
const NAMESPACE: &str = "invoice";
const CALLERS: u64 = 2;
const KEYS: u64 = 2;
/// How long a healed cluster may take to answer each caller's last request.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(20);

/// The namespace, as it is created.
pub fn namespace() -> CreateNamespaceRequest {
    CreateNamespaceRequest {
        name: NAMESPACE.to_owned(),
        gapless: true,
        ..CreateNamespaceRequest::default()
    }
}

/// The callers at work, and what they were answered.
pub struct Invoices {
    callers: JoinSet<()>,
    stop: watch::Sender<bool>,
    seen: Arc<Seen>,
    nodes: KnownNodes,
}

/// What was answered, and what was wrong with it.
#[derive(Default)]
pub struct Seen {
    /// For each key the last number of each range, by its first.
    ranges: Mutex<BTreeMap<(u64, u64), u64>>,
    violations: Mutex<Vec<String>>,
}

impl Seen {
    /// What was wrong so far.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    fn add(&self, id: u64, (first, last): Answer, request: &str) {
        if self.ranges.lock().insert((id, first), last).is_some() {
            let why =
                format!("gapless key {id}: {first} was handed out twice, to {request} as well");
            self.violations.lock().push(why);
        }
    }

    /// Notes the first gap of a key, and a last number that nobody was answered.
    fn judge(&self, id: u64, current: u64) {
        let mut expected = 1;
        for ((_, first), last) in self.ranges.lock().range((id, 0)..(id + 1, 0)) {
            if *first != expected {
                let why = format!(
                    "gapless key {id}: {first} follows {}: a gap, or a number twice",
                    expected - 1
                );
                return self.violations.lock().push(why);
            }
            expected = last + 1;
        }
        if current != expected - 1 {
            let why = format!(
                "gapless key {id}: numbers were taken up to {current}, and answered up to {}",
                expected - 1
            );
            self.violations.lock().push(why);
        }
    }
}

/// One caller.
struct Caller {
    seen: Arc<Seen>,
    nodes: KnownNodes,
    recorder: Arc<Recorder>,
    rng: StdRng,
}

impl Invoices {
    /// Starts the callers.
    pub fn start(seed: u64, nodes: &KnownNodes, recorder: &Arc<Recorder>) -> Invoices {
        let (stop, seen) = (watch::Sender::new(false), Arc::<Seen>::default());
        let mut callers = JoinSet::new();
        for place in 0..CALLERS {
            let mut caller = Caller {
                seen: seen.clone(),
                nodes: nodes.clone(),
                recorder: recorder.clone(),
                rng: StdRng::seed_from_u64(seed.wrapping_add(1_000 + place)),
            };
            let stopped = stop.subscribe();
            callers.spawn(async move {
                for number in 0.. {
                    if *stopped.borrow() {
                        return;
                    }
                    caller.request(format!("{place}-{number}")).await;
                }
            });
        }
        Invoices { callers, stop, seen, nodes: nodes.clone() }
    }

    /// What they were answered so far.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }

    /// Stops them, each after the answer to its last request, and looks for missing numbers.
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.callers.join_next().await.is_some() {} };
        if timeout(LAST_ANSWER_MAX, ended).await.is_err() {
            let why = "a gapless request was not answered after the cluster was healed";
            return self.seen.violations.lock().push(why.to_owned());
        }
        let nodes = self.nodes.read().clone();
        for id in 0..KEYS {
            let target = target(id);
            let reading = async {
                for (_, address) in nodes.iter().cycle() {
                    let mut client = Client::new(*address);
                    if let Ok((last, _)) = client.ask(&target, Action::Current).await {
                        return last;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                0
            };
            match timeout(LAST_ANSWER_MAX, reading).await {
                Ok(last) => self.seen.judge(id, last),
                Err(_) => {
                    let why = format!("gapless key {id} could not be read in the end");
                    self.seen.violations.lock().push(why);
                }
            }
        }
    }
}

fn target(id: u64) -> Target {
    Target { namespace: NAMESPACE, id }
}

impl Caller {
    /// Makes one request, with this id.
    async fn request(&mut self, id: String) {
        let target = target(self.rng.random_range(0..KEYS));
        let count = self.rng.random_range(1..4);
        let invoked_ns = self.recorder.now();
        let Some((node, answer)) = self.until_answered(&target, count, &id).await else {
            return;
        };
        let (first, last) = answer;
        self.recorder.push(Op {
            process: self.recorder.new_process(),
            key: target.name(),
            action: Action::Next { count },
            invoked_ns,
            returned_ns: Some(self.recorder.now()),
            outcome: Outcome::Ok,
            first,
            last,
            node,
            interface: Interface::Unary,
            note: String::new(),
        });
        self.seen.add(target.id, answer, &id);
        if self.rng.random_ratio(1, 4) {
            let pause_ms = self.rng.random_range(0..50);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if let Some((_, again)) = self.until_answered(&target, count, &id).await
                && again != answer
            {
                let why = format!("request {id} was answered {answer:?}, and then {again:?}");
                self.seen.violations.lock().push(why);
            }
        }
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(1..10))).await;
    }

    /// The answer to a request, and the node that gave it, however often it takes. `None` if it was refused, which is a
    /// violation.
    async fn until_answered(
        &mut self, target: &Target, count: u64, id: &str,
    ) -> Option<(u64, Answer)> {
        loop {
            let (node, address) = {
                let nodes = self.nodes.read();
                nodes[self.rng.random_range(0..nodes.len())]
            };
            let mut client = Client::new(address);
            match client.next_once(target, count, id).await {
                Ok(answer) => return Some((node, answer)),
                Err(status) if status.code() == Code::FailedPrecondition => {
                    let why = format!("request {id} was refused: {status}");
                    self.seen.violations.lock().push(why);
                    return None;
                }
                Err(_) => {
                    let pause_ms = self.rng.random_range(5..20);
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
            }
        }
    }
}
