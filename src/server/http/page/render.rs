//! The status page as HTML. A part that changes is marked with `data-live` and an id: such parts are sent again each second.
//! The page with the form for a token looks like it.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    chart::chart,
    view::{NAMESPACES_MAX, View},
};
use crate::{allocator::HotKey, node::Second, proto::v1, sequence::OwnedKey, version};

const SCRIPT: &str = include_str!("live.js");
const STYLE: &str = include_str!("style.css");

/// The whole page. It loads nothing from elsewhere.
pub fn page(view: &View) -> String {
    let title = format!("{}, node {} - Ratchet", view.status.cluster, view.node);
    let renewed = html! { noscript { meta http-equiv="refresh" content="5"; } };
    let body = html! {
        a.skip href="#members" { "To the members" }
        header {
            h1 { "Ratchet: cluster " (view.status.cluster) ", node " (view.node) }
            (parts_of_header(view))
        }
        main { (parts_of_main(view)) }
        footer {
            p { span #connection role="status" { "Shown as of now; it is renewed every five seconds." } }
            @if view.is_closed {
                p { a href="/login" { "Log out" } }
            }
            p { a href="/openapi.json" { "The HTTP interface, as OpenAPI" } ". Ratchet " (version::LONG) "." }
        }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title, &renewed, &body)
}

/// The page with the form for a token. `why` tells why the last token was not taken, or that a session has ended. With
/// `has_session` there is a session that can be ended.
pub fn login(why: Option<&str>, has_session: bool) -> String {
    let body = html! {
        header { h1 { "Ratchet" } }
        main {
            section aria-labelledby="login-title" {
                h2 #login-title { "Log in" }
                @if let Some(why) = why {
                    p #why role="alert" { span.bad { "Not logged in: " } (why) "." }
                }
                p { "The status page needs a token that is granted read:* (ratchet token create viewer --grant read:*)." }
                form method="post" action="/login" {
                    label for="token" { "Token" } " "
                    input #token type="password" name="token" required autofocus autocomplete="current-password";
                    " " button { "Log in" }
                }
                p.quiet {
                    "The token is kept nowhere. The session is for the status page of this node alone. It ends with the token, \
                     and after eight hours at the latest."
                }
            }
            @if has_session {
                section aria-labelledby="logout-title" {
                    h2 #logout-title { "Log out" }
                    form method="post" action="/logout" { button { "End the session" } }
                }
            }
        }
    };
    document("Log in - Ratchet", &html! {}, &body)
}

fn document(title: &str, more_of_head: &Markup, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
                (more_of_head)
            }
            body { (body) }
        }
    };
    document.into_string()
}

/// The parts that change.
pub fn live(view: &View) -> String {
    let parts = html! { (parts_of_header(view)) (parts_of_main(view)) };
    parts.into_string()
}

fn parts_of_header(view: &View) -> Markup {
    html! {
        p.state #state data-live aria-live="polite" { (state(view)) }
        p.state #open data-live { @if !view.open.is_empty() { span.bad { "Warning: " } (view.open) "." } }
    }
}

fn parts_of_main(view: &View) -> Markup {
    let scroll = |id: &str, name: &str, table: Markup| {
        html! { div.scroll id=(id) data-live role="region" aria-label=(name) tabindex="0" { (table) } }
    };
    html! {
        section aria-labelledby="activity-title" {
            h2 #activity-title { "This node, last two minutes" }
            div.charts #activity data-live { (charts(&view.activity)) }
        }
        section #members aria-labelledby="members-title" {
            h2 #members-title { "Members" }
            (scroll("members-table", "Members", members(view)))
        }
        section aria-labelledby="hottest-title" {
            h2 #hottest-title { "Keys that get the most numbers" }
            (scroll("hottest-table", "Keys that get the most numbers", hottest(view)))
        }
        section aria-labelledby="skipped-title" {
            h2 #skipped-title { "Gaps: numbers that will never be handed out" }
            (scroll("skipped-table", "Gaps by cause", skipped(view)))
        }
        section aria-labelledby="namespaces-title" {
            h2 #namespaces-title { "Namespaces" }
            (scroll("namespaces-table", "Namespaces", namespaces(view)))
        }
    }
}

/// A sentence that says who leads.
fn state(view: &View) -> Markup {
    let status = &view.status;
    html! {
        @match status.leader {
            Some(leader) if status.serving => {
                span.good { "Node " (leader) " leads" } " and hands out numbers, term " (status.term) "."
            }
            Some(leader) if status.node != leader => {
                span.bad { "Node " (leader) " does not answer this node." }
                " It led when this node last heard of it, term " (status.term) "."
            }
            Some(leader) => {
                span.bad { "Node " (leader) " leads" } ", and may not answer: no majority has confirmed it lately. Term "
                (status.term) "."
            }
            None => { span.bad { "No leader is known." } " Term " (status.term) "." }
        }
        @if let Some(address) = leaders_page(view) {
            " " a href=(address) { "The leader's page" } " shows its throughput and its keys."
        }
    }
}

/// Where the page of the leader is, if another node leads.
fn leaders_page(view: &View) -> Option<&str> {
    let leader = view.status.leader.filter(|leader| *leader != view.node)?;
    let place = view.status.nodes.iter().position(|node| node.id == leader)?;
    view.pages.get(place)?.as_deref()
}

fn charts(activity: &[Second]) -> Markup {
    let each = |value: &dyn Fn(&Second) -> Option<f64>| -> Vec<Option<f64>> {
        activity.iter().map(value).collect()
    };
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    html! {
        (chart("numbers a second", &each(&|second| Some(second.numbers as f64)), |n| grouped(n as u64)))
        (chart("requests of clients a second", &each(&|second| Some(second.requests as f64)), |n| grouped(n as u64)))
        (chart("half are answered within", &each(&|second| seconds(second.p50)), span))
        (chart("99 of 100 are answered within", &each(&|second| seconds(second.p99)), span))
    }
}

fn members(view: &View) -> Markup {
    html! {
        table {
            thead { tr {
                th { "node" } th { "role" } th { "heard" } th.n { "log" } th.n { "applied" } th.n { "behind" }
                th { "clients at" } th { "release" }
            } }
            tbody { @for (node, page) in view.status.nodes.iter().zip(&view.pages) { tr {
                td { @match page {
                    Some(address) if node.id != view.node => a href=(address) { (node.id) },
                    _ => (node.id),
                } }
                td { (role(node)) }
                td { (heard(node)) }
                td.n { (figure(node.log_index)) }
                td.n { (figure(node.applied_index)) }
                td.n { (figure(node.lag)) }
                td { (node.address) }
                td { (node.build.as_ref().map_or("not known", |build| &build.version)) }
            } } }
        }
    }
}

/// A node's role, in a word.
fn role(node: &v1::NodeStatus) -> String {
    node.role().as_str_name().trim_start_matches("ROLE_").to_lowercase()
}

/// When a node was last heard.
fn heard(node: &v1::NodeStatus) -> Markup {
    html! {
        @match (node.missing, node.silent_ms) {
            (true, Some(millis)) => span.bad { "missing for " (span(millis as f64 / 1e3)) },
            (true, None) => span.bad { "missing" },
            (false, Some(millis)) => { (span(millis as f64 / 1e3)) " ago" }
            (false, None) => "-",
        }
    }
}

fn hottest(view: &View) -> Markup {
    html! {
        @if view.hottest.is_empty() {
            p.quiet { @if view.status.leader == Some(view.node) {
                "None stands out."
            } @else {
                "The leader knows them."
            } }
        } @else {
            table {
                thead { tr { th { "namespace" } th { "key" } th.n { "numbers a second, about" } } }
                tbody { @for hot in &view.hottest { tr {
                    td { (hot.namespace) } td { (key(hot)) } td.n { (grouped(hot.per_second.round() as u64)) }
                } } }
            }
        }
    }
}

fn key(hot: &HotKey) -> String {
    match &hot.key {
        OwnedKey::Id(id) => id.to_string(),
        OwnedKey::Name(name) => match std::str::from_utf8(name) {
            Ok(text) if text.chars().all(is_plain) => text.to_owned(),
            // Other letters in a name could change the text around it.
            Ok(_) | Err(_) => name.escape_ascii().to_string(),
        },
    }
}

/// True for a letter that changes nothing around it.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || letter.is_ascii_graphic() || letter == ' '
}

fn skipped(view: &View) -> Markup {
    html! {
        table {
            thead { tr { th { "cause" } th.n { "numbers" } } }
            tbody { @for (cause, numbers) in &view.skipped { tr {
                td { (cause.replace('_', " ")) } td.n { (grouped(*numbers)) }
            } } }
        }
        p.quiet { "Counted by this node since it was started. For a leader change it is an upper bound." }
    }
}

fn namespaces(view: &View) -> Markup {
    html! {
        table {
            thead { tr {
                th { "name" } th { "keys" } th.n { "step" } th.n { "increment" } th.n { "start" } th.n { "max" }
                th.n { "ids that share a ceiling" } th { "gapless" } th { "description" }
            } }
            tbody { @for namespace in &view.namespaces { tr {
                td { (namespace.name) }
                td { @match namespace.key_kind() { v1::KeyKind::Name => "names", _ => "ids" } }
                td.n { (grouped(namespace.step)) }
                td.n { (grouped(namespace.increment)) }
                td.n { (grouped(namespace.start)) }
                td.n { (grouped(namespace.max)) }
                td.n { (grouped(namespace.section_size)) }
                td { @if namespace.gapless { "yes" } @else { "no" } }
                td { (namespace.description) }
            } } }
        }
        @if view.namespaces_count > NAMESPACES_MAX {
            p.quiet { "The first " (NAMESPACES_MAX) " of " (view.namespaces_count) "." }
        }
        @if view.namespaces_count == 0 {
            p.quiet { "There is none yet. Create one with: ratchet namespace create book" }
        }
    }
}

fn figure(figure: Option<u64>) -> String {
    figure.map_or_else(|| "-".to_owned(), grouped)
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            // A space that does not break.
            text.push('\u{a0}');
        }
        text.push(digit);
    }
    text
}

/// A span of time in the unit that fits.
fn span(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let groups = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(groups, ["0", "999", "1\u{a0}000", "1\u{a0}234\u{a0}567"]);
    }

    #[test]
    fn a_span_has_the_unit_that_fits() {
        let spans = [0.000_096, 0.0123, 1.5, 600.0].map(span);
        assert_eq!(spans, ["96 us", "12.3 ms", "1.5 s", "10 min"]);
    }
}
