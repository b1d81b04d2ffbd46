//! Bounds how many lines a second the log gets of one kind, where anybody can cause them. The next line that is written tells
//! how many were left out.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// Lets a number of lines a second through, and counts the others.
#[derive(Debug)]
pub struct LineRate {
    per_second: u64,
    /// When the second has begun that counts.
    since: Option<Instant>,
    written: u64,
    left_out: u64,
}

impl LineRate {
    /// One that lets `per_second` lines through.
    pub fn new(per_second: u64) -> Self {
        LineRate { per_second, since: None, written: 0, left_out: 0 }
    }

    /// How many lines were left out before this one. `None`: it is left out, too.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= Duration::from_secs(1)) {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written == self.per_second {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(mem::take(&mut self.left_out))
    }

    /// How many lines it let through in this second.
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
        let (mut rate, began) = (LineRate::new(10), Instant::now());
        for _ in 0..10 {
            assert_eq!(rate.take(began), Some(0));
        }
        let late = began + Duration::from_millis(999);
        assert_eq!([rate.take(began), rate.take(late)], [None, None]);
        let next = began + Duration::from_secs(1);
        assert_eq!([rate.take(next), rate.take(next)], [Some(2), Some(0)]);
    }
}
