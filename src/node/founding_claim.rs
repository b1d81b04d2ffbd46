//! Who may make a node without data a member of a cluster: one founder's process, or one cluster.
//!
//! Invariant: a claim stands until its holder lets it go, or the claimed process ends. A process that ends without Raft state
//! takes its incarnation with it (`storage/identity.rs`), so a claim never outlives the directory that it is for.
//!
//! A founder claims all members, itself among them, asks each a second time, and founds the cluster then. A founder that
//! decided lets nothing go. So of two founders of the same `peers` one at most decides, whatever ids they have: each needs the
//! claim of every member. If members were started again in between, both may decide, but no member is then a member of both.
//! All claim in the order of ids, so no two wait for each other: whoever has the first member's claim goes on.

use parking_lot::Mutex;
use tonic::Status;

use crate::{
    proto::{refused, v1::Reason},
    sequence::{ClusterId, NodeId},
};

/// Who has claimed this node since it was started.
#[derive(Debug, Default)]
pub struct FoundingClaim(Mutex<Option<Claim>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Founder(Attempt),
    /// The cluster whose leader is about to add this node.
    Cluster(ClusterId),
}

/// An attempt to found a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The founder.
    pub founder: NodeId,
    /// The founder's incarnation: it names one process, even if two machines were given the same id.
    pub incarnation: u64,
    /// Grows from attempt to attempt of one process, so that a message that comes late does no harm.
    pub number: u64,
}

impl FoundingClaim {
    /// Claims this node, `me`, for the founder of `attempt`.
    ///
    /// # Errors
    /// UNAVAILABLE while another node founds the cluster; FAILED_PRECONDITION if another process with the founder's id does,
    /// or if a leader is about to add this node.
    pub fn claim_for_founding(&self, attempt: Attempt, me: NodeId) -> Result<(), Status> {
        let mut claim = self.0.lock();
        match *claim {
            None => {}
            Some(Claim::Cluster(cluster)) => {
                return Err(Status::failed_precondition(format!(
                    "the leader of the cluster with the id {cluster} was about to add node {me} to it; if node {me} is to be \
                     a founder all the same, start it again, and ask again"
                )));
            }
            Some(Claim::Founder(held)) if held.founder != attempt.founder => {
                let why = format!(
                    "node {} founds a cluster with node {me}; if that one ended before it was done, start node {me} again",
                    held.founder
                );
                return Err(refused(Reason::NotFounded, why));
            }
            Some(Claim::Founder(held)) if held.incarnation != attempt.incarnation => {
                return Err(Status::failed_precondition(format!(
                    "another process that says it is node {} founds a cluster with node {me}. If two nodes were given the \
                     node_id {0}, correct one of them; if the other process ended before it was done, start node {me} again, \
                     and ask again",
                    held.founder
                )));
            }
            Some(Claim::Founder(held)) if held.number > attempt.number => {
                return Err(refused(Reason::NotFounded, "a later attempt is under way"));
            }
            Some(Claim::Founder(_)) => {}
        }
        *claim = Some(Claim::Founder(attempt));
        Ok(())
    }

    /// The founder of `attempt` has given it up.
    pub fn let_go(&self, attempt: Attempt) {
        let mut claim = self.0.lock();
        if *claim == Some(Claim::Founder(attempt)) {
            *claim = None;
        }
    }

    /// Claims this node, `me`, for the cluster whose leader is about to add it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a founder or another cluster has claimed it.
    pub fn claim_for_cluster(&self, cluster: ClusterId, me: NodeId) -> Result<(), Status> {
        let mut claim = self.0.lock();
        let other = match *claim {
            None => None,
            Some(Claim::Cluster(held)) if held == cluster => None,
            Some(Claim::Cluster(held)) => Some(format!(
                "the leader of the cluster with the id {held} was about to add node {me}"
            )),
            Some(Claim::Founder(held)) => {
                Some(format!("node {} founds another cluster with node {me}", held.founder))
            }
        };
        if let Some(other) = other {
            return Err(Status::failed_precondition(format!(
                "{other}; if that was given up, start node {me} again, and ask again"
            )));
        }
        *claim = Some(Claim::Cluster(cluster));
        Ok(())
    }

    /// True if a founder other than node `me` has claimed this node.
    pub fn is_held_by_another_founder(&self, me: NodeId) -> bool {
        matches!(*self.0.lock(), Some(Claim::Founder(held)) if held.founder != me)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, rc::Rc};

    use tonic::Code;

    use super::*;

    /// A process of a node, with an incarnation of its own.
    #[derive(Clone)]
    struct Process {
        id: NodeId,
        incarnation: u64,
        claim: Rc<FoundingClaim>,
    }

    impl Process {
        fn new(id: NodeId, incarnation: u64) -> Process {
            Process { id, incarnation, claim: Rc::default() }
        }
    }

    /// A founder that claims all members in the order of their ids, twice, and decides.
    #[derive(Clone)]
    struct Founder {
        process: Process,
        /// The incarnations of the members, as it met them.
        met: BTreeMap<NodeId, u64>,
        claims_left: Vec<NodeId>,
        /// `None` while it goes on; then whether it founds.
        decided: Option<bool>,
    }

    impl Founder {
        fn new(process: &Process, members: &BTreeMap<NodeId, Process>) -> Founder {
            let mut met: BTreeMap<NodeId, u64> =
                members.iter().map(|(id, member)| (*id, member.incarnation)).collect();
            met.insert(process.id, process.incarnation);
            let mut claims_left: Vec<NodeId> = met.keys().chain(met.keys()).copied().collect();
            claims_left.reverse();
            Founder { process: process.clone(), met, claims_left, decided: None }
        }

        fn attempt(&self) -> Attempt {
            let Process { id, incarnation, .. } = self.process;
            Attempt { founder: id, incarnation, number: 1 }
        }

        /// What its address book leads it to: itself, or the process that runs as that member now.
        fn member(&self, members: &BTreeMap<NodeId, Process>, id: NodeId) -> Process {
            match id == self.process.id {
                true => self.process.clone(),
                false => members[&id].clone(),
            }
        }

        fn step(&mut self, members: &BTreeMap<NodeId, Process>) {
            let Some(id) = self.claims_left.pop() else {
                self.decided = Some(true);
                return;
            };
            let member = self.member(members, id);
            let claimed = member.claim.claim_for_founding(self.attempt(), id);
            if claimed.is_err() || member.incarnation != self.met[&id] {
                for id in self.met.keys() {
                    self.member(members, *id).claim.let_go(self.attempt());
                }
                self.decided = Some(false);
            }
        }
    }

    /// Calls `each` with the founders of every order of their steps. If `restarts`, a member is started again at some moment.
    /// A founder that is started again founds nothing afterwards.
    fn in_every_order(
        founders: [Founder; 2], members: BTreeMap<NodeId, Process>, restarts: bool,
        each: &mut impl FnMut(&[Founder; 2]),
    ) {
        let mut ended = true;
        for (who, founder) in founders.iter().enumerate() {
            if founder.decided.is_none() {
                ended = false;
                let (mut founders, members) = copied(&founders, &members);
                founders[who].step(&members);
                in_every_order(founders, members, restarts, each);
            }
        }
        if ended {
            return each(&founders);
        }
        if restarts {
            for id in members.keys() {
                let (mut founders, mut members) = copied(&founders, &members);
                members.insert(*id, Process::new(*id, 1_000 + id));
                for founder in &mut founders {
                    // One that has decided holds data, and goes on.
                    if founder.process.id == *id && founder.decided.is_none() {
                        founder.decided = Some(false);
                    }
                }
                in_every_order(founders, members, false, each);
            }
        }
    }

    /// The same state, with claims of its own.
    fn copied(
        founders: &[Founder; 2], members: &BTreeMap<NodeId, Process>,
    ) -> ([Founder; 2], BTreeMap<NodeId, Process>) {
        let mut claims: BTreeMap<u64, Rc<FoundingClaim>> = BTreeMap::new();
        let mut copy = |process: &Process| {
            let claim = claims
                .entry(process.incarnation)
                .or_insert_with(|| Rc::new(FoundingClaim(Mutex::new(*process.claim.0.lock()))));
            Process { claim: claim.clone(), ..process.clone() }
        };
        let founders = founders.clone().map(|founder| {
            let process = copy(&founder.process);
            Founder { process, ..founder }
        });
        let members = members.iter().map(|(id, process)| (*id, copy(process))).collect();
        (founders, members)
    }

    fn three_members() -> BTreeMap<NodeId, Process> {
        (1..=3).map(|id| (id, Process::new(id, 10 * id))).collect()
    }

    #[test]
    fn of_two_founders_one_decides_in_every_order_of_events() {
        for pair in [[1, 2], [2, 3], [3, 1]] {
            let members = three_members();
            let founders = pair.map(|id| Founder::new(&members[&id], &members));
            let mut orders = 0;
            in_every_order(founders, members, false, &mut |[one, other]| {
                orders += 1;
                assert_ne!(one.decided, other.decided, "founders {pair:?}");
            });
            assert!(orders > 10, "{orders} orders");
        }
    }

    #[test]
    fn no_member_is_in_two_clusters_if_one_is_started_again_at_any_moment() {
        let members = three_members();
        let founders = [1, 2].map(|id| Founder::new(&members[&id], &members));
        let mut none = 0;
        in_every_order(founders, members, true, &mut |[one, other]| {
            // They would have those members in common that were not started again.
            assert!(one.decided != Some(true) || other.decided != Some(true));
            none += u32::from(one.decided == other.decided);
        });
        assert!(none > 10, "in {none} orders, none decides: a member was started again");
    }

    /// Two machines were given the id 1. Neither meets the other.
    #[test]
    fn of_two_founders_with_the_same_id_one_at_most_decides_in_every_order_of_events() {
        let members = three_members();
        let twin = Process::new(1, 11);
        let founders = [&members[&1], &twin].map(|process| Founder::new(process, &members));
        let mut decided = 0;
        in_every_order(founders, members, false, &mut |[one, other]| {
            assert!(one.decided != Some(true) || other.decided != Some(true));
            decided += u32::from(one.decided != other.decided);
        });
        assert!(decided > 10, "one of them decided in {decided} orders");
    }

    #[test]
    fn a_claim_of_another_one_is_refused_with_the_reason_until_it_is_let_go() {
        let claim = FoundingClaim::default();
        let attempt = |founder, incarnation, number| Attempt { founder, incarnation, number };
        claim.claim_for_founding(attempt(1, 10, 2), 5).expect("it is free");
        claim.claim_for_founding(attempt(1, 10, 2), 5).expect("again");
        let refused = |attempt, code, part: &str| {
            let refused = claim.claim_for_founding(attempt, 5).expect_err("refused");
            assert_eq!(refused.code(), code, "{refused}");
            assert!(refused.message().contains(part), "{refused}");
        };
        refused(attempt(2, 20, 1), Code::Unavailable, "node 1 founds");
        refused(attempt(1, 11, 9), Code::FailedPrecondition, "two nodes were given the node_id 1");
        refused(attempt(1, 10, 1), Code::Unavailable, "later attempt");
        let cluster = ClusterId::from_bytes(&[7; 16]).expect("an id");
        let added = claim.claim_for_cluster(cluster, 5).expect_err("refused");
        assert!(added.message().contains("node 1 founds another cluster"), "{added}");
        assert!(claim.is_held_by_another_founder(5) && !claim.is_held_by_another_founder(1));
        // The late message of an earlier attempt changes nothing.
        claim.let_go(attempt(1, 10, 1));
        refused(attempt(2, 20, 1), Code::Unavailable, "node 1 founds");
        claim.let_go(attempt(1, 10, 2));
        claim.claim_for_founding(attempt(2, 20, 1), 5).expect("it was let go");
    }

    #[test]
    fn a_node_that_is_about_to_be_added_founds_nothing_and_goes_to_no_other_cluster() {
        let claim = FoundingClaim::default();
        let [one, other] = [[7; 16], [8; 16]].map(|id| ClusterId::from_bytes(&id).expect("an id"));
        claim.claim_for_cluster(one, 5).expect("it is free");
        claim.claim_for_cluster(one, 5).expect("again, maybe by the next leader");
        let refused = claim.claim_for_cluster(other, 5).expect_err("another cluster");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(&one.to_string()), "{refused}");
        let attempt = Attempt { founder: 5, incarnation: 50, number: 1 };
        let refused = claim.claim_for_founding(attempt, 5).expect_err("about to be added");
        assert!(refused.message().contains(&one.to_string()), "{refused}");
    }
}
