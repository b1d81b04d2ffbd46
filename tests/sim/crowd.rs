//! Clients that ask for many keys in a message: neighbouring ids of one section, which the leader keeps in pages, and names,
//! of which the namespace may have only so many. The namespaces are changed while they are used.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use rand::{RngExt, rngs::StdRng};
use ratchet::proto::v1::{
    CreateNamespaceRequest, CurrentManyRequest, KeyKind, NextManyRequest, UpdateNamespaceRequest,
};
use tonic::Status;

use crate::{
    answers::Answers,
    clock,
    cluster::World,
    network::Host,
    workload::{Record, administer, create_namespace, request_at},
};

/// The keys of a namespace, numbered from 0.
#[derive(Clone, Copy)]
struct Kind {
    namespace: &'static str,
    key_kind: KeyKind,
    section_size: u64,
    keys: u32,
    keys_max: Option<u64>,
}

/// A page has room for 256 ids, and is made of 64.
const DENSE: Kind = Kind {
    namespace: "dense",
    key_kind: KeyKind::Id,
    section_size: 300,
    keys: 160,
    keys_max: None,
};
/// Four of the names never get a number.
const NAMED: Kind = Kind {
    namespace: "named",
    key_kind: KeyKind::Name,
    section_size: 1,
    keys: 12,
    keys_max: Some(8),
};
/// How far a namespace's `max` is above 0 at first, and by how much it is raised.
const MAX_STEP: u64 = 3_000;
/// How many keys a call has that takes several turns at the leader.
const LONG: u64 = 3_000;

/// The answers to the clients of a namespace.
pub struct Crowd {
    kind: Kind,
    answers: Mutex<Answers>,
}

/// The crowds of a run.
pub fn all() -> Vec<Arc<Crowd>> {
    let crowd = |kind: Kind| Crowd { kind, answers: Mutex::new(Answers::new(kind.keys)) };
    [DENSE, NAMED].map(|kind| Arc::new(crowd(kind))).into()
}

/// Creates the namespaces; returns when they are there.
pub async fn create(world: &World, step: u64) {
    for kind in [DENSE, NAMED] {
        let namespace = CreateNamespaceRequest {
            name: kind.namespace.to_owned(),
            key_kind: kind.key_kind.into(),
            step: Some(step),
            section_size: Some(kind.section_size),
            max: Some(MAX_STEP),
            keys_max: kind.keys_max,
            ..CreateNamespaceRequest::default()
        };
        create_namespace(world, namespace).await;
    }
}

/// Changes the steps of namespaces that are used, and raises the `max` of namespaces that use it up, time after time.
pub async fn change(world: Arc<World>, record: Arc<Record>, step: u64, mut rng: StdRng) {
    let mut max = MAX_STEP;
    while !record.is_stopped() {
        tokio::time::sleep(Duration::from_millis(rng.random_range(200..1_500))).await;
        let namespace = ["own", "shared", DENSE.namespace, NAMED.namespace];
        let namespace = namespace[rng.random_range(0..namespace.len())];
        let has_max = [DENSE.namespace, NAMED.namespace].contains(&namespace);
        max += MAX_STEP;
        let update = UpdateNamespaceRequest {
            namespace: namespace.to_owned(),
            step: Some(rng.random_range(1..=2 * step)),
            max: has_max.then_some(max),
            ..UpdateNamespaceRequest::default()
        };
        let node = some_node(&world, &mut rng);
        if administer(&world, node, update, Duration::from_secs(1)).await.is_ok() {
            world.trace.note(clock::now(), "namespace changed", (namespace, node));
        }
    }
}

impl Crowd {
    /// Asks one node or another until told to stop.
    ///
    /// # Errors
    /// The fault in an answer.
    pub async fn keep_asking(
        self: Arc<Self>, world: Arc<World>, record: Arc<Record>, mut rng: StdRng,
    ) -> Result<(), String> {
        while !record.is_stopped() {
            let node = some_node(&world, &mut rng);
            let patience = Duration::from_millis(rng.random_range(50..1_500));
            let keys = self.some_keys(&mut rng);
            match rng.random_range(0..40) {
                0 => self.ask_long(&world, node, patience).await?,
                1..10 => self.ask_current(&world, node, &keys, patience).await?,
                _ => {
                    let count = rng.random_range(1..4);
                    self.ask(&world, node, (&keys, count), patience).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..150))).await;
        }
        Ok(())
    }

    /// A run of neighbours, or some keys that need not be.
    fn some_keys(&self, rng: &mut StdRng) -> Vec<u32> {
        let all = self.kind.keys;
        match rng.random_bool(0.6) {
            true => {
                let first = rng.random_range(0..all);
                Vec::from_iter(first..all.min(first + rng.random_range(1..=all / 2)))
            }
            false => (0..rng.random_range(1..6)).map(|_| rng.random_range(0..all)).collect(),
        }
    }

    /// The keys as ids, or as names.
    fn named(&self, keys: &[u32]) -> (Vec<u64>, Vec<Bytes>) {
        match self.kind.key_kind {
            KeyKind::Name => {
                (Vec::new(), keys.iter().map(|key| format!("name-{key}").into()).collect())
            }
            _ => (keys.iter().map(|key| u64::from(*key)).collect(), Vec::new()),
        }
    }

    async fn ask(
        &self, world: &World, node: Host, (keys, count): (&[u32], u64), patience: Duration,
    ) -> Result<(), String> {
        let asked = self.answers.lock().expect("answers").ask(keys);
        let (ids, names) = self.named(keys);
        let request = NextManyRequest {
            namespace: self.kind.namespace.to_owned(),
            ids,
            names,
            counts: vec![count; keys.len()],
            ..NextManyRequest::default()
        };
        let Ok(answer) = request_at(world, node, request, patience).await else {
            return Ok(());
        };
        let told = (self.kind.namespace, &answer.firsts);
        world.trace.note(clock::now(), "answer for many keys", told);
        let mut answers = self.answers.lock().expect("answers");
        self.judged(answers.numbers(&asked, &answer.firsts, count))
    }

    async fn ask_current(
        &self, world: &World, node: Host, keys: &[u32], patience: Duration,
    ) -> Result<(), String> {
        let asked = self.answers.lock().expect("answers").ask(keys);
        let Ok(last) = self.current(world, node, self.named(keys), patience).await else {
            return Ok(());
        };
        world.trace.note(clock::now(), "last numbers", (self.kind.namespace, &last));
        self.judged(self.answers.lock().expect("answers").current_many(&asked, &last))
    }

    /// Asks for the last numbers of many keys that nobody asked for, some of sections that nobody asked for.
    async fn ask_long(&self, world: &World, node: Host, patience: Duration) -> Result<(), String> {
        if self.kind.key_kind == KeyKind::Name {
            return Ok(());
        }
        let keys = (10..10 + LONG).map(|place| place * self.kind.section_size / 8);
        let keys = (keys.collect(), Vec::new());
        match self.current(world, node, keys, patience).await {
            Ok(last) if last.iter().any(|last| *last > 0) => {
                Err(format!("keys that nobody asked for have numbers: {:?}", last.iter().max()))
            }
            _ => Ok(()),
        }
    }

    async fn current(
        &self, world: &World, node: Host, (ids, names): (Vec<u64>, Vec<Bytes>), patience: Duration,
    ) -> Result<Vec<u64>, Status> {
        let namespace = self.kind.namespace.to_owned();
        let request = CurrentManyRequest { namespace, ids, names, ..CurrentManyRequest::default() };
        Ok(request_at(world, node, request, patience).await?.last)
    }

    fn judged(&self, judged: Result<(), String>) -> Result<(), String> {
        judged.map_err(|why| format!("{}: {why}", self.kind.namespace))
    }

    /// Checks the answers, once no client asks any more.
    ///
    /// # Errors
    /// The fault in the answers.
    pub fn check(&self) -> Result<(), String> {
        let mut answers = self.answers.lock().expect("answers");
        self.judged(answers.check_unique())?;
        let got = answers.keys_with_numbers();
        match self.kind.keys_max.is_some_and(|keys_max| got > keys_max) {
            true => self.judged(Err(format!("{got} keys got numbers: more than keys_max"))),
            false => Ok(()),
        }
    }
}

fn some_node(world: &World, rng: &mut StdRng) -> Host {
    let members: Vec<Host> = world.members().into_iter().collect();
    members[rng.random_range(0..members.len())]
}
