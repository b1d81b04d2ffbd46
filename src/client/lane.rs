//! The task that all requests of a client go through.
//!
//! It keeps a few messages under way on one stream to the leader; what arrives meanwhile forms the next
//! ones. When a server fails, its messages' requests go to another one, after a pause drawn at random.
//!
//! Invariant: every request is answered by its deadline, once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    StreamExt, TryFutureExt,
    stream::{self, BoxStream, SelectAll},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use super::{
    ClientError, Key, Numbers,
    message::{Left, MESSAGE_ASKS_MAX, Message, Names, Waiting, tell},
    route::Route,
    seen::Seen,
    servers::Servers,
};
use crate::{
    proto::v1::{NextStreamRequest, NextStreamResponse, sequencer_client::SequencerClient},
    random,
};

/// How many messages are under way at a time.
const MESSAGES_MAX: usize = 4;
/// How long a client rests at most before it tries again, after the second failure in a row; doubled
/// for each further one up to the greatest.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A request, and who waits for it.
pub struct Asked {
    /// By the client's numbering.
    pub namespace: u32,
    /// The key.
    pub key: Key,
    /// How many numbers.
    pub count: u64,
    /// Until when it is waited for.
    pub deadline: Instant,
    /// Whether it is to be asked in a message of its own.
    pub alone: bool,
    /// Who waits.
    pub reply: oneshot::Sender<Result<Numbers, ClientError>>,
}

impl Asked {
    /// Answers it.
    pub fn answer(self, answer: Result<Numbers, ClientError>) {
        // Whoever gave up no longer listens.
        let _ = self.reply.send(answer);
    }
}

type Answers = BoxStream<'static, (u64, Result<NextStreamResponse, Status>)>;

/// A stream to a server, to send messages on.
struct Link {
    id: u64,
    server: Arc<str>,
    messages: mpsc::Sender<NextStreamRequest>,
}

/// A message that waits for its answer.
struct UnderWay {
    link: u64,
    server: Arc<str>,
    message: Message,
    /// When its server is given up.
    until: Instant,
}

/// The task.
pub struct Lane {
    servers: Arc<Servers>,
    follows_leader: bool,
    names: Names,
    waiting: Waiting,
    under_way: BTreeMap<u64, UnderWay>,
    last_id: u64,
    link: Option<Link>,
    /// The answers on the stream in use, and on those before it that are not answered out yet.
    answers: SelectAll<Answers>,
    route: Route,
    seen: Seen,
    /// What went wrong last, for those who wait in vain.
    failed: Option<(Arc<str>, Status)>,
    /// How often in a row, and until when to rest.
    failures: u32,
    rest_until: Option<Instant>,
    /// When somebody may have waited for long enough; `None` while nobody waits.
    due: Option<Instant>,
}

impl Lane {
    /// A lane to `servers`.
    pub fn new(servers: Arc<Servers>, follows_leader: bool, names: Names) -> Lane {
        Lane {
            servers,
            follows_leader,
            names,
            waiting: Waiting::default(),
            under_way: BTreeMap::new(),
            last_id: 0,
            link: None,
            answers: SelectAll::new(),
            route: Route::default(),
            seen: Seen::default(),
            failed: None,
            failures: 0,
            rest_until: None,
            due: None,
        }
    }

    /// Serves requests until nobody can make any.
    pub async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut inbox = Vec::with_capacity(MESSAGE_ASKS_MAX);
        let mut alarm = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            let next = self.due.into_iter().chain(self.rest_until).min();
            if let Some(next) = next
                && alarm.deadline() != next
            {
                alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                Some((link, answer)) = self.answers.next() => match answer {
                    Ok(answer) => self.answered(answer),
                    Err(status) => self.broken(link, status),
                },
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
            if self.link.is_none() && !self.open() {
                // The address that a leader gave away is none; the next one is of the servers given.
                continue;
            }
            let (Some(link), Some(asked)) = (&self.link, self.waiting.next()) else {
                return;
            };
            self.last_id += 1;
            let mut request = NextStreamRequest {
                id: self.last_id,
                route_version: self.route.version(),
                ..NextStreamRequest::default()
            };
            let message = Message::new(asked, &self.seen, &mut request);
            let (now, timeout) = (Instant::now(), self.servers.timeout());
            let deadline = message.deadline().unwrap_or(now + timeout);
            // A server that says nothing costs its share of the time.
            let until = deadline.min(now + timeout / self.servers.count() as u32);
            let left = until.saturating_duration_since(now).as_millis();
            request.timeout_ms = (left as u64).max(1);
            request.namespace = self.names.name_of(message.namespace());
            if link.messages.try_send(request).is_err() {
                // It broke, and `answers` is about to tell so.
                self.waiting.put_back(message.into_asked());
                self.link = None;
                return;
            }
            self.due = self.due.into_iter().chain([until]).min();
            let under_way = UnderWay {
                link: link.id,
                server: link.server.clone(),
                message,
                until,
            };
            self.under_way.insert(self.last_id, under_way);
        }
    }

    /// Opens a stream to whoever is to be asked; false if somebody else is to be.
    fn open(&mut self) -> bool {
        let server: Arc<str> = self.route.leader().unwrap_or(self.servers.current()).into();
        let channel = match self.servers.channel(&server) {
            Ok(channel) => channel,
            Err(error) => {
                self.passed_over(&server, Status::unavailable(error.to_string()));
                return false;
            }
        };
        self.last_id += 1;
        let id = self.last_id;
        let (messages, outgoing) = mpsc::channel(MESSAGES_MAX);
        let opening = async move {
            let mut client = SequencerClient::new(channel);
            let stream = client.next_stream(ReceiverStream::new(outgoing)).await;
            stream.map(Response::into_inner)
        };
        let end = Err(Status::unavailable("the server ended the stream"));
        let answers = opening.try_flatten_stream().chain(stream::iter([end]));
        self.answers
            .push(answers.map(move |answer| (id, answer)).boxed());
        self.link = Some(Link {
            id,
            server,
            messages,
        });
        true
    }

    fn answered(&mut self, mut answer: NextStreamResponse) {
        // One that was given up has been asked again elsewhere; its numbers are lost.
        let Some(UnderWay {
            server, message, ..
        }) = self.under_way.remove(&answer.id)
        else {
            return;
        };
        let now = Instant::now();
        if let Some(route) = answer.route.take()
            && self.follows_leader
            && self.route.learn(route, now)
            && self.route.leader() != self.link.as_ref().map(|link| &*link.server)
        {
            self.link = None;
        }
        let Left { again, failed } =
            message.settle(answer, &server, &self.names, &mut self.seen, now);
        match failed {
            Some(status) => self.passed_over(&server, status),
            None => self.failures = 0,
        }
        self.waiting.put_back(again);
    }

    /// A stream broke: what was under way on it is asked again.
    fn broken(&mut self, link: u64, status: Status) {
        let lost = self.take_back(|message| message.link == link);
        let server = match &self.link {
            Some(current) if current.id == link => Some(current.server.clone()),
            _ => lost.first().map(|lost| lost.server.clone()),
        };
        self.ask_again(lost);
        if let Some(server) = server {
            self.passed_over(&server, status);
        }
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

    /// `server` failed: another one is asked next, after a rest if this is not the first failure.
    fn passed_over(&mut self, server: &Arc<str>, status: Status) {
        let now = Instant::now();
        if (self.link.as_ref()).is_some_and(|link| link.server == *server) {
            self.link = None;
        }
        self.route.lost(server, now);
        self.servers.pass_over(server);
        self.failed = Some((server.clone(), status));
        self.failures += 1;
        let doublings = self.failures.saturating_sub(2).min(16);
        let rest = REST.0.saturating_mul(1 << doublings).min(REST.1);
        // Somewhere in the rest, so that clients that failed together do not come back together.
        let part = (random::number() >> 32) as f64 / f64::from(u32::MAX);
        self.rest_until = (self.failures > 1).then(|| now + rest.mul_f64(part));
    }

    /// Ends rests, and waiting that was long enough.
    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.rest_until = self.rest_until.filter(|until| *until > now);
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let silent = self.take_back(|message| message.until <= now);
        if let Some(first) = silent.first() {
            let server = first.server.clone();
            let patience = (self.servers.timeout() / self.servers.count() as u32).as_millis();
            let status = Status::deadline_exceeded(format!("no answer within {patience} ms"));
            self.ask_again(silent);
            self.passed_over(&server, status);
        }
        let (expired, next) = self.waiting.expired(now);
        let nobody = || {
            let millis = self.servers.timeout().as_millis();
            let status = Status::deadline_exceeded(format!("no answer within {millis} ms"));
            (self.servers.current().into(), status)
        };
        let (server, status) = self.failed.clone().unwrap_or_else(nobody);
        tell(expired, &server, &status);
        let messages = self.under_way.values().map(|message| message.until);
        self.due = messages.chain(next).min();
    }
}
