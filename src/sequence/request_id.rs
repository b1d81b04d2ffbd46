//! Request ids: what a caller calls a request, so that it can ask again and is answered once.
//!
//! A gapless namespace remembers its ids in the replicated table, in the order in which they came. The table's own
//! clock says how old they are. It adds up how long terms lasted, by the leaders' clocks that no operator sets, so no
//! clock that jumps makes it jump, and it never goes back. Time without a leader does not count: an id may be
//! remembered for longer than is stated, never for less.
//!
//! Invariant: an id is remembered in the entry that takes its numbers, and not forgotten before its time.

use serde::{Deserialize, Serialize};

use super::{
    ids::{NamespaceId, SectionKey},
    progression::Range,
};

/// The greatest length of a request id, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// What a caller calls a request: 1 to [`REQUEST_ID_BYTES_MAX`] bytes.
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

/// What a request id was used for, and the numbers that it got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The key, which has a section of its own.
    pub key: SectionKey,
    /// How many numbers were asked for.
    pub count: u64,
    /// The numbers.
    pub range: Range,
}

/// A request id in the order in which ids came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedId {
    /// The namespace. The same id in another namespace is another id.
    pub namespace: NamespaceId,
    /// The id.
    pub id: RequestId,
    /// When it was used, by the table's clock.
    pub at_ms: u64,
}

/// The table's clock, and which ids it remembers: those that came at the places from `first` up to `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestBook {
    /// For how long numbers were taken, in milliseconds.
    pub clock_ms: u64,
    /// The place of the oldest id.
    pub first: u64,
    /// The place of the next id.
    pub next: u64,
}

/// How request ids are remembered. It travels in each entry, so that every replica comes to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembering {
    /// How long ago the term's last such entry was proposed, or the term began, in milliseconds.
    pub elapsed_ms: u64,
    /// For how long an id is remembered, in milliseconds.
    pub keep_ms: u64,
    /// How many ids are remembered at most.
    pub ids_max: u64,
    /// How many ids the entry forgets at most.
    pub forget_max: u64,
}

/// Request ids in the replicated table as one log entry sees them. Reads see the entry's own writes.
pub trait RequestTable {
    /// The error of a read.
    type ReadError;

    /// The book of ids, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn request_book(&self) -> Result<RequestBook, Self::ReadError>;
    /// Writes the book of ids.
    fn put_request_book(&mut self, book: RequestBook);
    /// What an id was used for, if it is remembered.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn remembered(
        &self, namespace: NamespaceId, id: &RequestId,
    ) -> Result<Option<Remembered>, Self::ReadError>;
    /// The id at a place.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn queued_id(&self, place: u64) -> Result<Option<QueuedId>, Self::ReadError>;
    /// Writes an id at a place, and what it was used for.
    fn remember(&mut self, place: u64, queued: QueuedId, remembered: Remembered);
    /// Removes the id at a place.
    fn forget(&mut self, place: u64, queued: &QueuedId);
}

/// Lets the table's clock go on, and forgets ids whose time has passed.
///
/// # Errors
/// If the table cannot be read.
pub fn advance<T: RequestTable>(
    table: &mut T, remembering: &Remembering,
) -> Result<(), T::ReadError> {
    let mut book = table.request_book()?;
    book.clock_ms = book.clock_ms.saturating_add(remembering.elapsed_ms);
    for _ in 0..remembering.forget_max {
        if book.first == book.next {
            break;
        }
        if let Some(queued) = table.queued_id(book.first)? {
            if queued.at_ms.saturating_add(remembering.keep_ms) > book.clock_ms {
                break;
            }
            table.forget(book.first, &queued);
        }
        book.first += 1;
    }
    table.put_request_book(book);
    Ok(())
}

/// True if no further id can be remembered.
///
/// # Errors
/// If the table cannot be read.
pub fn is_full<T: RequestTable>(
    table: &T, remembering: &Remembering,
) -> Result<bool, T::ReadError> {
    let book = table.request_book()?;
    Ok(book.next - book.first >= remembering.ids_max)
}

/// Remembers an id and what it was used for.
///
/// # Errors
/// If the table cannot be read.
pub fn remember<T: RequestTable>(
    table: &mut T, namespace: NamespaceId, id: &RequestId, remembered: Remembered,
) -> Result<(), T::ReadError> {
    let mut book = table.request_book()?;
    let queued = QueuedId { namespace, id: id.clone(), at_ms: book.clock_ms };
    table.remember(book.next, queued, remembered);
    book.next += 1;
    table.put_request_book(book);
    Ok(())
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
}
