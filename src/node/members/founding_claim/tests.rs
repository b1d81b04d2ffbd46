//! Claims of founders.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::*;
use crate::proto::Code;

/// A process of a node, with an incarnation of its own.
#[derive(Clone)]
struct Process {
    id: NodeId,
    /// The name of the process.
    number: u64,
    state: Rc<RefCell<ProcessState>>,
}

/// The state of a process.
#[derive(Clone)]
struct ProcessState {
    incarnation: u64,
    claim: FoundingClaim,
}

impl Process {
    fn new(id: NodeId, number: u64) -> Process {
        let state = ProcessState { incarnation: number, claim: FoundingClaim::default() };
        Process { id, number, state: Rc::new(RefCell::new(state)) }
    }

    fn incarnation(&self) -> u64 {
        self.state.borrow().incarnation
    }

    /// Claims it for a founder. Returns the incarnation that the founder is told.
    fn claim_for(&self, founder: super::Founder, now: Instant) -> Result<u64, HeldByAnother> {
        let mut state = self.state.borrow_mut();
        let claim = Claim::Founder(founder);
        state.incarnation += 100_000 * u64::from(state.claim.claim(claim, self.id, now)?);
        Ok(state.incarnation)
    }
}

/// A founder that claims all members in the order of their ids, twice, and decides.
#[derive(Clone)]
struct Founder {
    process: Process,
    incarnation: u64,
    /// The incarnations of the members, as it met them.
    met: BTreeMap<NodeId, u64>,
    claims_left: Vec<NodeId>,
    /// `None` while it goes on; then whether it founds.
    decided: Option<bool>,
}

impl Founder {
    fn new(process: &Process, members: &BTreeMap<NodeId, Process>) -> Founder {
        let mut met: BTreeMap<NodeId, u64> =
            members.iter().map(|(id, member)| (*id, member.incarnation())).collect();
        let incarnation = process.incarnation();
        met.insert(process.id, incarnation);
        let mut claims_left: Vec<NodeId> = met.keys().chain(met.keys()).copied().collect();
        claims_left.reverse();
        Founder { process: process.clone(), incarnation, met, claims_left, decided: None }
    }

    fn says(&self) -> super::Founder {
        super::Founder { id: self.process.id, incarnation: self.incarnation, admin: None }
    }

    /// The process that its address book leads to: itself, or the process that runs as that member now.
    fn member(&self, members: &BTreeMap<NodeId, Process>, id: NodeId) -> Process {
        match id == self.process.id {
            true => self.process.clone(),
            false => members[&id].clone(),
        }
    }

    fn step(&mut self, members: &BTreeMap<NodeId, Process>, now: Instant) {
        let Some(id) = self.claims_left.pop() else {
            self.decided = Some(true);
            return;
        };
        let member = self.member(members, id);
        let told = member.claim_for(self.says(), now);
        if told.ok() != Some(self.met[&id]) {
            self.process.state.borrow_mut().claim.give_up(self.says());
            self.decided = Some(false);
        }
    }
}

/// An event that happens once, at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    /// A member is started again.
    Restart,
    /// All claims run out.
    Pause,
}

/// Calls `each` with the founders of every order of their steps, and of the disturbance. A founder that is started again
/// founds nothing afterwards.
fn in_every_order(
    founders: [Founder; 2], members: BTreeMap<NodeId, Process>, disturbance: Disturbance,
    now: Instant, each: &mut impl FnMut(&[Founder; 2]),
) {
    let mut ended = true;
    for (who, founder) in founders.iter().enumerate() {
        if founder.decided.is_none() {
            ended = false;
            let (mut founders, members) = copied(&founders, &members);
            founders[who].step(&members, now);
            in_every_order(founders, members, disturbance, now, each);
        }
    }
    if ended {
        return each(&founders);
    }
    match disturbance {
        Disturbance::None => {}
        Disturbance::Pause => {
            let (founders, members) = copied(&founders, &members);
            in_every_order(founders, members, Disturbance::None, now + LASTS, each);
        }
        Disturbance::Restart => {
            for id in members.keys() {
                let (mut founders, mut members) = copied(&founders, &members);
                members.insert(*id, Process::new(*id, 1_000 + id));
                for founder in &mut founders {
                    // One that has decided holds data, and goes on.
                    if founder.process.id == *id && founder.decided.is_none() {
                        founder.decided = Some(false);
                    }
                }
                in_every_order(founders, members, Disturbance::None, now, each);
            }
        }
    }
}

/// The same state, with claims of its own.
fn copied(
    founders: &[Founder; 2], members: &BTreeMap<NodeId, Process>,
) -> ([Founder; 2], BTreeMap<NodeId, Process>) {
    let mut states: BTreeMap<u64, Rc<RefCell<ProcessState>>> = BTreeMap::new();
    let mut copy = |process: &Process| {
        let state =
            states.entry(process.number).or_insert_with(|| Rc::new((*process.state).clone()));
        Process { state: state.clone(), ..process.clone() }
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
        let now = Instant::now();
        in_every_order(founders, members, Disturbance::None, now, &mut |[one, other]| {
            orders += 1;
            assert_ne!(one.decided, other.decided, "founders {pair:?}");
        });
        assert!(orders > 10, "{orders} orders");
    }
}

#[test]
fn no_member_is_in_two_clusters_if_one_is_started_again_or_claims_run_out_at_any_moment() {
    for disturbance in [Disturbance::Restart, Disturbance::Pause] {
        let members = three_members();
        let founders = [1, 2].map(|id| Founder::new(&members[&id], &members));
        let mut none = 0;
        in_every_order(founders, members, disturbance, Instant::now(), &mut |[one, other]| {
            // They would have those members in common that have the same incarnation still.
            assert!(one.decided != Some(true) || other.decided != Some(true));
            none += u32::from(one.decided == other.decided);
        });
        let is_restart = disturbance == Disturbance::Restart;
        assert_eq!(none > 10, is_restart, "in {none} orders, none decides: {disturbance:?}");
    }
}

/// Two machines were given the id 1. Neither meets the other.
#[test]
fn of_two_founders_with_the_same_id_one_at_most_decides_in_every_order_of_events() {
    for disturbance in [Disturbance::None, Disturbance::Pause] {
        let members = three_members();
        let twin = Process::new(1, 11);
        let founders = [&members[&1], &twin].map(|process| Founder::new(process, &members));
        let mut decided = 0;
        in_every_order(founders, members, disturbance, Instant::now(), &mut |[one, other]| {
            assert!(one.decided != Some(true) || other.decided != Some(true));
            decided += u32::from(one.decided != other.decided);
        });
        assert!(decided > 10, "one of them decided in {decided} orders");
    }
}

fn founds(id: NodeId, incarnation: u64) -> Claim {
    Claim::Founder(super::Founder { id, incarnation, admin: None })
}

#[test]
fn a_claim_of_another_one_is_refused_with_the_reason_until_it_has_run_out() {
    let (mut held, now) = (FoundingClaim::default(), Instant::now());
    assert!(!held.claim(founds(1, 10), 5, now).expect("it is free"));
    assert!(!held.claim(founds(1, 10), 5, now + LASTS).expect("again"));
    let now = now + LASTS;
    let cluster = ClusterId::from_bytes(&[7; 16]).expect("an id");
    assert!(held.clone().claim(founds(1, 11), 5, now).expect("it was started again"));
    for other in [founds(2, 20), Claim::Cluster(cluster)] {
        let soon = now + LASTS - Duration::from_millis(1);
        let HeldByAnother(refused) = held.claim(other, 5, soon).expect_err("refused");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        for part in ["node 1 founds", "in 1 s"] {
            assert!(refused.message().contains(part), "{part:?} is not in {refused}");
        }
        assert!(held.clone().claim(other, 5, now + LASTS).expect("it has run out"));
    }
    assert!(held.is_held_by_another_founder(5) && !held.is_held_by_another_founder(1));
}

/// Its process may be paused between its last claim and its decision.
#[test]
fn what_a_founder_claims_of_itself_does_not_run_out() {
    let (mut held, now) = (FoundingClaim::default(), Instant::now());
    held.claim(founds(5, 50), 5, now).expect("it is free");
    let later = now + 10 * LASTS;
    let HeldByAnother(refused) = held.claim(founds(1, 10), 5, later).expect_err("refused");
    assert!(refused.message().contains("node 5 founds"), "{refused}");
    held.give_up(super::Founder { id: 5, incarnation: 49, admin: None });
    held.claim(founds(1, 10), 5, now).expect_err("that was another process");
    held.give_up(super::Founder { id: 5, incarnation: 50, admin: None });
    assert!(!held.claim(founds(1, 10), 5, now).expect("it was given up"));
}

#[test]
fn a_node_that_is_about_to_be_added_founds_nothing_and_goes_to_no_other_cluster_for_a_while() {
    let now = Instant::now();
    let [one, other] = [[7; 16], [8; 16]].map(|id| ClusterId::from_bytes(&id).expect("an id"));
    let mut added = FoundingClaim::default();
    assert!(!added.claim(Claim::Cluster(one), 5, now).expect("it is free"));
    assert!(!added.claim(Claim::Cluster(one), 5, now).expect("maybe by the next leader"));
    for claim in [Claim::Cluster(other), founds(5, 50)] {
        let HeldByAnother(refused) = added.claim(claim, 5, now).expect_err("about to be added");
        assert!(refused.message().contains(&one.to_string()), "{refused}");
        assert!(added.clone().claim(claim, 5, now + LASTS).expect("it has run out"));
    }
}
