//! The answers to calls that need a section: now, or later, if the call has to wait for a bump.

use tokio::sync::oneshot;

use crate::{
    allocator::{floor::Raised, held_numbers::Delivery, outcome::Why},
    sequence::Range,
};

/// The answer to a call, which may have to wait.
#[derive(Debug)]
pub enum NowOrLater<T, L> {
    /// The answer, now.
    Done(T),
    /// It comes later. The sender is dropped if the term is lost.
    Later(oneshot::Receiver<L>),
}

/// The answer to a call for numbers of a key.
pub type TakeAnswer = NowOrLater<Result<Range, Why>, Delivery>;

/// The answer to a call that raises a floor.
pub type RaiseAnswer = NowOrLater<Result<Raised, Why>, Result<Raised, Why>>;

/// The answer to a call that raises a floor if the key is new.
#[derive(Debug)]
pub enum RaiseNewAnswer {
    /// Whether it is new is known later. Then the call is to be made again.
    Unknown(RaisedLater),
    /// It is new, and this is what becomes of its floor. Or it is not: nothing was raised.
    Known(RaiseAnswer),
}

/// The answer to a call for numbers above a floor.
#[derive(Debug)]
pub enum AboveAnswer {
    /// The floor is raised later. Then the call is to be made again.
    Later(RaisedLater),
    /// The floor is refused.
    Refused(Why),
    /// The floor is raised, and no number was wanted.
    None {
        /// The last number of the key that is handed out, or passed over.
        last: u64,
    },
    /// The floor is raised.
    Numbers {
        /// How many were wanted.
        count: u64,
        /// The numbers, now or later.
        answer: TakeAnswer,
    },
}

/// A floor that is raised later.
pub type RaisedLater = oneshot::Receiver<Result<Raised, Why>>;
