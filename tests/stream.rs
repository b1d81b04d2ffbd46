//! `NextMany`: many keys in a message, many messages under way.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use crate::common::{Client, cluster::Cluster, id, in_time, other_than};
use prost::Message;
use ratchet::{
    allocator::KEYS_AT_ONCE,
    metrics::{FirstTouch, Metrics},
    node::REQUEST_KEYS_MAX,
    proto::v1::{CreateNamespaceRequest, KeyKind, NextManyRequest, NextManyResponse},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Streaming};

/// A stream to one node.
struct Stream {
    messages: mpsc::Sender<NextManyRequest>,
    answers: Streaming<NextManyResponse>,
}

impl Stream {
    async fn open(client: &mut Client) -> Stream {
        let (messages, outgoing) = mpsc::channel(1);
        let stream = client.sequencer.next_many(ReceiverStream::new(outgoing));
        Stream { answers: stream.await.expect("a stream").into_inner(), messages }
    }

    async fn ask(&mut self, request: NextManyRequest) -> NextManyResponse {
        let id = request.id;
        self.messages.send(request).await.expect("the stream lives");
        let answer = in_time("an answer", self.answers.next()).await;
        let answer = answer.expect("no end").expect("no error");
        assert_eq!(answer.id, id);
        answer
    }

    async fn refused(&mut self, request: NextManyRequest, code: Code, says: &str) {
        let failure = self.ask(request).await.failure.expect("a failure");
        assert_eq!(Code::from(failure.code), code, "{}", failure.message);
        assert!(failure.message.contains(says), "{}", failure.message);
    }
}

fn books(ids: &[u64], counts: &[u64]) -> NextManyRequest {
    NextManyRequest {
        id: 7,
        namespace: "book".into(),
        ids: ids.to_vec(),
        counts: counts.to_vec(),
        ..NextManyRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_in_the_order_of_its_keys_at_any_node() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut used = 0;
    for node in [leader, other_than(leader)] {
        let mut stream = Stream::open(&mut cluster.client(node)).await;
        let first = stream.ask(books(&[1, 2, 3], &[])).await;
        assert_eq!(first.firsts, [used + 1; 3]);
        assert_eq!(first.increment, 1);
        let second = stream.ask(books(&[3, 1, 2], &[2, 5, 1])).await;
        assert_eq!(second.firsts, [used + 2; 3]);
        let third = stream.ask(books(&[1, 2, 3, 3], &[1, 5, 2, 2])).await;
        assert_eq!(third.firsts[..2], [used + 7, used + 3]);
        let twice: BTreeSet<u64> = third.firsts[2..].iter().copied().collect();
        assert_eq!(twice, BTreeSet::from([used + 4, used + 6]), "disjoint");
        let route = first.route.expect("a route for who knows none");
        assert_eq!(route.leader, leader);
        let known = NextManyRequest { route_version: route.version, ..books(&[9], &[]) };
        assert_eq!(stream.ask(known).await.route, None);
        used += 7;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_one_message_does_not_end_the_stream() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let mut stream = Stream::open(&mut cluster.client(node)).await;
        let film = NextManyRequest { namespace: "film".into(), ..books(&[1], &[]) };
        stream.refused(film, Code::NotFound, "\"film\"").await;
        let names = NextManyRequest { names: vec![b"x".to_vec().into()], ..books(&[], &[]) };
        let wrong = Code::InvalidArgument;
        stream.refused(names.clone(), wrong, "takes keys of kind id").await;
        let both = NextManyRequest { ids: vec![1], ..names };
        stream.refused(both, wrong, "1 ids and 1 names").await;
        stream.refused(books(&[], &[]), wrong, "0 keys").await;
        stream.refused(books(&[1; 65_537], &[]), wrong, "65537 keys").await;
        stream.refused(books(&[1, 2], &[1]), wrong, "2 keys and 1 counts").await;
        stream.refused(books(&[1, 2], &[1, 0]), wrong, "count is 0").await;
        let many = books(&[1, 2], &[1, 1_000_001]);
        stream.refused(many, wrong, "count is 1000001").await;
        let good = stream.ask(books(&[1, 2], &[])).await;
        assert_eq!((good.firsts.len(), good.failure), (2, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_numbers_are_used_up_fails_alone() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    let few = CreateNamespaceRequest {
        name: "few".into(),
        key_kind: KeyKind::Name.into(),
        max: Some(5),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(few).await.expect("created");
    let mut stream = Stream::open(&mut client).await;
    let ask = |counts: [u64; 2]| NextManyRequest {
        namespace: "few".into(),
        names: vec![b"a".to_vec().into(), b"b".to_vec().into()],
        counts: counts.to_vec(),
        ..NextManyRequest::default()
    };
    assert_eq!(stream.ask(ask([4, 1])).await.firsts, [1, 1]);
    let answer = stream.ask(ask([2, 2])).await;
    assert_eq!((answer.firsts, answer.failure), (vec![0, 2], None));
    let exhausted = answer.exhausted.expect("one key failed");
    assert_eq!((&exhausted.places[..], &exhausted.left[..]), (&[0][..], &[1][..]));
    let failure = exhausted.failure.expect("why");
    assert_eq!(failure.code, i32::from(Code::OutOfRange));
    assert!(failure.message.contains("below max 5"), "{}", failure.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_message_of_keys_that_are_all_used_up_has_a_small_answer() {
    const KEYS: usize = REQUEST_KEYS_MAX;
    let cluster = Cluster::start(1, |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    let few = CreateNamespaceRequest {
        name: "few".into(),
        max: Some(900_000),
        // All keys share one ceiling: none of them needs a bump of its own.
        section_size: Some(KEYS as u64),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(few).await.expect("created");
    let mut stream = Stream::open(&mut client).await;
    let request = NextManyRequest {
        namespace: "few".into(),
        ids: (0..KEYS as u64).collect(),
        counts: vec![1_000_000; KEYS],
        ..NextManyRequest::default()
    };
    // Read by a client that takes messages of up to 4 MiB, as gRPC's usually do.
    let answer = stream.ask(request).await;
    assert_eq!(answer.failure, None);
    let bytes = answer.encoded_len();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    assert!(answer.firsts.iter().all(|first| *first == 0));
    assert_eq!(answer.firsts.len(), KEYS);
    let exhausted = answer.exhausted.expect("all keys failed");
    let places: BTreeSet<u32> = exhausted.places.iter().copied().collect();
    assert!(places.into_iter().eq(0..KEYS as u32));
    assert_eq!(exhausted.left.len(), KEYS);
    assert!(exhausted.left.iter().all(|left| *left == 900_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_the_sender_back_and_nothing_is_lost() {
    const MESSAGES: u64 = 20_000;
    const KEYS: usize = 1_000;
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let Stream { messages, mut answers } = Stream::open(&mut cluster.client(leader)).await;
    let keys: Vec<u64> = (0..KEYS as u64).collect();
    let sender = tokio::spawn(async move {
        for id in 0..MESSAGES {
            let request = NextManyRequest { id, ..books(&keys, &[]) };
            messages.send(request).await.expect("the stream lives");
        }
    });
    // Nothing announces that the sender is held back: the count must stay the same for a while.
    let metrics = &cluster.nodes[&leader].context().metrics;
    let answered = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            match metrics.answers.get() {
                now if now == before && now > 0 => return now,
                now => before = now,
            }
        }
    };
    let answered = in_time("a sender that is held back", answered).await;
    let messages_answered = answered / KEYS as u64;
    assert!(messages_answered < MESSAGES / 10, "{messages_answered} answers in memory");
    assert!(!sender.is_finished());
    for _ in 0..MESSAGES {
        let answer = answers.next().await.expect("an answer").expect("no error");
        assert_eq!(answer.firsts.len(), KEYS);
    }
    sender.await.expect("all were sent");
    let last = cluster.client(leader).current("book", id(0)).await.unwrap();
    assert_eq!(last, Some(MESSAGES));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cold_keys_in_one_message_are_bumped_together() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let metrics = cluster.nodes[&leader].context().metrics.clone();
    let mut stream = Stream::open(&mut cluster.client(leader)).await;
    let before = metrics.of_set(1).bump_entries.get();
    let keys: Vec<u64> = (5_000..6_000).collect();
    let answer = stream.ask(books(&keys, &[])).await;
    assert!(answer.firsts.iter().all(|first| *first == 1));
    let entries = metrics.of_set(1).bump_entries.get() - before;
    assert!(entries <= 10, "{entries} log entries for 1000 keys in one message");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_messages_are_forwarded_however_many_come_together() {
    const STREAMS: usize = 8;
    const MESSAGES: u64 = 16;
    let cluster = Cluster::start(3, |_| {}).await;
    let follower = other_than(cluster.leader().await);
    // The ids have ten bytes each.
    let ids: Vec<u64> = (0..REQUEST_KEYS_MAX as u64).map(|id| u64::MAX - id).collect();
    // Keys that are new to the term wait for their first numbers. Not so many messages of them may wait at a time.
    let mut first = Stream::open(&mut cluster.client(follower)).await;
    assert_eq!(first.ask(books(&ids, &[])).await.failure, None);
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let (mut client, ids) = (cluster.client(follower), ids.clone());
        streams.spawn(async move {
            let Stream { messages, mut answers } = Stream::open(&mut client).await;
            let sending = tokio::spawn(async move {
                for _ in 0..MESSAGES {
                    messages.send(books(&ids, &[])).await.expect("it lives");
                }
            });
            for _ in 0..MESSAGES {
                let answer = answers.next().await.expect("an answer").expect("no error");
                assert_eq!((answer.firsts.len(), answer.failure), (REQUEST_KEYS_MAX, None));
            }
            sending.await.expect("all were sent");
        });
    }
    while let Some(done) = streams.join_next().await {
        done.expect("a stream");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_never_pauses_gives_each_message_its_own_time() {
    // More than wait inside the node: there is always a further one to be read.
    const IN_FLIGHT: u64 = 2_000;
    const TIMEOUT: Duration = Duration::from_secs(5);
    const KEPT_BACK: Duration = Duration::from_millis(200);
    let cluster = Cluster::start(3, |_| {}).await;
    let follower = other_than(cluster.leader().await);
    let (messages, outgoing) = mpsc::channel(IN_FLIGHT as usize);
    let mut client = cluster.client(follower);
    let stream = client.sequencer.next_many(ReceiverStream::new(outgoing));
    let ask = |id| NextManyRequest {
        id,
        timeout_ms: TIMEOUT.as_millis() as u64,
        ..books(&[id % 10], &[])
    };
    let mut sent = Vec::new();
    for id in 0..IN_FLIGHT {
        sent.push(Instant::now());
        messages.send(ask(id)).await.expect("the stream lives");
    }
    let mut answers = stream.await.expect("a stream").into_inner();
    let started = Instant::now();
    while started.elapsed() < 2 * TIMEOUT {
        let answer = in_time("an answer", answers.next()).await;
        let answer = answer.expect("no end").expect("no error");
        // On a busy machine a message may use its own time up. None fails before that, but for the time that the node keeps
        // for its answer, with some to spare.
        let (id, waited) = (answer.id, sent[answer.id as usize].elapsed());
        let is_in_time = answer.failure.is_none() || waited >= TIMEOUT - KEPT_BACK;
        assert!(is_in_time, "message {id} after {waited:?}: {:?}", answer.failure);
        let next = sent.len() as u64;
        sent.push(Instant::now());
        messages.send(ask(next)).await.expect("the stream lives");
    }
}

/// How many keys were touched for the first time between two turns of a task: the most, and in how many turns some were.
#[derive(Default)]
struct Turns {
    most: AtomicU64,
    busy: AtomicU64,
}

impl Turns {
    /// Asserts that `keys` were touched so that others had their turn, and begins anew.
    fn assert_left_to_others(&self, keys: u64, what: &str) {
        // At most six slices in a turn: a message's own task, the stream that reads the next one, and four reads of the
        // record reader. On a busy machine other threads add some to single turns, not to all. A message that gives nobody a
        // turn has 64.
        let slice = KEYS_AT_ONCE as u64;
        let (most, busy) = (self.most.swap(0, Relaxed), self.busy.swap(0, Relaxed));
        assert!(most <= 24 * slice, "{most} keys of {what} in a turn");
        assert!(6 * slice * busy >= keys, "{what}: {busy} turns had a part");
    }
}

/// Watches the turns of a task. The runtime must have one thread.
fn turns_of_others(metrics: Arc<Metrics>) -> Arc<Turns> {
    let touched = move || {
        let of = |source| metrics.of_set(1).first_touches.get(source);
        of(FirstTouch::memory) + of(FirstTouch::bump)
    };
    let turns = Arc::new(Turns::default());
    let (seen, mut before) = (turns.clone(), touched());
    tokio::spawn(poll_fn(move |cx| {
        let now = touched();
        seen.most.fetch_max(now - before, Relaxed);
        seen.busy.fetch_add(u64::from(now > before), Relaxed);
        before = now;
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    turns
}

#[tokio::test]
async fn many_new_keys_leave_others_their_turn() {
    const ALL: u64 = REQUEST_KEYS_MAX as u64;
    let cluster = Cluster::start(1, |_| {}).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let mut stream = Stream::open(&mut cluster.client(1)).await;
    stream.ask(books(&[1], &[])).await;
    let turns = turns_of_others(metrics.clone());
    let one: Vec<u64> = (0..ALL).map(|id| ALL + id).collect();
    let answer = stream.ask(books(&one, &[])).await;
    assert_eq!((answer.firsts, answer.failure), (vec![1; one.len()], None));
    turns.assert_left_to_others(ALL, "one message");
    // As many in small messages, which are all there before the first is answered.
    let small: Vec<_> = (one.chunks(KEYS_AT_ONCE))
        .map(|ids| books(&ids.iter().map(|id| id + ALL).collect::<Vec<_>>(), &[]))
        .collect();
    let count = small.len();
    let sent = cluster.client(1).sequencer.next_many(tokio_stream::iter(small)).await;
    let answers: Vec<_> = sent.expect("a stream").into_inner().collect().await;
    assert!(
        answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.failure.is_none()))
    );
    assert_eq!(answers.len(), count);
    turns.assert_left_to_others(ALL, "small messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_comes_again_far_behind_in_its_message_gets_greater_numbers() {
    let cluster = Cluster::start(1, |_| {}).await;
    let mut stream = Stream::open(&mut cluster.client(1)).await;
    // The keys are new and wait, and then have numbers.
    for round in 0..2 {
        let ids: Vec<u64> = (0..8 * KEYS_AT_ONCE as u64).map(|n| 1_000 + n % 3_000).collect();
        let answer = stream.ask(books(&ids, &[])).await;
        let mut last = std::collections::HashMap::new();
        for (id, first) in ids.iter().zip(&answer.firsts) {
            let before = last.insert(*id, *first).unwrap_or(0);
            assert!(*first > before, "round {round}, key {id}: {first} after {before}");
        }
    }
}
