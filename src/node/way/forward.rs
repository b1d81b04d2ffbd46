//! Forwards requests to the leader: one stream for each peer, shared by all requests.
//!
//! Requests that arrive while a message is being sent form the next message; there is no timer. Invariant: every
//! request gets one answer, or learns that its answer is lost.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::{
    sync::{
        mpsc::{self, error::SendError},
        oneshot,
    },
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    clock::whole_ms,
    consensus::{Destination, MessageSender, Transport},
    metrics::Metrics,
    proto::{
        Code, Refusal,
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardRequest, ForwardRequests,
            NotLeader, forward_reply::Reply,
        },
    },
    sequence::NodeId,
    storage::Member,
};

/// How many requests one message carries at most, and how many wait for the next one at most.
const MESSAGE_REQUESTS_MAX: usize = 4_096;
/// How many bytes a message has when no further request joins it. It is far below what a peer takes, since one
/// request may be as large.
pub const MERGED_BYTES_MAX: usize = 1 << 20;

/// Why no answer came back.
#[derive(Debug, thiserror::Error)]
pub enum NoReply {
    /// The stream broke. The request may have been answered, and the answer lost.
    #[error("the stream to node {0} broke")]
    Broken(NodeId),
    /// The deadline passed.
    #[error("node {0} did not answer before the deadline")]
    Late(NodeId),
}

/// Keeps a stream to each node that it has forwarded to. It is a part of the way to one group's leader, and ends with that: the
/// header of each message names the group's set, so groups cannot share a stream.
pub struct Forwarder {
    sender: Arc<MessageSender>,
    transport: Arc<dyn Transport>,
    metrics: Arc<Metrics>,
    links: Mutex<BTreeMap<(NodeId, u64, String), mpsc::Sender<PendingForward>>>,
}

/// The numbers that are burnt if nobody hears the reply to a request.
pub trait BurntWithReply: Send {
    /// The reply that nobody heard brought this answer, or none. `is_served` says that the caller's call goes on, or is just
    /// given up: what counts the numbers that it burns counts these, too.
    fn burn(&self, answer: Option<&Bytes>, is_served: bool);
}

struct PendingForward {
    request: ForwardRequest,
    deadline: Instant,
    to: ReplyTo,
}

/// Where the reply to a request goes. If this is dropped, the caller learns that its reply is lost.
struct ReplyTo {
    caller: oneshot::Sender<HeldReply>,
    burnt: Box<dyn BurntWithReply>,
}

impl ReplyTo {
    /// Passes a reply on. `None`: nothing was done.
    fn send(self, reply: Option<Reply>) {
        let ReplyTo { caller, burnt } = self;
        if let Err(mut unheard) = caller.send(HeldReply { reply, burnt: Some(burnt) }) {
            // The caller gave up before: nobody is served here.
            unheard.burn(false);
        }
    }
}

/// A reply on the way to its caller. If that has gone, the numbers in the reply are burnt.
struct HeldReply {
    reply: Option<Reply>,
    /// `None` once somebody has heard the reply, or its numbers are burnt.
    burnt: Option<Box<dyn BurntWithReply>>,
}

impl HeldReply {
    fn take(mut self) -> Reply {
        self.burnt = None;
        self.reply.take().unwrap_or_else(nothing_done)
    }

    fn burn(&mut self, is_served: bool) {
        if let Some(burnt) = self.burnt.take() {
            let answer = match &self.reply {
                Some(Reply::Answer(answer)) => Some(answer),
                Some(_) | None => None,
            };
            burnt.burn(answer, is_served);
        }
    }
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        self.burn(true);
    }
}

impl Forwarder {
    /// A forwarder that says who `sender` is.
    pub fn new(
        sender: Arc<MessageSender>, transport: Arc<dyn Transport>, metrics: Arc<Metrics>,
    ) -> Self {
        Forwarder { sender, transport, metrics, links: Mutex::default() }
    }

    /// Asks the `leader` to carry an operation out, and waits for its answer for at most `left`.
    ///
    /// # Errors
    /// Those of the transport, and what a node of a release without such messages refuses.
    pub async fn administer(
        &self, leader: NodeId, member: &Member, mut message: AdministerRequest, left: Duration,
    ) -> Result<AdministerReply, Refusal> {
        message.header = Some(self.sender.header(leader, member));
        let to = Destination { node: leader, address: &member.peer_address };
        self.transport.administer(to, message, left).await
    }

    /// Forwards one request to `leader`, and waits for its answer.
    ///
    /// # Errors
    /// [`NoReply`] if the stream breaks or the deadline passes. Numbers that were taken are burnt.
    #[tracing::instrument(level = "debug", name = "forward", skip_all, fields(leader))]
    pub async fn forward(
        &self, leader: NodeId, member: &Member, sent: (ForwardRequest, Box<dyn BurntWithReply>),
        deadline: Instant,
    ) -> Result<Reply, NoReply> {
        let started = std::time::Instant::now();
        let (caller, answer) = oneshot::channel();
        let (request, burnt) = sent;
        let to = ReplyTo { caller, burnt };
        let pending = PendingForward { request, deadline, to };
        let exchange = async {
            let link = self.link(leader, member);
            // The stream broke before this request had its turn.
            if let Err(SendError(unsent)) = link.send(pending).await {
                unsent.to.send(None);
            }
            answer.await.map_err(|_| NoReply::Broken(leader))
        };
        let reply = tokio::time::timeout_at(deadline, exchange).await;
        let reply = reply.map_err(|_| NoReply::Late(leader))??.take();
        self.metrics.forwards.inc();
        self.metrics.forward_seconds.observe(started.elapsed(), 1);
        Ok(reply)
    }

    fn link(&self, leader: NodeId, member: &Member) -> mpsc::Sender<PendingForward> {
        let mut links = self.links.lock();
        let key = (leader, member.incarnation, member.peer_address.clone());
        if let Some(link) = links.get(&key)
            && !link.is_closed()
        {
            return link.clone();
        }
        links.retain(|_, link| !link.is_closed());
        let (link, waiting) = mpsc::channel(MESSAGE_REQUESTS_MAX);
        let serving = Link {
            sender: self.sender.clone(),
            transport: self.transport.clone(),
            metrics: self.metrics.clone(),
            leader,
            member: member.clone(),
        };
        tokio::spawn(serving.serve(waiting));
        links.insert(key, link.clone());
        link
    }
}

struct Link {
    sender: Arc<MessageSender>,
    transport: Arc<dyn Transport>,
    metrics: Arc<Metrics>,
    leader: NodeId,
    member: Member,
}

impl Link {
    /// Serves until the stream breaks. Dropping the pending requests tells their callers.
    async fn serve(self, mut waiting: mpsc::Receiver<PendingForward>) {
        let mut unsent = VecDeque::new();
        self.exchange(&mut waiting, &mut unsent).await;
        // These were not sent: their callers may ask again, whatever they ask for.
        waiting.close();
        while let Ok(one) = waiting.try_recv() {
            unsent.push_back(one);
        }
        for one in unsent {
            one.to.send(None);
        }
    }

    /// Exchanges messages until the stream breaks. Requests that do not fit the next message wait in `batch`.
    async fn exchange(
        &self, waiting: &mut mpsc::Receiver<PendingForward>, batch: &mut VecDeque<PendingForward>,
    ) {
        let (messages, stream) = mpsc::channel(1);
        let to = Destination { node: self.leader, address: &self.member.peer_address };
        let opened = self.transport.forward(to, ReceiverStream::new(stream).boxed()).await;
        let mut replies = match opened {
            Ok(replies) => replies,
            Err(refusal) => {
                let (leader, why) = (self.leader, refusal.message());
                tracing::debug!(leader, address = to.address, why, "no stream to forward on");
                return;
            }
        };
        let mut pending = BTreeMap::new();
        let mut next_id = 0u64;
        let mut arrived = Vec::new();
        loop {
            tokio::select! {
                biased;
                message = replies.next() => if !self.deliver_all(message, &mut pending) {
                    return;
                },
                // First a place for a message: while one is on its way, requests collect.
                place = messages.reserve() => {
                    let Ok(place) = place else { return };
                    let taken = tokio::select! {
                        biased;
                        // The requests that did not fit the last message go first.
                        () = std::future::ready(()), if !batch.is_empty() => batch.len(),
                        taken = waiting.recv_many(&mut arrived, MESSAGE_REQUESTS_MAX) => taken,
                        message = replies.next() => match self.deliver_all(message, &mut pending) {
                            true => continue,
                            false => return,
                        },
                    };
                    if taken == 0 {
                        return;
                    }
                    batch.extend(arrived.drain(..));
                    let message = self.message(batch, &mut pending, &mut next_id);
                    if !message.requests.is_empty() {
                        self.metrics.forward_batches.inc();
                        place.send(message);
                    }
                }
            }
        }
    }

    /// Passes the replies in a message on to their callers. False if the stream has ended or broken.
    fn deliver_all(
        &self, message: Option<Result<ForwardReplies, Refusal>>,
        pending: &mut BTreeMap<u64, ReplyTo>,
    ) -> bool {
        match message {
            Some(Ok(ForwardReplies { replies })) => {
                for one in replies {
                    if let Some(to) = pending.remove(&one.id) {
                        to.send(one.reply);
                    }
                }
                true
            }
            Some(Err(refusal)) => {
                tracing::debug!(leader = self.leader, %refusal, "the stream broke");
                // Another node, or none of this cluster, has the leader's address: it refuses the header, which all messages
                // have in common, so nothing was done.
                while refusal.code() == Code::FailedPrecondition
                    && let Some((_, to)) = pending.pop_first()
                {
                    to.send(None);
                }
                false
            }
            None => false,
        }
    }

    /// The next message: as many of the requests in `batch` as it takes.
    fn message(
        &self, batch: &mut VecDeque<PendingForward>, pending: &mut BTreeMap<u64, ReplyTo>,
        next_id: &mut u64,
    ) -> ForwardRequests {
        let (now, mut bytes) = (Instant::now(), 0);
        let mut requests = Vec::with_capacity(batch.len());
        while bytes < MERGED_BYTES_MAX
            && let Some(PendingForward { request, deadline, to }) = batch.pop_front()
        {
            let left_ms = whole_ms(deadline.saturating_duration_since(now));
            // Nobody waits for this answer any more: the leader would take numbers in vain.
            if left_ms == 0 || to.caller.is_closed() {
                to.send(None);
                continue;
            }
            let id = *next_id;
            *next_id += 1;
            pending.insert(id, to);
            bytes += request.message.len();
            requests.push(ForwardRequest { id, left_ms, ..request });
        }
        ForwardRequests { header: Some(self.sender.header(self.leader, &self.member)), requests }
    }
}

fn nothing_done() -> Reply {
    Reply::NotLeader(NotLeader::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of [`BurntWithReply::burn`].
    #[derive(Debug, PartialEq)]
    struct Burn {
        answer: Option<Bytes>,
        is_served: bool,
    }

    #[derive(Clone, Default)]
    struct Burns(Arc<Mutex<Vec<Burn>>>);

    impl BurntWithReply for Burns {
        fn burn(&self, answer: Option<&Bytes>, is_served: bool) {
            self.0.lock().push(Burn { answer: answer.cloned(), is_served });
        }
    }

    /// Where a reply goes, and where its caller and the calls of [`BurntWithReply::burn`] are.
    fn place() -> (ReplyTo, oneshot::Receiver<HeldReply>, Burns) {
        let (burns, (caller, answer)) = (Burns::default(), oneshot::channel());
        (ReplyTo { caller, burnt: Box::new(burns.clone()) }, answer, burns)
    }

    #[test]
    fn a_reply_that_nobody_looks_at_is_burnt_once_with_the_answer_that_it_brings() {
        let numbers = Bytes::from_static(b"numbers");
        let replies = [(Reply::Answer(numbers.clone()), Some(numbers)), (nothing_done(), None)];
        for (reply, answer_in_it) in replies {
            for gives_up_before in [true, false] {
                let (to, mut answer, burns) = place();
                if gives_up_before {
                    answer.close();
                }
                to.send(Some(reply.clone()));
                drop(answer);
                let burn = Burn { answer: answer_in_it.clone(), is_served: !gives_up_before };
                assert_eq!(*burns.0.lock(), [burn]);
            }
        }
    }

    #[test]
    fn a_reply_that_its_caller_takes_is_not_burnt() {
        let (to, mut answer, burns) = place();
        to.send(Some(Reply::Answer(Bytes::new())));
        let reply = answer.try_recv().expect("a reply").take();
        assert_eq!(reply, Reply::Answer(Bytes::new()));
        assert!(burns.0.lock().is_empty());
    }
}
