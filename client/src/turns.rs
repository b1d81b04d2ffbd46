//! The server whose turn it is, where a client goes round its servers. Pure: time is an argument.
//!
//! Invariant: a server that has failed is not asked again for a while, unless all have.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// How long a server that has failed is left alone.
const REST: Duration = Duration::from_secs(5);

/// The server that was asked last, and the servers that rest.
#[derive(Debug, Default)]
pub struct Turns {
    last: Option<Arc<str>>,
    resting: Vec<(Arc<str>, Instant)>,
}

impl Turns {
    /// The server whose turn it is next among `all`, which are not empty.
    pub fn next(&mut self, all: &[Arc<str>], now: Instant) -> Arc<str> {
        assert!(!all.is_empty(), "a server to ask");
        self.resting.retain(|(server, until)| *until > now && all.contains(server));
        let last = self.last.as_ref();
        let place = all.iter().position(|server| Some(server) == last);
        let first = place.map_or(0, |place| place + 1);
        let mut in_turn = (0..all.len()).map(|n| &all[(first + n) % all.len()]);
        let rests = |server: &Arc<str>| self.resting.iter().any(|(resting, _)| resting == server);
        let next = in_turn.clone().find(|server| !rests(server)).or_else(|| in_turn.next());
        self.last = next.cloned();
        next.cloned().unwrap_or_default()
    }

    /// Lets a server that has failed rest.
    pub fn failed(&mut self, server: &Arc<str>, now: Instant) {
        self.resting.retain(|(resting, _)| resting != server);
        self.resting.push((server.clone(), now + REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_in_turn_and_one_that_failed_rests_unless_all_do() {
        let all: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        let (mut turns, now) = (Turns::default(), Instant::now());
        let asked = |turns: &mut Turns, n: usize, now: Instant| {
            let names = (0..n).map(|_| turns.next(&all, now).to_string());
            names.collect::<String>()
        };
        assert_eq!(asked(&mut turns, 4, now), "abca");
        turns.failed(&all[1], now);
        assert_eq!(asked(&mut turns, 4, now), "caca");
        turns.failed(&all[0], now);
        turns.failed(&all[2], now);
        assert_eq!(asked(&mut turns, 3, now), "bca", "all rest");
        assert_eq!(asked(&mut turns, 3, now + REST), "bca", "none rests");
        assert_eq!(&*turns.next(&all[..1], now), "a", "the others are gone");
    }
}
