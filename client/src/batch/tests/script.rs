//! Transcripts of a client's batching: requests, the batches they form, and how answers are shared out.
//!
//! A script has one command a line; the transcript repeats each line and appends its results.
//! - `ask KEY COUNT`: a caller, numbered from 1, asks for numbers. A key of digits is an id, any other is
//!   a name; `few/a` is key a of namespace few instead of book. `ask 1..9 1` asks for each id, and
//!   `ask wide1..wide9 1` for each name, padded to 256 bytes.
//! - `send`: the next batch, numbered from 1: its ranges in the order of their places.
//! - `answer BATCH FIRST.. [increment=N] [left=PLACE:N] [REFUSAL=PLACE]`: the server answers; `left` names used-up keys,
//!   `unavailable` keys that no leader gave numbers of, `too-large` and `invalid` keys that were not asked for rightly.
//! - `fail BATCH CODE`: the server fails the whole batch.
//! - `refuse BATCH REASON [OUTCOME]`: the server fails the whole batch with a reason.
//! - `lose BATCH`: its answer does not come.
//! - `send named`: as `send`, with an id, to a namespace that is known to be gapless; `send learnt`: to a namespace of the
//!   kind that servers told; `resend`: the message that is to be sent again as it was.
//! - `leave CALLER`: a caller does not wait any more.
//! - `wait MS`: time passes, and requests that wait in the queue, or in messages that are to be sent again, expire.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
};

use bytes::Bytes;
use expect_test::Expect;
use tokio::sync::oneshot;

use super::super::*;
use crate::queue::{BATCH_REQUESTS_MAX, RequestQueues};

const TIMEOUT: Duration = Duration::from_secs(5);

struct Script {
    namespaces: Namespaces,
    marks: HighWaterMarks,
    queues: RequestQueues,
    in_flight: BTreeMap<usize, Batch>,
    resends: VecDeque<Batch>,
    clock: RequestClock,
    ids: Vec<Bytes>,
    mode: Option<Mode>,
    batches: usize,
    callers: BTreeMap<usize, oneshot::Receiver<Result<Numbers, Error>>>,
    asked: usize,
    now: Instant,
}

impl Script {
    fn ask(&mut self, namespace: &str, key: Key, count: u64) {
        let (reply, answer) = oneshot::channel();
        self.asked += 1;
        self.callers.insert(self.asked, answer);
        self.queues.push(PendingRequest {
            namespace: self.namespaces.intern(namespace),
            key,
            count,
            deadline: self.now + TIMEOUT,
            may_share: true,
            batch_max: BATCH_REQUESTS_MAX,
            request_id: None,
            traceparent: None,
            reply,
        });
    }

    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ask", key, count] => {
                let (namespace, key) = key.split_once('/').unwrap_or(("book", key));
                let before = self.asked;
                for key in keys(key) {
                    self.ask(namespace, key, count.parse().unwrap());
                }
                match self.asked - before {
                    1 => format!("caller {}", self.asked),
                    _ => format!("callers {}..{}", before + 1, self.asked),
                }
            }
            ["send"] => self.send(None),
            ["send", "named"] => self.send(Some(Some(Mode::Gapless))),
            ["send", "learnt"] => self.send(Some(self.mode)),
            ["resend"] => self.resend(),
            ["lose", batch] => {
                let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
                self.leftover(batch.lose())
            }
            ["leave", caller] => {
                self.callers.remove(&caller.parse().unwrap());
                String::new()
            }
            ["refuse", batch, reason, ref told @ ..] => self.refuse(batch, reason, told),
            ["answer", batch, ref rest @ ..] => self.answer(batch, rest),
            ["fail", batch, code] => {
                let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
                let code = match code {
                    "UNAVAILABLE" => Code::Unavailable,
                    "DEADLINE_EXCEEDED" => Code::DeadlineExceeded,
                    "INVALID_ARGUMENT" => Code::InvalidArgument,
                    "NOT_FOUND" => Code::NotFound,
                    other => panic!("no code {other}"),
                };
                let leftover = batch.fail_all(Status::new(code, "it failed"), "a:1", self.now);
                self.leftover(leftover)
            }
            ["wait", millis] => {
                self.now += Duration::from_millis(millis.parse().unwrap());
                let (expired, _) = self.queues.take_expired(self.now);
                let status = Status::deadline_exceeded("no answer in time");
                fail_requests(expired, "a:1", &status);
                self.resends.retain_mut(|batch| batch.expire(self.now, "a:1", &status));
                self.replies().join("; ")
            }
            _ => panic!("no command: {line}"),
        }
    }

    /// Sends the next batch. It has an id if `named`, which holds the namespace's mode as far as it is known.
    fn send(&mut self, named: Option<Option<Mode>>) -> String {
        let Some(requests) = self.queues.next_batch() else {
            return "nothing waits".to_owned();
        };
        let mut message = NextManyRequest::default();
        let mut batch = Batch::new(requests, &self.marks, &mut message);
        if let Some(mode) = named {
            batch.name(&mut message, mode, TIMEOUT, (&self.clock, self.now));
        }
        self.note(batch, &message)
    }

    fn resend(&mut self) -> String {
        let Some(batch) = self.resends.pop_front() else {
            return "nothing is to be sent again".to_owned();
        };
        let message = batch.message().expect("a message with an id");
        self.note(batch, &message)
    }

    fn refuse(&mut self, batch: &str, reason: &str, told: &[&str]) -> String {
        let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
        let clock_ms = told.iter().find_map(|word| word.strip_prefix("clock="));
        let clock_ms = clock_ms.map(|ms| ms.parse().unwrap());
        if let Some(clock_ms) = clock_ms {
            self.clock.learn(clock_ms, self.now);
        }
        let outcome = told.iter().find(|word| !word.contains('='));
        let code = match reason {
            "NO_LEADER" => Code::Unavailable,
            "OUTCOME_UNKNOWN" => Code::Unknown,
            "REQUEST_IDS_FULL" => Code::ResourceExhausted,
            _ => Code::FailedPrecondition,
        };
        let outcome = outcome.copied().unwrap_or("NOT_DONE");
        let outcome = Outcome::from_str_name(&format!("OUTCOME_{outcome}")).unwrap();
        let failure = Failure {
            code: code.into(),
            message: "refused".to_owned(),
            reason: Reason::from_str_name(&format!("REASON_{reason}")).unwrap().into(),
            outcome: outcome.into(),
            request_clock_ms: clock_ms,
            ..Failure::default()
        };
        let answer =
            NextManyResponse { failure: Some(Box::new(failure)), ..NextManyResponse::default() };
        let (namespaces, marks) = (&self.namespaces, &mut self.marks);
        let leftover = batch.complete(answer, "a:1", namespaces, marks, self.now);
        self.leftover(leftover)
    }

    fn note(&mut self, batch: Batch, message: &NextManyRequest) -> String {
        self.batches += 1;
        let ids = message.ids.iter().map(ToString::to_string);
        let names = (message.names.iter()).map(|name| String::from_utf8_lossy(name).into_owned());
        let keys: Vec<String> = ids.chain(names).collect();
        let namespace = self.namespaces.name_of(batch.namespace());
        let mut text = format!("batch {} of {namespace}: ", self.batches);
        match (&message.counts[..], keys.len()) {
            ([], 0..=9) => text += &format!("{}, one each", keys.join(", ")),
            ([], many) => text += &format!("{many} keys, one each"),
            (counts, _) => {
                let ranges = keys.iter().zip(counts);
                let ranges: Vec<String> = ranges.map(|(key, n)| format!("{key} {n}")).collect();
                text += &ranges.join(", ");
            }
        }
        if let Some(id) = &message.request_id {
            let number = self.ids.iter().position(|known| known == id);
            let number = number.unwrap_or_else(|| {
                self.ids.push(id.clone());
                self.ids.len() - 1
            });
            let made = message.made_ms.filter(|made_ms| *made_ms > 0);
            let made = made.map(|made_ms| format!(", made at {made_ms}")).unwrap_or_default();
            text += &format!(" (id {}{made})", number + 1);
        }
        self.in_flight.insert(self.batches, batch);
        text
    }

    fn answer(&mut self, batch: &str, rest: &[&str]) -> String {
        let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
        let mut answer = NextManyResponse { increment: 1, ..NextManyResponse::default() };
        for word in rest {
            if let Some(increment) = word.strip_prefix("increment=") {
                answer.increment = increment.parse().unwrap();
            } else if let Some(left) = word.strip_prefix("left=") {
                let (place, left) = left.split_once(':').unwrap();
                let exhausted = answer.exhausted.get_or_insert_with(|| {
                    let failure = Failure {
                        code: Code::OutOfRange.into(),
                        message: "raise max".to_owned(),
                        ..Failure::default()
                    };
                    let failure = Some(Box::new(failure));
                    Box::new(Exhausted { failure, ..Exhausted::default() })
                });
                exhausted.places.push(place.parse().unwrap());
                exhausted.left.push(left.parse().unwrap());
            } else if let Some((refusal, place)) = word.split_once('=') {
                let (code, reason, text) = match refusal {
                    "unavailable" => (Code::Unavailable, Reason::NoLeader, "no leader"),
                    "too-large" => (Code::InvalidArgument, Reason::CountTooLarge, "too many"),
                    "invalid" => (Code::InvalidArgument, Reason::InvalidRequest, "it is wrong"),
                    other => panic!("no refusal {other}"),
                };
                let failure = Failure {
                    code: code.into(),
                    message: text.to_owned(),
                    reason: reason.into(),
                    ..Failure::default()
                };
                let places = vec![place.parse().unwrap()];
                answer.refused.push(RefusedKeys {
                    places,
                    failure: Some(Box::new(failure)),
                    ..RefusedKeys::default()
                });
            } else {
                answer.firsts.push(word.parse().unwrap());
            }
        }
        let (namespaces, marks) = (&self.namespaces, &mut self.marks);
        let leftover = batch.complete(answer, "a:1", namespaces, marks, self.now);
        self.leftover(leftover)
    }

    fn leftover(&mut self, leftover: Leftover) -> String {
        let mut parts = self.replies();
        if !leftover.retry.is_empty() {
            parts.push(format!("{} to send again", leftover.retry.len()));
        }
        if leftover.server_failure.is_some() {
            parts.push("ask another server".to_owned());
        }
        if let Some(batch) = leftover.resend {
            parts.push("to send again as it was".to_owned());
            self.resends.push_back(batch);
        }
        if let Some(mode) = leftover.mode {
            parts.push(format!("{mode:?}"));
            self.mode = Some(mode);
        }
        self.queues.requeue(leftover.retry);
        parts.join("; ")
    }

    /// The replies to callers since the last time.
    fn replies(&mut self) -> Vec<String> {
        let mut replies = Vec::new();
        self.callers.retain(|caller, answer| {
            let Ok(answer) = answer.try_recv() else {
                return true;
            };
            replies.push(match answer {
                Ok(Numbers { first, last, .. }) if first == last => {
                    format!("caller {caller}: {first}")
                }
                Ok(Numbers { first, last, increment: 1 }) => {
                    format!("caller {caller}: {first}..{last}")
                }
                Ok(Numbers { first, last, increment }) => {
                    format!("caller {caller}: {first}..{last} by {increment}")
                }
                Err(error) => format!("caller {caller}: error: {error}"),
            });
            false
        });
        replies
    }
}

fn keys(text: &str) -> Vec<Key> {
    let key = |text: &str| match text.parse() {
        Ok(id) => Key::Id(id),
        Err(_) => Key::from(text),
    };
    let Some((from, to)) = text.split_once("..") else {
        return vec![key(text)];
    };
    match (from.strip_prefix("wide"), to.strip_prefix("wide")) {
        (Some(from), Some(to)) => (from.parse::<u64>().unwrap()..=to.parse().unwrap())
            .map(|n| Key::from(format!("{n:0256}")))
            .collect(),
        _ => (from.parse().unwrap()..=to.parse().unwrap()).map(Key::Id).collect(),
    }
}

pub fn check(script: &str, expected: Expect) {
    let mut run = Script {
        namespaces: Namespaces::default(),
        marks: HighWaterMarks::default(),
        queues: RequestQueues::default(),
        in_flight: BTreeMap::new(),
        resends: VecDeque::new(),
        clock: RequestClock::default(),
        ids: Vec::new(),
        mode: None,
        batches: 0,
        callers: BTreeMap::new(),
        asked: 0,
        now: Instant::now(),
    };
    let mut transcript = String::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let led_to = run.run(line);
        writeln!(transcript, "{}", format!("{line} -> {led_to}").trim_end()).unwrap();
    }
    expected.assert_eq(&transcript);
}
