//! Transcripts of a client's batching: requests, the batches they form, and how answers are shared out.
//!
//! A script has one command a line; the transcript repeats each line and appends what it led to.
//! - `ask KEY COUNT`: a caller, numbered from 1, asks for numbers. A key of digits is an id, any other is
//!   a name; `few/a` is key a of namespace few instead of book. `ask 1..9 1` asks for each id, and
//!   `ask wide1..wide9 1` for each name, padded to 256 bytes.
//! - `send`: the next batch, numbered from 1: its ranges in the order of their places.
//! - `answer BATCH FIRST.. [increment=N] [left=PLACE:N]`: the server answers; `left` names used-up keys.
//! - `fail BATCH CODE`: the server fails the whole batch.
//! - `refuse BATCH REASON [OUTCOME]`: the server fails the whole batch with a reason.
//! - `lose BATCH`: its answer does not come.
//! - `send named`: as `send`, with an id; `resend`: the message that is to be sent again as it was.
//! - `leave CALLER`: a caller does not wait any more.
//! - `wait MS`: time passes, and requests that wait in the queue, or in messages that are to be sent again, expire.

mod named;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write,
};

use expect_test::{Expect, expect};
use tokio::sync::oneshot;

use super::*;
use crate::queue::RequestQueues;

const TIMEOUT: Duration = Duration::from_secs(5);

struct Script {
    namespaces: Namespaces,
    marks: HighWaterMarks,
    queues: RequestQueues,
    in_flight: BTreeMap<usize, Batch>,
    resends: VecDeque<Batch>,
    ids: Vec<Bytes>,
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
            coalesce: Coalesce::IntoRange,
            request_id: None,
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
            ["send"] => self.send(false),
            ["send", "named"] => self.send(true),
            ["resend"] => self.resend(),
            ["lose", batch] => {
                let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
                self.leftover(batch.lose())
            }
            ["leave", caller] => {
                self.callers.remove(&caller.parse().unwrap());
                String::new()
            }
            ["refuse", batch, reason, ref outcome @ ..] => self.refuse(batch, reason, outcome),
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

    fn send(&mut self, named: bool) -> String {
        let Some(requests) = self.queues.next_batch() else {
            return "nothing waits".to_owned();
        };
        let mut message = NextManyRequest::default();
        let mut batch = Batch::new(requests, &self.marks, &mut message);
        if named {
            batch.name(&mut message, Some(Mode::Gapless), TIMEOUT, self.now);
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

    fn refuse(&mut self, batch: &str, reason: &str, outcome: &[&str]) -> String {
        let batch = self.in_flight.remove(&batch.parse().unwrap()).unwrap();
        let code = match reason {
            "NO_LEADER" => Code::Unavailable,
            "OUTCOME_UNKNOWN" => Code::Unknown,
            _ => Code::FailedPrecondition,
        };
        let outcome = outcome.first().copied().unwrap_or("NOT_DONE");
        let outcome = Outcome::from_str_name(&format!("OUTCOME_{outcome}")).unwrap();
        let failure = Failure {
            code: code.into(),
            message: "refused".to_owned(),
            reason: Reason::from_str_name(&format!("REASON_{reason}")).unwrap().into(),
            outcome: outcome.into(),
            ..Failure::default()
        };
        let answer = NextManyResponse { failure: Some(failure), ..NextManyResponse::default() };
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
            text += &format!(" (id {})", number + 1);
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
                let exhausted = answer.exhausted.get_or_insert_with(|| Exhausted {
                    failure: Some(Failure {
                        code: Code::OutOfRange.into(),
                        message: "raise max".to_owned(),
                        ..Failure::default()
                    }),
                    ..Exhausted::default()
                });
                exhausted.places.push(place.parse().unwrap());
                exhausted.left.push(left.parse().unwrap());
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
        }
        self.queues.requeue(leftover.retry);
        parts.join("; ")
    }

    /// What callers were told since the last time.
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

fn check(script: &str, expected: Expect) {
    let mut run = Script {
        namespaces: Namespaces::default(),
        marks: HighWaterMarks::default(),
        queues: RequestQueues::default(),
        in_flight: BTreeMap::new(),
        resends: VecDeque::new(),
        ids: Vec::new(),
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

#[test]
fn requests_for_one_key_share_a_range_in_the_order_of_asking() {
    check(
        "ask a 1
         ask b 3
         ask a 2
         send
         answer 1 11 40
         send",
        expect![[r#"
            ask a 1 -> caller 1
            ask b 3 -> caller 2
            ask a 2 -> caller 3
            send -> batch 1 of book: a 3, b 3
            answer 1 11 40 -> caller 1: 11; caller 2: 40..42; caller 3: 12..13
            send -> nothing waits
        "#]],
    );
}

#[test]
fn the_numbers_of_a_range_lie_an_increment_apart() {
    check(
        "ask 7 2
         ask 7 1
         ask 7 3
         send
         answer 1 100 increment=10",
        expect![[r#"
            ask 7 2 -> caller 1
            ask 7 1 -> caller 2
            ask 7 3 -> caller 3
            send -> batch 1 of book: 7 6
            answer 1 100 increment=10 -> caller 1: 100..110 by 10; caller 2: 120; caller 3: 130..150 by 10
        "#]],
    );
}

#[test]
fn single_requests_for_different_keys_need_no_counts() {
    check(
        "ask 7 1
         ask 8 1
         send
         answer 1 5 6",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            answer 1 5 6 -> caller 1: 5; caller 2: 6
        "#]],
    );
}

#[test]
fn a_namespace_or_kind_of_key_has_batches_of_its_own_in_turns() {
    check(
        "ask a 1
         ask few/a 1
         ask 7 1
         ask b 1
         send
         send
         send
         send",
        expect![[r#"
            ask a 1 -> caller 1
            ask few/a 1 -> caller 2
            ask 7 1 -> caller 3
            ask b 1 -> caller 4
            send -> batch 1 of book: a, b, one each
            send -> batch 2 of few: a, one each
            send -> batch 3 of book: 7, one each
            send -> nothing waits
        "#]],
    );
}

#[test]
fn a_range_that_would_grow_too_large_is_followed_by_another() {
    // The second range may get lower numbers than the first.
    check(
        "ask 7 1
         ask 7 2
         ask 7 9997
         ask 7 1
         send
         answer 1 101 5",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 2 -> caller 2
            ask 7 9997 -> caller 3
            ask 7 1 -> caller 4
            send -> batch 1 of book: 7 10000, 7 1
            answer 1 101 5 -> caller 1: 101; caller 2: 102..103; caller 3: 104..10100; caller 4: 5
        "#]],
    );
}

#[test]
fn a_single_request_may_want_more_than_a_merged_range_has() {
    check(
        "ask 7 20000
         ask 7 1
         send
         answer 1 1 20001",
        expect![[r#"
            ask 7 20000 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 20000, 7 1
            answer 1 1 20001 -> caller 1: 1..20000; caller 2: 20001
        "#]],
    );
}

#[test]
fn a_batch_is_limited_in_requests_and_in_bytes_of_keys() {
    check(
        "ask 1..9000 1
         send
         send
         ask wide1..wide3000 1
         send
         send",
        expect![[r#"
            ask 1..9000 1 -> callers 1..9000
            send -> batch 1 of book: 8192 keys, one each
            send -> batch 2 of book: 808 keys, one each
            ask wide1..wide3000 1 -> callers 9001..12000
            send -> batch 3 of book: 1963 keys, one each
            send -> batch 4 of book: 1037 keys, one each
        "#]],
    );
}

#[test]
fn requests_that_shared_a_range_with_too_few_numbers_left_get_ranges_of_their_own() {
    // The third wants too much in any case.
    check(
        "ask 7 1
         ask 7 4
         ask 7 9
         ask 7 2
         send
         answer 1 0 left=0:6
         send
         answer 2 11 12 0 left=2:1
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 4 -> caller 2
            ask 7 9 -> caller 3
            ask 7 2 -> caller 4
            send -> batch 1 of book: 7 16
            answer 1 0 left=0:6 -> caller 3: error: a:1: count is 9, and 6 numbers are left: raise max; 3 to send again
            send -> batch 2 of book: 7 1, 7 4, 7 2
            answer 2 11 12 0 left=2:1 -> caller 1: 11; caller 2: 12..15; caller 4: error: a:1: count is 2, and 1 numbers are left: raise max
            send -> nothing waits
        "#]],
    );
}

#[test]
fn a_key_without_numbers_left_fails_and_other_keys_get_theirs() {
    check(
        "ask 7 1
         ask 8 3
         ask 7 1
         send
         answer 1 0 40 left=0:0
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 3 -> caller 2
            ask 7 1 -> caller 3
            send -> batch 1 of book: 7 2, 8 3
            answer 1 0 40 left=0:0 -> caller 1: error: a:1: count is 1, and 0 numbers are left: raise max; caller 2: 40..42; caller 3: error: a:1: count is 1, and 0 numbers are left: raise max
            send -> nothing waits
        "#]],
    );
}

#[test]
fn used_up_places_that_were_not_in_the_message_are_ignored() {
    check(
        "ask 7 1
         ask 7 1
         send
         answer 1 3 left=9:5 left=4294967295:5",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 2
            answer 1 3 left=9:5 left=4294967295:5 -> caller 1: 3; caller 2: 4
        "#]],
    );
}

#[test]
fn a_number_not_above_what_the_key_got_before_is_an_error() {
    // Batches 1 and 2 are in flight at the same time: either may get the lower numbers.
    check(
        "ask 7 1
         send
         ask 7 1
         send
         answer 2 20
         answer 1 10
         ask 7 1
         send
         answer 3 20",
        expect![[r#"
            ask 7 1 -> caller 1
            send -> batch 1 of book: 7, one each
            ask 7 1 -> caller 2
            send -> batch 2 of book: 7, one each
            answer 2 20 -> caller 2: 20
            answer 1 10 -> caller 1: 10
            ask 7 1 -> caller 3
            send -> batch 3 of book: 7, one each
            answer 3 20 -> caller 3: error: a:1: 20 was handed out for a key of namespace "book" after 20 had been: the cluster broke its promise; stop using it and report this
        "#]],
    );
}

#[test]
fn an_answer_that_does_not_fit_its_batch_fails_every_request() {
    check(
        "ask 7 1
         ask 8 1
         send
         answer 1 5
         ask 7 1
         send
         answer 2 5 increment=0",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            answer 1 5 -> caller 1: error: a:1: asked for numbers of 2 keys, it answered for 1; caller 2: error: a:1: asked for numbers of 2 keys, it answered for 1
            ask 7 1 -> caller 3
            send -> batch 2 of book: 7, one each
            answer 2 5 increment=0 -> caller 3: error: a:1: it answered with numbers whose increment is 0
        "#]],
    );
}

#[test]
fn an_answer_at_the_end_of_all_numbers_does_not_overflow() {
    check(
        "ask 7 3
         ask 7 1
         send
         answer 1 18446744073709551614 increment=2",
        expect![[r#"
            ask 7 3 -> caller 1
            ask 7 1 -> caller 2
            send -> batch 1 of book: 7 4
            answer 1 18446744073709551614 increment=2 -> caller 1: 18446744073709551614..18446744073709551615 by 2; caller 2: 18446744073709551615
        "#]],
    );
}

#[test]
fn requests_of_an_unavailable_server_are_sent_again_in_their_order() {
    check(
        "ask 7 1
         ask 8 1
         send
         ask 9 1
         fail 1 UNAVAILABLE
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            ask 9 1 -> caller 3
            fail 1 UNAVAILABLE -> 2 to send again; ask another server
            send -> batch 2 of book: 7, 8, 9, one each
        "#]],
    );
}

#[test]
fn a_late_batch_fails_the_requests_whose_time_is_up_alone() {
    check(
        "ask 7 1
         wait 3000
         ask 8 1
         send
         wait 2000
         fail 1 DEADLINE_EXCEEDED
         send
         fail 2 UNAVAILABLE
         wait 2999
         wait 1",
        expect![[r#"
            ask 7 1 -> caller 1
            wait 3000 ->
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            wait 2000 ->
            fail 1 DEADLINE_EXCEEDED -> caller 1: error: a:1: it failed; 1 to send again; ask another server
            send -> batch 2 of book: 8, one each
            fail 2 UNAVAILABLE -> 1 to send again; ask another server
            wait 2999 ->
            wait 1 -> caller 2: error: a:1: no answer in time
        "#]],
    );
}

#[test]
fn after_an_invalid_argument_each_request_is_sent_alone() {
    check(
        "ask 7 1
         ask 8 1
         ask 9 1
         send
         fail 1 INVALID_ARGUMENT
         send
         send
         answer 2 5
         fail 3 INVALID_ARGUMENT
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            ask 9 1 -> caller 3
            send -> batch 1 of book: 7, 8, 9, one each
            fail 1 INVALID_ARGUMENT -> 3 to send again
            send -> batch 2 of book: 7, one each
            send -> batch 3 of book: 8, one each
            answer 2 5 -> caller 1: 5
            fail 3 INVALID_ARGUMENT -> caller 2: error: a:1: it failed
            send -> batch 4 of book: 9, one each
        "#]],
    );
}

#[test]
fn any_other_failure_goes_to_every_request_of_the_batch() {
    check(
        "ask 7 1
         ask 8 1
         send
         fail 1 NOT_FOUND
         send",
        expect![[r#"
            ask 7 1 -> caller 1
            ask 8 1 -> caller 2
            send -> batch 1 of book: 7, 8, one each
            fail 1 NOT_FOUND -> caller 1: error: a:1: it failed; caller 2: error: a:1: it failed
            send -> nothing waits
        "#]],
    );
}
