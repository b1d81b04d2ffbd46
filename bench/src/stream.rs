//! Drives `NextStream`: a window of messages on one stream.

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

use crate::{load::PACE, recorder::Run, target::NAMESPACE};
use ratchet_client::api::{
    NextStreamRequest, NextStreamResponse, sequencer_client::SequencerClient,
};

/// No answer is larger, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Starts asking over `channels`.
pub fn start(channels: Vec<Channel>, run: &Arc<Run>, workers: &mut JoinSet<()>) {
    let ticks = Arc::new(Notify::new());
    for (place, channel) in channels.into_iter().enumerate() {
        let (run, ticks) = (run.clone(), ticks.clone());
        workers.spawn(async move {
            if let Err(status) = ask(channel, place, &run, &ticks).await {
                run.fail(format!("{:?}: {}", status.code(), status.message()));
            }
        });
    }
    if run.load.rate.is_some() {
        let run = run.clone();
        // A thread of its own, since the runtime's timers tick in milliseconds.
        workers.spawn_blocking(move || {
            while !run.stop.load(Relaxed) {
                std::thread::sleep(PACE);
                ticks.notify_waiters();
            }
            // Whoever began to wait just now is to see that the run is over.
            ticks.notify_waiters();
        });
    }
}

/// A message under way.
#[derive(Clone, Copy)]
struct Sent {
    since: Instant,
    /// Its first key, and what was known of it.
    key: u64,
    floor: u64,
}

/// One stream and its window.
struct Window<'a> {
    run: &'a Run,
    place: usize,
    rng: SmallRng,
    messages: mpsc::Sender<NextStreamRequest>,
    /// By the id of the message.
    sent: Vec<Option<Sent>>,
    free: Vec<usize>,
    started: Instant,
    count: u32,
    /// Between two messages of an open loop.
    pace: Option<Duration>,
}

async fn ask(channel: Channel, place: usize, run: &Run, ticks: &Notify) -> Result<(), Status> {
    let window = run.load.in_flight;
    let (messages, outgoing) = mpsc::channel(window);
    let client = SequencerClient::new(channel);
    let mut answers: Streaming<NextStreamResponse> = client
        .max_decoding_message_size(ANSWER_BYTES_MAX)
        .next_stream(ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    let mut window = Window {
        run,
        place,
        rng: SmallRng::seed_from_u64(run.load.seed.wrapping_add(place as u64)),
        messages,
        sent: vec![None; window],
        free: (0..window).collect(),
        started: Instant::now(),
        count: 0,
        pace: (run.load.rate)
            .map(|rate| Duration::from_secs_f64(run.load.connections as f64 / rate as f64)),
    };
    while !run.stop.load(Relaxed) {
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
    /// Sends what is due, as far as the window allows.
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
            let keys = self.run.load.keys;
            let ids = (0..self.run.load.batch).map(|_| self.rng.random_range(0..keys));
            let ids: Vec<u64> = ids.collect();
            let key = ids[0];
            let floor = self.run.floor(key);
            self.sent[id] = Some(Sent { since, key, floor });
            let request = NextStreamRequest {
                id: id as u64,
                namespace: NAMESPACE.to_owned(),
                ids,
                // Never told a route: the benchmark chooses whom to ask.
                route_version: u64::MAX,
                ..NextStreamRequest::default()
            };
            let sent = self.messages.send(request).await;
            sent.map_err(|_| Status::unavailable("the server ended the stream"))?;
        }
        Ok(())
    }

    fn answered(&mut self, answer: NextStreamResponse) {
        let id = answer.id as usize;
        let Some(sent) = self.sent.get_mut(id).and_then(Option::take) else {
            return self.run.fail(format!("an answer to no message: {id}"));
        };
        self.free.push(id);
        if let Some(failure) = answer.failure {
            return self.run.fail(failure.message);
        }
        if let Some(failure) = answer.exhausted.and_then(|exhausted| exhausted.failure) {
            return self.run.fail(failure.message);
        }
        let Some(first) = answer.firsts.first() else {
            return self.run.fail("an answer without a number".to_owned());
        };
        self.run.check(sent.key, sent.floor, *first);
        let numbers = answer.firsts.len() as u64;
        self.run.record(self.place, sent.since, numbers);
    }
}
