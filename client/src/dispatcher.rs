//! The dispatcher: the task that sends all requests of a client.
//!
//! It keeps a few batches in flight on one stream to one server, if possible the leader. Requests that
//! arrive meanwhile form the next batches; no timer is needed.
//!
//! - If a server fails, the requests of its batches are sent to another one. Messages with an id are sent as they were.
//! - If a server is silent, others are asked who leads.
//! - If another server leads, a stream to it is opened beside the present one. The dispatcher moves there
//!   once the leader has accepted it. So an unreachable leader costs nothing while other servers forward.
//!
//! Invariant: every request is answered once, by its deadline.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{BoxStream, SelectAll},
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
    batch_stream::{BatchStream, StreamEvent},
    high_water_marks::HighWaterMarks,
    in_flight::{InFlight, InFlightBatches},
    leader_cache::LeaderCache,
    named_message::Mode,
    namespaces::{NamespaceId, Namespaces},
    queue::{BATCH_REQUESTS_MAX, RequestQueues},
    request::{PendingRequest, fail_requests},
    route_watches::RouteWatches,
    server_pool::ServerPool,
    unary_call::never_connected,
};

/// The largest number of batches in flight.
const BATCHES_IN_FLIGHT_MAX: usize = 4;
/// How long a server that owes answers may be silent before another one is asked who leads. One more is
/// asked each time this passes again.
const SILENCE_MAX: Duration = Duration::from_millis(50);
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
    /// What is known of namespaces.
    modes: HashMap<NamespaceId, Mode>,
    in_flight: InFlightBatches,
    /// The last id of a stream or message.
    last_id: u64,
    /// The stream on which batches are sent.
    stream: Option<BatchStream>,
    /// A stream to the leader, which replaces `stream` once the leader has accepted it.
    leader_stream: Option<BatchStream>,
    /// The events of both streams, and of earlier ones that still owe answers.
    events: SelectAll<BoxStream<'static, (u64, StreamEvent)>>,
    /// When the last event came on `stream`.
    last_heard: Instant,
    watches: RouteWatches,
    leader: LeaderCache,
    marks: HighWaterMarks,
    /// The last failure and its server: the error of requests that expire.
    last_failure: Option<(Arc<str>, Status)>,
    backoff: Backoff,
    /// When a request may expire, or a server may have to be given up; `None` while no request waits.
    due: Option<Instant>,
    /// When `stream` may have been silent for too long; `None` while it owes no answer.
    silence_due: Option<Instant>,
}

impl Dispatcher {
    /// A dispatcher that sends to `servers`.
    pub fn new(servers: Arc<ServerPool>, namespaces: Namespaces) -> Dispatcher {
        Dispatcher {
            servers,
            namespaces,
            queues: RequestQueues::default(),
            resends: VecDeque::new(),
            modes: HashMap::new(),
            in_flight: InFlightBatches::default(),
            last_id: 0,
            stream: None,
            leader_stream: None,
            events: SelectAll::new(),
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
        let mut inbox = Vec::with_capacity(BATCH_REQUESTS_MAX);
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
                Some((stream, event)) = self.events.next() => match event {
                    StreamEvent::Answer(answer) => self.on_answer(stream, answer),
                    StreamEvent::Opened => self.on_opened(stream),
                    StreamEvent::Ended(status) => self.on_ended(stream, status),
                },
                Some(route) = self.watches.next() => self.learn(&route, Instant::now()),
                received = requests.recv_many(&mut inbox, BATCH_REQUESTS_MAX) => {
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
            if self.stream.is_none() {
                // Use the leader's stream even before the leader has accepted it: there is no other.
                let leader = self.leader_stream.take();
                self.stream = leader.or_else(|| self.open(self.servers.current()));
                self.last_heard = Instant::now();
            }
            if self.stream.is_none() {
                // The server's address is invalid. `open` has moved on to the next server.
                continue;
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
        debug_assert!(self.in_flight.len() <= BATCHES_IN_FLIGHT_MAX);
    }

    /// A batch of requests, and its message.
    fn new_batch(&self, requests: Vec<PendingRequest>) -> (Batch, NextManyRequest) {
        let mut message = NextManyRequest::default();
        let mut batch = Batch::new(requests, &self.marks, &mut message);
        message.namespace = self.namespaces.name_of(batch.namespace());
        let mode = self.modes.get(&batch.namespace()).copied();
        if mode != Some(Mode::Ordinary) || batch.is_named_by_application() {
            batch.name(&mut message, mode, self.servers.timeout(), Instant::now());
        }
        (batch, message)
    }

    /// Sends the message of one batch on the stream.
    fn send_batch(&mut self, batch: Batch, mut message: NextManyRequest) {
        let Some(stream) = &self.stream else {
            return self.take_back(batch.unsent());
        };
        self.last_id += 1;
        let now = Instant::now();
        message.id = self.last_id;
        message.route_version = self.leader.version(now);
        message.members_version = self.servers.members_version();
        let timeout = self.servers.timeout();
        let deadline = batch.deadline().unwrap_or(now + timeout);
        // A silent server costs its share of the time.
        let until = deadline.min(now + timeout / self.servers.count() as u32);
        let left = until.saturating_duration_since(now).as_millis();
        // On the wire, 0 means the server's default.
        message.timeout_ms = (left as u64).max(1);
        if stream.messages.try_send(message).is_err() {
            let id = stream.id;
            self.take_back(batch.unsent());
            return self.on_ended(id, Status::unavailable("the stream broke"));
        }
        self.due = self.due.into_iter().chain([until]).min();
        self.silence_due.get_or_insert(now + SILENCE_MAX);
        let in_flight =
            InFlight { stream: stream.id, server: stream.server.clone(), batch, sent: now, until };
        self.in_flight.insert(self.last_id, in_flight);
    }

    /// Opens a stream to a server. If its address is invalid, moves on to the next server: `None`.
    fn open(&mut self, server: Arc<str>) -> Option<BatchStream> {
        let channel = match self.servers.channel(&server) {
            Ok(channel) => channel,
            Err(error) => {
                self.server_failed(&server, Status::unavailable(error.to_string()));
                return None;
            }
        };
        self.last_id += 1;
        let (stream, events) =
            BatchStream::open(self.last_id, server, channel, BATCHES_IN_FLIGHT_MAX);
        self.events.push(events);
        Some(stream)
    }

    /// A server has accepted a stream. If it is the leader's, batches go there from now on.
    fn on_opened(&mut self, id: u64) {
        if self.leader_stream.as_ref().is_some_and(|new| new.id == id) {
            self.stream = self.leader_stream.take();
            // The old server may be gone.
            self.in_flight.hasten(MOVE_GRACE);
            let until = self.in_flight.next_until();
            self.due = self.due.into_iter().chain(until).min();
        }
        if self.is_current(id) {
            self.last_heard = Instant::now();
        }
    }

    /// A server has answered a message on a stream.
    fn on_answer(&mut self, stream: u64, mut answer: NextManyResponse) {
        let Some(in_flight) = self.in_flight.remove(answer.id) else {
            // The batch was given up and its requests sent elsewhere. Without an id, these numbers are lost.
            return;
        };
        let (server, now) = (in_flight.server, Instant::now());
        let is_current = self.is_current(stream);
        if is_current {
            self.last_heard = now;
            if !self.watches.is_empty() && now - in_flight.sent < SILENCE_MAX {
                self.watches = RouteWatches::default();
            }
        }
        if let Some(route) = answer.route.take() {
            self.learn(&route, now);
        }
        let (namespaces, marks) = (&self.namespaces, &mut self.marks);
        let namespace = in_flight.batch.namespace();
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

    /// What a batch leaves is sent again.
    fn take_back(&mut self, leftover: Leftover) {
        self.queues.requeue(leftover.retry);
        if let Some(batch) = leftover.resend {
            self.due = self.due.into_iter().chain(batch.deadline()).min();
            self.resends.push_back(batch);
        }
    }

    /// A stream has ended: the requests in flight on it are sent again.
    fn on_ended(&mut self, id: u64, status: Status) {
        let lost = self.in_flight.take(|in_flight| in_flight.stream == id);
        self.send_again(lost, !never_connected(&status));
        if let Some(leader) = self.leader_stream.take_if(|stream| stream.id == id) {
            tracing::debug!(leader = &*leader.server, %status, "the leader cannot be reached");
            self.leader.forget(&leader.server, Instant::now());
        }
        if let Some(stream) = self.stream.take_if(|stream| stream.id == id) {
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
            && let Some(stream) = &self.stream
            && Some(&stream.server) != leader.as_ref()
            && !self.servers.all().contains(&stream.server)
        {
            // The server was removed from the cluster.
            self.stream = None;
        }
        let Some(leader) = leader else {
            return;
        };
        let is_to_leader = |stream: &Option<BatchStream>| {
            let server = stream.as_ref().map(|stream| &stream.server);
            server == Some(&leader)
        };
        if is_to_leader(&self.stream) {
            self.leader_stream = None;
        } else if !is_to_leader(&self.leader_stream) {
            self.leader_stream = self.open(leader);
        }
    }

    /// True if batches are sent on the stream with this id.
    fn is_current(&self, stream: u64) -> bool {
        let current = self.stream.as_ref();
        current.is_some_and(|current| current.id == stream)
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
        self.stream.take_if(|stream| stream.server == *server);
        self.leader.forget(server, now);
        self.servers.advance_past(server);
        self.last_failure = Some((server.clone(), status));
        let part = (rand::random::<u64>() >> 32) as f64 / f64::from(u32::MAX);
        if self.backoff.failed(self.servers.count() as u32, part, now) {
            // The cluster may have been restored, with lower versions.
            self.leader.reset();
            self.servers.forget_members_version();
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
        let overdue = self.in_flight.take(|in_flight| in_flight.until <= now);
        let silent = overdue.iter().find(|late| self.is_current(late.stream));
        let silent = silent.map(|late| (late.server.clone(), now - late.sent));
        self.send_again(overdue, true);
        if let Some((server, waited)) = silent {
            let told = self.last_failure.take();
            self.server_failed(&server, no_answer_within(waited));
            // What a server has said since the last success tells more than the silence of another.
            self.last_failure = told.or(self.last_failure.take());
        }
        let (expired, next) = self.queues.take_expired(now);
        if !expired.is_empty() || !self.resends.is_empty() {
            let (server, status) = (self.last_failure.clone()).unwrap_or_else(|| {
                let status = no_answer_within(self.servers.timeout());
                (self.servers.current(), status)
            });
            let status = self.servers.explain(status);
            fail_requests(expired, &server, &status);
            self.resends.retain_mut(|batch| batch.expire(now, &server, &status));
        }
        let resends = self.resends.iter().filter_map(Batch::deadline).min();
        self.due = self.in_flight.next_until().into_iter().chain(next).chain(resends).min();
    }

    /// If the stream owes answers and is silent for too long, asks one more of the other servers who leads.
    fn look_for_silence(&mut self, now: Instant) {
        self.silence_due = None;
        let Some(oldest) = self.in_flight.oldest_sent() else {
            return;
        };
        let due = oldest.max(self.last_heard) + SILENCE_MAX;
        self.silence_due = Some(if due > now { due } else { now + SILENCE_MAX });
        if due > now || !self.servers.follows_leader() {
            return;
        }
        let current = self.stream.as_ref().map(|stream| &stream.server);
        let mut others = self.servers.all().into_iter();
        let other = others.find(|server| Some(server) != current && !self.watches.contains(server));
        if let Some(other) = other
            && let Ok(channel) = self.servers.channel(&other)
        {
            self.watches.watch(other, channel);
        }
    }
}

fn no_answer_within(waited: Duration) -> Status {
    let millis = waited.as_millis();
    Status::deadline_exceeded(format!("no answer within {millis} ms"))
}
