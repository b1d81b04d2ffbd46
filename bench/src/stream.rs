//! Drives `NextMany`: keeps a window of messages in flight on each stream.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures::StreamExt;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

use crate::{load::PACER_INTERVAL, recorder::Recorder, target::NAMESPACE};
use ratchet_client::api::{NextManyRequest, NextManyResponse, sequencer_client::SequencerClient};

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Starts one worker for each of `channels`, and in an open loop a pacer.
pub fn start(channels: Vec<Channel>, recorder: &Arc<Recorder>, workers: &mut JoinSet<()>) {
    let ticks = Arc::new(Notify::new());
    for (place, channel) in channels.into_iter().enumerate() {
        let (recorder, ticks) = (recorder.clone(), ticks.clone());
        workers.spawn(async move {
            if let Err(status) = ask(channel, place, &recorder, &ticks).await {
                recorder.fail(format!("{:?}: {}", status.code(), status.message()));
            }
        });
    }
    if recorder.load.rate.is_some() {
        let recorder = recorder.clone();
        // A thread of its own, since the timers of the runtime tick in milliseconds.
        workers.spawn_blocking(move || {
            while !recorder.stop.load(Relaxed) {
                std::thread::sleep(PACER_INTERVAL);
                ticks.notify_waiters();
            }
            // Wake workers that began to wait just now, so that they see the end of the run.
            ticks.notify_waiters();
        });
    }
}

/// A message in flight.
#[derive(Clone, Copy)]
struct InFlight {
    since: Instant,
    /// Its first key, and the greatest number received of that key before.
    key: u64,
    floor: u64,
}

/// One stream, and its messages in flight.
struct Window<'a> {
    recorder: &'a Recorder,
    place: usize,
    rng: SmallRng,
    messages: mpsc::Sender<NextManyRequest>,
    /// The messages in flight, by id.
    sent: Vec<Option<InFlight>>,
    /// The ids that are not in use.
    free: Vec<usize>,
    started: Instant,
    /// The number of messages sent.
    count: u32,
    /// The time between two messages; `None` in a closed loop.
    pace: Option<Duration>,
}

async fn ask(
    channel: Channel,
    place: usize,
    recorder: &Recorder,
    ticks: &Notify,
) -> Result<(), Status> {
    let window = recorder.load.in_flight;
    let (messages, outgoing) = mpsc::channel(window);
    let client = SequencerClient::new(channel);
    let mut answers: Streaming<NextManyResponse> = client
        .max_decoding_message_size(ANSWER_BYTES_MAX)
        .next_many(ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    let mut window = Window {
        recorder,
        place,
        rng: SmallRng::seed_from_u64(recorder.load.seed.wrapping_add(place as u64)),
        messages,
        sent: vec![None; window],
        free: (0..window).collect(),
        started: Instant::now(),
        count: 0,
        pace: (recorder.load.rate)
            .map(|rate| Duration::from_secs_f64(recorder.load.connections as f64 / rate as f64)),
    };
    while !recorder.stop.load(Relaxed) {
        window.fill().await?;
        let answer = tokio::select! {
            biased;
            answer = answers.next() => answer,
            () = ticks.notified(), if window.pace.is_some() => continue,
        };
        let answer = answer.ok_or_else(|| Status::unavailable("the server ended the stream"))?;
        window.answered(answer?);
    }
    Ok(())
}

impl Window<'_> {
    /// Sends the messages that are due, as far as the window allows.
    async fn fill(&mut self) -> Result<(), Status> {
        while let Some(&id) = self.free.last() {
            let now = Instant::now();
            let since = match self.pace {
                None => now,
                Some(pace) if self.started + pace * self.count <= now => {
                    self.started + pace * self.count
                }
                Some(_) => return Ok(()),
            };
            self.free.pop();
            self.count += 1;
            let keys = self.recorder.load.keys;
            let ids = (0..self.recorder.load.batch).map(|_| self.rng.random_range(0..keys));
            let ids: Vec<u64> = ids.collect();
            let key = ids[0];
            let floor = self.recorder.floor(key);
            self.sent[id] = Some(InFlight { since, key, floor });
            let request = NextManyRequest {
                id: id as u64,
                namespace: NAMESPACE.to_owned(),
                ids,
                // The newest possible version, so that no route comes back: the benchmark chooses the server.
                route_version: u64::MAX,
                ..NextManyRequest::default()
            };
            let sent = self.messages.send(request).await;
            sent.map_err(|_| Status::unavailable("the server ended the stream"))?;
        }
        Ok(())
    }

    fn answered(&mut self, answer: NextManyResponse) {
        let id = answer.id as usize;
        let Some(sent) = self.sent.get_mut(id).and_then(Option::take) else {
            return self
                .recorder
                .fail(format!("an answer to message {id}, which is not in flight"));
        };
        self.free.push(id);
        if let Some(failure) = answer.failure {
            return self.recorder.fail(failure.message);
        }
        if let Some(failure) = answer.exhausted.and_then(|exhausted| exhausted.failure) {
            return self.recorder.fail(failure.message);
        }
        let Some(first) = answer.firsts.first() else {
            return self.recorder.fail("an answer without a number".to_owned());
        };
        self.recorder.check(sent.key, sent.floor, *first);
        let numbers = answer.firsts.len() as u64;
        self.recorder.record(self.place, sent.since, numbers);
    }
}
