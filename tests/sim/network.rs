//! The network: single messages between hosts that are delayed (and so reordered), lost, delivered
//! twice, or cut off; and streams, which are delayed and break, as those over TCP do.
//!
//! Every link draws its fate from a sequence of its own, which the seed decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt, Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{node::NodeContext, server::PeerServices};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tonic::Status;

use crate::{clock, trace::Trace};

/// A host: a node by its id, or the clients.
pub type Host = u64;

/// Where the clients are.
pub const CLIENTS: Host = 0;

/// A connection over a cut link is given up after this.
const KEEP_ALIVE: Duration = Duration::from_millis(1_000);

/// The parts of a node that answer messages.
#[derive(Clone)]
pub struct Answering {
    pub shared: Arc<NodeContext>,
    pub peers: PeerServices,
}

/// A message on its way: arrived, it does something at the receiver.
pub struct Message {
    from: Host,
    at: Duration,
    arrive: Box<dyn FnOnce(Answering) -> BoxFuture<'static, ()> + Send>,
}

/// How the network does.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// A message takes up to so long, at least 1 ms.
    pub delay_ms: u64,
    /// How many of a thousand are lost, delivered twice, or take ten times as long.
    pub lost: u32,
    pub twice: u32,
    pub late: u32,
}

/// The network of one run.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    seed: u64,
    trace: Arc<Trace>,
    state: Mutex<State>,
}

struct State {
    inboxes: BTreeMap<Host, UnboundedSender<Message>>,
    links: BTreeMap<(Host, Host), StdRng>,
    cut: BTreeSet<(Host, Host)>,
    slow: BTreeMap<(Host, Host), u64>,
    weather: Weather,
}

/// How a call may fail on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The message arrives at most once.
    Once,
    /// Perhaps twice.
    PerhapsTwice,
    /// Like TCP: it takes longer where others would be lost.
    Reliable,
}

impl Network {
    pub fn new(seed: u64, weather: Weather, trace: Arc<Trace>) -> Network {
        Network(Arc::new(Inner {
            seed,
            trace,
            state: Mutex::new(State {
                inboxes: BTreeMap::new(),
                links: BTreeMap::new(),
                cut: BTreeSet::new(),
                slow: BTreeMap::new(),
                weather,
            }),
        }))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().expect("the network")
    }

    /// The trace to which it adds events.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Lets messages in to `host`.
    pub fn open(&self, host: Host) -> UnboundedReceiver<Message> {
        let (inbox, messages) = mpsc::unbounded_channel();
        self.state().inboxes.insert(host, inbox);
        messages
    }

    /// Messages to `host` are refused from now on.
    pub fn close(&self, host: Host) {
        self.state().inboxes.remove(&host);
    }

    /// Cuts the link from one host to another, in this direction.
    pub fn cut(&self, from: Host, to: Host) {
        self.state().cut.insert((from, to));
    }

    /// Makes the link from one host to another slower by so many milliseconds.
    pub fn slow_down(&self, from: Host, to: Host, by_ms: u64) {
        self.state().slow.insert((from, to), by_ms);
    }

    /// How it does from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Mends all links.
    pub fn mend(&self) {
        let mut state = self.state();
        state.cut.clear();
        state.slow.clear();
    }

    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.state().cut.contains(&(from, to))
    }

    /// The times at which a message that is sent now from `from` to `to` arrives: once, twice, or not at all.
    fn arrivals(&self, from: Host, to: Host, delivery: Delivery) -> Vec<Duration> {
        let seed = self.0.seed;
        let mut state = self.state();
        let (weather, cut) = (state.weather, state.cut.contains(&(from, to)));
        let slower = state.slow.get(&(from, to)).copied().unwrap_or_default();
        let link = state.links.entry((from, to)).or_insert_with(|| {
            StdRng::seed_from_u64(seed ^ (from << 32 | to).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        let mut chance = |of_thousand: u32| link.random_ratio(of_thousand.min(1_000), 1_000);
        let (lost, twice, late) =
            (chance(weather.lost), chance(weather.twice), chance(weather.late));
        let mut arrival = || {
            let mut delay = link.random_range(1..=weather.delay_ms) + slower;
            if late {
                delay *= 10;
            }
            clock::now() + Duration::from_millis(delay)
        };
        let (first, second) = (arrival(), arrival());
        let arrivals = match delivery {
            Delivery::Reliable if lost => vec![first + Duration::from_millis(200)],
            Delivery::Reliable => vec![first],
            _ if lost || cut => vec![],
            Delivery::PerhapsTwice if twice => vec![first, second],
            _ => vec![first],
        };
        let kind = match arrivals.len() {
            0 => "message lost",
            1 => "message",
            _ => "message twice",
        };
        self.0.trace.note(clock::now(), kind, (from, to, arrivals.clone()));
        arrivals
    }

    /// Puts a message into the receiver's inbox, to arrive at its time; false if nobody listens.
    fn post(&self, to: Host, message: Message) -> bool {
        match self.state().inboxes.get(&to) {
            Some(inbox) => inbox.send(message).is_ok(),
            None => false,
        }
    }

    /// Has the messages that arrive at `host` carried out, all at the same time.
    ///
    /// No message has a task of its own: a crash drops tasks in an order that hangs on how many the process ever had, and the
    /// other hosts notice the order.
    pub async fn deliver(
        &self, host: Host, messages: &mut UnboundedReceiver<Message>, to: &Answering,
    ) {
        let mut arriving = FuturesUnordered::new();
        loop {
            let message = tokio::select! {
                biased;
                message = messages.recv() => message,
                Some(()) = arriving.next() => continue,
            };
            let Some(message) = message else { return };
            let (network, to) = (self.clone(), to.clone());
            arriving.push(async move {
                clock::sleep_until(message.at).await;
                if !network.is_cut(message.from, host) {
                    (message.arrive)(to).await;
                }
            });
        }
    }

    /// Asks `to` and waits for the answer, at most `timeout`.
    pub async fn call<Q, A>(
        &self, (from, to): (Host, Host), delivery: Delivery, timeout: Duration, question: Q,
        answer: impl Fn(Answering, Q) -> BoxFuture<'static, Result<A, Status>> + Clone + Send + 'static,
    ) -> Result<A, Status>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
    {
        let exchange = async {
            let (answers, mut back) = mpsc::unbounded_channel();
            for at in self.arrivals(from, to, delivery) {
                let (network, answers) = (self.clone(), answers.clone());
                let (question, answer) = (question.clone(), answer.clone());
                let arrive = move |answering: Answering| {
                    let answered = answer(answering, question);
                    let reply: BoxFuture<'static, ()> = Box::pin(async move {
                        let answered = answered.await;
                        let back = match delivery {
                            Delivery::PerhapsTwice => Delivery::Once,
                            other => other,
                        };
                        if let Some(at) = network.arrivals(to, from, back).pop() {
                            // The asker may have gone.
                            let _ = answers.send((at, answered));
                        }
                    });
                    reply
                };
                let arrive = Box::new(arrive);
                if !self.post(to, Message { from, at, arrive }) {
                    clock::sleep_until(at).await;
                    return Err(Status::unavailable("nobody listens there"));
                }
            }
            drop(answers);
            while let Some((at, answered)) = back.recv().await {
                clock::sleep_until(at).await;
                if !self.is_cut(to, from) {
                    return answered;
                }
            }
            // The question or the answer is lost, and nobody says so.
            std::future::pending().await
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answered) => answered,
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
    }

    /// Opens a stream of questions to `to`, and one of answers back.
    pub fn open_stream<Q: Send + 'static, A: Send + 'static>(
        &self, (from, to): (Host, Host), questions: BoxStream<'static, Q>,
        serve: impl FnOnce(
            Answering,
            BoxStream<'static, Result<Q, Status>>,
        ) -> BoxStream<'static, Result<A, Status>>
        + Send
        + 'static,
    ) -> Result<BoxStream<'static, Result<A, Status>>, Status> {
        let (there, arriving) = mpsc::unbounded_channel();
        let (back, returning) = mpsc::unbounded_channel();
        let arriving = self.pipe((from, to), arriving);
        let network = self.clone();
        let arrive = move |answering: Answering| {
            let answers = serve(answering, arriving.boxed());
            let pump = network.pump((to, from), answers, back);
            let pump: BoxFuture<'static, ()> = Box::pin(pump);
            pump
        };
        let message = Message {
            from,
            at: self.arrivals(from, to, Delivery::Reliable)[0],
            arrive: Box::new(arrive),
        };
        if self.is_cut(from, to) || !self.post(to, message) {
            return Err(Status::unavailable("nobody listens there"));
        }
        let pump = self.clone().pump((from, to), questions.map(Ok), there);
        let pump = Message { from, at: clock::now(), arrive: Box::new(|_| pump.boxed()) };
        if !self.post(from, pump) {
            return Err(Status::unavailable("the asker's host is gone"));
        }
        Ok(self.pipe((to, from), returning).boxed())
    }

    /// Sends the items of a stream, each in its time, in order.
    async fn pump<T>(
        self, (from, to): (Host, Host), items: impl Stream<Item = T>,
        pipe: UnboundedSender<(Duration, T)>,
    ) {
        let mut items = pin!(items);
        while let Some(item) = items.next().await {
            let at = self.arrivals(from, to, Delivery::Reliable)[0];
            if pipe.send((at, item)).is_err() {
                return;
            }
        }
    }

    /// The other end of [`Network::pump`]: ends when that has ended, and breaks when the link stays
    /// cut.
    fn pipe<T: Send + 'static>(
        &self, (from, to): (Host, Host), pipe: UnboundedReceiver<(Duration, Result<T, Status>)>,
    ) -> impl Stream<Item = Result<T, Status>> + Send + use<T> {
        let network = self.clone();
        stream::unfold(Some(pipe), move |pipe| {
            let network = network.clone();
            async move {
                let mut pipe = pipe?;
                let (at, item) = pipe.recv().await?;
                clock::sleep_until(at).await;
                let patience = clock::now() + KEEP_ALIVE;
                while network.is_cut(from, to) {
                    if clock::now() > patience {
                        return Some((Err(Status::unavailable("the link is cut")), None));
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Some((item, Some(pipe)))
            }
        })
    }
}
