//! Segments, shared out as Tinyid's own client does.

use std::net::SocketAddr;

use super::{TOKEN, address, start};
use crate::common::http;

/// Hands out numbers as a client of Tinyid does: out of a segment, with another one asked for before it ends.
struct TinyidClient {
    asked: Vec<SocketAddr>,
    of_type: &'static str,
    now: Segment,
    next: Option<Segment>,
    requests: usize,
}

struct Segment {
    last_given: i64,
    loading: i64,
    end: i64,
    step: i64,
}

impl Segment {
    /// Reads `currentId,loadingId,maxId,delta,remainder`.
    fn parse(line: &str) -> Segment {
        let numbers: Vec<i64> =
            line.split(',').map(|number| number.parse().expect("a number")).collect();
        let [current, loading, end, step, remainder] = numbers[..] else {
            panic!("{line:?} has not five numbers");
        };
        // The first number above `current` that fits is the first one given.
        let first = (current + 1..).find(|number| number % step == remainder);
        Segment { last_given: first.expect("one in each step fits") - step, loading, end, step }
    }
}

impl TinyidClient {
    async fn start(asked: &[SocketAddr], of_type: &'static str) -> TinyidClient {
        let mut client = TinyidClient {
            asked: asked.to_vec(),
            of_type,
            now: Segment::parse("0,0,0,1,0"),
            next: None,
            requests: 0,
        };
        client.now = client.load().await;
        client
    }

    /// Asks one server after the other, as with several in `tinyid.server`.
    async fn load(&mut self) -> Segment {
        let asked = self.asked[self.requests % self.asked.len()];
        self.requests += 1;
        let of_type = self.of_type;
        let what = format!("POST /tinyid/id/nextSegmentIdSimple?token={TOKEN}&bizType={of_type}");
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        Segment::parse(&http(asked, &what, form, "").await.body)
    }

    async fn next_id(&mut self) -> i64 {
        loop {
            self.now.last_given += self.now.step;
            let number = self.now.last_given;
            if number <= self.now.end {
                if number >= self.now.loading && self.next.is_none() {
                    self.next = Some(self.load().await);
                }
                return number;
            }
            self.now = match self.next.take() {
                Some(next) => next,
                None => self.load().await,
            };
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tinyid_clients_share_out_segments_without_a_duplicate_and_each_in_order() {
    let cluster = start(3).await;
    let nodes = [1, 2, 3].map(|node| address(&cluster, node));
    for (of_type, start, step) in [("test", 1, 1), ("ten", 7, 10)] {
        let take = |nodes: [SocketAddr; 3]| {
            tokio::spawn(async move {
                let mut client = TinyidClient::start(&nodes, of_type).await;
                let mut taken = Vec::new();
                for _ in 0..750 {
                    taken.push(client.next_id().await);
                }
                (taken, client.requests)
            })
        };
        let [a, b, c] = nodes;
        let (one, other) = tokio::join!(take([a, b, c]), take([c, b, a]));
        let mut taken = Vec::new();
        for (numbers, requests) in [one.expect("one ends"), other.expect("the other ends")] {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{of_type}: {numbers:?}");
            // They asked for seven segments and a half, and the next one.
            assert_eq!(requests, 9, "{of_type}");
            taken.extend(numbers);
        }
        taken.sort_unstable();
        assert!(taken.is_sorted_by(|a, b| a < b), "{of_type}: a duplicate in {taken:?}");
        // Together they took 18 segments of 100 numbers.
        let range = start..start + 18 * 100 * step;
        let of_range = |number: &i64| range.contains(number) && (number - start) % step == 0;
        assert!(taken.iter().all(of_range), "{of_type}: {taken:?}");
        assert_eq!(taken[0], start, "{of_type}");
    }
}
