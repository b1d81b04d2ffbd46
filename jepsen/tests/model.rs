//! The protocol as a model that is searched exhaustively: chunks, leases, restarts, drift, handover.
//!
//! Every order of events within the bounds is tried. With all margins kept, no order breaks the
//! promise; with any one of them left out, the search prints the shortest way to break it
//! (`cargo test -p ratchet-jepsen --test model -- --nocapture`).
//!
//! **Modelled.** Three nodes and one section. Time passes in ticks in which each node's clock
//! advances by its own rate; only what is left of a promise or lease is kept, so time is unbounded.
//! A leader's heartbeat (at most one under way) and its acknowledgement arrive late or never;
//! whoever acknowledges promises to keep out of elections. A call reads the term's allocator,
//! takes, pauses, passes the fence, answers; a paused leader is one that takes no step. A call that
//! begins remembers the greatest answer so far: its own must be greater (for `Current`, not less),
//! and no number may be handed out twice.
//!
//! **Abstracted, and why nothing is lost.**
//! * The log: an entry is committed when a leader and a follower are in its term, and applied with
//!   it. Raft sees to the rest: an elected leader knows all that was committed.
//! * An election is one step. A voter refuses the old leader from its vote on; a slow election is
//!   one whose winner pauses.
//! * A call pauses only where `Pause` stands. Had it begun earlier, or been answered later, less
//!   would be asked of it, and of others.
//! * A restart takes no time. A node that is down longer is one that votes and takes no part later.
//! * The last term's leader passes its fence unasked: nobody can come after it, so this adds orders
//!   and hides none.
//!
//! **Bounded.** Two terms with the lease fence (three where nothing is handed over), three with the
//! quorum fence; one restart, one handover, four or six numbers, one call per node at a time.
//!
//! Time is in units; the lease is 2 and a promise 3, and in a tick a clock advances by 1 or 2. After
//! `k` ticks a lease has lost at least `k` and a promise at most `2k`: at 1 both hold, at 2 the lease
//! has ended. One unit more of lease, or of drift, and a promise ends first.
//!
//! | margin | without it | test |
//! | --- | --- | --- |
//! | the fence | a deposed leader answers 1 after its successor answered 3 | `without_a_fence_...` |
//! | it is asked after the call began | so it does: the fence was up, once | `a_fence_asked_before_the_call_...`, `a_round_sent_...` |
//! | it is asked after the take | `Current` reads the successor's ceiling: above what is handed out later. (`Next` alone would be safe: whoever answered before the call began has let the fence down before) | `a_fence_asked_before_the_take_...` |
//! | leader's lease < followers' | a voter's fast clock frees it while the leader's slow one still counts. (Equal ones need perfect clocks) | `a_lease_as_long_as_...` |
//! | drift is bounded | the same; or a pause that the leader's clock misses | `drift_...`, `a_pause_...` |
//! | `LeaseSinceSending` | the lease runs from the acknowledgement's arrival; the promise began before | `a_lease_since_...` |
//! | `AckOfItsOwnMessage` | one acknowledgement counts for a message sent later | `an_acknowledgement_...` |
//! | `SilenceAfterRestart` | a restarted node has forgotten its promise, and votes | `a_restarted_node_...` |
//! | `CandidateKeepsPromise` | a node forgets it for its own candidacy | `a_candidate_...` |
//! | `LaterTermVoids` | a leader votes for its successor, and goes on under its lease (or counts itself in a quorum round) | `a_lease_that_outlives_...`, `a_round_that_...` |
//! | `ChunkFromApply` | a new leader goes on with the chunk found in its applied table: used | `a_chunk_from_...` |
//! | `ChunkInItsTerm` | a late answer to an old term's bump is granted to a new term | `a_chunk_granted_...` |
//! | `ClosedToTransfer` | a transfer overrides promises, and the old leader goes on | `an_allocator_left_open_...` |
//! | `ClosedForGood` | a transfer that seemed to fail succeeds after all; and what was trimmed is taken | `an_allocator_opened_again_...` |
//! | `TrimCountsTaken` | a number that was taken and is answered yet lies above the trim | `a_trim_below_...` |
//! | `TrimInItsTerm` | a later term logs the trim and loses its own numbers | `a_trim_logged_...` |
//! | `TrimByOwner` | nothing, as long as `TrimInItsTerm` is kept: a second guard, and not enough alone | `a_trim_by_anyone_...`, `a_trim_that_only_...` |
//!
//! The quorum fence asks a majority after the take. Its tests have no clocks: no promise is ever
//! kept, which is what unlimited drift comes to.

use Act::*;
use Fence::*;
use Kind::*;
use Margin::*;
use Phase::*;
use Step::*;
use stateright::{Checker, HasDiscoveries, Model, Property};

const NODES: usize = 3;
/// By how much one bump raises `max_seq`.
const STEP: u8 = 2;
const PROMISE: &str = "numbers are unique, and in the order of the calls";

/// The protocol's parameters, and the bounds of the search.
#[derive(Clone, Copy)]
struct Rules {
    fence: Fence,
    /// What a call does. Anything may happen at a `Pause`, nothing elsewhere.
    steps: &'static [Step],
    calls: &'static [Kind],
    /// In units of the leader's clock, and of a follower's.
    leader_lease: u8,
    follower_lease: u8,
    /// By how many units a clock advances in a tick: at least, at most.
    rates: (u8, u8),
    /// The margins that are left out.
    without: &'static [Margin],
    // The bounds: the last term, the greatest number, how many restarts and handovers.
    terms: u8,
    numbers: u8,
    restarts: u8,
    handovers: u8,
}

#[derive(Clone, Copy, PartialEq)]
enum Fence {
    Lease,
    Quorum,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Invoke,
    Take,
    Pause,
    Check,
    Answer,
}

/// The margins that are kept or not; the table above says what happens without each.
#[derive(Clone, Copy, PartialEq)]
enum Margin {
    LeaseSinceSending,
    AckOfItsOwnMessage,
    SilenceAfterRestart,
    CandidateKeepsPromise,
    LaterTermVoids,
    ChunkFromApply,
    ChunkInItsTerm,
    ClosedToTransfer,
    ClosedForGood,
    TrimInItsTerm,
    TrimByOwner,
    TrimCountsTaken,
}

const LEASE: Rules = Rules {
    fence: Lease,
    steps: &[Invoke, Take, Pause, Check, Answer],
    calls: &[Next],
    leader_lease: 2,
    follower_lease: 3,
    rates: (1, 2),
    without: &[],
    terms: 2,
    numbers: 4,
    restarts: 1,
    handovers: 1,
};
const QUORUM: Rules = Rules {
    fence: Quorum,
    terms: 3,
    numbers: 6,
    ..LEASE
};
/// The fence before the take, for once.
const CHECK_FIRST: &[Step] = &[Invoke, Check, Pause, Take, Answer];
const BOTH: &[Kind] = &[Next, Current];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    nodes: [Node; NODES],
    /// The applied table: what a majority has logged.
    table: Record,
    /// A trim that was proposed: by which term, down to what.
    trim: Option<(u8, u8)>,
    /// A message under way that lets a node campaign at once: sent in which term, to whom.
    transfer: Option<(u8, usize)>,
    restarts: u8,
    handovers: u8,
    /// What was handed out, as bits, and the greatest answer of any call.
    answered: u16,
    seen: u8,
    broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Node {
    /// The last term that it voted in or heard of: on disk.
    term: u8,
    /// For how long it keeps out of elections.
    promise: u8,
    leads: Option<Term>,
    /// The answer of apply to its bump, on its way.
    bumped: Option<Chunk>,
    call: Option<Call>,
    message: Option<Message>,
}

/// A term's allocator and lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Term {
    term: u8,
    phase: Phase,
    /// How much is left of it.
    lease: u8,
    chunk: Chunk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Open,
    Closed,
    Void,
}

/// The numbers above `cur_seq` up to `ceiling` can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Chunk {
    cur_seq: u8,
    ceiling: u8,
}

/// A message of a leader to `to`, or its acknowledgement, `age` after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    to: usize,
    age: u8,
    acknowledged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Call {
    kind: Kind,
    term: u8,
    /// How many of its steps it has done.
    done: usize,
    /// The greatest answer when it began.
    seen: u8,
    value: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Kind {
    #[default]
    Next,
    Current,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Record {
    max_seq: u8,
    /// What `max_seq` was when `term` first bumped it.
    floor: u8,
    term: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// By so many units on each node's clock. (`tell` says all of them in words.)
    Tick([u8; NODES]),
    Send(usize, usize),
    Deliver(usize),
    Arrive(usize),
    Elect(usize, usize),
    Hear(usize),
    Bump(usize),
    Grant(usize),
    Begin(usize, Kind),
    GoOn(usize),
    Close(usize),
    LogTrim(usize),
    Transfer(usize, usize),
    Reopen(usize),
    Restart(usize),
}

impl Chunk {
    fn above(cur_seq: u8, ceiling: u8) -> Self {
        Chunk { cur_seq, ceiling }
    }

    fn is_empty(self) -> bool {
        self.cur_seq >= self.ceiling
    }
}

impl Record {
    fn used_before(self, term: u8) -> u8 {
        let own = self.term == term;
        if own { self.floor } else { self.max_seq }
    }
}

impl State {
    fn last_term(&self) -> u8 {
        self.nodes.iter().map(|node| node.term).max().unwrap_or(0)
    }

    /// The term that `n` leads, unless it has voted in a later one.
    fn leads(&mut self, n: usize) -> Option<&mut Term> {
        let node = &mut self.nodes[n];
        node.leads.as_mut().filter(|leads| leads.term == node.term)
    }

    /// The term that a call belongs to, unless `n` has lost it.
    fn term_of(&mut self, n: usize, call: Call) -> Option<&mut Term> {
        let leads = self.nodes[n].leads.as_mut();
        leads.filter(|leads| leads.term == call.term)
    }

    /// Whether another node follows `n` in `term`: the two are a majority.
    fn followed(&self, n: usize, term: u8) -> bool {
        (0..NODES).any(|p| p != n && self.nodes[p].term == term)
    }

    /// The term in which `n` can commit what it logs.
    fn commits(&self, n: usize) -> Option<Term> {
        let leads = self.nodes[n].leads?;
        let committing = leads.term == self.nodes[n].term && self.followed(n, leads.term);
        committing.then_some(leads)
    }

    /// Drops the term: memory, lease, what it waits for, and the calls that it will not let pass.
    fn drop_term(&mut self, rules: &Rules, n: usize) {
        let node = &mut self.nodes[n];
        node.leads = None;
        node.bumped = node.bumped.filter(|_| !rules.keep(ChunkInItsTerm));
        node.call = node
            .call
            .filter(|call| !rules.steps[call.done..].contains(&Check));
    }

    fn hear_of(&mut self, rules: &Rules, n: usize, term: u8) {
        if term > self.nodes[n].term {
            self.nodes[n].term = term;
            self.nodes[n].message = None;
            if rules.keep(LaterTermVoids) {
                self.drop_term(rules, n);
            }
        }
    }

    fn elect(&mut self, rules: &Rules, winner: usize, voter: usize) {
        let term = self.last_term() + 1;
        for n in [winner, voter] {
            self.hear_of(rules, n, term);
            self.nodes[n].promise = 0;
        }
        self.drop_term(rules, winner);
        let mut leads = Term {
            term,
            ..Term::default()
        };
        if !rules.keep(ChunkFromApply) {
            let max_seq = self.table.max_seq;
            leads.chunk = Chunk::above(max_seq.saturating_sub(STEP), max_seq);
        }
        self.nodes[winner].leads = Some(leads);
    }

    fn begin(&self, n: usize, kind: Kind) -> Option<Call> {
        Some(Call {
            kind,
            term: self.nodes[n].leads?.term,
            ..Call::default()
        })
    }

    /// Goes on with a call until it pauses or ends.
    fn go_on(&mut self, rules: &Rules, n: usize, mut call: Call) -> Option<Call> {
        self.nodes[n].call = None;
        for step in &rules.steps[call.done..] {
            call.done += 1;
            match step {
                Invoke => call.seen = self.seen,
                Take => call.value = self.take(n, call)?,
                Pause => {
                    self.nodes[n].call = Some(call);
                    break;
                }
                Check => {
                    let leads = *self.term_of(n, call)?;
                    let up = match rules.fence {
                        Lease => leads.lease > 0,
                        Quorum => self.followed(n, leads.term),
                    };
                    // Nobody comes after the last term: its fence cannot matter.
                    possible(leads.phase != Void && (up || leads.term == rules.terms))?;
                }
                Answer => {
                    // `Current` hands nothing out, and may repeat what was answered.
                    let next = call.kind == Next;
                    let number = u16::from(next) << call.value;
                    let disordered = call.value < call.seen + u8::from(next);
                    self.broken = disordered || self.answered & number != 0;
                    self.answered |= number;
                    self.seen = self.seen.max(call.value);
                }
            }
        }
        Some(call)
    }

    fn take(&mut self, n: usize, call: Call) -> Option<u8> {
        let knows = self.nodes[n].term >= self.table.term;
        let table = self.table;
        match (call.kind, self.term_of(n, call)) {
            (_, Some(leads)) if leads.phase != Open => None,
            (Next, leads) => {
                let leads = leads.filter(|leads| !leads.chunk.is_empty())?;
                leads.chunk.cur_seq += 1;
                Some(leads.chunk.cur_seq)
            }
            (Current, Some(leads)) if leads.chunk.ceiling > 0 => Some(leads.chunk.cur_seq),
            // Its memory holds nothing (any more): a ceiling will do.
            (Current, _) => knows.then_some(table.used_before(call.term)),
        }
    }

    /// Numbers were handed out above the floor of the last term that bumped, and below.
    fn both_terms(&self) -> bool {
        let Record { floor, term, .. } = self.table;
        term > 1 && self.answered >> floor > 1 && self.answered & ((2 << floor) - 1) > 0
    }

    /// A deposed leader does not know it, and has numbers left.
    fn holds_in_vain(&self) -> bool {
        let deposed = |leads: &Term| leads.term < self.table.term && !leads.chunk.is_empty();
        self.nodes.iter().flat_map(|node| &node.leads).any(deposed)
    }
}

/// What `?` leaves a step by that is not possible.
fn possible(yes: bool) -> Option<()> {
    yes.then_some(())
}

impl Rules {
    fn keep(&self, margin: Margin) -> bool {
        !self.without.contains(&margin)
    }

    /// One step of the world; `None` where it is not possible.
    fn act(&self, state: &mut State, act: Act) -> Option<()> {
        match act {
            Tick(rates) => {
                for (node, units) in state.nodes.iter_mut().zip(rates) {
                    node.promise = node.promise.saturating_sub(units);
                    if let Some(leads) = &mut node.leads {
                        leads.lease = leads.lease.saturating_sub(units);
                    }
                    if let Some(message) = &mut node.message {
                        message.age = self.leader_lease.min(message.age + units);
                    }
                }
            }
            Send(n, to) => {
                let leads = *state.leads(n)?;
                possible(leads.phase != Void && leads.term < self.terms)?;
                // Whatever it had sent before is given up for lost.
                let last = state.nodes[n].message;
                state.nodes[n].message = Some(Message {
                    to,
                    age: 0,
                    acknowledged: !self.keep(AckOfItsOwnMessage)
                        && last.is_some_and(|last| last.to == to && last.acknowledged),
                });
            }
            Deliver(n) => {
                let term = state.nodes[n].term;
                let message = state.nodes[n].message.as_mut()?;
                let to = message.to;
                possible(!std::mem::replace(&mut message.acknowledged, true))?;
                possible(state.nodes[to].term <= term)?;
                state.hear_of(self, to, term);
                state.nodes[to].promise = self.follower_lease;
            }
            Arrive(n) => {
                let message = state.nodes[n].message.take()?;
                let leads = state.leads(n)?;
                possible(message.acknowledged && leads.phase != Void)?;
                let sent = self.keep(LeaseSinceSending);
                let age = if sent { message.age } else { 0 };
                leads.lease = leads.lease.max(self.leader_lease - age);
            }
            Elect(winner, voter) => {
                let free = |n: usize| state.nodes[n].promise == 0;
                let stands = free(winner) || !self.keep(CandidateKeepsPromise);
                let told = |(term, to): (u8, usize)| winner == to && state.nodes[to].term <= term;
                let transferred = state.transfer.is_some_and(told);
                possible(state.last_term() < self.terms)?;
                possible(transferred || free(voter) && stands)?;
                state.transfer = state.transfer.filter(|_| !transferred);
                state.elect(self, winner, voter);
            }
            Hear(n) => state.hear_of(self, n, state.last_term()),
            Bump(n) => {
                let leads = state.commits(n)?;
                let old = state.table.max_seq;
                possible(leads.phase == Open && leads.chunk.is_empty())?;
                possible(state.nodes[n].bumped.is_none() && old + STEP <= self.numbers)?;
                state.table = Record {
                    max_seq: old + STEP,
                    floor: state.table.used_before(leads.term),
                    term: leads.term,
                };
                state.nodes[n].bumped = Some(Chunk::above(old, old + STEP));
            }
            Grant(n) => {
                let granted = state.nodes[n].bumped.take()?;
                let chunk = &mut state.nodes[n].leads.as_mut()?.chunk;
                // Within a term the memory only grows.
                *chunk = Chunk::above(granted.cur_seq.max(chunk.cur_seq), granted.ceiling);
            }
            Begin(n, kind) => {
                possible(state.nodes[n].call.is_none())?;
                possible(state.nodes[n].leads?.phase == Open)?;
                state.go_on(self, n, state.begin(n, kind)?)?;
            }
            GoOn(n) => {
                let call = state.nodes[n].call?;
                // A call that does not pass the fence is over as well.
                state.go_on(self, n, call);
            }
            Close(n) => {
                possible(state.handovers < self.handovers)?;
                state.handovers += 1;
                let seen = state.seen;
                let leads = state.leads(n).filter(|leads| leads.phase == Open)?;
                leads.phase = Closed;
                if !leads.chunk.is_empty() {
                    let taken = self.keep(TrimCountsTaken);
                    let used = if taken { leads.chunk.cur_seq } else { seen };
                    state.trim = Some((leads.term, used));
                }
            }
            LogTrim(n) => {
                let (term, used) = state.trim.take()?;
                let logged_in = state.commits(n)?.term;
                possible(logged_in == term || !self.keep(TrimInItsTerm))?;
                let table = &mut state.table;
                if (table.term == logged_in || !self.keep(TrimByOwner)) && used <= table.max_seq {
                    table.max_seq = used.max(table.floor);
                    table.floor = table.max_seq;
                }
            }
            Transfer(n, to) => {
                let open = !self.keep(ClosedToTransfer);
                let leads = state.leads(n)?;
                possible(leads.phase == if open { Open } else { Closed })?;
                if !open {
                    (leads.phase, leads.lease) = (Void, 0);
                }
                state.transfer = Some((leads.term, to));
            }
            Reopen(n) => {
                let leads = state.leads(n).filter(|leads| leads.phase == Void)?;
                possible(!self.keep(ClosedForGood))?;
                leads.phase = Open;
            }
            Restart(n) => {
                possible(state.restarts < self.restarts)?;
                state.restarts += 1;
                let silent = self.keep(SilenceAfterRestart);
                state.nodes[n] = Node {
                    term: state.nodes[n].term,
                    promise: if silent { self.follower_lease } else { 0 },
                    ..Node::default()
                };
            }
        }
        Some(())
    }

    /// Forgets what cannot matter any more, so that fewer states are told apart.
    fn forget(&self, state: &mut State) {
        let last = state.last_term() == self.terms;
        let exact = self.keep(LeaseSinceSending) && self.keep(AckOfItsOwnMessage);
        let in_time = |message: &Message| !exact || message.age < self.leader_lease;
        for node in &mut state.nodes {
            // After the last term's election nobody votes, and no timer rules with a quorum fence.
            if last || self.fence == Quorum {
                node.promise = 0;
            }
            // The lease would have run out; a promise that begins so late only hinders elections.
            node.message = node.message.filter(in_time);
        }
    }
}

impl Model for Rules {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        state.elect(self, 0, 1);
        vec![state]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for n in 0..NODES {
            acts.extend([Deliver(n), Arrive(n), Hear(n), Bump(n), Grant(n), GoOn(n)]);
            acts.extend([Close(n), LogTrim(n), Reopen(n), Restart(n)]);
            acts.extend(self.calls.iter().map(|&kind| Begin(n, kind)));
            for p in (0..NODES).filter(|&p| p != n) {
                acts.extend([Elect(n, p), Transfer(n, p)]);
                if self.fence == Lease {
                    acts.push(Send(n, p));
                }
            }
        }
        // A clock on which nothing runs out need not be drifted.
        let (slow, fast) = self.rates;
        let rates = state.nodes.map(|node| {
            let lease = node.leads.map_or(0, |leads| leads.lease);
            let idle = node.promise == 0 && lease == 0 && node.message.is_none();
            slow..=if idle { slow } else { fast }
        });
        for a in rates[0].clone() {
            for b in rates[1].clone() {
                acts.extend(rates[2].clone().map(|c| Tick([a, b, c])));
            }
        }
    }

    fn next_state(&self, before: &State, act: Act) -> Option<State> {
        let mut state = *before;
        self.act(&mut state, act)?;
        self.forget(&mut state);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PROMISE, |_, state: &State| !state.broken),
            Property::sometimes("two terms answer", |_, state: &State| {
                state.both_terms() && state.holds_in_vain()
            }),
            Property::sometimes("so they do after a restart", |_, state: &State| {
                state.both_terms() && state.restarts > 0
            }),
            // 1 is the first half of the first chunk; where no trim returns 2, it is lost.
            Property::sometimes("a handover leaves no gap", |_, state: &State| {
                state.both_terms() && state.table.floor == 1 && state.answered & 6 == 6
            }),
        ]
    }
}

/// One line of a transcript.
fn tell(rules: &Rules, state: State, act: Act) -> String {
    let call = |n: usize, begun: Option<Call>| {
        let Some(begun) = begun else {
            return String::new();
        };
        let line = format!("node {n}, {:?} in term {}:", begun.kind, begun.term);
        let Some(call) = { state }.go_on(rules, n, begun) else {
            return line + " no number, or the fence is down";
        };
        let told = |step: &Step| match step {
            Invoke => format!(" begins, after {} was answered;", call.seen),
            Take => format!(" takes {};", call.value),
            Pause => " pauses".to_owned(),
            Check => " passes the fence;".to_owned(),
            Answer => format!(" ANSWERS {}", call.value),
        };
        let done = &rules.steps[begun.done..call.done];
        line + &done.iter().map(told).collect::<String>()
    };
    let (term, max_seq) = (state.last_term(), state.table.max_seq);
    match act {
        Tick(units) => format!("time passes: {units:?} units on the nodes' clocks"),
        Send(n, to) => format!("node {n} sends a heartbeat to node {to}"),
        Deliver(n) => format!("node {n}'s heartbeat arrives: acknowledged, a promise begins"),
        Arrive(n) => format!("the acknowledgement comes back to node {n}"),
        Elect(n, voter) => format!("node {n} is elected by node {voter} for term {}", term + 1),
        Hear(n) => format!("node {n} hears of term {term}"),
        Bump(n) => format!("a bump by node {n} raises max_seq to {}", max_seq + STEP),
        Grant(n) => format!("node {n} is granted the chunk that its bump was answered with"),
        Begin(n, kind) => call(n, state.begin(n, kind)),
        GoOn(n) => call(n, state.nodes[n].call),
        Close(n) => format!("node {n} closes its allocator and proposes a trim"),
        LogTrim(n) => format!("the trim is applied, in the term of node {n}"),
        Transfer(n, to) => format!("node {n} tells node {to} to take over"),
        Reopen(n) => format!("node {n} opens its allocator again"),
        Restart(n) => format!("node {n} crashes and restarts"),
    }
}

fn check(name: &str, rules: Rules) -> impl Checker<Rules> {
    let checker = rules
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!("{name}: {} states", checker.unique_state_count());
    if let Some(path) = checker.discovery(PROMISE) {
        for (state, act) in path.into_vec() {
            if let Some(act) = act {
                println!("    {}", tell(&rules, state, act));
            }
        }
    }
    checker
}

/// Every state within the bounds keeps the promise.
fn holds(name: &str, rules: Rules) {
    let checker = check(name, rules);
    assert!(checker.discovery(PROMISE).is_none());
    assert!(checker.unique_state_count() > 50_000, "vacuous");
}

/// Besides, what it is about does happen.
fn holds_and_happens(name: &str, rules: Rules) {
    let checker = check(name, rules);
    checker.assert_properties();
    assert!(checker.unique_state_count() > 500_000, "vacuous");
}

/// There is a way to break the promise.
fn breaks(name: &str, rules: Rules) {
    let broken = check(name, rules).discovery(PROMISE).is_some();
    assert!(broken, "this margin is not necessary");
}

macro_rules! tests {
    ($($name:ident: $verdict:ident($rules:expr);)*) => {
        $(#[test] fn $name() { $verdict(stringify!($name), $rules); })*
    };
}

tests! {
    the_lease_fence_keeps_the_promise: holds_and_happens(Rules { calls: BOTH, ..LEASE });
    the_lease_fence_keeps_it_over_three_terms: holds(Rules { terms: 3, handovers: 0, ..LEASE });
    the_quorum_fence_keeps_the_promise_without_any_clock: holds_and_happens(Rules { calls: BOTH, ..QUORUM });

    without_a_fence_a_deposed_leader_goes_on: breaks(Rules { steps: &[Invoke, Take, Answer], ..LEASE });
    a_fence_asked_before_the_call_says_nothing: breaks(Rules { steps: &[Check, Pause, Invoke, Take, Answer], ..LEASE });
    a_round_sent_before_the_call_says_nothing: breaks(Rules { steps: &[Check, Pause, Invoke, Take, Answer], ..QUORUM });
    a_fence_asked_before_the_take_lets_current_read_too_much: breaks(Rules { steps: CHECK_FIRST, calls: BOTH, ..LEASE });
    a_round_sent_before_the_take_lets_current_read_too_much: breaks(Rules { steps: CHECK_FIRST, calls: BOTH, ..QUORUM });
    a_fence_asked_before_the_take_would_do_for_next_alone: holds(Rules { steps: CHECK_FIRST, ..LEASE });

    a_lease_as_long_as_the_followers_outlives_theirs_under_drift: breaks(Rules { leader_lease: 3, ..LEASE });
    a_lease_as_long_as_the_followers_would_do_with_perfect_clocks: holds(Rules { leader_lease: 3, rates: (1, 1), ..LEASE });
    a_longer_lease_breaks_with_perfect_clocks: breaks(Rules { leader_lease: 4, rates: (1, 1), ..LEASE });
    drift_beyond_the_margin_breaks_the_lease: breaks(Rules { rates: (1, 3), ..LEASE });
    a_pause_that_a_clock_misses_breaks_the_lease: breaks(Rules { rates: (0, 1), ..LEASE });
    a_lease_since_the_acknowledgement_arrived_is_too_long: breaks(Rules { without: &[LeaseSinceSending], ..LEASE });
    an_acknowledgement_counted_for_a_later_message_is_too_long: breaks(Rules { without: &[AckOfItsOwnMessage], ..LEASE });
    a_restarted_node_that_votes_at_once_breaks_its_promise: breaks(Rules { without: &[SilenceAfterRestart], ..LEASE });
    a_candidate_that_ignores_its_own_promise_breaks_it: breaks(Rules { without: &[CandidateKeepsPromise], ..LEASE });
    a_lease_that_outlives_its_holders_vote_is_void_too_late: breaks(Rules { without: &[LaterTermVoids], ..LEASE });
    a_round_that_counts_a_leader_that_voted_later_is_no_majority: breaks(Rules { without: &[LaterTermVoids], ..QUORUM });

    a_chunk_from_the_applied_table_was_handed_out_before: breaks(Rules { without: &[ChunkFromApply], ..QUORUM });
    a_chunk_granted_to_a_later_term_comes_too_late: breaks(Rules { without: &[ChunkInItsTerm], ..QUORUM });

    an_allocator_left_open_answers_after_its_successor: breaks(Rules { without: &[ClosedToTransfer], ..LEASE });
    an_allocator_opened_again_answers_after_its_successor: breaks(Rules { without: &[ClosedForGood], ..LEASE });
    an_allocator_opened_again_hands_out_what_was_trimmed: breaks(Rules { without: &[ClosedForGood], ..QUORUM });
    a_trim_below_what_was_taken_returns_what_is_yet_answered: breaks(Rules { without: &[TrimCountsTaken], ..QUORUM });
    a_trim_logged_in_a_later_term_takes_that_terms_numbers: breaks(Rules { without: &[TrimInItsTerm], ..QUORUM });
    a_trim_by_anyone_in_any_term_takes_other_terms_numbers: breaks(Rules { without: &[TrimInItsTerm, TrimByOwner], ..QUORUM });
    a_trim_that_only_its_own_term_logs_needs_no_other_guard: holds(Rules { without: &[TrimByOwner], calls: BOTH, ..QUORUM });
}
