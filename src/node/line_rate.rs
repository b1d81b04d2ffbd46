//! Bounds how many lines the log gets of one kind in a time, where anybody can cause them. The next line that is written tells
//! how many were left out.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// Lets a number of lines through in each span of time, and counts the others.
#[derive(Debug)]
pub struct LineRate {
    lines: u64,
    span: Duration,
    /// When the span has begun that counts.
    since: Option<Instant>,
    written: u64,
    left_out: u64,
}

impl LineRate {
    /// One that lets `lines` lines through in a second.
    pub fn per_second(lines: u64) -> Self {
        LineRate::new(lines, Duration::from_secs(1))
    }

    /// One that lets `lines` lines through in a `span`.
    pub fn new(lines: u64, span: Duration) -> Self {
        LineRate { lines, span, since: None, written: 0, left_out: 0 }
    }

    /// How many lines were left out before this one. `None`: it is left out, too.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= self.span) {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written == self.lines {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(mem::take(&mut self.left_out))
    }

    /// How many lines it let through in this span.
    #[cfg(test)]
    pub fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_second_are_written_and_the_next_one_tells_how_many_were_left_out() {
        let (mut rate, began) = (LineRate::per_second(10), Instant::now());
        for _ in 0..10 {
            assert_eq!(rate.take(began), Some(0));
        }
        let late = began + Duration::from_millis(999);
        assert_eq!([rate.take(began), rate.take(late)], [None, None]);
        let next = began + Duration::from_secs(1);
        assert_eq!([rate.take(next), rate.take(next)], [Some(2), Some(0)]);
    }

    #[test]
    fn a_span_may_be_longer_than_a_second() {
        let (mut rate, began) = (LineRate::new(1, Duration::from_secs(10)), Instant::now());
        let told = [0, 9_999, 10_000, 10_001].map(Duration::from_millis);
        let told = told.map(|after| rate.take(began + after));
        assert_eq!(told, [Some(0), None, Some(1), None]);
    }
}
