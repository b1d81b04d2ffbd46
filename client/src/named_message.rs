//! A message with a request id: it may be sent again as it is, and the servers take its numbers once. Pure: time is an
//! argument.
//!
//! Invariant: once the message may have been carried out, its requests get their numbers, or learn that the outcome is not
//! known.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    api::{NextManyRequest, Outcome, Reason},
    causes,
    error::Error,
    request_clock::RequestClock,
};

/// The longest time for which servers remember an id whose message states a retry window.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// The known kind of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It knows no request ids.
    Ordinary,
    /// It needs them.
    Gapless,
}

/// A message with an id.
pub struct NamedMessage {
    /// The message, to send it again.
    pub message: NextManyRequest,
    /// True if the application has named it.
    pub is_of_application: bool,
    /// True if the namespace is known to be gapless.
    is_gapless: bool,
    /// True if it may have been carried out.
    pub may_be_done: bool,
    /// Until when it may be sent again.
    pub send_until: Instant,
}

/// The next step for a message that a server refused as a whole.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It says a wrong time, and nothing was done: its requests are sent in another message.
    Anew,
    /// The namespace knows no ids: its requests are sent without one.
    WithoutId,
    /// Another server may know better.
    Elsewhere,
    /// Its requests fail.
    Fail,
}

impl NamedMessage {
    /// Gives `message` the id that the application chose, or one of its own. The servers remember one of its own for twice
    /// as long as it may be sent again, which is `patience` at most. A copy of it that reaches them later takes nothing: the
    /// message says when it was made, by `clock`.
    pub fn new(
        message: &mut NextManyRequest, chosen: Option<Bytes>, mode: Option<Mode>,
        patience: Duration, (clock, now): (&RequestClock, Instant),
    ) -> NamedMessage {
        let is_of_application = chosen.is_some();
        let send_for = match is_of_application {
            true => patience,
            false => patience.min(WINDOW_MAX / 2),
        };
        message.made_ms = Some(clock.read(now, send_for / 2));
        message.request_id = Some(chosen.unwrap_or_else(|| {
            message.retry_window_ms = Some((2 * send_for).as_millis() as u64);
            Bytes::copy_from_slice(&rand::random::<u128>().to_be_bytes())
        }));
        NamedMessage {
            message: message.clone(),
            is_of_application,
            is_gapless: mode == Some(Mode::Gapless),
            may_be_done: false,
            send_until: now + send_for,
        }
    }

    /// Notes that a server refused it, and returns the next step for it.
    pub fn refused(&mut self, code: Code, (reason, outcome): (Reason, Outcome)) -> NextStep {
        use Reason::*;
        // Ids are remembered for gapless namespaces alone.
        self.is_gapless |= matches!(reason, RequestIdExpired | RequestIdReused | RequestIdsFull);
        // A server that lags may know an older namespace of the name.
        let is_mistaken = self.is_gapless && self.may_be_done;
        if reason == RequestIdExpired && !self.may_be_done {
            return NextStep::Anew;
        }
        let knows_no_ids = reason == RequestIdUnsupported && !self.is_of_application;
        if knows_no_ids && !is_mistaken {
            return NextStep::WithoutId;
        }
        self.may_be_done |= outcome != Outcome::NotDone;
        let is_elsewhere = match code {
            Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled => true,
            Code::ResourceExhausted => self.may_be_done,
            _ => knows_no_ids,
        };
        match is_elsewhere {
            true => NextStep::Elsewhere,
            false => NextStep::Fail,
        }
    }

    /// The error of its requests, if `status` is the last failure.
    pub fn error(&self, server: &str, status: &Status) -> Error {
        match self.may_be_done {
            false => Error::status(server, status),
            true => {
                let id = self.message.request_id.as_deref().filter(|_| self.is_of_application);
                Error::outcome_unknown(server, &causes::text(status), id)
            }
        }
    }
}
