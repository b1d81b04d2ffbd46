//! The request id of a message: what a caller calls it, and which messages have one.

use crate::{
    proto::{Refusal, refusal},
    sequence::{Lifetime, MessageId, Namespace, RequestId},
};

/// The request id of a message, in `bytes`, if there is one, for as long as the retry window says. Without a
/// window it is remembered as long as the settings say. The message was made at `made_ms`.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes are no id, the window is longer than [`Lifetime::WINDOW_MS_MAX`] or stands without the time,
/// or one of them stands without an id.
pub(in crate::node) fn message_id(
    bytes: Option<&[u8]>, window_ms: Option<u64>, made_ms: Option<u64>,
) -> Result<Option<MessageId>, Refusal> {
    const WINDOW_MAX: u64 = Lifetime::WINDOW_MS_MAX;
    let why = match (bytes, window_ms, made_ms) {
        (None, None, None) => return Ok(None),
        (Some(bytes), None, _) | (Some(bytes), Some(..=WINDOW_MAX), Some(_)) => {
            let id = RequestId::new(bytes);
            let id = id.map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))?;
            let lifetime = window_ms.map_or(Lifetime::CONFIGURED, Lifetime::of_window_ms);
            return Ok(Some(MessageId { id, lifetime, made_ms, caller: None }));
        }
        (None, None, Some(made_ms)) => format!("made_ms is {made_ms}; it goes with a request id"),
        (Some(_), Some(window_ms @ ..=WINDOW_MAX), None) => format!(
            "retry_window_ms is {window_ms}, and made_ms is missing: a copy of the message that comes late would take other \
             numbers; give 0, and the answer says what to give"
        ),
        (_, Some(window_ms), _) => format!(
            "retry_window_ms is {window_ms}; it goes with a request id, and is at most {WINDOW_MAX}"
        ),
    };
    Err(refusal!(InvalidRequest, "{why}"))
}

/// Refuses a request id where none is known, and a request without one where it could leave a gap.
///
/// # Errors
/// FAILED_PRECONDITION, with what to do.
pub(in crate::node) fn check_id(namespace: &Namespace, has_id: bool) -> Result<(), Refusal> {
    let config = &namespace.config;
    let name = &config.name;
    match (config.gapless, has_id) {
        (false, true) => Err(refusal!(
            RequestIdUnsupported,
            "namespace {name:?} is not gapless, and knows no request ids: ask without one; a retry takes new numbers, \
                 which costs nothing there"
        )),
        (true, false) if !config.request_id_optional => Err(refusal!(
            RequestIdRequired,
            "namespace {name:?} is gapless: give a request id (request_id, Idempotency-Key, --request-id), so that \
                 asking again after a lost answer leaves no gap; or allow such requests with: ratchet namespace update \
                 {name} --request-id-optional true"
        )),
        (false, false) | (true, _) => Ok(()),
    }
}
