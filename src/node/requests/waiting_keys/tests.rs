//! The memory that is reserved for keys that wait.

use super::*;
use crate::{
    metrics::Metrics,
    node::{Config, REQUEST_KEYS_MAX},
};

#[test]
fn keys_that_wait_are_reserved_until_the_request_ends() {
    let metrics = Metrics::new();
    let memory = RequestMemory::new(&Config::default(), &metrics);
    let mut waiting = WaitingKeys::new(&memory, Keys::Ids(&[1; 10]));
    assert_eq!(waiting.add(0), Ok(()));
    assert_eq!(metrics.request_bytes.get(), 0);
    assert_eq!((waiting.add(4), waiting.add(6)), (Ok(()), Ok(())));
    let ten = 10 * WAITING_KEY_BYTES as i64;
    assert_eq!(metrics.request_bytes.get(), ten);
    drop(waiting);
    assert_eq!(metrics.request_bytes.get(), 0);
    let names = vec![vec![b'a'; 100].into(); 10];
    let mut waiting = WaitingKeys::new(&memory, Keys::Names(&names));
    assert_eq!(waiting.add(10), Ok(()));
    assert!(metrics.request_bytes.get() >= ten + 2 * 1_000);
}

#[test]
fn a_whole_message_of_new_keys_may_wait_by_default() {
    let memory = RequestMemory::new(&Config::default(), &Metrics::new());
    let messages = (0..8).map(|_| {
        let mut waiting = WaitingKeys::new(&memory, Keys::Ids(&[1]));
        waiting.add(REQUEST_KEYS_MAX).ok().map(|()| waiting)
    });
    let waiting: Option<Vec<_>> = messages.collect();
    assert!(waiting.is_some(), "eight of them");
}
