//! Request ids: what a caller calls a message, so that it can ask again and is answered once. An id has a lifetime, after which
//! it is forgotten.

use serde::{Deserialize, Serialize};

/// The greatest length of a request id, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// The name that a caller gives a request: 1 to [`REQUEST_ID_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(Box<[u8]>);

/// Why bytes are not a request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequestId {
    /// There are none.
    #[error(
        "the request id is empty; give 1 to {REQUEST_ID_BYTES_MAX} bytes, for example a UUID, or leave it out"
    )]
    Empty,
    /// There are too many.
    #[error(
        "the request id has {0} bytes; it may have at most {REQUEST_ID_BYTES_MAX}, for example a UUID"
    )]
    TooLong(usize),
}

impl RequestId {
    /// A request id.
    ///
    /// # Errors
    /// [`InvalidRequestId`] if it is empty or has more than [`REQUEST_ID_BYTES_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidRequestId> {
        match bytes.len() {
            0 => Err(InvalidRequestId::Empty),
            1..=REQUEST_ID_BYTES_MAX => Ok(RequestId(bytes.into())),
            longer => Err(InvalidRequestId::TooLong(longer)),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// How many lifetimes there are.
pub const LIFETIMES: usize = 8;

/// For how long a message's id is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lifetime(u8);

impl Lifetime {
    /// As long as the cluster's settings say (`request_id_keep_ms`).
    pub const CONFIGURED: Lifetime = Lifetime(LIFETIMES as u8 - 1);
    /// The longest retry window, in milliseconds.
    pub const WINDOW_MS_MAX: u64 = 60_000;

    /// At least as long as the retry window that a caller states, up to [`Lifetime::WINDOW_MS_MAX`]: 1, 2, 4, ... or 60
    /// seconds.
    pub fn of_window_ms(window_ms: u64) -> Lifetime {
        let windows = 0..Lifetime::CONFIGURED.0;
        let long_enough = windows.map(Lifetime).find(|lifetime| lifetime.ms(0) >= window_ms);
        long_enough.unwrap_or(Lifetime(Lifetime::CONFIGURED.0 - 1))
    }

    /// In milliseconds, where the settings say `keep_ms`.
    pub fn ms(self, keep_ms: u64) -> u64 {
        match self {
            Lifetime::CONFIGURED => keep_ms,
            Lifetime(window) => (1_000 << window.min(7)).min(Lifetime::WINDOW_MS_MAX),
        }
    }

    /// The retry window of that length, in milliseconds; `None` if the settings say how long it is.
    pub fn window_ms(self) -> Option<u64> {
        (self != Lifetime::CONFIGURED).then(|| self.ms(0))
    }

    /// Which of all lifetimes it is, from 0.
    pub fn index(self) -> u8 {
        self.0.min(Lifetime::CONFIGURED.0)
    }

    /// Lifetime number `index` of all.
    pub fn at(index: usize) -> Lifetime {
        Lifetime(u8::try_from(index).unwrap_or(u8::MAX).min(Lifetime::CONFIGURED.0))
    }
}

/// The name that a caller gives a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageId {
    /// Its name.
    pub id: RequestId,
    /// For how long it is remembered.
    pub lifetime: Lifetime,
    /// When the message was made, by the table's clock, if its caller says so.
    pub made_ms: Option<u64>,
    /// The id of its caller's address: all callers there share what may be remembered. `None` for the node itself.
    pub caller: Option<u64>,
}

/// The name of a part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartId {
    /// The message's name.
    pub request: RequestId,
    /// Which part of the message, from 0; or [`PartId::LEFT_OUT`].
    pub part: u32,
    /// For how long it is remembered.
    pub lifetime: Lifetime,
}

impl PartId {
    /// Stands for those of a message's parts that took nothing, but for the first one: they are remembered together.
    pub const LEFT_OUT: u32 = u32::MAX;

    /// The name under which the parts that took nothing are remembered.
    #[must_use]
    pub fn of_left_out(&self) -> PartId {
        PartId { part: PartId::LEFT_OUT, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_has_1_to_64_bytes() {
        let refused = |bytes: &[u8]| RequestId::new(bytes).unwrap_err().to_string();
        assert!(refused(b"").contains("the request id is empty"));
        assert!(refused(&[7; 65]).contains("the request id has 65 bytes"));
        assert_eq!(RequestId::new(&[7; 64]).unwrap().as_bytes(), [7; 64]);
        assert_eq!(RequestId::new(b"a\"\xff").unwrap().to_string(), r#""a\"\xff""#);
    }

    #[test]
    fn a_lifetime_is_as_long_as_the_window_that_was_stated_or_longer_up_to_a_minute() {
        let kept = |window_ms| Lifetime::of_window_ms(window_ms).ms(600_000);
        let stated = [0, 1, 1_000, 1_001, 10_000, 32_001, 60_000, 61_000, u64::MAX];
        let expected = [1_000, 1_000, 1_000, 2_000, 16_000, 60_000, 60_000, 60_000, 60_000];
        assert_eq!(stated.map(kept), expected);
        assert_eq!(Lifetime::CONFIGURED.ms(600_000), 600_000);
    }
}
