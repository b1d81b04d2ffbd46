//! Sessions of the status page: a browser cannot send a token with each request, and has a cookie instead.
//!
//! They live in this node's memory alone. A cookie reaches every port of a host, whatever program listens there: so it is good
//! for the page, and for nothing else.
//!
//! Invariant: neither a token nor the id of a session is kept, only their hashes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    node::{Config, hash_of},
    proto::{Refusal, refusal},
    random,
    sequence::TokenHash,
};

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(8 * 3_600);
/// How many sessions there are at most. A further one takes the place of the oldest.
const SESSIONS_MAX: usize = 1_000;
/// How many characters the id of a session has: 128 bits, in hexadecimal digits.
const ID_CHARS: usize = 32;

/// The sessions of a node. All clones share them.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<OpenSessions>>);

/// The sessions in the order in which they began. They end in the same order.
#[derive(Default)]
struct OpenSessions(VecDeque<Session>);

/// The hash of a session's id. The time of a comparison tells nothing of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKey(TokenHash);

struct Session {
    key: SessionKey,
    token: TokenHash,
    began: Instant,
}

impl Sessions {
    /// Begins a session of the owner of the token with this hash. Returns its id.
    pub fn begin(&self, token: TokenHash) -> String {
        let id = format!("{:016x}{:016x}", random::u64(), random::u64());
        self.0.lock().begin(key_of(id.as_bytes()), token, Instant::now());
        id
    }

    /// The hash of the token with which a session began, unless the session has ended.
    pub fn token_of(&self, key: SessionKey) -> Option<TokenHash> {
        self.0.lock().token_of(key, Instant::now())
    }

    /// Ends a session.
    pub fn end(&self, key: SessionKey) {
        self.0.lock().0.retain(|session| session.key != key);
    }
}

impl OpenSessions {
    fn begin(&mut self, key: SessionKey, token: TokenHash, now: Instant) {
        self.end_old(now);
        if self.0.len() >= SESSIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Session { key, token, began: now });
    }

    fn token_of(&mut self, key: SessionKey, now: Instant) -> Option<TokenHash> {
        self.end_old(now);
        let session = self.0.iter().find(|session| session.key == key)?;
        Some(session.token)
    }

    fn end_old(&mut self, now: Instant) {
        while self.0.front().is_some_and(|oldest| now.duration_since(oldest.began) >= LASTS) {
            self.0.pop_front();
        }
    }
}

fn key_of(id: &[u8]) -> SessionKey {
    SessionKey(hash_of(id))
}

/// The name of a node's cookie: several nodes may have one host.
fn name_of(config: &Config) -> String {
    format!("ratchet-{}-{}", config.cluster, config.node_id)
}

/// The sessions that the cookies of a request name, whether they are known or not. There may be several: a program that listens
/// at another port of the host may have set one of the same name.
pub fn shown_in(headers: &HeaderMap, config: &Config) -> Vec<SessionKey> {
    let name = name_of(config);
    let cookies = headers.get_all(header::COOKIE).iter();
    let pairs = cookies.flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let ids = pairs.filter_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=").filter(|id| id.len() == ID_CHARS)
    });
    ids.map(key_of).collect()
}

/// The header that has a browser keep the id of a session. Without an id, it has the browser forget the id that it keeps. With
/// `is_tls` the browser sends the id over TLS alone.
///
/// # Errors
/// INTERNAL if the cookie is no header.
pub fn cookie(config: &Config, id: Option<&str>, is_tls: bool) -> Result<HeaderValue, Refusal> {
    let (id, seconds) = id.map_or(("", 0), |id| (id, LASTS.as_secs()));
    let secure = if is_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}",
        name_of(config)
    );
    HeaderValue::try_from(cookie)
        .map_err(|error| refusal!(Internal, "the cookie of a session is no header: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> SessionKey {
        key_of(&number.to_le_bytes())
    }

    fn token(number: u8) -> TokenHash {
        TokenHash([number; 32])
    }

    #[test]
    fn a_session_ends_after_eight_hours_or_before() {
        let (mut known, now) = (OpenSessions::default(), Instant::now());
        known.begin(key(1), token(1), now);
        known.begin(key(2), token(2), now + Duration::from_secs(1));
        let hours = |hours: u64| now + Duration::from_secs(hours * 3_600);
        let last = hours(8) - Duration::from_millis(1);
        assert_eq!(known.token_of(key(1), last), Some(token(1)));
        assert_eq!(known.token_of(key(3), last), None);
        assert_eq!(known.token_of(key(1), hours(8)), None);
        assert_eq!(known.token_of(key(2), hours(8)), Some(token(2)));
        assert_eq!(known.0.len(), 1, "what has ended is not kept");
    }

    #[test]
    fn the_oldest_session_makes_room() {
        let (mut known, now) = (OpenSessions::default(), Instant::now());
        for number in 0..=SESSIONS_MAX {
            known.begin(key(number), token(7), now);
        }
        assert_eq!(known.0.len(), 1_000);
        assert_eq!(known.token_of(key(0), now), None);
        assert!((1..=SESSIONS_MAX).all(|number| known.token_of(key(number), now).is_some()));
    }

    #[test]
    fn ids_are_128_bits_of_which_none_is_kept_and_a_session_can_be_ended() {
        let sessions = Sessions::default();
        let ids = [1, 1, 2].map(|number| sessions.begin(token(number)));
        for (at, id) in ids.iter().enumerate() {
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
            assert!(!ids[at + 1..].contains(id));
        }
        let keys = ids.map(|id| key_of(id.as_bytes()));
        assert_eq!(keys.map(|key| sessions.token_of(key)), [1, 1, 2].map(|n| Some(token(n))));
        sessions.end(keys[0]);
        let left = keys.map(|key| sessions.token_of(key));
        assert_eq!(left, [None, Some(token(1)), Some(token(2))]);
    }

    #[test]
    fn a_cookie_is_of_one_node_for_the_page_alone_and_secure_where_there_is_tls() {
        let config = Config { cluster: "a.b".to_owned(), node_id: 7, ..Config::default() };
        let id = "0".repeat(ID_CHARS);
        let written = cookie(&config, Some(&id), false).expect("a header");
        let expected =
            format!("ratchet-a.b-7={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age=28800");
        assert_eq!(written, expected);
        let secure = cookie(&config, Some(&id), true).expect("a header");
        assert_eq!(secure, format!("{expected}; Secure"));
        let forgotten = cookie(&config, None, false).expect("a header");
        assert_eq!(forgotten, "ratchet-a.b-7=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    }

    #[test]
    fn cookies_of_the_name_are_found_among_others() {
        let config = Config { cluster: "a".to_owned(), node_id: 1, ..Config::default() };
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(ID_CHARS));
        let mut headers = HeaderMap::new();
        assert_eq!(shown_in(&headers, &config), []);
        for value in [
            format!("other={two}; ratchet-a-1={one}; ratchet-a-11={two}"),
            format!("ratchet-a-1={two};ratchet-a-1=short; ratchet-a-1"),
        ] {
            headers.append(header::COOKIE, value.parse().expect("a header"));
        }
        let keys = [one, two].map(|id| key_of(id.as_bytes()));
        assert_eq!(shown_in(&headers, &config), keys);
    }
}
