//! What other nodes told this one of themselves, and which of them may make it a member.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    node::{Config, seams::Addresses},
    proto::{Refusal, refuse, v1::Build},
    sequence::{ClusterId, NodeId, TokenHash},
    version,
};

// Where others reach this node, and what the other members told of themselves: which release they run, and where their
// interfaces are.
//
// Invariant: a peer of another release is news once, and again when its release changes.

/// How many characters of a version, a commit or an address are kept.
const SHOWN_MAX: usize = 256;

/// What a member told of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The release that it runs.
    pub build: Build,
    /// Where Redis clients reach it, "host:port". Empty if it does not serve them.
    pub resp_address: String,
    /// Where HTTP clients reach it, "host:port". Empty if it does not serve them.
    pub http_address: String,
}

/// What the other members told of themselves.
#[derive(Debug, Default)]
pub struct Introductions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What they answered, each at the address that the membership has of it.
    answered: BTreeMap<NodeId, Introduction>,
    /// Those of whom something else was said since: they are to be asked again.
    doubted: BTreeSet<NodeId>,
    /// The releases that were told last.
    builds: BTreeMap<NodeId, Build>,
}

impl Introduction {
    /// As a peer told it. Of its texts, printable characters up to a limit are kept: operators and clients see them.
    pub fn told(build: Option<Build>, resp_address: &str, http_address: &str) -> Self {
        let build = build.unwrap_or_default();
        Introduction {
            build: Build { version: shown(&build.version), commit: shown(&build.commit) },
            resp_address: shown(resp_address),
            http_address: shown(http_address),
        }
    }
}

impl Introductions {
    /// Notes what `peer` answered. Returns what to log if its release is news and differs from what this node runs.
    pub fn note(&self, peer: NodeId, told: Introduction) -> Option<String> {
        let mut known = self.0.lock();
        let news = known.note_build(peer, &told.build);
        known.answered.insert(peer, told);
        known.doubted.remove(&peer);
        news
    }

    /// Notes what a request says that names `peer` as its sender. Anybody may have sent it. If it says anything new, the member
    /// is to be asked at its own address; what it answered last counts until then. Returns as [`Introductions::note`].
    pub fn note_claim(&self, peer: NodeId, claimed: &Introduction) -> Option<String> {
        let mut known = self.0.lock();
        if known.answered.get(&peer) != Some(claimed) {
            known.doubted.insert(peer);
        }
        known.note_build(peer, &claimed.build)
    }

    /// True if `peer` is to be asked who it is: it has not told, or somebody has said something else in its name.
    pub fn is_to_be_asked(&self, peer: NodeId) -> bool {
        let known = self.0.lock();
        !known.answered.contains_key(&peer) || known.doubted.contains(&peer)
    }

    /// What `peer` told, if it did.
    pub fn of(&self, peer: NodeId) -> Option<Introduction> {
        self.0.lock().answered.get(&peer).cloned()
    }
}

impl Known {
    fn note_build(&mut self, peer: NodeId, told: &Build) -> Option<String> {
        let mine = this_build();
        let before = self.builds.insert(peer, told.clone());
        (before.as_ref() != Some(told) && *told != mine).then(|| {
            format!(
                "node {peer} runs {}, this node runs {}; let all run the same release soon",
                name(told),
                name(&mine)
            )
        })
    }
}

/// Where others reach this node, each "host:port".
#[derive(Debug)]
pub struct Advertised {
    /// Where clients reach it.
    pub client: String,
    /// Where its peers reach it.
    pub peer: String,
    /// Where Redis clients reach it. Empty if it does not serve them.
    pub resp: String,
    /// Where HTTP clients reach it. Empty if it does not serve them.
    pub http: String,
}

impl Advertised {
    /// Where others reach a node that listens at `addresses`: where the configuration says, or else there.
    pub fn new(config: &Config, addresses: Addresses) -> Self {
        let advertised = |name: &Option<String>, address: SocketAddr| {
            name.clone().unwrap_or_else(|| address.to_string())
        };
        let client = advertised(&config.advertise, addresses.client);
        let interface = |at: SocketAddr| interface_address(&client, addresses.client, at);
        let peer = config.peer_advertise.clone().or(config.peers.get(&config.node_id).cloned());
        Advertised {
            resp: addresses.resp.map(interface).unwrap_or_default(),
            http: addresses.http.map(interface).unwrap_or_default(),
            peer: advertised(&peer, addresses.peer),
            client,
        }
    }
}

/// Where clients reach the interface that listens at `interface`: at the host where they reach the one at `clients`, whose
/// address is `client_address`, if both listen at the same address or the interface at all of them. Empty if the interface
/// listens on loopback alone, and the other one does not.
fn interface_address(client_address: &str, clients: SocketAddr, interface: SocketAddr) -> String {
    if interface.ip() == clients.ip() || interface.ip().is_unspecified() {
        let host = client_address.rsplit_once(':');
        let host = host.map_or(client_address, |(host, _)| host);
        return format!("{host}:{}", interface.port());
    }
    match interface.ip().is_loopback() {
        true => String::new(),
        false => interface.to_string(),
    }
}

/// What this node runs.
pub fn this_build() -> Build {
    Build { version: version::VERSION.to_owned(), commit: version::COMMIT.to_owned() }
}

fn shown(text: &str) -> String {
    let printable = text.chars().filter(|letter| letter.is_ascii_graphic());
    printable.take(SHOWN_MAX).collect()
}

fn name(build: &Build) -> String {
    match build.version.as_str() {
        "" => "a release that does not say its version".to_owned(),
        version => format!("ratchet {version} ({})", build.commit),
    }
}

// Who may make a node without data a member of a cluster: one founder's process, or one cluster.
//
// Invariant: a claim stands until the claimed process ends, or another one claims the node after `LASTS`. The node's
// incarnation ends with the claim (`storage/identity.rs`), so a claim never outlives the directory that it is for: the
// former holder does not reach the node any more. So a founder's next process takes over at once what the last one
// claimed.
//
// A founder claims all members, itself among them, asks each a second time, and founds the cluster then. Its claim of
// itself does not run out: the founder takes it back when it gives up, and never once it has decided. So of two founders
// of the same `peers` one at most decides, whatever ids they have: each needs the claim of every member. If members
// were started again in between, or claims ran out, both may decide, but no member is then a member of both. All claim
// in the order of ids, so no two wait for each other: whoever has the first member's claim goes on.

/// How long a claim keeps others off after its holder made it last. What the holder does until its first message as a leader
/// takes a fraction of it.
pub const LASTS: Duration = Duration::from_secs(10);

/// Who has claimed this node, and when it did so last.
#[derive(Debug, Default, Clone)]
pub struct FoundingClaim(Option<(Claim, Instant)>);

/// Who claims a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A founder.
    Founder(Founder),
    /// The cluster whose leader is about to add the node.
    Cluster(ClusterId),
}

/// A founder's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Founder {
    /// The founder.
    pub id: NodeId,
    /// Its incarnation: it names one process, even if two machines were given the same id.
    pub incarnation: u64,
    /// The token with which it founds the cluster.
    pub admin: Option<TokenHash>,
}

impl FoundingClaim {
    /// Claims this node, `me`. True if an earlier claim has run out: the node is to take another incarnation before anybody
    /// is told that it is claimed.
    ///
    /// # Errors
    /// UNAVAILABLE while another one holds it.
    pub fn claim(&mut self, claim: Claim, me: NodeId, now: Instant) -> Result<bool, Refusal> {
        let other = self.0.filter(|(held, _)| *held != claim);
        if let Some((held, since)) = other {
            let left = (since + LASTS).saturating_duration_since(now);
            let is_of = |id| matches!(held, Claim::Founder(founder) if founder.id == id);
            // A founder that was started again, or has another incarnation, need not wait for what it claimed before.
            let is_his = matches!(claim, Claim::Founder(founder) if is_of(founder.id));
            if is_of(me) || !left.is_zero() && !is_his {
                let who = match held {
                    Claim::Founder(held) => {
                        format!("node {} founds a cluster with it", held.id)
                    }
                    Claim::Cluster(id) => {
                        format!("the leader of the cluster with the id {id} adds it")
                    }
                };
                refuse!(
                    NotFounded,
                    "node {me} is claimed: {who}. If that was given up, ask again in {} s: the claim has run out then",
                    left.as_secs() + 1
                );
            }
        }
        self.0 = Some((claim, now));
        Ok(other.is_some())
    }

    /// The founder has given its attempt up.
    pub fn give_up(&mut self, founder: Founder) {
        self.0.take_if(|(held, _)| *held == Claim::Founder(founder));
    }

    /// True if a founder other than node `me` has claimed this node.
    pub fn is_held_by_another_founder(&self, me: NodeId) -> bool {
        matches!(self.0, Some((Claim::Founder(held), _)) if held.id != me)
    }
}

#[cfg(test)]
mod tests;
