//! Refuses what a page of another site asks for. A browser sends such requests for any page that its user looks at, also to
//! addresses that only the user can reach; they would use up numbers, change the cluster, or tell the page what the node
//! knows.
//!
//! Browsers say so in headers that a page cannot change: `Sec-Fetch-Site`, and `Origin`. To an address without TLS that is
//! not this machine's own they send neither with a GET. If the page's own name was made to lead here, `Host` is that name:
//! it is checked for all that may come from a browser, but not for programs, which may use any name. A GET for an image or
//! the like that names this node as it is called can use up numbers where a GET takes some, for clients of other id
//! generators. Nothing tells it from what the user asks for.

use axum::http::{HeaderMap, HeaderName, Uri, header, uri::Authority};

use crate::{
    node::NodeContext,
    proto::{Refusal, refusal},
    server::{connections::owner::Owner, written::shown},
};

/// The paths that anybody may ask for: whether the node lives, and whether it is ready.
pub const PROBES: [&str; 2] = ["/livez", "/readyz"];
/// From which site a browser says that a request comes, and whether a link led to the page.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The pages that a link elsewhere may lead to.
const PAGES: [&str; 2] = ["/", "/openapi.json"];

/// Checks where a request of the `owner` of a connection comes from, as browsers tell it. Where callers may do nothing without
/// a token, one with a token may ask by any name: no browser sends a token by itself, and a page that knows one gets the rights
/// of that token alone. Without an `owner` no token counts.
///
/// # Errors
/// PERMISSION_DENIED if a page of another site sent it.
pub fn check(
    context: &NodeContext, owner: Option<&Owner>, headers: &HeaderMap, uri: &Uri,
) -> Result<(), Refusal> {
    if PROBES.contains(&uri.path()) {
        return Ok(());
    }
    let services = &context.services;
    let has_token = || {
        let by = owner.and_then(|owner| owner.shown_in(headers).ok());
        by.is_some_and(|by| services.access.has_rights_by_token_alone(&by))
    };
    let may_ask_by = |name: &str| services.members.serves_browsers_as(name) || has_token();
    match foreign(headers, uri, || is_page(uri), may_ask_by) {
        None => Ok(()),
        Some(why) => Err(refusal!(PermissionDenied, "{why}")),
    }
}

/// Whether a browser may have sent this. A browser's request names a language, and a program that calls itself Mozilla; a page
/// can leave out neither. A mode without a site is a program's: browsers send both or neither.
fn may_be_a_browsers(headers: &HeaderMap) -> bool {
    let (mut has_language, mut has_mode, mut program) = (false, false, None);
    // One look at each header, for all names.
    for (name, value) in headers {
        if *name == header::ORIGIN || *name == SITE {
            return true;
        } else if *name == header::USER_AGENT {
            // The first one counts.
            program = program.or(Some(value.as_bytes()));
        } else if *name == header::ACCEPT_LANGUAGE {
            has_language = true;
        } else if *name == MODE {
            has_mode = true;
        }
    }
    let is_mozilla = program.is_some_and(|program| program.starts_with(b"Mozilla/"));
    (has_language || is_mozilla) && !has_mode
}

/// True for the address of a page: showing it changes nothing. With a query `/` may be another generator's.
fn is_page(uri: &Uri) -> bool {
    PAGES.contains(&uri.path()) && uri.query().is_none()
}

/// Why a request is refused; `None` for a program's, and for one of our own pages' or of the user's.
fn foreign(
    headers: &HeaderMap, uri: &Uri, is_page: impl Fn() -> bool, may_ask_by: impl Fn(&str) -> bool,
) -> Option<String> {
    if !may_be_a_browsers(headers) {
        return None;
    }
    let text = |name: &HeaderName| headers.get(name).map(|value| value.as_bytes());
    let origin = text(&header::ORIGIN);
    let site = text(&SITE);
    let host = text(&header::HOST)
        .and_then(|host| std::str::from_utf8(host).ok())
        .or(uri.authority().map(Authority::as_str))
        .unwrap_or_default();
    let from_elsewhere = |from: &[u8]| {
        let from = shown(from);
        format!(
            "the page of another site ({from}) may not ask this node; let that site's server ask it"
        )
    };
    let is_link = || text(&MODE) == Some(b"navigate") && is_page();
    // A browser asks the node first whether another site's page may send this, and the node does not say so. Its own page
    // may send it.
    let token = text(&header::AUTHORIZATION).and_then(|value| value.get(..7));
    let has_token = token.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Bearer "));
    match (site, origin) {
        // A GET to an address without TLS.
        (None, None) => {}
        _ if has_token => {}
        (Some(b"same-origin" | b"none"), _) => {}
        (Some(_), _) if is_link() => {}
        (Some(site), _) => return Some(from_elsewhere(site)),
        (None, Some(origin)) if is_origin_of(origin, host) => {}
        (None, Some(origin)) => return Some(from_elsewhere(origin)),
    }
    // Another site's name can be made to lead here, and its page is then our own for the browser.
    let name = name_of(host);
    (!may_ask_by(name)).then(|| {
        format!(
            "{} is no name by which browsers may ask this node; add it to http_hosts, or use the node's address",
            shown(name.as_bytes())
        )
    })
}

/// A host without its port and without the brackets of an address.
fn name_of(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_matches(['[', ']'])
}

/// True if `origin` is a scheme and `host`. The port that a scheme has by default may be left out.
fn is_origin_of(origin: &[u8], host: &str) -> bool {
    let schemes = [("http://", ":80"), ("https://", ":443")];
    let Ok(origin) = std::str::from_utf8(origin) else {
        return false;
    };
    schemes.iter().any(|(scheme, port)| {
        let named = origin.strip_prefix(scheme).unwrap_or_default();
        let plain = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
        !named.is_empty() && plain(named) == plain(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(sent: &[(&'static str, &'static str)], is_page: bool) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.insert(*name, value.parse().expect("a value"));
        }
        let may_ask_by = |name: &str| ["127.0.0.1", "::1", "ids.example"].contains(&name);
        foreign(&headers, &Uri::from_static("/"), || is_page, may_ask_by).is_some()
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7603");
    const ELSEWHERE: (&str, &str) = ("sec-fetch-site", "cross-site");
    const LANGUAGE: (&str, &str) = ("accept-language", "en-US,en;q=0.5");
    const MOZILLA: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
    const TOKEN: (&str, &str) = ("authorization", "Bearer x");
    const LINK: (&str, &str) = ("sec-fetch-mode", "navigate");

    #[test]
    fn programs_our_own_pages_and_users_may_ask() {
        for sent in [
            vec![HOST],
            // Programs that say little, or imitate browsers: curl, Node.js.
            vec![("host", "whatever.example")],
            vec![
                ("host", "whatever.example"),
                ("accept-language", "*"),
                ("user-agent", "node"),
                ("sec-fetch-mode", "cors"),
            ],
            // A user without TLS.
            vec![HOST, LANGUAGE, MOZILLA],
            vec![HOST, ("origin", "http://127.0.0.1:7603")],
            vec![("host", "[::1]:7603"), ("origin", "http://[::1]:7603")],
            vec![HOST, ("sec-fetch-site", "same-origin")],
            vec![HOST, ("sec-fetch-site", "none")],
            // Through a proxy.
            vec![("host", "ids.example:443"), ("origin", "https://ids.example")],
            vec![("host", "Ids.example"), ("origin", "https://ids.example")],
            vec![
                ("host", "ids.example"),
                ("origin", "https://elsewhere.example"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            let lower = sent.iter().any(|(_, value)| *value == "Ids.example");
            assert!(lower || !refused(&sent, false), "{sent:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_may_not_ask_and_may_link_to_our_pages() {
        for sent in [
            vec![HOST, ("origin", "http://evil.example")],
            vec![HOST, ("origin", "http://evil.example:127.0.0.1:7603")],
            vec![HOST, ("origin", "http://x127.0.0.1:7603")],
            vec![HOST, ("origin", "null")],
            vec![("origin", "http://127.0.0.1:7603")],
            vec![HOST, ELSEWHERE, ("sec-fetch-mode", "no-cors")],
            vec![HOST, ("sec-fetch-site", "same-site")],
            vec![HOST, ELSEWHERE, LINK],
        ] {
            assert!(refused(&sent, false), "{sent:?}");
        }
        assert!(!refused(&[HOST, ELSEWHERE, LINK], true));
    }

    #[test]
    fn no_link_of_another_site_logs_anybody_in_or_out() {
        for (path, may_be_linked) in
            [("/", true), ("/?type=1", false), ("/login", false), ("/logout", false)]
        {
            assert_eq!(is_page(&Uri::from_static(path)), may_be_linked, "{path}");
        }
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let evil = ("host", "evil.example:7603");
        let origin = ("origin", "http://evil.example:7603");
        for more in [origin, ("sec-fetch-site", "same-origin"), LANGUAGE, MOZILLA] {
            assert!(refused(&[evil, more], false), "{more:?}");
            // Its own page may set this without asking.
            assert!(refused(&[evil, more, TOKEN], false), "{more:?}");
        }
    }

    #[test]
    fn a_token_that_a_page_of_another_site_cannot_set_is_a_servers() {
        for sent in [
            [HOST, ("origin", "https://app.example"), TOKEN],
            [HOST, ELSEWHERE, ("authorization", "bearer x")],
        ] {
            assert!(!refused(&sent, false), "{sent:?}");
        }
        // A browser sends it by itself once it knows it.
        let password = ("authorization", "Basic eDp5");
        assert!(refused(&[HOST, ELSEWHERE, password], false));
    }
}
