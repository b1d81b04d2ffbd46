//! How far a call's data reaches into its present message, and whether the rest is late.
//!
//! A caller that begins a message and never ends it holds its memory for ever. A caller that does not read its answers has data
//! waiting here, and is not late: the clock runs only while the call waits for more. Each part of a message has its own time.
//!
//! Invariant: while a call waits for more of a message, [`PART_BYTES`] of it, or its end, arrive within the patience. So a
//! message of `n` bytes takes at most `1 + n / PART_BYTES` times that.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// A gRPC message begins with a flag in one byte and its length in four.
pub const HEADER_BYTES: usize = 5;

/// How many bytes of a message arrive in time at least, unless it ends before. HTTP/2 lets a caller send as many while nobody
/// reads them: it opens a window of 64 KiB again once half of it is used.
pub const PART_BYTES: usize = 32 << 10;

/// The messages of one call, as they arrive.
#[derive(Debug, Default)]
pub struct Arrival {
    /// Whether there may be any number of messages, and silence between them. Otherwise there is one, and the call's end.
    pub is_stream: bool,
    /// The header that is arriving, and how many of its bytes have arrived.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// How many bytes of the present message have arrived, and how many are missing.
    received: usize,
    missing: usize,
    /// How many messages are whole.
    whole: u64,
    awaited: Option<Awaited>,
}

/// A part of a message for which a call waits.
#[derive(Debug)]
struct Awaited {
    late: Pin<Box<Sleep>>,
    /// How many messages were whole, and how much of the next one had arrived, when the waiting began.
    whole: u64,
    received: usize,
}

impl Arrival {
    /// Nothing has arrived yet.
    pub fn new(is_stream: bool) -> Arrival {
        Arrival { is_stream, ..Arrival::default() }
    }

    /// Reads `data`. Returns how many bytes of an unfinished message have arrived; 0 between two messages.
    pub fn advance(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            if self.missing == 0 {
                let part = data.len().min(HEADER_BYTES - self.header_bytes);
                let (taken, rest) = data.split_at(part);
                self.header[self.header_bytes..][..part].copy_from_slice(taken);
                self.header_bytes += part;
                data = rest;
                if self.header_bytes == HEADER_BYTES {
                    let [_, length @ ..] = self.header;
                    self.missing = u32::from_be_bytes(length) as usize;
                    (self.header_bytes, self.received) = (0, 0);
                    self.whole += u64::from(self.missing == 0);
                }
            } else {
                let part = data.len().min(self.missing);
                self.missing -= part;
                self.received += part;
                data = &data[part..];
                self.whole += u64::from(self.missing == 0);
            }
        }
        assert!(self.header_bytes < HEADER_BYTES, "a whole header is parsed");
        // After its message a call brings nothing but its end.
        if self.is_stream || self.whole == 0 {
            let (whole, received) = (self.whole, self.received);
            self.awaited.take_if(|awaited| {
                awaited.whole != whole || received >= awaited.received + PART_BYTES
            });
        }
        if self.missing == 0 { 0 } else { self.received }
    }

    /// How many bytes the present message has, as its header says; 0 between two messages.
    pub fn message_bytes(&self) -> usize {
        if self.missing == 0 { 0 } else { self.received.saturating_add(self.missing) }
    }

    /// How many messages are whole.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// The call waits for nothing more until [`Arrival::poll_late`] is called again.
    pub(super) fn is_not_awaited(&mut self) {
        self.awaited = None;
    }

    /// Whether a stream may be silent now: no message has begun that has not ended.
    pub(super) fn is_between_messages(&self) -> bool {
        self.is_stream && self.header_bytes == 0 && self.missing == 0
    }

    /// The call waits for more. Ready if that is late.
    pub fn poll_late(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_between_messages() {
            self.awaited = None;
            return Poll::Pending;
        }
        let (whole, received) = (self.whole, self.received);
        let awaited = self.awaited.get_or_insert_with(|| Awaited {
            late: Box::pin(sleep(patience)),
            whole,
            received,
        });
        ready!(awaited.late.as_mut().poll(cx));
        Poll::Ready(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use futures::FutureExt;

    use super::*;

    pub const PATIENCE: Duration = Duration::from_secs(10);
    pub const NEARLY: Duration = Duration::from_secs(9);

    /// A message of so many bytes, with its header.
    pub fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.extend((0..length).map(|i| i as u8));
        bytes
    }

    /// Whether the message is late, if the call has waited for it until now.
    fn is_late(arrival: &mut Arrival) -> bool {
        std::future::poll_fn(|cx| arrival.poll_late(PATIENCE, cx)).now_or_never().is_some()
    }

    #[test]
    fn the_bytes_of_an_unfinished_message_are_known_wherever_the_data_is_cut() {
        let messages: Vec<Vec<u8>> = [3, 0, 300, 1].map(message).into();
        let all = messages.concat();
        for size in [1, 2, 4, 5, 6, 7, 100, all.len()] {
            let mut arrival = Arrival::new(true);
            let mut end = 0;
            for data in all.chunks(size) {
                end += data.len();
                let mut rest = end;
                let mut messages = messages.iter();
                let (expected, of) = loop {
                    match messages.next() {
                        Some(whole) if rest >= whole.len() => rest -= whole.len(),
                        Some(part) if rest >= HEADER_BYTES => {
                            break (rest - HEADER_BYTES, part.len() - HEADER_BYTES);
                        }
                        _ => break (0, 0),
                    }
                };
                assert_eq!(arrival.advance(data), expected, "{end} bytes, {size} at a time");
                assert_eq!(arrival.message_bytes(), of, "{end} bytes, {size} at a time");
            }
            assert_eq!(arrival.whole, 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_late_whose_messages_end_where_the_next_one_begins() {
        let mut arrival = Arrival::new(true);
        let (begin, end) = (&message(100)[..7].to_vec(), &message(100)[7..].to_vec());
        arrival.advance(begin);
        for round in 0..10 {
            assert!(!is_late(&mut arrival), "{round}");
            tokio::time::advance(NEARLY).await;
            arrival.advance(&[&end[..], begin].concat());
        }
        assert!(!is_late(&mut arrival));
        tokio::time::advance(PATIENCE).await;
        assert!(is_late(&mut arrival), "its last message does not end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_late_whose_data_waits_to_be_read() {
        let mut arrival = Arrival::new(true);
        let message = message(1 << 20);
        arrival.advance(&message[..100]);
        for part in message[100..].chunks(PART_BYTES) {
            assert!(!is_late(&mut arrival));
            // The answers are not read, so nobody asks for the data that arrives meanwhile. It is read afterwards.
            tokio::time::advance(2 * PATIENCE).await;
            arrival.advance(part);
        }
        assert!(!is_late(&mut arrival), "it is whole");
        tokio::time::advance(100 * PATIENCE).await;
        assert!(!is_late(&mut arrival), "a stream may be silent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_byte_by_byte_is_late() {
        for is_stream in [true, false] {
            let mut arrival = Arrival::new(is_stream);
            let bytes = message(1 << 20);
            let mut bytes = bytes.iter();
            let mut seconds = 0;
            loop {
                arrival.advance(&[*bytes.next().expect("it ends before")]);
                if is_late(&mut arrival) {
                    break;
                }
                tokio::time::advance(Duration::from_secs(1)).await;
                seconds += 1;
            }
            assert_eq!(seconds, PATIENCE.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_one_message_is_late_if_it_brings_others_instead_of_its_end() {
        let mut arrival = Arrival::new(false);
        assert!(!is_late(&mut arrival), "its message is waited for");
        tokio::time::advance(NEARLY).await;
        arrival.advance(&message(2 * PART_BYTES as u32));
        assert!(!is_late(&mut arrival), "its end is waited for");
        tokio::time::advance(NEARLY).await;
        arrival.advance(&message(2 * PART_BYTES as u32));
        assert!(is_late(&mut arrival));
    }
}
