//! `ratchet keys` and `ratchet explain`: which keys there are, and what the cluster knows of one. A list comes page by page,
//! and tells how to ask for the next page.

use clap::Args;
use ratchet_client::api::{self as v1, key::Kind};

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    numbers::{self, KeyArgs},
    output,
};

/// `ratchet keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The namespace, for example "book"
    namespace: String,
    /// Only names that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only keys after this one, which need not exist
    #[arg(long)]
    after: Option<String>,
    /// The key given as --after is a name even if it looks like an id
    #[arg(long, requires = "after")]
    name: bool,
    /// Where a page ended, as it says
    #[arg(long, default_value = "")]
    page_token: String,
    /// How many keys to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

impl Ask for KeysArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let after = self.after.as_ref().map(|after| numbers::key_of(after, self.name));
        let request = v1::ListKeysRequest {
            namespace: self.namespace,
            prefix: self.prefix.into_bytes().into(),
            after: after.map(Into::into),
            page_size: self.limit,
            page_token: self.page_token,
        };
        let page = connection.client()?.list_keys(request).await?;
        output::result(connection.json, &page, &self::page(&page))
    }
}

/// `ratchet explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    key: KeyArgs,
}

impl Ask for ExplainArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let explanation = (client.explain(self.key.namespace.clone(), self.key.key())).await?;
        let text = self::explanation(&explanation);
        output::result(connection.json, &explanation, &text)
    }
}

fn key_text(key: Option<&v1::Key>) -> String {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => id.to_string(),
        // A name that is no text is escaped.
        Some(Kind::Name(name)) => match std::str::from_utf8(name) {
            Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
            Ok(_) | Err(_) => name.escape_ascii().to_string(),
        },
        None => String::new(),
    }
}

/// A page of a namespace's keys as a table, and how to go on.
pub fn page(page: &v1::ListKeysResponse) -> String {
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
    if !page.next_page_token.is_empty() {
        text.push_str("\nmore keys follow: --page-token=");
        text.push_str(&page.next_page_token);
    }
    text
}

/// A text for people about the facts that are known of a key.
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
        .map_or("at an unknown time".to_owned(), |ms| format!("{} UTC", output::date_and_time(ms)));
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
                    "at most {skipped}, by leaders that ended without returning their numbers"
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
