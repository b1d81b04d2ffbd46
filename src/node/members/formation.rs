//! Formation: a node without data waits until it is told to found a cluster, or is added to one.
//!
//! Invariant: a cluster is founded once. Nobody founds one because a directory is empty: its data may be lost. The node
//! that an operator asks meets every node of `peers`, which says that it belongs to no cluster and never did. It greets itself
//! at its own address, too: if another process answers there, the others would never reach this one. Then it claims them all,
//! itself among them (`founding_claim.rs`), and asks each once more, whether it is still the one that was
//! met. The founder records which data directory each of them has, so that a node whose directory is wiped later is not taken
//! for the same node.
//!
//! `hello.rs` is the other half: it answers the greetings by which others meet and claim this node.

mod hello;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{
    Members, claimed_node::ClaimedNode, founding_claim::Founder, greeting::Purpose,
    not_met::NotMet, reach::check_reach,
};
use crate::{
    consensus::{Group, ThisNode},
    node::{
        Config,
        access::{Guarded, Subject, check_peer_addresses, read_hash},
        common::Common,
        requests::operation::ByAskedNode,
        stopping::Stopping,
        way::patience::time_to_tell,
    },
    proto::{Refusal, refusal, refuse, v1},
    sequence::{NodeId, PrincipalKey, TokenHash},
    storage::{LOCAL_SOCKET, Member},
    tasks::Fault,
};

/// How long a cluster of `ratchet start --dev` may take to found itself: its disk may be slow.
const DEV_PATIENCE: Duration = Duration::from_secs(60);

/// How soon a node that does not listen yet, or that another founder has claimed, is asked again.
const RETRY: Duration = Duration::from_millis(100);

impl ByAskedNode for v1::FoundRequest {
    type Service = Arc<Formation>;

    fn subject(&self) -> Subject {
        let admin = read_hash(&self.admin_token_sha256).ok();
        Subject::of(self.wanted()).with_token(admin.map(|hash| hash.id()))
    }

    /// Founds a cluster of the nodes in `peers`, this one among them, and waits until it hands out numbers. It is founded
    /// even if the caller does not wait for it. If this node belongs to a cluster already, nothing changes, and the answer
    /// says so.
    async fn carry_out(
        self, formation: &Arc<Formation>, deadline: Instant,
    ) -> Result<v1::FoundResponse, Refusal> {
        let latest = time_to_tell(deadline);
        let admin = match self.admin_token_sha256.is_empty() {
            true => None,
            false => Some(read_hash(&self.admin_token_sha256)?),
        };
        let node = formation.clone();
        let founded = async move {
            tokio::select! {
                biased;
                // The store must not be held for longer than the node runs.
                () = node.stopping.leaving().cancelled() => Err(refusal!(NodeStopping, "the node stops")),
                founded = node.found_once(admin, latest) => founded,
            }
        };
        let founded = tokio::spawn(formation.this_node.tasks.watched("founding", founded));
        founded.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
    }
}

/// How a node without data becomes a member.
///
/// No field is replaced after the start. The claim on the node changes in `claimed_node.rs` alone.
pub struct Formation {
    config: Arc<Config>,
    this_node: Arc<ThisNode>,
    group: Arc<Group>,
    members: Arc<Members>,
    claimed_node: ClaimedNode,
    /// From when on a cluster may be founded with this node: it has listened until then.
    listens_until: Instant,
    /// Held while the cluster is founded.
    turn: Mutex<()>,
    stopping: Stopping,
}

impl Formation {
    /// A node that listens for so long before a cluster is founded with it, unless it is for trying.
    pub(in crate::node) fn new(common: &Common, members: Arc<Members>, listens: Duration) -> Self {
        let listens = match common.config.dev {
            true => Duration::ZERO,
            false => listens,
        };
        Formation {
            config: common.config.clone(),
            this_node: common.this_node.clone(),
            group: common.group.clone(),
            members,
            claimed_node: ClaimedNode::new(common),
            listens_until: Instant::now() + listens,
            turn: Mutex::default(),
            stopping: common.stopping.clone(),
        }
    }

    /// Says what a node without data waits for. A node of `ratchet start --dev` founds a cluster of one instead.
    pub(in crate::node) async fn form(self: Arc<Self>) {
        if self.group.is_formed() {
            return;
        }
        if !self.config.dev {
            return tracing::warn!(
                node = self.config.node_id,
                "this node waits: {}",
                self.what_it_waits_for(self.this_node.store.dir())
            );
        }
        let _one_at_a_time = self.turn.lock().await;
        if self.group.is_formed() {
            return;
        }
        // It has no `peers`, so nobody is met: it waits for itself alone.
        if let Err(refusal) = self.found_with_peers(None, Instant::now() + DEV_PATIENCE).await {
            self.fail(format!("the cluster of --dev is not founded: {}", refusal.message()));
        }
    }

    fn fail(&self, why: String) {
        self.this_node.tasks.fail(Fault::CannotGoOn(why));
    }

    /// A text for operators: what a node without data waits for, and how to go on. `data_dir` stands for its data directory.
    ///
    /// It names the local socket: there every node can be founded, whatever its settings are.
    pub(in crate::node) fn what_it_waits_for(&self, data_dir: &Path) -> String {
        format!(
            "it holds no data and belongs to no cluster. If this cluster is new, found it, once: ratchet found --server \
             unix:{socket} --admin-token-file FILE (without a token, everybody may do everything). To add the node to a running \
             cluster: ratchet node add {id} {address}. If the node had data, do neither: look for that data, which {dir} does \
             not hold",
            socket = data_dir.join(LOCAL_SOCKET).display(),
            id = self.config.node_id,
            address = self.members.advertised.peer,
            dir = data_dir.display(),
        )
    }

    async fn found_once(
        self: &Arc<Self>, admin: Option<TokenHash>, latest: Instant,
    ) -> Result<v1::FoundResponse, Refusal> {
        let another = || refusal!(NotFounded, "another request to found the cluster is under way");
        let turn = timeout_at(latest, self.turn.lock()).await;
        let _one_at_a_time = turn.map_err(|_| another())?;
        let founded = match self.group.is_formed() {
            true => false,
            false => {
                if admin.is_some() {
                    check_peer_addresses(&self.config, self.config.peers.values())?;
                }
                self.found_with_peers(admin, latest).await?
            }
        };
        let named = timeout_at(latest, self.group.view.until_named()).await;
        let id = named.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "node {} belongs to a cluster {:?} that no leader has answered for yet: a majority of its voters must run; see \
                 ratchet status, and ask again",
                self.config.node_id,
                self.config.cluster
            )
        })?;
        if let Some(admin) = admin {
            self.check_is_admin(admin, latest).await?;
        }
        Ok(v1::FoundResponse {
            cluster: self.config.cluster.clone(),
            cluster_id: id.to_string(),
            founded,
            voters: self.members.membership().voters,
        })
    }

    /// Sees that the cluster is founded with this token.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the token may not do everything there.
    async fn check_is_admin(&self, admin: TokenHash, latest: Instant) -> Result<(), Refusal> {
        let key = PrincipalKey::Token(admin);
        let known = self.group.view.until_principals(|known| known.get(&key).is_some());
        // The table holds it before the cluster has an id: it is late only where that one is, too.
        let patience = latest.min(Instant::now() + RETRY);
        timeout_at(patience, known).await.map_err(|_| {
            refusal!(
                WrongState,
                "the cluster {:?} was founded before, and not with the token of this request, which opens nothing there",
                self.config.cluster
            )
        })
    }

    /// Founds the cluster with the nodes of `peers`, and with the token that may do everything, if there is one. False if
    /// another of them founds it with this one.
    async fn found_with_peers(
        self: &Arc<Self>, admin: Option<TokenHash>, latest: Instant,
    ) -> Result<bool, Refusal> {
        self.check_is_of_peers()?;
        let members = match self.claim_peers(admin, latest).await {
            Ok(members) => members,
            Err(refusal) if self.claimed_node.is_held_by_another_founder().await => {
                // If that one founds the cluster, that is as good.
                let named = timeout_at(latest, self.group.view.until_named()).await;
                return named.map(|_| false).map_err(|_| refusal);
            }
            Err(refusal) => return Err(refusal),
        };
        match self.group.membership.found(members).await {
            Ok(()) => {
                tracing::info!(cluster = self.config.cluster, "cluster founded");
                Ok(true)
            }
            Err(error) => {
                self.fail(error.to_string());
                Err(refusal!(Internal, "{error}"))
            }
        }
    }

    fn check_is_of_peers(&self) -> Result<(), Refusal> {
        let (peers, me) = (&self.config.peers, self.config.node_id);
        if peers.is_empty() || peers.contains_key(&me) {
            return Ok(());
        }
        Err(refusal!(
            WrongState,
            "peers names the nodes {:?}, not this one (node_id {me}), so it founds nothing: ask one of them, or correct its peers; \
             to add it to a running cluster: ratchet node add {me}",
            peers.keys(),
        ))
    }

    /// Meets and claims all founding members. Returns them, this node among them. After an error this node is free; what the
    /// others were claimed for runs out, and a later attempt of this node may claim them at once.
    async fn claim_peers(
        self: &Arc<Self>, admin: Option<TokenHash>, latest: Instant,
    ) -> Result<BTreeMap<NodeId, Member>, Refusal> {
        loop {
            let incarnation = self.this_node.store.incarnation();
            let founder = Founder { id: self.config.node_id, incarnation, admin };
            let members = self.meet_peers(founder, latest).await?;
            check_reach(&members)?;
            let claimed = timeout_at(latest, self.claim_twice(founder, &members)).await;
            let why = match claimed {
                Ok(Ok(())) => return Ok(members),
                Ok(Err(why)) => why,
                Err(_) => {
                    let why = refusal!(NotFounded, "a node of peers gave no second answer");
                    NotMet::NotYet(why)
                }
            };
            self.claimed_node.give_up(founder).await;
            let may_change = matches!(why, NotMet::NotYet(_)) && !self.group.is_formed();
            if !may_change || Instant::now() + RETRY >= latest {
                return Err(why.into());
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Claims all members, in the order of their ids; then each again: one that was started again meanwhile, or whose earlier
    /// claim has run out, is another one.
    async fn claim_twice(
        &self, founder: Founder, members: &BTreeMap<NodeId, Member>,
    ) -> Result<(), NotMet> {
        for (&id, met) in members.iter().chain(members) {
            let member = if id == self.config.node_id {
                self.take_part_in(founder, true).await?;
                self.members.as_member()
            } else {
                let purpose = Purpose::Found(founder, true);
                self.members.introduce(id, &met.peer_address, purpose).await?
            };
            if member != *met {
                let why =
                    format!("node {id} at {} has another incarnation meanwhile", met.peer_address);
                return Err(NotMet::NotYet(refusal!(NotFounded, "{why}")));
            }
        }
        Ok(())
    }

    /// Meets each node of `peers`. Returns all members, this node among them.
    async fn meet_peers(
        &self, founder: Founder, latest: Instant,
    ) -> Result<BTreeMap<NodeId, Member>, Refusal> {
        let (me, mine) = (self.config.node_id, self.members.as_member());
        self.take_part_in(founder, false).await?;
        let mut members = BTreeMap::from([(me, mine.clone())]);
        for (&id, address) in &self.config.peers {
            let address = if id == me { &mine.peer_address } else { address };
            members.insert(id, self.meet(founder, id, address, latest).await?);
        }
        if members[&me] != mine {
            refuse!(
                WrongState,
                "nothing is founded: another node {me} answers at {}, where the other nodes look for this one; correct the \
                 node_id of one of the two, or the address",
                mine.peer_address
            );
        }
        Ok(members)
    }

    /// Waits until the fresh node `id` listens at `address`.
    async fn meet(
        &self, founder: Founder, id: NodeId, address: &str, latest: Instant,
    ) -> Result<Member, Refusal> {
        let purpose = Purpose::Found(founder, false);
        let mut why = format!("node {id} at {address}: no answer yet");
        loop {
            match timeout_at(latest, self.members.introduce(id, address, purpose)).await {
                Ok(Err(NotMet::NotYet(refusal))) => {
                    if refusal.message() != why {
                        tracing::info!("waiting for {}", refusal.message());
                        why = refusal.message().to_owned();
                    }
                }
                Ok(answer) => return answer.map_err(Refusal::from),
                Err(_) => {
                    refuse!(
                        NotFounded,
                        "nothing is founded: all nodes of peers must run, and {why}; ask again when they do"
                    );
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
