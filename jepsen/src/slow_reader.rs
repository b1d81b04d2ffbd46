//! Callers that send messages on streams and do not read the answers.
//!
//! Their windows are as small as those of many clients (grpcio's are 64 KB), and the answers for warm keys fill a window.
//! From then on the node cannot send anything on the stream. Nobody knows which numbers these callers were
//! given, so they ask in a namespace of their own and are not in the history.

use futures::future::join_all;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use crate::{
    address::Address,
    client::{Channel, DEADLINE, channel_with},
    proto::{
        CreateNamespaceRequest, NextManyRequest, NextManyResponse,
        sequencer_client::SequencerClient,
    },
};

/// The namespace in which they ask.
pub const UNREAD: &str = "unread";
/// How many streams hang at each node, and how many of them share a connection.
const NODE_STREAMS: usize = 20;
const CONNECTION_STREAMS: usize = 5;
/// The bytes that a stream, and a connection for each of its streams, may have under way unread.
const WINDOW_BYTES: u32 = 65_535;
/// How many ids share a section: all warm ids do.
const SECTION_SIZE: u64 = 8_000;
/// The first number. Each number takes nine bytes on the wire from here on.
const START: u64 = 1 << 62;
/// How many ids of each stream nobody has asked for in this term.
const COLD_KEYS: u64 = 16;
/// How many warm keys the messages of a stream have, for each kind of stream. The answers are larger than a window.
const WARM_KEYS: [&[u64]; 3] = [
    // A large answer comes last. A node takes its keys in several turns, of 1 024 each.
    &[SECTION_SIZE],
    // Small answers pile up behind a large one, or overtake it.
    &[SECTION_SIZE, 16, 16, 16, 16, 16, 16, 16, 16],
    // A node takes the keys of a message in one turn. The stream stops between two answers.
    &[1_000; 12],
];

struct Stream {
    /// Open for as long as the stream is to hang.
    _messages: mpsc::Sender<NextManyRequest>,
    answers: Streaming<NextManyResponse>,
    /// How many answers are unread.
    unread: usize,
}

impl Stream {
    /// Reads the unread answers. True if all of them came in time, and were more than a window: so the stream hung until
    /// now.
    async fn read_on(&mut self) -> bool {
        let reading = async {
            let mut bytes = 0;
            for _ in 0..self.unread {
                match self.answers.next().await {
                    Some(Ok(answer)) => bytes += answer.encoded_len(),
                    Some(Err(_)) | None => return false,
                }
            }
            bytes > WINDOW_BYTES as usize
        };
        let read = tokio::time::timeout(2 * DEADLINE, reading).await;
        read.unwrap_or(false)
    }
}

/// Streams that hang. Dropping them ends them.
pub struct SlowReaders {
    streams: Vec<Stream>,
}

/// The namespace in which they ask.
pub fn namespace() -> CreateNamespaceRequest {
    CreateNamespaceRequest {
        name: UNREAD.to_owned(),
        start: Some(START),
        section_size: Some(SECTION_SIZE),
        ..CreateNamespaceRequest::default()
    }
}

impl SlowReaders {
    /// Opens streams on all `nodes`. `unused` is the first id that was never asked for; it is increased by
    /// the number of ids that are asked for.
    pub async fn open(nodes: &[(u64, Address)], unused: &mut u64) -> SlowReaders {
        let each = NODE_STREAMS as u64 * COLD_KEYS;
        let hanging = nodes.iter().zip(0..).map(|((_, address), place)| {
            let unused = *unused + place * each;
            hang_on_node(address, unused)
        });
        let streams = join_all(hanging).await.into_iter().flatten().collect();
        *unused += nodes.len() as u64 * each;
        SlowReaders { streams }
    }

    /// How many streams hang.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Reads the answers of all streams; returns how many streams hung until now, and had all of theirs.
    pub async fn read_on(&mut self) -> usize {
        let reading = self.streams.iter_mut().map(Stream::read_on);
        let hung = join_all(reading).await.into_iter();
        hung.filter(|hung| *hung).count()
    }
}

/// Opens one connection after the other: the hanging streams shall disturb, not a burst of requests.
async fn hang_on_node(address: &Address, unused: u64) -> Vec<Stream> {
    let mut streams = Vec::new();
    for connection in 0..NODE_STREAMS / CONNECTION_STREAMS {
        let before = (connection * CONNECTION_STREAMS) as u64;
        let opened = hang_on_connection(address, unused + before * COLD_KEYS).await;
        if opened.is_empty() {
            break;
        }
        streams.extend(opened);
    }
    streams
}

/// The streams of one connection, as far as they could be opened.
async fn hang_on_connection(address: &Address, unused: u64) -> Vec<Stream> {
    let channel = channel_with(address, DEADLINE, |endpoint| {
        endpoint
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES * CONNECTION_STREAMS as u32)
    });
    let streams = (0..CONNECTION_STREAMS as u64).map(|place| {
        let first = unused + place * COLD_KEYS;
        let warm_keys = WARM_KEYS[place as usize % WARM_KEYS.len()];
        tokio::time::timeout(2 * DEADLINE, hang_stream(channel.clone(), first, warm_keys))
    });
    let opened = join_all(streams).await.into_iter();
    opened.filter_map(|opened| opened.ok()?.ok()).collect()
}

/// A stream that hangs, with a message of cold keys and messages of `warm_keys`.
async fn hang_stream(channel: Channel, unused: u64, warm_keys: &[u64]) -> Result<Stream, Status> {
    let (messages, outgoing) = mpsc::channel(2 + warm_keys.len());
    let mut client = SequencerClient::new(channel);
    let opened = client.next_many(ReceiverStream::new(outgoing)).await?;
    let mut answers = opened.into_inner();
    // This message warms the section, and its answer is read. It shows that the stream works.
    messages.send(message(0, vec![0])).await.map_err(|_| broke())?;
    let answer = answers.next().await.ok_or_else(broke)??;
    if let Some(failure) = answer.failure {
        return Err(Status::new(failure.code.into(), failure.message));
    }
    // Cold keys come first: they still wait for their ceilings when the answers for the warm keys, which
    // need not wait, fill the window.
    let cold = (unused..unused + COLD_KEYS).map(|section| (1 + section) * SECTION_SIZE);
    messages.send(message(1, cold.collect())).await.map_err(|_| broke())?;
    for (id, keys) in (2..).zip(warm_keys) {
        let message = message(id, (0..*keys).collect());
        messages.send(message).await.map_err(|_| broke())?;
    }
    Ok(Stream { _messages: messages, answers, unread: 1 + warm_keys.len() })
}

fn broke() -> Status {
    Status::unavailable("the stream broke")
}

fn message(id: u64, ids: Vec<u64>) -> NextManyRequest {
    NextManyRequest { id, namespace: UNREAD.to_owned(), ids, ..NextManyRequest::default() }
}
