//! Drives `NextMany` of `ratchet.v1.Ids`: keeps a window of messages in flight on each stream, and opens another when one
//! ends. Answers come in the order of the messages.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use futures::StreamExt;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::{
    connection::{Connection, Link},
    load::PAUSE_AFTER_FAILURE,
    recorder::Recorder,
    target::IDS_NAMESPACE,
};
use ratchet_client::api::{NextIdsRequest, NextIdsResponse, ids_client::IdsClient};

/// Starts one worker for each of `connections`. If `is_checked`, its ids must grow.
pub fn start(
    connections: Vec<Connection>, is_checked: bool, recorder: &Arc<Recorder>,
    workers: &mut JoinSet<()>,
) {
    for (place, connection) in connections.into_iter().enumerate() {
        let caller = Caller { recorder: recorder.clone(), place, is_checked, last: 0 };
        workers.spawn(caller.ask(connection));
    }
}

fn ended() -> Status {
    Status::unavailable("the server ended the stream")
}

/// Asks for ids on one stream at a time.
struct Caller {
    recorder: Arc<Recorder>,
    place: usize,
    is_checked: bool,
    /// The last id of the last answer.
    last: u64,
}

impl Caller {
    async fn ask(mut self, connection: Connection) {
        while !self.recorder.stop.load(Relaxed) {
            let link = connection.link();
            if let Err(status) = self.use_stream(&link).await {
                let why = format!("{:?}: {}", status.code(), status.message());
                self.recorder.fail(why);
                connection.failed(&link, status.code());
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }

    /// Opens a stream, and uses it until the run ends.
    async fn use_stream(&mut self, link: &Link) -> Result<(), Status> {
        let window = self.recorder.load.in_flight;
        let (messages, outgoing) = mpsc::channel(window);
        let mut answers: Streaming<NextIdsResponse> = IdsClient::new(link.channel.clone())
            .next_many(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let mut sent = VecDeque::with_capacity(window);
        while !self.recorder.stop.load(Relaxed) {
            while sent.len() < window {
                sent.push_back(Instant::now());
                messages.send(self.message()).await.map_err(|_| ended())?;
            }
            let answer = answers.next().await.ok_or_else(ended)??;
            if let Some(since) = sent.pop_front() {
                self.answered(answer, since).await;
            }
        }
        Ok(())
    }

    fn message(&self) -> NextIdsRequest {
        NextIdsRequest {
            namespace: IDS_NAMESPACE.to_owned(),
            // A batch has at most 10 000.
            count: Some(self.recorder.load.batch as u32),
            ..NextIdsRequest::default()
        }
    }

    async fn answered(&mut self, answer: NextIdsResponse, since: Instant) {
        if let Some(failure) = answer.error {
            self.recorder.fail(failure.message);
            return tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
        let (ids, asked) = (answer.numbers, self.recorder.load.batch);
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
            let why = "an answer without numbers: the ids of the format do not fit 64 bits";
            return self.recorder.abort(why.to_owned());
        };
        if ids.len() != asked {
            let why = format!("an answer with {} ids, and {asked} were asked for", ids.len());
            return self.recorder.abort(why);
        }
        // A check of the ids between the ends would cost the callers as much as the server.
        let grow = self.last < *first && (first < last || asked == 1);
        if self.is_checked && !grow {
            let before = self.last;
            let why = format!("DISORDER: {first} to {last} came after {before}");
            return self.recorder.abort(why);
        }
        self.last = *last;
        self.recorder.record(self.place, since, ids.len() as u64);
    }
}
