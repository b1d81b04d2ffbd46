//! A request's deadline: from the `grpc-timeout` header or a message's `timeout_ms` of a client, or from the
//! `budget_ms` of a follower.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Request, metadata::MetadataMap};

use crate::node::Config;

/// The answer must be sent before the caller stops waiting. 1/`MARGIN_PART` of the caller's timeout, and at
/// most `MARGIN_MAX`, is reserved for sending it.
const MARGIN_PART: u32 = 10;
const MARGIN_MAX: Duration = Duration::from_millis(100);

/// How long this node may work on `request`, by its `grpc-timeout` header.
pub fn budget_of<T>(request: &Request<T>, config: &Config) -> Duration {
    budget(timeout_in(request.metadata()), config)
}

/// How long this node may work on a request whose caller waits for `patience`. Without a timeout of the
/// caller it is `request_timeout_ms`. It is never more than `request_timeout_max_ms`.
pub fn budget(patience: Option<Duration>, config: &Config) -> Duration {
    let default = Duration::from_millis(config.request_timeout_ms);
    let longest = Duration::from_millis(config.request_timeout_max_ms);
    let patience = patience.unwrap_or(default).min(longest);
    patience - (patience / MARGIN_PART).min(MARGIN_MAX)
}

/// The deadline of a request that a follower forwarded with `budget_ms` left. The follower has subtracted
/// the margin already.
pub fn deadline_in(budget_ms: u64, config: &Config) -> Instant {
    Instant::now() + Duration::from_millis(budget_ms.min(config.request_timeout_max_ms))
}

/// Parses the `grpc-timeout` header: 1 to 8 digits and a unit. `None` if it is missing or malformed.
fn timeout_in(metadata: &MetadataMap) -> Option<Duration> {
    let value = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<Duration> {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", value.parse().unwrap());
        timeout_in(&metadata)
    }

    #[test]
    fn a_timeout_header_is_parsed_and_a_malformed_one_is_ignored() {
        assert_eq!(parsed("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parsed("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(parsed("5u"), Some(Duration::from_micros(5)));
        for garbage in ["", "m", "5", "-5m", "123456789m", "5x", "5.0S"] {
            assert_eq!(parsed(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn the_budget_is_shorter_than_the_callers_timeout() {
        let millis = |patience: Option<u64>| {
            let patience = patience.map(Duration::from_millis);
            budget(patience, &Config::default()).as_millis()
        };
        assert_eq!(millis(Some(2_000)), 1_900);
        assert_eq!(millis(Some(100)), 90);
        assert_eq!(millis(None), 4_900);
    }

    #[test]
    fn the_budget_never_exceeds_the_configured_maximum() {
        let config = Config { request_timeout_max_ms: 30_000, ..Config::default() };
        let longest = budget(Some(Duration::MAX), &config);
        assert_eq!(longest, Duration::from_millis(29_900));
    }
}
