use tokio::sync::oneshot;

use super::*;

type Answer = oneshot::Receiver<Result<Numbers, Error>>;

fn ask(key: u64, count: u64) -> (Asked, Answer) {
    let (reply, answer) = oneshot::channel();
    let asked = Asked {
        namespace: 0,
        key: Key::Id(key),
        count,
        deadline: Instant::now() + Duration::from_secs(5),
        travels: Travels::Merged,
        reply,
    };
    (asked, answer)
}

fn message(asked: Vec<Asked>) -> (Message, NextStreamRequest) {
    let mut request = NextStreamRequest::default();
    let message = Message::new(asked, &Seen::default(), &mut request);
    (message, request)
}

fn settle(message: Message, answer: NextStreamResponse) -> Left {
    let (names, mut seen) = (Names::default(), Seen::default());
    names.number_of("few");
    message.settle(answer, "a:1", &names, &mut seen, Instant::now())
}

fn used_up(firsts: &[u64], places: &[u32], left: &[u64]) -> NextStreamResponse {
    NextStreamResponse {
        firsts: firsts.to_vec(),
        increment: 1,
        exhausted: Some(Exhausted {
            places: places.to_vec(),
            left: left.to_vec(),
            failure: Some(Failure {
                code: Code::OutOfRange.into(),
                message: "raise it".to_owned(),
            }),
        }),
        ..NextStreamResponse::default()
    }
}

fn first(answer: &mut Answer) -> u64 {
    let numbers = answer.try_recv().expect("answered").expect("numbers");
    numbers.first
}

fn refusal(answer: &mut Answer) -> String {
    let refused = answer.try_recv().expect("answered").expect_err("refused");
    assert_eq!(refused.code(), Some(crate::Code::OutOfRange));
    refused.to_string()
}

#[test]
fn a_range_is_shared_out_in_the_order_of_asking_and_one_too_large_goes_on_elsewhere() {
    let counts = [1, 2, RANGE_NUMBERS_MAX - 3, 1];
    let (asked, mut answers): (Vec<_>, Vec<_>) =
        counts.map(|count| ask(7, count)).into_iter().unzip();
    let (message, request) = message(asked);
    assert_eq!(request.ids, [7, 7]);
    assert_eq!(request.counts, [RANGE_NUMBERS_MAX, 1]);
    // The second range may lie below the first.
    let answer = NextStreamResponse {
        firsts: vec![101, 5],
        increment: 1,
        ..NextStreamResponse::default()
    };
    assert!(settle(message, answer).again.is_empty());
    let firsts: Vec<u64> = answers.iter_mut().map(first).collect();
    assert_eq!(firsts, [101, 102, 104, 5]);
}

#[test]
fn where_numbers_are_left_for_some_of_a_range_each_request_asks_for_its_own() {
    let (asked, mut answers): (Vec<_>, Vec<_>) =
        [1, 4, 9, 2].map(|count| ask(7, count)).into_iter().unzip();
    let (all, request) = message(asked);
    assert_eq!(request.counts, [16]);
    let left = settle(all, used_up(&[0], &[0], &[6]));
    assert!(left.failed.is_none());
    // Too much in any case.
    assert_eq!(
        refusal(&mut answers[2]),
        "a:1: count is 9, and 6 numbers are left: raise it"
    );
    let (apart, request) = message(left.again);
    assert_eq!(
        (&request.ids[..], &request.counts[..]),
        (&[7; 3][..], &[1, 4, 2][..])
    );
    let left = settle(apart, used_up(&[11, 12, 0], &[2], &[1]));
    assert!(left.again.is_empty(), "asked for its own already");
    assert_eq!([first(&mut answers[0]), first(&mut answers[1])], [11, 12]);
    assert!(refusal(&mut answers[3]).contains("count is 2, and 1 numbers are left"));
}

#[test]
fn where_nothing_is_left_nobody_asks_again_and_other_keys_get_their_numbers() {
    let (asked, mut answers): (Vec<_>, Vec<_>) = [(7, 1), (8, 3), (7, 1)]
        .map(|(key, count)| ask(key, count))
        .into_iter()
        .unzip();
    let (all, request) = message(asked);
    assert_eq!(
        (&request.ids[..], &request.counts[..]),
        (&[7, 8][..], &[2, 3][..])
    );
    let left = settle(all, used_up(&[0, 40], &[0], &[0]));
    assert!(left.again.is_empty());
    assert_eq!(first(&mut answers[1]), 40);
    for place in [0, 2] {
        assert!(refusal(&mut answers[place]).contains("0 numbers are left"));
    }
}

#[test]
fn a_server_that_answers_for_places_that_were_not_asked_for_does_no_harm() {
    let (asked, mut answers): (Vec<_>, Vec<_>) =
        [1, 1].map(|count| ask(7, count)).into_iter().unzip();
    let left = settle(message(asked).0, used_up(&[3], &[9, u32::MAX], &[5]));
    assert!(left.again.is_empty());
    assert_eq!([first(&mut answers[0]), first(&mut answers[1])], [3, 4]);
}
