//! The dispatcher: the task that sends all requests of a client.
//!
//! It keeps a few batches in flight on one stream to one server, if possible the leader. Requests that
//! arrive meanwhile form the next batches; no timer is needed.
//!
//! - If a server fails, the requests of its batches are sent to another one. Messages with an id are sent as they were.
//! - If a server is silent, others are asked for the leader.
//! - If a server does not let the client in, the requests fail: no other one would.
//! - If another server leads, the dispatcher moves there: see [`Streams`].
//! - If a server belongs to another cluster, its answer is refused, and the requests are sent to another one.
//!
//! Invariant: every request is answered once, by its deadline.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tonic::Status;

use crate::{
    api::{self as v1, NextManyRequest, NextManyResponse},
    backoff::Backoff,
    batch::{Batch, Leftover},
    causes::{self, never_connected},
    error::OtherCluster,
    high_water_marks::HighWaterMarks,
    in_flight::{InFlight, next_until, take},
    leader_cache::LeaderCache,
    named_message::Mode,
    namespaces::{InternedNamespace, Namespaces},
    queue::{BATCH_REQUESTS_MAX, RequestQueues},
    request::{PendingRequest, fail_requests},
    request_clock::RequestClock,
    route_watches::RouteWatches,
    server_pool::ServerPool,
    streams::{Invalid, StreamEvent, Streams},
    unary_call::no_answer_within,
};

/// The largest number of batches in flight.
const BATCHES_IN_FLIGHT_MAX: usize = 4;
/// How long a server that owes answers may be silent before another one is asked who leads. One more is
/// asked each time this passes again.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(50);
/// How long after a batch was sent its old server may still answer, once the stream has moved to the
/// leader.
const MOVE_GRACE: Duration = Duration::from_millis(100);

/// The task that sends all requests of a client.
pub struct Dispatcher {
    servers: Arc<ServerPool>,
    namespaces: Namespaces,
    queues: RequestQueues,
    /// Messages with an id that are to be sent again as they are.
    resends: VecDeque<Batch>,
    /// The known kinds of namespaces.
    modes: HashMap<InternedNamespace, Mode>,
    request_clock: RequestClock,
    /// The batches that wait for an answer, by the id of their message.
    in_flight: BTreeMap<u64, InFlight>,
    /// The id of the last message.
    last_id: u64,
    streams: Streams,
    /// The stream on which a server has said last which cluster it belongs to.
    introduced: Option<u64>,
    /// When the last event came on the stream on which batches are sent.
    last_heard: Instant,
    watches: RouteWatches,
    leader: LeaderCache,
    marks: HighWaterMarks,
    /// The last failure and its server: the error of requests that expire.
    last_failure: Option<(Arc<str>, Status)>,
    backoff: Backoff,
    /// When a request may expire, or a server may have to be given up; `None` while no request waits.
    due: Option<Instant>,
    /// When that stream may have been silent for too long; `None` while it owes no answer.
    silence_due: Option<Instant>,
}

impl Dispatcher {
    /// A dispatcher that sends to `servers`.
    pub fn new(servers: Arc<ServerPool>, namespaces: Namespaces) -> Dispatcher {
        Dispatcher {
            streams: Streams::new(servers.clone(), BATCHES_IN_FLIGHT_MAX),
            servers,
            namespaces,
            queues: RequestQueues::default(),
            resends: VecDeque::new(),
            modes: HashMap::new(),
            request_clock: RequestClock::default(),
            in_flight: BTreeMap::new(),
            last_id: 0,
            introduced: None,
            last_heard: Instant::now(),
            watches: RouteWatches::default(),
            leader: LeaderCache::default(),
            marks: HighWaterMarks::default(),
            last_failure: None,
            backoff: Backoff::default(),
            due: None,
            silence_due: None,
        }
    }

    /// Runs until all clones of the client are dropped.
    pub async fn run(mut self, mut requests: mpsc::UnboundedReceiver<PendingRequest>) {
        let mut inbox = Vec::with_capacity(BATCH_REQUESTS_MAX.into());
        let mut alarm = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            let dues = [self.due, self.backoff.rest_until(), self.silence_due];
            let next = dues.into_iter().flatten().min();
            if let Some(next) = next
                && alarm.deadline() != next
            {
                alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                Some((stream, event)) = self.streams.next_event() => match event {
                    StreamEvent::Answer(answer) => self.on_answer(stream, answer),
                    StreamEvent::Opened => self.on_opened(stream),
                    StreamEvent::Refused(status) => self.on_refused(stream, status),
                    StreamEvent::Ended(status) => self.on_ended(stream, status),
                },
                Some(route) = self.watches.next() => self.learn(&route, Instant::now()),
                received = requests.recv_many(&mut inbox, BATCH_REQUESTS_MAX.into()) => {
                    if received == 0 {
                        return;
                    }
                    for request in inbox.drain(..) {
                        self.due.get_or_insert(request.deadline);
                        self.queues.push(request);
                    }
                }
                () = &mut alarm, if next.is_some() => self.on_alarm(),
            }
            self.send();
        }
    }

    /// Sends the requests that wait, as far as batches may be in flight.
    fn send(&mut self) {
        while self.backoff.rest_until().is_none()
            && self.in_flight.len() < BATCHES_IN_FLIGHT_MAX
            && !(self.queues.is_empty() && self.resends.is_empty())
        {
            if self.streams.current().is_none() {
                if let Err(invalid) = self.streams.renew() {
                    self.invalid(invalid);
                    continue;
                }
                self.last_heard = Instant::now();
            }
            if let Some(batch) = self.resends.pop_front() {
                if !batch.is_awaited() {
                    continue;
                }
                let message = batch.message().unwrap_or_default();
                self.send_batch(batch, message);
            } else if let Some(requests) = self.queues.next_batch() {
                let (batch, message) = self.new_batch(requests);
                self.send_batch(batch, message);
            } else {
                return;
            }
        }
        assert!(self.in_flight.len() <= BATCHES_IN_FLIGHT_MAX);
    }

    /// A batch of requests, and its message.
    fn new_batch(&self, requests: Vec<PendingRequest>) -> (Batch, NextManyRequest) {
        let mut message = NextManyRequest::default();
        let mut batch = Batch::new(requests, &self.marks, &mut message);
        message.namespace = self.namespaces.name_of(batch.namespace());
        let mode = self.modes.get(&batch.namespace()).copied();
        if mode != Some(Mode::Ordinary) || batch.is_named_by_application() {
            let clock = (&self.request_clock, Instant::now());
            batch.name(&mut message, mode, self.servers.timeout(), clock);
        }
        (batch, message)
    }

    /// Sends the message of one batch on the stream.
    fn send_batch(&mut self, batch: Batch, mut message: NextManyRequest) {
        let Some(stream) = self.streams.current() else {
            return self.take_back(batch.unsent());
        };
        self.last_id += 1;
        let now = Instant::now();
        message.id = self.last_id;
        // A client that does not follow the leader needs no route, once the first one on a stream has named the cluster.
        let wants_route = self.servers.follows_leader() || self.introduced != Some(stream.id);
        message.route_version = if wants_route { self.leader.version(now) } else { u64::MAX };
        message.members_version = self.servers.members_version();
        let timeout = self.servers.timeout();
        let deadline = batch.deadline().unwrap_or(now + timeout);
        // A silent server costs its share of the time.
        let until = deadline.min(now + timeout / self.servers.members().all().len() as u32);
        let left = until.saturating_duration_since(now).as_millis();
        // On the wire, 0 means the server's default.
        message.timeout_ms = (left as u64).max(1);
        if stream.messages.try_send(message).is_err() {
            let id = stream.id;
            self.take_back(batch.unsent());
            return self.on_ended(id, Status::unavailable("the stream broke"));
        }
        let (stream, server) = (stream.id, stream.server.clone());
        self.in_flight.insert(self.last_id, InFlight { stream, server, batch, sent: now, until });
        self.look_by([until]);
        self.silence_due.get_or_insert(now + SILENCE_MAX);
    }

    /// The address of a server is invalid: the next server is asked.
    fn invalid(&mut self, (server, error): Invalid) {
        self.server_failed(&server, Status::unavailable(error.to_string()));
    }

    /// A server has accepted a stream. If it is the leader's, batches go there from now on.
    fn on_opened(&mut self, id: u64) {
        if self.streams.accepted(id) {
            // The old server may be gone.
            for in_flight in self.in_flight.values_mut() {
                in_flight.until = in_flight.until.min(in_flight.sent + MOVE_GRACE);
            }
            self.look_by(next_until(&self.in_flight));
        }
        if self.streams.is_current(id) {
            self.last_heard = Instant::now();
        }
    }

    /// A server has answered a message on a stream.
    fn on_answer(&mut self, stream: u64, mut answer: NextManyResponse) {
        let Some(in_flight) = self.in_flight.remove(&answer.id) else {
            // The batch was given up and its requests sent elsewhere. Without an id, these numbers are burnt.
            return;
        };
        let (server, now) = (in_flight.server, Instant::now());
        let is_current = self.streams.is_current(stream);
        if is_current {
            self.last_heard = now;
            if !self.watches.is_empty() && now - in_flight.sent < SILENCE_MAX {
                self.watches = RouteWatches::default();
            }
        }
        if let Some(route) = answer.route.take() {
            if let Err(other) = self.servers.check(&server, &route) {
                self.take_back(in_flight.batch.unsent());
                return self.on_ended(stream, other);
            }
            self.introduced = Some(stream);
            self.learn(&route, now);
        }
        let (namespaces, marks) = (&self.namespaces, &mut self.marks);
        let namespace = in_flight.batch.namespace();
        if let Some(clock_ms) = answer.failure.as_ref().and_then(|told| told.request_clock_ms) {
            self.request_clock.learn(clock_ms, now);
        }
        let mut leftover = (in_flight.batch).complete(answer, &server, namespaces, marks, now);
        if let Some(mode) = leftover.mode {
            self.modes.insert(namespace, mode);
        }
        match leftover.server_failure.take() {
            Some(status) if is_current => self.server_failed(&server, status),
            Some(status) => self.last_failure = Some((server, status)),
            None => {
                self.backoff.succeeded();
                self.last_failure = None;
            }
        }
        self.take_back(leftover);
    }

    /// The requests that a batch leaves are sent again.
    fn take_back(&mut self, leftover: Leftover) {
        self.queues.requeue(leftover.retry);
        if let Some(batch) = leftover.resend {
            self.look_by(batch.deadline());
            self.resends.push_back(batch);
        }
    }

    /// The first of these times may be earlier than all else.
    fn look_by(&mut self, due: impl IntoIterator<Item = Instant>) {
        self.due = self.due.into_iter().chain(due).min();
    }

    /// A server does not let this client open a stream. If batches are sent there, all requests fail.
    fn on_refused(&mut self, id: u64, status: Status) {
        let current = self.streams.current().filter(|current| current.id == id);
        if let Some(server) = current.map(|current| current.server.clone()) {
            let unread = take(&mut self.in_flight, |in_flight| in_flight.stream == id);
            self.send_again(unread, false);
            fail_requests(self.queues.take_all(), &server, &status);
            self.resends.drain(..).for_each(|batch| batch.fail(&server, &status));
        }
        self.on_ended(id, status);
    }

    /// A stream has ended: the requests in flight on it are sent again.
    fn on_ended(&mut self, id: u64, status: Status) {
        let lost = take(&mut self.in_flight, |in_flight| in_flight.stream == id);
        let is_other = OtherCluster::of(&status).is_some();
        self.send_again(lost, !never_connected(&status) && !is_other);
        let [current, leader] = self.streams.ended(id);
        if let Some(leader) = leader {
            let why = causes::text(&status);
            tracing::debug!(leader = &*leader.server, why, "the leader cannot be reached");
            self.leader.forget(&leader.server, Instant::now());
        }
        if let Some(stream) = current {
            if is_other && self.servers.members().all() == [stream.server.clone()] {
                // Nobody else is there to ask.
                fail_requests(self.queues.take_all(), &stream.server, &status);
            }
            self.server_failed(&stream.server, status);
        }
    }

    /// Takes in the leader and the members that a server reported. Opens a stream to the leader if batches
    /// go to another server.
    fn learn(&mut self, route: &v1::Route, now: Instant) {
        if !self.servers.follows_leader() {
            return;
        }
        let members_change = self.servers.learn(route);
        self.leader.learn(route, now);
        let leader = self.leader.leader().cloned();
        if members_change
            && let Some(stream) = self.streams.current()
            && Some(&stream.server) != leader.as_ref()
            && !self.servers.members().all().contains(&stream.server)
        {
            // The server was removed from the cluster.
            let removed = stream.server.clone();
            self.streams.leave(&removed);
        }
        if let Some(leader) = leader
            && let Err(invalid) = self.streams.follow(leader)
        {
            self.invalid(invalid);
        }
    }

    /// Sends batches again whose answers will not come. Their server may have got the messages if `was_reached`.
    fn send_again(&mut self, lost: Vec<InFlight>, was_reached: bool) {
        let mut retry = Vec::new();
        for InFlight { batch, .. } in lost {
            let mut leftover = if was_reached { batch.lose() } else { batch.unsent() };
            retry.append(&mut leftover.retry);
            self.take_back(leftover);
        }
        self.queues.requeue(retry);
    }

    /// `server` has failed: the next server is asked, after a rest if all of them have failed.
    fn server_failed(&mut self, server: &Arc<str>, status: Status) {
        let now = Instant::now();
        self.streams.leave(server);
        self.leader.forget(server, now);
        self.servers.members().advance_past(server);
        // The word of a server tells more than that another one cannot be reached.
        if self.last_failure.is_none() || !never_connected(&status) {
            self.last_failure = Some((server.clone(), status));
        }
        let part = (rand::random::<u64>() >> 32) as f64 / f64::from(u32::MAX);
        let mut members = self.servers.members();
        if self.backoff.failed(members.all().len() as u32, part, now) {
            // The cluster may have been restored, with lower versions.
            self.leader.reset();
            members.forget_version();
        }
    }

    /// Ends a rest, looks for silence, gives servers up, and answers expired requests, as far as each is
    /// due.
    fn on_alarm(&mut self) {
        let now = Instant::now();
        self.backoff.look(now);
        if self.silence_due.is_some_and(|due| due <= now) {
            self.look_for_silence(now);
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let overdue = take(&mut self.in_flight, |in_flight| in_flight.until <= now);
        let silent = overdue.iter().find(|late| self.streams.is_current(late.stream));
        let silent = silent.map(|late| (late.server.clone(), now - late.sent));
        self.send_again(overdue, true);
        if let Some((server, waited)) = silent {
            let told = self.last_failure.take();
            self.server_failed(&server, no_answer_within(waited));
            // The word of a server since the last success tells more than the silence of another.
            self.last_failure = told.or(self.last_failure.take());
        }
        let (expired, next) = self.queues.take_expired(now);
        if !expired.is_empty() || !self.resends.is_empty() {
            let (server, status) = (self.last_failure.clone()).unwrap_or_else(|| {
                let status = no_answer_within(self.servers.timeout());
                (self.servers.members().current().clone(), status)
            });
            let status = self.servers.explain(status);
            fail_requests(expired, &server, &status);
            self.resends.retain_mut(|batch| batch.expire(now, &server, &status));
        }
        let resends = self.resends.iter().filter_map(Batch::deadline).min();
        self.due = next_until(&self.in_flight).into_iter().chain(next).chain(resends).min();
    }

    /// If the stream owes answers and is silent for too long, asks one more of the other servers who leads.
    fn look_for_silence(&mut self, now: Instant) {
        self.silence_due = None;
        let Some(oldest) = self.in_flight.values().map(|in_flight| in_flight.sent).min() else {
            return;
        };
        let due = oldest.max(self.last_heard) + SILENCE_MAX;
        self.silence_due = Some(if due > now { due } else { now + SILENCE_MAX });
        if due > now || !self.servers.follows_leader() {
            return;
        }
        let current = self.streams.current().map(|stream| &stream.server);
        let is_other =
            |server: &&Arc<str>| Some(*server) != current && !self.watches.contains(server);
        let other = self.servers.members().all().iter().find(is_other).cloned();
        if let Some(other) = other
            && let Ok(connection) = self.servers.connection(&other)
        {
            self.watches.watch(self.servers.clone(), other, connection);
        }
    }
}
