//! Keys and what is known of them, as text and as JSON.

use ratchet_client::{
    Key,
    api::{self as v1, key::Kind},
};
use serde_json::{Value, json};

use crate::cli::{date, numbers::key_of as key_in, output};

/// A key as JSON: a number or a text.
fn key_json(key: Option<&v1::Key>) -> Value {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => json!(id),
        Some(Kind::Name(name)) => json!(name_text(name)),
        None => Value::Null,
    }
}

/// A name as text. What is no text is escaped.
fn name_text(name: &[u8]) -> String {
    as_text(name).map_or_else(|| name.escape_ascii().to_string(), str::to_owned)
}

/// The text that a name is, if it can be shown as it is.
fn as_text(name: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(name).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

fn key_text(key: Option<&v1::Key>) -> String {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => id.to_string(),
        Some(Kind::Name(name)) => name_text(name),
        None => String::new(),
    }
}

/// A key of a page.
pub fn listed_json(listed: &v1::ListedKey) -> Value {
    json!({
        "key": key_json(listed.key.as_ref()),
        "last_id": listed.last_id,
        "last": listed.last,
        "ceiling": listed.ceiling,
        "epoch": listed.epoch,
        "step": listed.step,
    })
}

/// A page of a namespace's keys as a table, and how to go on.
pub fn page(namespace: &str, page: &v1::ListKeysResponse) -> String {
    let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
    let mut rows = vec![row(["KEY", "LAST", "CEILING", "EPOCH", "STEP"])];
    rows.extend(page.keys.iter().map(|listed| {
        let key = key_text(listed.key.as_ref());
        vec![
            listed.last_id.map_or(key.clone(), |last| format!("{key}-{last}")),
            listed.last.map_or("-".to_owned(), |last| last.to_string()),
            listed.ceiling.to_string(),
            listed.epoch.to_string(),
            listed.step.to_string(),
        ]
    }));
    let mut text = output::table(&rows);
    let last = page.keys.last().filter(|_| page.more);
    if let Some(last) = last.and_then(|last| last.key.as_ref()?.kind.as_ref()) {
        text.push_str("\nmore keys follow: ");
        text.push_str(&going_on(namespace, last));
    }
    text
}

/// How to see the keys after `last`: what to add to the command, or what to ask for over HTTP.
fn going_on(namespace: &str, last: &Kind) -> String {
    let name = match last {
        Kind::Id(id) => return format!("--after={id}"),
        Kind::Name(name) => name,
    };
    let Some(text) = as_text(name) else {
        let page: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        return format!(
            "the last name cannot be typed; go on over HTTP, with the same prefix and limit: GET \
             /v1/namespaces/{namespace}/keys?page={page}"
        );
    };
    let is_name = match key_in(text, false) {
        Key::Id(_) => " --name",
        Key::Name(_) => "",
    };
    format!("--after={}{is_name}", quoted(text))
}

/// A text as one word for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+".contains(c);
    match text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// What is known of a key.
pub fn explanation_json(known: &v1::Explanation) -> Value {
    let stored = known.stored.as_ref().map(|stored| {
        json!({
            "ceiling": stored.ceiling,
            "floor": stored.floor,
            "epoch": stored.epoch,
            "step": stored.step,
            "unused_max": stored.unused_max,
            "skipped": stored.skipped,
            "written_ms": stored.written_ms,
        })
    });
    let held = known.held.as_ref().map(|held| {
        json!({
            "ceiling": held.ceiling,
            "last": held.last,
            "left": held.left,
            "granted_ms_ago": held.granted_ms_ago,
        })
    });
    let accounts = known.accounts.as_ref().map(|accounts| {
        json!({
            "handed_out": accounts.handed_out,
            "skipped": accounts.skipped,
            "left": accounts.left,
        })
    });
    json!({
        "namespace": known.namespace,
        "key": key_json(known.key.as_ref()),
        "first_id": known.first_id,
        "last_id": known.last_id,
        "increment": known.increment,
        "term": known.term,
        "epoch": known.epoch,
        "stored": stored,
        "ceiling": known.ceiling,
        "floor": known.floor,
        "live": known.live,
        "held": held,
        "accounts": accounts,
    })
}

/// What is known of a key, for people.
pub fn explanation(known: &v1::Explanation) -> String {
    let mut rows =
        vec![("key", key_of(known)), ("section", section(known)), ("ceiling", ceiling(known))];
    if let Some(stored) = &known.stored {
        rows.extend(stored_rows(known, stored));
    }
    rows.push(("leader", leader(known)));
    if let Some(held) = &known.held {
        rows.extend(held_rows(known.floor, held));
    }
    if let Some(accounts) = &known.accounts {
        rows.extend(account_rows(accounts));
    }
    let rows: Vec<_> = (rows.into_iter()).map(|(name, text)| vec![name.to_owned(), text]).collect();
    output::table(&rows)
}

fn key_of(known: &v1::Explanation) -> String {
    format!("{}:{}", known.namespace, key_text(known.key.as_ref()))
}

fn section(known: &v1::Explanation) -> String {
    match (known.first_id, known.last_id) {
        (Some(first), Some(last)) if first < last => {
            format!("the ids {first} to {last} share a ceiling")
        }
        _ => "the key has a ceiling of its own".to_owned(),
    }
}

fn ceiling(known: &v1::Explanation) -> String {
    match known.stored {
        Some(_) => format!("{}: no greater number was handed out", known.ceiling),
        None => "none: no number was handed out yet".to_owned(),
    }
}

fn stored_rows(known: &v1::Explanation, stored: &v1::StoredSection) -> Vec<(&'static str, String)> {
    let next = match known.live {
        true => format!(
            "a new leader after a crash goes on above the ceiling, with {} numbers and without a log entry",
            stored.step
        ),
        false => {
            "a new leader after a crash writes a log entry before it hands out numbers of this key"
                .to_owned()
        }
    };
    let written = stored
        .written_ms
        .map_or("at an unknown time".to_owned(), |ms| format!("{} UTC", date::date_and_time(ms)));
    vec![
        ("written", written),
        (
            "stored",
            format!(
                "ceiling {}, floor {}, step {}, written in epoch {} (now {})",
                stored.ceiling, stored.floor, stored.step, stored.epoch, known.epoch
            ),
        ),
        ("unused", format!("at most {} when that was written", stored.unused_max)),
        ("next change", next),
    ]
}

fn account_rows(accounts: &v1::Accounts) -> [(&'static str, String); 3] {
    [
        ("handed out", format!("at least {} numbers", accounts.handed_out)),
        (
            "skipped",
            match accounts.skipped {
                0 => "none by leader changes".to_owned(),
                skipped => format!(
                    "at most {skipped}, by leaders that ended without giving back what they had"
                ),
            },
        ),
        ("at risk", format!("a crash now skips {} numbers at most", accounts.left)),
    ]
}

fn leader(known: &v1::Explanation) -> String {
    let has = match known.held {
        Some(_) => "has numbers of it in memory",
        None => "has nothing of it in memory",
    };
    format!(
        "of term {}, {has}; numbers up to {} may have been handed out by earlier leaders",
        known.term, known.floor
    )
}

fn held_rows(floor: u64, held: &v1::HeldSection) -> Vec<(&'static str, String)> {
    let granted = held.granted_ms_ago.map_or_else(
        || "when the last chunk was granted is not known".to_owned(),
        |ms| format!("the last chunk was granted {ms} ms ago"),
    );
    vec![
        ("chunk", format!("above {floor} up to {}; {granted}", held.ceiling)),
        (
            "last number",
            match held.last {
                0 => "none yet".to_owned(),
                last => last.to_string(),
            },
        ),
        ("left", format!("{} up to the ceiling", held.left)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_after_a_page_can_be_pasted_into_a_shell() {
        let name = |name: &[u8]| going_on("room", &Kind::Name(name.to_vec().into()));
        assert_eq!(going_on("room", &Kind::Id(42)), "--after=42");
        assert_eq!(name(b"42"), "--after=42 --name");
        assert_eq!(name(b"+42"), "--after=+42 --name");
        assert_eq!(name(b"lobby-1"), "--after=lobby-1");
        assert_eq!(name(b"a b"), "--after='a b'");
        assert_eq!(name(b"it's $x"), r"--after='it'\''s $x'");
        assert_eq!(name(r"a\b".as_bytes()), r"--after='a\b'");
        for (bytes, page) in [(&b"l\xff"[..], "6cff"), (b"a\nb", "610a62")] {
            let says = name(bytes);
            let ends = format!("GET /v1/namespaces/room/keys?page={page}");
            assert!(says.ends_with(&ends), "{says}");
        }
    }
}
