//! The events that Kubernetes causes to the pods of a StatefulSet, one after the other: it starts them side by side and one by
//! one, updates them, drains a machine, moves all of them, loses a volume, scales them up and down, and updates them while one
//! is cut off. A pod that is made again has another address. The manifest says how long it may take to end, when it is
//! started, and when it is ready; the actions of a person follow docs/kubernetes.md.

use std::{fs, io, time::Duration};

use rand::RngExt;
use tokio::time::Instant;

use super::{
    fault::{ActiveFault, Fault, Repair},
    injector::Injector,
    kind::Nemesis,
    links::{cut_off, packets_dropped},
    recovery::Limit,
};
use crate::{
    cluster::Pods,
    finding::Finding,
    history::{Op, longest_silence},
    manifest::Probe,
    network::Port,
    probing::status_of,
};

/// How long a pod may take until it is started, or ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a node that lost its volume has time to end.
const REFUSAL_MAX: Duration = Duration::from_secs(10);
/// The exit code of a node whose data cannot be trusted.
const DATA_LOST: i32 = 74;
/// Up to how many pods the StatefulSet is scaled, from three.
const SCALED_TO: u64 = 5;

/// An event that Kubernetes causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    StartSideBySide,
    StartOneByOne,
    Update,
    Drain,
    MoveAll,
    LoseVolume,
    Scale,
    UpdateWhileCutOff,
}

impl Event {
    const ALL: [Event; 8] = [
        Event::StartSideBySide,
        Event::StartOneByOne,
        Event::Update,
        Event::Drain,
        Event::MoveAll,
        Event::LoseVolume,
        Event::Scale,
        Event::UpdateWhileCutOff,
    ];

    /// How many nodes it needs that have never run.
    fn new_nodes(self) -> Port {
        match self {
            Event::LoseVolume => 1,
            Event::Scale => (SCALED_TO - 3) as Port,
            _ => 0,
        }
    }

    /// How soon numbers flow again after it.
    fn limit(self) -> Limit {
        match self {
            Event::Update | Event::Drain | Event::LoseVolume | Event::Scale => Limit::Promised,
            // No majority lived meanwhile.
            _ => Limit::Someday,
        }
    }
}

impl Injector {
    /// Plays all of it, once.
    pub(super) async fn play_pods(&mut self) -> io::Result<Vec<Fault>> {
        if self.cluster.pods.is_none() {
            let why = "there is no manifest, or there are no network namespaces here";
            let from_ns = self.recorder.now();
            let fault = ActiveFault::impossible(why);
            return Ok(vec![self.conclude((Nemesis::Pods, Limit::Someday), from_ns, fault).await]);
        }
        let mut faults = Vec::new();
        for event in Event::ALL {
            let left = (self.cluster.config.room() + 1).saturating_sub(self.next_new_node);
            if left < event.new_nodes() {
                continue;
            }
            let whole = self.wait_until_whole().await;
            let from_ns = self.recorder.now();
            let mut fault = self.play(event).await?;
            fault.found(Finding::Node, whole.err());
            let silent_ms = self.longest_silence_since(from_ns).as_millis();
            fault.description = format!(
                "{event:?}: {}; callers were without an answer for at most {silent_ms} ms",
                fault.description
            );
            eprintln!("{}", fault.description);
            faults.push(self.conclude((Nemesis::Pods, event.limit()), from_ns, fault).await);
        }
        Ok(faults)
    }

    async fn play(&mut self, event: Event) -> io::Result<ActiveFault> {
        match event {
            Event::StartSideBySide => self.start_side_by_side().await,
            Event::StartOneByOne => self.start_one_by_one().await,
            Event::Update => self.update().await,
            Event::Drain => self.drain().await,
            Event::MoveAll => self.move_all().await,
            Event::LoseVolume => self.lose_volume().await,
            Event::Scale => self.scale().await,
            Event::UpdateWhileCutOff => self.update_while_cut_off().await,
        }
    }

    /// For how long no caller at all had an answer since then.
    fn longest_silence_since(&self, from_ns: u64) -> Duration {
        let to_ns = self.recorder.now();
        Duration::from_nanos(
            self.recorder.with(|history| {
                longest_silence(history.answered().map(Op::returned), from_ns, to_ns)
            }),
        )
    }

    /// All pods are deleted at one time, and made again as the manifest says.
    async fn start_side_by_side(&mut self) -> io::Result<ActiveFault> {
        let side_by_side = self.pods()?.manifest.starts_side_by_side()?;
        let wrong = self.delete_all().await?;
        for id in self.members.clone() {
            self.cluster.spawn(id)?;
        }
        let not_ready = self.wait_until_all_ready().await?;
        let how = if side_by_side { "side by side" } else { "though not side by side" };
        let fault = ActiveFault::new(format!("all started {how}"), Repair::Nothing, side_by_side);
        Ok(fault.with_violation(wrong).with_violation(not_ready))
    }

    /// Machines come back one after the other, so that each pod starts once the one before has started. The first one is alive
    /// and not ready as long as it is alone.
    async fn start_one_by_one(&mut self) -> io::Result<ActiveFault> {
        let mut wrong = self.delete_all().await?;
        let members = self.by_pod();
        for (place, id) in members.iter().enumerate() {
            self.cluster.spawn(*id)?;
            wrong = wrong.or(self.wait_for("startupProbe", *id).await?);
            if place == 0 && self.probe("readinessProbe", *id).await? == Some(200) {
                wrong = wrong.or(Some(format!("node {id} is ready, and no other one runs")));
            }
            self.wait_fault_duration().await;
        }
        let not_ready = self.wait_until_all_ready().await?;
        let fault = ActiveFault::new("all started one by one", Repair::Nothing, true);
        Ok(fault.with_violation(wrong).with_violation(not_ready))
    }

    /// Each pod is deleted and made again, the last one first. The next one waits until it is ready.
    async fn update(&mut self) -> io::Result<ActiveFault> {
        let mut wrong = None;
        for id in self.by_pod().into_iter().rev() {
            let not_well = self.make_again(id).await?;
            wrong = wrong.or(not_well);
            let not_ready = self.wait_until_ready(id, READY_MAX).await?;
            wrong = wrong.or(not_ready);
        }
        let fault = ActiveFault::new("all pods made again in turn", Repair::Nothing, true);
        Ok(fault.with_violation(wrong))
    }

    /// A machine is drained: its pod ends once all others are ready, and comes back elsewhere a while later.
    async fn drain(&mut self) -> io::Result<ActiveFault> {
        let victim = self.leader_or_random_member();
        let mut wrong = None;
        for id in self.members_except(victim) {
            wrong = wrong.or(self.wait_for("readinessProbe", id).await?);
        }
        let grace = self.pods()?.manifest.grace()?;
        let ended_badly = self.stop(victim, grace).await;
        wrong = wrong.or(ended_badly);
        self.cluster.remove_pod(victim)?;
        self.wait_fault_duration().await;
        self.cluster.spawn(victim)?;
        let not_ready = self.wait_until_ready(victim, READY_MAX).await?;
        let description = format!("the machine of node {victim} was drained");
        let fault = ActiveFault::new(description, Repair::Nothing, true);
        Ok(fault.with_violation(wrong).with_violation(not_ready))
    }

    /// All machines fail at one time. Each pod comes back at an address that another one had.
    async fn move_all(&mut self) -> io::Result<ActiveFault> {
        let members = self.by_pod();
        let killed = members.iter().filter(|id| self.cluster.kill(**id)).count();
        let mut hosts = Vec::new();
        for id in &members {
            hosts.extend(self.cluster.remove_pod(*id)?);
        }
        let moved = hosts.len() == members.len() && hosts.len() > 1;
        if moved {
            hosts.rotate_left(1);
            for (id, host) in members.iter().zip(&hosts) {
                self.cluster.make_pod_at(*id, *host)?;
            }
        }
        for id in &members {
            self.cluster.spawn(*id)?;
        }
        let not_ready = self.wait_until_all_ready().await?;
        let description = "all killed, and each started at the address of another one";
        let fault = ActiveFault::new(description, Repair::Nothing, moved && killed > 1);
        Ok(fault.with_violation(not_ready))
    }

    /// A pod comes back with an empty volume. Its node is refused, however often it is started, and the pod gets a new one.
    async fn lose_volume(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_follower();
        let number = self.pods()?.number(victim).unwrap_or_default();
        let killed = self.cluster.kill(victim);
        self.cluster.remove_pod(victim)?;
        fs::remove_dir_all(self.cluster.data_dir(victim))?;
        let mut wrong = None;
        for _ in 0..2 {
            self.cluster.spawn(victim)?;
            let ended = self.cluster.wait_for_exit(victim, REFUSAL_MAX).await;
            if ended.and_then(|status| status.code()) != Some(DATA_LOST) {
                let what = format!(
                    "node {victim}, whose volume is lost, shall end with {DATA_LOST}: {ended:?}"
                );
                wrong = wrong.or(Some(what));
            }
        }
        let new = self.next_new_node;
        self.next_new_node += 1;
        let removed = self.remove_member(victim).await;
        self.cluster.kill(victim);
        self.cluster.remove_pod(victim)?;
        let joined = self.start_new(new, number).await?;
        let not_ready = self.wait_until_ready(new, READY_MAX).await?;
        let description = format!("pod {number} lost node {victim}, and got node {new}");
        let fault = ActiveFault::new(description, Repair::Nothing, killed);
        let fault = fault.with_violation(wrong).with_violation(removed.err());
        Ok(fault.with_violation(joined).with_violation(not_ready))
    }

    /// Scales from three pods to five, and back.
    async fn scale(&mut self) -> io::Result<ActiveFault> {
        let mut wrong = None;
        let mut new = Vec::new();
        for number in self.pods()?.manifest.numbers()?.end..=SCALED_TO {
            let id = self.next_new_node;
            self.next_new_node += 1;
            let not_joined = self.start_new(id, number).await?;
            wrong = wrong.or(not_joined);
            new.push(id);
        }
        let not_ready = self.wait_until_all_ready().await?;
        wrong = wrong.or(not_ready);
        let voters = self.members.len();
        self.wait_fault_duration().await;
        for id in new.iter().rev() {
            let removed = self.remove_member(*id).await;
            wrong = wrong.or(removed.err());
        }
        // They are no members any more: how they end is no matter, if they do.
        let grace = self.pods()?.manifest.grace()?;
        for id in &new {
            self.cluster.terminate(*id);
            if self.cluster.wait_for_exit(*id, grace).await.is_none() {
                wrong = wrong.or(Some(format!("node {id}, which was removed, does not end")));
                self.cluster.kill(*id);
            }
            self.cluster.remove_pod(*id)?;
        }
        let description = format!("nodes {new:?} joined, so that there were {voters}, and left");
        let fault = ActiveFault::new(description, Repair::Nothing, voters as u64 == SCALED_TO);
        Ok(fault.with_violation(wrong))
    }

    /// An update while one pod is cut off from the others. Kubernetes does not look at the pods that it has not reached.
    /// Numbers may have to wait, and go on when the pod is reached again.
    async fn update_while_cut_off(&mut self) -> io::Result<ActiveFault> {
        let handed_over = self.handed_over.clone();
        let cut = self.random_member();
        let before = packets_dropped(&self.cluster);
        for (from, to, link) in cut_off(cut, self.members_except(cut)) {
            self.set_link(from, to, link);
        }
        let mut wrong = None;
        let mut is_cut = true;
        for id in self.by_pod().into_iter().rev() {
            let not_well = self.make_again(id).await?;
            wrong = wrong.or(not_well);
            if id == cut && is_cut {
                // It does not become ready, and so the update goes on only when it is reached again.
                self.wait_fault_duration().await;
                if self.probe("readinessProbe", id).await? == Some(200) {
                    wrong = wrong.or(Some(format!("node {id} is ready, though it is cut off")));
                }
                self.repair(Repair::HealLinks)?;
                is_cut = false;
            }
            let not_ready = self.wait_until_ready(id, READY_MAX).await?;
            wrong = wrong.or(not_ready);
        }
        let took_effect = packets_dropped(&self.cluster) > before;
        // The outcome of a handover is uncertain while another fault lasts.
        self.handed_over = handed_over;
        let description = format!("all pods made again in turn, while node {cut} was cut off");
        let fault = ActiveFault::new(description, Repair::Nothing, took_effect);
        Ok(fault.with_violation(wrong))
    }

    fn pods(&self) -> io::Result<&Pods> {
        self.cluster.pods.as_ref().ok_or_else(|| io::Error::other("there are no pods"))
    }

    /// The members in the order of their pods.
    fn by_pod(&self) -> Vec<Port> {
        let mut members = self.members.clone();
        members.sort_by_key(|id| self.cluster.pods.as_ref().and_then(|pods| pods.number(*id)));
        members
    }

    /// Deletes a pod, and makes it again. Returns the failure of its end, if there was one.
    async fn make_again(&mut self, id: Port) -> io::Result<Option<String>> {
        let grace = self.pods()?.manifest.grace()?;
        let wrong = self.stop(id, grace).await;
        self.cluster.remove_pod(id)?;
        self.cluster.spawn(id)?;
        Ok(wrong)
    }

    /// Deletes all pods at one time. Returns the failure of the end of one, if there was one.
    async fn delete_all(&mut self) -> io::Result<Option<String>> {
        let grace = self.pods()?.manifest.grace()?;
        let members = self.members.clone();
        for id in &members {
            self.cluster.terminate(*id);
        }
        let mut wrong = None;
        for id in members {
            match self.cluster.wait_for_exit(id, grace).await {
                Some(status) if status.success() => {}
                ended => {
                    let what = format!("node {id} was told to stop, with all others: {ended:?}");
                    wrong = wrong.or(Some(what));
                    self.cluster.kill(id);
                }
            }
            self.cluster.remove_pod(id)?;
        }
        Ok(wrong)
    }

    /// Starts a node that has never run in this pod. It waits, alive and not ready, and is added as a person adds it.
    async fn start_new(&mut self, id: Port, number: u64) -> io::Result<Option<String>> {
        if let Some(pods) = &mut self.cluster.pods {
            pods.assign(id, number);
        }
        self.cluster.spawn(id)?;
        let mut wrong = self.wait_for("startupProbe", id).await?;
        if self.probe("readinessProbe", id).await? == Some(200) {
            wrong = wrong.or(Some(format!("node {id} is ready, and no member")));
        }
        match self.add_member(id).await {
            Ok(()) => {
                self.members.push(id);
                let address = self.cluster.address(id);
                self.nodes.write().push((u64::from(id), address));
            }
            Err(why) => wrong = wrong.or(Some(why)),
        }
        Ok(wrong)
    }

    /// Removes a member. Callers do not ask it any more.
    async fn remove_member(&mut self, id: Port) -> Result<(), String> {
        // A caller that asks it while it leaves has no answer.
        self.nodes.write().retain(|(node, _)| *node != u64::from(id));
        self.remove_node(id).await?;
        self.members.retain(|member| *member != id);
        Ok(())
    }

    async fn wait_until_all_ready(&mut self) -> io::Result<Option<String>> {
        let mut wrong = None;
        for id in self.members.clone() {
            let not_ready = self.wait_until_ready(id, READY_MAX).await?;
            wrong = wrong.or(not_ready);
        }
        Ok(wrong)
    }

    /// Waits until a pod is ready, and was for as long as an update waits. Returns the failure if it is not in time.
    async fn wait_until_ready(&mut self, id: Port, limit: Duration) -> io::Result<Option<String>> {
        let manifest = &self.pods()?.manifest;
        let (min_ready, failures) =
            (manifest.min_ready()?, manifest.probe("readinessProbe")?.failures);
        let latest = Instant::now() + limit + min_ready;
        let (mut since, mut failed) = (None, 0);
        while Instant::now() < latest {
            failed = match self.probe("readinessProbe", id).await? {
                Some(200) => 0,
                _ => failed + 1,
            };
            since = match since {
                _ if failed >= failures => None,
                None if failed == 0 => Some(Instant::now()),
                since => since,
            };
            if since.is_some_and(|since| since.elapsed() >= min_ready) {
                return Ok(None);
            }
            self.until_next("readinessProbe").await?;
        }
        Ok(Some(format!("the pod of node {id} is not ready within {} s", limit.as_secs())))
    }

    /// Waits until a probe succeeds. Returns the failure if it does not in time.
    async fn wait_for(&mut self, probe: &str, id: Port) -> io::Result<Option<String>> {
        let latest = Instant::now() + READY_MAX;
        while Instant::now() < latest {
            if self.probe(probe, id).await? == Some(200) {
                return Ok(None);
            }
            self.until_next(probe).await?;
        }
        let limit = READY_MAX.as_secs();
        Ok(Some(format!("the {probe} of node {id} does not succeed within {limit} s")))
    }

    async fn until_next(&mut self, probe: &str) -> io::Result<()> {
        let period = self.pods()?.manifest.probe(probe)?.period;
        // Kubelets do not ask in step.
        let early = self.rng.random_range(0.0..0.5);
        tokio::time::sleep(period.mul_f64(1.0 - early)).await;
        Ok(())
    }

    /// The status with which a node answers a probe, if it does.
    async fn probe(&self, probe: &str, id: Port) -> io::Result<Option<u16>> {
        let Probe { port, path, timeout, .. } = self.pods()?.manifest.probe(probe)?;
        Ok(status_of(self.cluster.at(id, port), &path, timeout).await)
    }
}
