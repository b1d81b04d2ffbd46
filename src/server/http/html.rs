//! What all pages share: their head, their look, and what a browser may do with them.

use axum::http::{HeaderName, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page/style.css");

/// The content security policy of pages without a script.
pub const POLICY_WITHOUT_SCRIPT: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);

/// A page. It loads nothing from elsewhere.
pub fn document(title: &str, more_in_head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
                (more_in_head)
            }
            body { (body) }
        }
    };
    page.into_string()
}
