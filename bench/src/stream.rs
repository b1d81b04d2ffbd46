//! Drives `NextMany`: keeps a window of messages in flight on each stream, and opens another when one ends.

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
use tonic::{Status, Streaming};

use crate::{
    connection::{Connection, Link},
    load::{PACER_INTERVAL, PAUSE_AFTER_FAILURE, WAITING_MAX},
    recorder::Recorder,
    target::NAMESPACE,
};
use ratchet_client::api::{NextManyRequest, NextManyResponse, sequencer_client::SequencerClient};

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Starts one worker for each of `connections`, and in an open loop a pacer.
pub fn start(connections: Vec<Connection>, recorder: &Arc<Recorder>, workers: &mut JoinSet<()>) {
    let ticks = Arc::new(Notify::new());
    for (place, connection) in connections.into_iter().enumerate() {
        let (recorder, ticks) = (recorder.clone(), ticks.clone());
        workers.spawn(async move { ask(&connection, place, &recorder, &ticks).await });
    }
    if recorder.load.rate.is_some() {
        let recorder = recorder.clone();
        // It runs on a thread of its own, since the timers of the runtime tick in milliseconds.
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

fn ended() -> Status {
    Status::unavailable("the server ended the stream")
}

/// A message in flight.
#[derive(Clone, Copy)]
struct InFlight {
    since: Instant,
    /// Its first key, and the greatest number received of that key before.
    key: u64,
    floor: u64,
}

/// The messages in flight of one worker, on one stream at a time.
struct Window<'a> {
    recorder: &'a Recorder,
    place: usize,
    rng: SmallRng,
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

/// Keeps a window of messages in flight, on one stream after the other.
async fn ask(connection: &Connection, place: usize, recorder: &Recorder, ticks: &Notify) {
    let window = recorder.load.in_flight;
    let mut window = Window {
        recorder,
        place,
        rng: SmallRng::seed_from_u64(recorder.load.seed.wrapping_add(place as u64)),
        sent: vec![None; window],
        free: (0..window).collect(),
        started: Instant::now(),
        count: 0,
        pace: (recorder.load.rate)
            .map(|rate| Duration::from_secs_f64(recorder.load.connections as f64 / rate as f64)),
    };
    while !recorder.stop.load(Relaxed) {
        let link = connection.link();
        if let Err(status) = window.use_stream(connection, &link, ticks).await {
            window.lose(&status);
            connection.failed(&link, status.code());
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
    window.tell_unanswered(Instant::now());
}

impl Window<'_> {
    /// Opens a stream, and uses it until the run ends or the connection moves to another server. Then no message
    /// is in flight.
    async fn use_stream(
        &mut self, connection: &Connection, link: &Link, ticks: &Notify,
    ) -> Result<(), Status> {
        let (messages, outgoing) = mpsc::channel(self.sent.len());
        let mut answers: Streaming<NextManyResponse> = SequencerClient::new(link.channel.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .next_many(connection.request(ReceiverStream::new(outgoing)))
            .await?
            .into_inner();
        // The server may turn out to be the leader: then the connection stays, and a known route is not told again.
        let mut route_version = link.route_version;
        while !self.recorder.stop.load(Relaxed) {
            if connection.is_at(link) {
                self.fill(&messages, route_version).await?;
            } else if self.free.len() == self.sent.len() {
                return Ok(());
            }
            let answer = tokio::select! {
                biased;
                answer = answers.next() => answer,
                () = ticks.notified(), if self.pace.is_some() => continue,
            };
            let mut answer = answer.ok_or_else(ended)??;
            if let Some(route) = answer.route.take() {
                route_version = connection.learn(&route);
            }
            self.answered(answer);
        }
        Ok(())
    }

    /// Counts the messages in flight, or the stream if there are none, as failed.
    fn lose(&mut self, status: &Status) {
        let lost = self.sent.iter_mut().filter_map(Option::take).count();
        self.free = (0..self.sent.len()).collect();
        for _ in 0..lost.max(1) {
            let why = format!("{:?}: {}", status.code(), status.message());
            self.recorder.fail(why);
        }
    }

    /// When the next message is due; `None` in a closed loop, where it is due at once.
    fn due(&self, count: u32) -> Option<Instant> {
        Some(self.started + self.pace? * count)
    }

    /// How many messages are due at `now` that the window has no room for. 0 in a closed loop.
    fn overdue(&self, now: Instant) -> u32 {
        let all = self.pace.map_or(0, |pace| {
            let elapsed = now.saturating_duration_since(self.started);
            // The first one is due at the start.
            (elapsed.as_nanos() / pace.as_nanos().max(1) + 1) as u32
        });
        all.saturating_sub(self.count)
    }

    /// Records the messages of an open loop that have no answer when the run ends: messages in flight, and messages that
    /// were due and could not be sent.
    fn tell_unanswered(&self, now: Instant) {
        if self.pace.is_none() {
            return;
        }
        let in_flight = self.sent.iter().flatten().map(|message| message.since);
        let overdue = self.count..self.count + self.overdue(now);
        let overdue = overdue.filter_map(|count| self.due(count));
        in_flight.chain(overdue).for_each(|since| self.recorder.unanswered(self.place, since));
    }

    /// Sends the messages that are due, as far as the window allows.
    async fn fill(
        &mut self, messages: &mpsc::Sender<NextManyRequest>, route_version: u64,
    ) -> Result<(), Status> {
        while let Some(&id) = self.free.last() {
            let now = Instant::now();
            let since = match self.due(self.count) {
                None => now,
                Some(due) if due <= now => due,
                Some(_) => return Ok(()),
            };
            self.free.pop();
            self.count += 1;
            let load = &self.recorder.load;
            let keys = (0..load.batch).map(|_| self.rng.random_range(0..load.keys));
            let keys: Vec<u64> = keys.collect();
            let key = keys[0];
            let floor = self.recorder.floor(key);
            self.sent[id] = Some(InFlight { since, key, floor });
            let request = NextManyRequest {
                id: id as u64,
                namespace: NAMESPACE.to_owned(),
                ids: keys.iter().map(|key| load.id(*key)).collect(),
                route_version,
                ..NextManyRequest::default()
            };
            messages.send(request).await.map_err(|_| ended())?;
        }
        let load = &self.recorder.load;
        let waiting = self.overdue(Instant::now()) as usize * load.connections;
        if let Some(rate) = load.rate
            && waiting >= WAITING_MAX
        {
            self.recorder.overloaded(rate);
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
        if let Some(refused) = answer.refused.into_iter().next() {
            let why = refused.failure.unwrap_or_default().message;
            return self.recorder.fail(why);
        }
        let Some(first) = answer.firsts.first() else {
            return self.recorder.fail("an answer without a number".to_owned());
        };
        self.recorder.check(sent.key, sent.floor, *first);
        let numbers = answer.firsts.len() as u64;
        self.recorder.record(self.place, sent.since, numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::{Load, Overload},
        recorder::Records,
    };

    fn recorder(rate: Option<u64>, overload: Overload) -> Recorder {
        let load = Load {
            connections: 2,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: 1,
            key_stride: 1,
            rate,
            overload,
            seed: 1,
        };
        Recorder::new(&load, false)
    }

    /// One of two workers, which began to ask `ago`, and has sent `count` messages. The last one has no answer.
    fn window(recorder: &Recorder, ago: Duration, count: u32) -> Window<'_> {
        let started = Instant::now().checked_sub(ago).expect("the machine has run for longer");
        let rate = recorder.load.rate;
        Window {
            recorder,
            place: 0,
            rng: SmallRng::seed_from_u64(1),
            sent: vec![Some(InFlight { since: started, key: 0, floor: 0 })],
            free: Vec::new(),
            started,
            count,
            pace: rate.map(|rate| Duration::from_secs_f64(2.0 / rate as f64)),
        }
    }

    #[test]
    fn messages_that_are_due_and_find_no_room_count_with_the_time_that_they_waited() {
        let ago = Duration::from_secs(1);
        let recorder = recorder(Some(200), Overload::Wait);
        // One message is due each 10 ms, from the start on: the messages at 10, 20, ... 1 000 ms are overdue.
        let window = window(&recorder, ago, 1);
        window.tell_unanswered(window.started + ago);
        let latencies = recorder.drain(&mut Records::new()).latencies;
        assert_eq!(latencies.len(), 1 + 100);
        assert!(latencies.max() >= 999_000_000, "{}", latencies.max());
        let median = latencies.value_at_quantile(0.5);
        assert!((490_000_000..10_000_000_000).contains(&median), "{median}");
    }

    #[test]
    fn a_closed_loop_has_no_message_that_is_overdue() {
        let recorder = recorder(None, Overload::Abort);
        let window = window(&recorder, Duration::from_secs(1), 1);
        window.tell_unanswered(Instant::now());
        assert!(recorder.drain(&mut Records::new()).latencies.is_empty());
        assert_eq!(window.overdue(Instant::now()), 0);
    }

    #[tokio::test]
    async fn a_rate_that_cannot_be_kept_ends_the_run_unless_an_outage_is_expected() {
        for (overload, ends) in [(Overload::Abort, true), (Overload::Wait, false)] {
            let recorder = recorder(Some(10_000_000), overload);
            let (messages, _sent) = mpsc::channel(1);
            let mut window = window(&recorder, Duration::from_secs(1), 1);
            window.fill(&messages, 0).await.expect("a channel");
            assert_eq!(recorder.stop.load(Relaxed), ends);
            let aborted = recorder.aborted.lock().clone();
            assert_eq!(aborted.is_some_and(|why| why.contains("lower --rate")), ends);
        }
    }
}
