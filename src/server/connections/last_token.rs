//! The token that was shown last over a connection, with its hash. Most callers show one, in each call.
//!
//! Invariant: nothing of what the token may do is remembered: each call is looked up by the hash. Another token is compared whole,
//! so that whoever shares the connection, through a proxy, cannot find out by the time how much of a guess is right.

use std::{fmt, hint::black_box};

use parking_lot::Mutex;

use crate::{node::hash_of, sequence::TokenHash};

/// What is longer is not kept: strangers would have each of their connections hold it. No token of ours is.
const KEPT_BYTES_MAX: usize = 64;

/// The token that was shown last, if any was.
#[derive(Default)]
pub struct LastToken(Mutex<Option<(Box<[u8]>, TokenHash)>>);

impl fmt::Debug for LastToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastToken").finish_non_exhaustive()
    }
}

impl LastToken {
    /// The hash of a token that is shown now.
    pub fn hash_of(&self, token: &[u8]) -> TokenHash {
        if token.len() > KEPT_BYTES_MAX {
            return hash_of(token);
        }
        let mut last = self.0.lock();
        if let Some((known, hash)) = &*last
            && are_the_same(known, token)
        {
            return *hash;
        }
        let hash = hash_of(token);
        *last = Some((token.into(), hash));
        hash
    }
}

/// Whether these are the same bytes. All of them are looked at, whichever differ.
fn are_the_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_own_hash_whatever_was_shown_before() {
        let last = LastToken::default();
        let long = "x".repeat(KEPT_BYTES_MAX + 1);
        for token in ["ci", "ci", "cj", "c", "", "ci", "xi", "ci ", &long, &long[1..], &long, "ci"]
        {
            assert_eq!(last.hash_of(token.as_bytes()), hash_of(token.as_bytes()), "{token:?}");
        }
        let kept = last.0.lock().as_ref().map(|(token, _)| token.to_vec());
        assert_eq!(kept.as_deref(), Some(&b"ci"[..]));
        last.hash_of(long.as_bytes());
        assert_eq!(last.0.lock().as_ref().map(|(token, _)| token.len()), Some(2), "it is too long");
        assert!(!format!("{last:?}").contains("ci"));
    }
}
