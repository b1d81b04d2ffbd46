//! Callers that wait for ids of one key are served in the order of their arrival.

use std::time::Duration;

use super::*;
use crate::proto::refusal;

fn line(format: &str) -> QueuedKey {
    QueuedKey { namespace: "chat".to_owned(), format: format.to_owned(), key: OwnedKey::Id(1) }
}

fn numbers(ranges: &[(u64, u32)]) -> IdNumbers {
    IdNumbers {
        firsts: ranges.iter().map(|(first, _)| *first).collect(),
        counts: ranges.iter().map(|(_, count)| *count).collect(),
        ..IdNumbers::default()
    }
}

fn answered(place: &mut PlaceInLine) -> Option<IdNumbers> {
    place.answer.try_recv().ok().map(|got| got.expect("ids"))
}

#[tokio::test]
async fn callers_are_served_in_the_order_of_their_arrival_and_only_those_who_waited_when_the_leader_was_asked()
 {
    let queues = KeyQueues::default();
    let deadline = Instant::now() + Duration::from_secs(300);
    let chat = line("a");
    let join = |count, numbers| {
        let place = queues.join(&chat, count, numbers, deadline, |_| true);
        place.expect("it may wait")
    };
    let none = IdNumbers::default;
    let mut first = join(2, numbers(&[(7, 1)]));
    let gone = join(3, none());
    let second = join(5, none());
    assert!(first.is_first && !gone.is_first && !second.is_first);
    assert!(queues.has(&chat) && !queues.has(&line("b")));
    drop(gone);

    let mut batch = Batch::default();
    assert!(queues.collect(&chat, &mut batch));
    assert_eq!(batch.ids(), 7);
    // A caller that comes while the leader is being asked gets nothing of its answer, although one has gone.
    drop(second);
    let mut late = join(1, none());
    let mut last = join(1, none());
    batch.share(&numbers(&[(100, 1), (110, 6)]));
    assert_eq!(answered(&mut first), Some(numbers(&[(7, 1), (100, 1), (110, 1)])));
    assert_eq!(answered(&mut late), None);

    assert!(queues.collect(&chat, &mut batch));
    assert_eq!(batch.ids(), 2);
    batch.share(&numbers(&[(200, 1)]));
    assert_eq!(answered(&mut late), Some(numbers(&[(200, 1)])));
    batch.refuse(&refusal!(NumbersExhausted, "ended"));
    let refused = last.answer.try_recv().expect("an answer");
    assert_eq!(refused.expect_err("refused").message(), "ended");
    assert!(!queues.collect(&chat, &mut batch));
    assert!(!queues.has(&chat));
}

#[tokio::test]
async fn only_who_still_waits_is_counted_and_kept() {
    let queues = KeyQueues::default();
    let deadline = Instant::now() + Duration::from_secs(300);
    let ids = |left| {
        let joined = queues.join(&line("a"), left, IdNumbers::default(), deadline, |_| false);
        joined.err().expect("the ids that all would wait for")
    };
    let join = |left| {
        let joined = queues.join(&line("a"), left, IdNumbers::default(), deadline, |_| true);
        joined.expect("it may wait")
    };
    let mut first = join(10);
    // Refused callers do not count, nor those that have gone.
    assert_eq!((ids(100), ids(1)), (110, 11));
    for _ in 0..10 * SWEEP_MIN {
        drop(join(5));
    }
    assert_eq!(ids(1), 11);
    assert!(queues.queues.lock()[&line("a")].arrived.len() <= SWEEP_MIN);
    // Numbers that were handed out do not count.
    let mut batch = Batch::default();
    assert!(queues.collect(&line("a"), &mut batch));
    batch.share(&numbers(&[(100, 4)]));
    assert_eq!((ids(1), batch.ids()), (7, 6));
    assert_eq!(answered(&mut first), None);
    drop(first);
    assert_eq!(ids(1), 1);
    assert!(!queues.collect(&line("a"), &mut batch));
}
