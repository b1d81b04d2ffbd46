//! The task that all requests of a client go through.
//!
//! It keeps a few messages under way on one stream, its link, to the leader; what arrives meanwhile forms
//! the next ones. When a server fails, its messages' requests go to another one. When one is silent, the
//! others are asked who leads; and when another one leads, the link is moved once that one has taken a
//! stream: a leader that cannot be reached costs nothing while others forward.
//!
//! Invariant: every request is answered by its deadline, once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{BoxStream, SelectAll},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tonic::Status;

use crate::{
    api::{self as v1, NextStreamRequest, NextStreamResponse},
    batch::{Left, Message},
    batch_stream::{Heard, Link},
    high_water_marks::Seen,
    namespaces::Names,
    queue::{MESSAGE_ASKS_MAX, Waiting},
    request::{Asked, tell},
    route::Route,
    route_watches::Watches,
    servers::Servers,
};

/// How many messages are under way at a time.
const MESSAGES_MAX: usize = 4;
/// How long a client rests after all servers have failed: somewhere up to the first, doubled for each
/// further time up to the second.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));
/// After which silence of a server, while it owes answers, another one is asked who leads; then one
/// more as often again.
const SILENCE: Duration = Duration::from_millis(50);
/// How long after a message was sent a server that the link has left may still answer it.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A message that waits for its answer.
struct UnderWay {
    link: u64,
    server: Arc<str>,
    message: Message,
    sent: Instant,
    /// When its server is given up.
    until: Instant,
}

/// The task.
pub struct Lane {
    servers: Arc<Servers>,
    names: Names,
    waiting: Waiting,
    under_way: BTreeMap<u64, UnderWay>,
    last_id: u64,
    link: Option<Link>,
    /// A stream to the leader, which becomes the link when the leader has taken it.
    next_link: Option<Link>,
    /// What is heard on the links, and on those before them that are not answered out yet.
    heard: SelectAll<BoxStream<'static, (u64, Heard)>>,
    /// When something was heard on the link.
    last_heard: Instant,
    watches: Watches,
    route: Route,
    seen: Seen,
    /// What went wrong last, for those who wait in vain.
    failed: Option<(Arc<str>, Status)>,
    /// How often in a row, and until when to rest.
    failures: u32,
    rest_until: Option<Instant>,
    /// When somebody may have waited for long enough; `None` while nobody waits.
    due: Option<Instant>,
    /// When the link may have been silent for long enough; `None` while it owes nothing.
    silence_due: Option<Instant>,
}

impl Lane {
    /// A lane to `servers`.
    pub fn new(servers: Arc<Servers>, names: Names) -> Lane {
        Lane {
            servers,
            names,
            waiting: Waiting::default(),
            under_way: BTreeMap::new(),
            last_id: 0,
            link: None,
            next_link: None,
            heard: SelectAll::new(),
            last_heard: Instant::now(),
            watches: Watches::default(),
            route: Route::default(),
            seen: Seen::default(),
            failed: None,
            failures: 0,
            rest_until: None,
            due: None,
            silence_due: None,
        }
    }

    /// Serves requests until nobody can make any.
    pub async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut inbox = Vec::with_capacity(MESSAGE_ASKS_MAX);
        let mut alarm = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            let dues = [self.due, self.rest_until, self.silence_due];
            let next = dues.into_iter().flatten().min();
            if let Some(next) = next
                && alarm.deadline() != next
            {
                alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                Some((link, heard)) = self.heard.next() => match heard {
                    Heard::Answer(answer) => self.answered(link, answer),
                    Heard::Opened => self.opened(link),
                    Heard::Ended(status) => self.broken(link, status),
                },
                Some(route) = self.watches.next() => self.learn(&route, Instant::now()),
                taken = asked.recv_many(&mut inbox, MESSAGE_ASKS_MAX) => {
                    if taken == 0 {
                        return;
                    }
                    for asked in inbox.drain(..) {
                        self.due.get_or_insert(asked.deadline);
                        self.waiting.push(asked);
                    }
                }
                () = &mut alarm, if next.is_some() => self.look_at_the_clock(),
            }
            self.send();
        }
    }

    /// Sends what waits, as far as messages may be under way.
    fn send(&mut self) {
        while self.rest_until.is_none()
            && self.under_way.len() < MESSAGES_MAX
            && !self.waiting.is_empty()
        {
            if self.link.is_none() {
                // Whoever leads, if that is known, taken or not: it costs nothing to try.
                let leader = self.next_link.take();
                self.link = leader.or_else(|| self.open(self.servers.current()));
                self.last_heard = Instant::now();
            }
            let Some(link) = &self.link else {
                // Its address cannot be one; the next server is asked.
                continue;
            };
            let Some(asked) = self.waiting.next() else {
                return;
            };
            self.last_id += 1;
            let now = Instant::now();
            let mut request = NextStreamRequest {
                id: self.last_id,
                route_version: self.route.version(now),
                members_version: self.servers.members_version(),
                ..NextStreamRequest::default()
            };
            let message = Message::new(asked, &self.seen, &mut request);
            let timeout = self.servers.timeout();
            let deadline = message.deadline().unwrap_or(now + timeout);
            // A server that says nothing costs its share of the time.
            let until = deadline.min(now + timeout / self.servers.count() as u32);
            let left = until.saturating_duration_since(now).as_millis();
            request.timeout_ms = (left as u64).max(1);
            request.namespace = self.names.name_of(message.namespace());
            if link.messages.try_send(request).is_err() {
                let id = link.id;
                self.waiting.put_back(message.into_asked());
                self.broken(id, Status::unavailable("the stream broke"));
                continue;
            }
            self.due = self.due.into_iter().chain([until]).min();
            self.silence_due.get_or_insert(now + SILENCE);
            let under_way = UnderWay {
                link: link.id,
                server: link.server.clone(),
                message,
                sent: now,
                until,
            };
            self.under_way.insert(self.last_id, under_way);
        }
    }

    /// Opens a stream to a server; `None` if its address cannot be one.
    fn open(&mut self, server: Arc<str>) -> Option<Link> {
        let channel = match self.servers.channel(&server) {
            Ok(channel) => channel,
            Err(error) => {
                self.passed_over(&server, Status::unavailable(error.to_string()));
                return None;
            }
        };
        self.last_id += 1;
        let (link, heard) = Link::open(self.last_id, server, channel, MESSAGES_MAX);
        self.heard.push(heard);
        Some(link)
    }

    /// A server took a stream: if it is the leader's, the link moves there.
    fn opened(&mut self, id: u64) {
        let is = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.id == id);
        if is(&self.next_link) {
            self.link = self.next_link.take();
            // Whoever was asked before may be gone.
            for message in self.under_way.values_mut() {
                message.until = message.until.min(message.sent + LAST_WORDS);
            }
            let untils = self.under_way.values().map(|message| message.until);
            self.due = self.due.into_iter().chain(untils).min();
        }
        if is(&self.link) {
            self.last_heard = Instant::now();
        }
    }

    fn answered(&mut self, link: u64, mut answer: NextStreamResponse) {
        // One that was given up has been asked again elsewhere; its numbers are lost.
        let Some(under_way) = self.under_way.remove(&answer.id) else {
            return;
        };
        let (server, now) = (under_way.server, Instant::now());
        let is_current = self.is_current(link);
        if is_current {
            self.last_heard = now;
            if !self.watches.is_empty() && now - under_way.sent < SILENCE {
                self.watches = Watches::default();
            }
        }
        if let Some(route) = answer.route.take() {
            self.learn(&route, now);
        }
        let message = under_way.message;
        let Left { again, failed } =
            message.settle(answer, &server, &self.names, &mut self.seen, now);
        match failed {
            Some(status) if is_current => self.passed_over(&server, status),
            Some(status) => self.failed = Some((server, status)),
            None => self.failures = 0,
        }
        self.waiting.put_back(again);
    }

    /// Learns who leads and who the members are, and opens a stream to the leader where the link is one
    /// to somebody else.
    fn learn(&mut self, route: &v1::Route, now: Instant) {
        if self.servers.stays() {
            return;
        }
        let members_change = self.servers.learn(route);
        self.route.learn(route, now);
        let leader = self.route.leader().cloned();
        if members_change
            && let Some(link) = &self.link
            && Some(&link.server) != leader.as_ref()
            && !self.servers.all().contains(&link.server)
        {
            // It was removed.
            self.link = None;
        }
        let Some(leader) = leader else {
            return;
        };
        let is_at = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.server == leader);
        if is_at(&self.link) {
            self.next_link = None;
        } else if !is_at(&self.next_link) {
            self.next_link = self.open(leader);
        }
    }

    /// A stream broke: what was under way on it is asked again.
    fn broken(&mut self, id: u64, status: Status) {
        let lost = self.take_back(|message| message.link == id);
        self.ask_again(lost);
        if let Some(leader) = self.next_link.take_if(|link| link.id == id) {
            tracing::debug!(leader = &*leader.server, %status, "the leader cannot be reached");
            self.route.lost(&leader.server, Instant::now());
        }
        if let Some(link) = self.link.take_if(|link| link.id == id) {
            self.passed_over(&link.server, status);
        }
    }

    fn is_current(&self, link: u64) -> bool {
        self.link.as_ref().is_some_and(|current| current.id == link)
    }

    /// Takes out the messages of which `these` is true.
    fn take_back(&mut self, these: impl Fn(&UnderWay) -> bool) -> Vec<UnderWay> {
        let (taken, rest) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(_, message)| these(message));
        self.under_way = rest;
        BTreeMap::into_values(taken).collect()
    }

    fn ask_again(&mut self, lost: Vec<UnderWay>) {
        let asked = lost.into_iter().flat_map(|lost| lost.message.into_asked());
        self.waiting.put_back(asked.collect());
    }

    /// `server` failed: another one is asked next; after a rest, if all of them failed.
    fn passed_over(&mut self, server: &Arc<str>, status: Status) {
        let now = Instant::now();
        self.link.take_if(|link| link.server == *server);
        self.route.lost(server, now);
        self.servers.pass_over(server);
        self.failed = Some((server.clone(), status));
        self.failures += 1;
        let count = self.servers.count() as u32;
        if !self.failures.is_multiple_of(count) {
            return;
        }
        // Whatever is there next may be younger than what was.
        self.route.expect_any();
        self.servers.expect_any();
        let doublings = (self.failures / count - 1).min(16);
        let rest = REST.0.saturating_mul(1 << doublings).min(REST.1);
        // Somewhere in the rest, so that clients that failed together do not come back together.
        let part = (rand::random::<u64>() >> 32) as f64 / f64::from(u32::MAX);
        self.rest_until = Some(now + rest.mul_f64(part));
    }

    /// Ends rests, silence, and waiting that was long enough.
    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.rest_until = self.rest_until.filter(|until| *until > now);
        if self.silence_due.is_some_and(|due| due <= now) {
            self.look_for_silence(now);
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let silent = self.take_back(|message| message.until <= now);
        let given_up = silent.iter().find(|message| self.is_current(message.link));
        let given_up = given_up.map(|message| (message.server.clone(), now - message.sent));
        self.ask_again(silent);
        if let Some((server, patience)) = given_up {
            let patience = patience.as_millis();
            let status = Status::deadline_exceeded(format!("no answer within {patience} ms"));
            self.passed_over(&server, status);
        }
        let (expired, next) = self.waiting.expired(now);
        let nobody = || {
            let millis = self.servers.timeout().as_millis();
            let status = Status::deadline_exceeded(format!("no answer within {millis} ms"));
            (self.servers.current(), status)
        };
        if !expired.is_empty() {
            let (server, status) = self.failed.clone().unwrap_or_else(nobody);
            tell(expired, &server, &self.servers.explain(status));
        }
        let messages = self.under_way.values().map(|message| message.until);
        self.due = messages.chain(next).min();
    }

    /// Where the link owes answers and is silent, one more of the others is asked who leads.
    fn look_for_silence(&mut self, now: Instant) {
        self.silence_due = None;
        let Some(oldest) = self.under_way.values().map(|message| message.sent).min() else {
            return;
        };
        let due = oldest.max(self.last_heard) + SILENCE;
        self.silence_due = Some(if due > now { due } else { now + SILENCE });
        if due > now || self.servers.stays() {
            return;
        }
        let asked = self.link.as_ref().map(|link| &link.server);
        let mut others = self.servers.all().into_iter();
        let other = others.find(|server| Some(server) != asked && !self.watches.has(server));
        if let Some(other) = other
            && let Ok(channel) = self.servers.channel(&other)
        {
            self.watches.begin(other, channel);
        }
    }
}
