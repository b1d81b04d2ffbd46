//! Refuses what a page of another site asks for. A browser sends such requests for any page that its user looks at, also to
//! addresses that only the user can reach; they would use up numbers, or change the cluster.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tonic::Status;

use super::{problem::Problem, request::Node};
use crate::server::written::shown;

/// Answers a request itself if a page of another site sent it, as browsers tell.
pub async fn refuse(State(context): Node, request: Request, next: Next) -> Response {
    match foreign(request.headers(), request.uri()) {
        None => next.run(request).await,
        Some(from) => {
            let status = Status::permission_denied(format!(
                "the page of another site ({from}) may not ask this node; let that site's server ask it"
            ));
            Problem::new(&context, status).into_response()
        }
    }
}

/// The site whose page sent the request, if it is another one. Programs that are no browsers send none of these headers.
fn foreign(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let text = |name: &str| headers.get(name).map(|value| value.as_bytes());
    if let Some(origin) = text(header::ORIGIN.as_str()) {
        let host = text(header::HOST.as_str())
            .or(uri.authority().map(Authority::as_str).map(str::as_bytes));
        let is_own = host.is_some_and(|host| origin.ends_with(host) && names(origin, host));
        return (!is_own).then(|| shown(origin));
    }
    // A link from elsewhere to one of our pages is no such request.
    let is_link = text("sec-fetch-mode") == Some(b"navigate");
    match text("sec-fetch-site") {
        Some(site @ (b"cross-site" | b"same-site")) if !is_link => Some(shown(site)),
        _ => None,
    }
}

/// True if `origin` is a scheme and `host`.
fn names(origin: &[u8], host: &[u8]) -> bool {
    let scheme = &origin[..origin.len() - host.len()];
    [&b"http://"[..], b"https://"].contains(&scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sent: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.insert(*name, value.parse().expect("a value"));
        }
        foreign(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn a_page_of_another_site_is_told_from_our_own_and_from_programs() {
        let host = ("host", "127.0.0.1:7603");
        for (ours, sent) in [
            (true, vec![host]),
            (true, vec![host, ("origin", "http://127.0.0.1:7603")]),
            (true, vec![host, ("sec-fetch-site", "same-origin")]),
            (true, vec![host, ("sec-fetch-site", "none")]),
            (
                true,
                vec![
                    host,
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                ],
            ),
            (false, vec![host, ("origin", "http://evil.example")]),
            (
                false,
                vec![host, ("origin", "http://evil.example:127.0.0.1:7603")],
            ),
            (false, vec![host, ("origin", "http://x127.0.0.1:7603")]),
            (false, vec![host, ("origin", "null")]),
            (false, vec![("origin", "http://127.0.0.1:7603")]),
            (
                false,
                vec![
                    host,
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "no-cors"),
                ],
            ),
        ] {
            assert_eq!(of(&sent).is_none(), ours, "{sent:?}");
        }
    }
}
