//! Keys: listed page by page, and what is known of one.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    body,
    number::{Form, Number, SHOWN, Shown},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfKey, OfNamespace, Timeout, in_path, in_query},
    serve::key,
};
use crate::{
    node::{NodeContext, to_key},
    proto::{
        Refusal,
        peer::administer_request::Request as Administer,
        refusal,
        v1::{self, key::Kind},
    },
    sequence::OwnedKey,
    server::administer::administer,
};

/// What may follow the question mark.
const ALLOWED: &str =
    "prefix=TEXT, after=KEY, page=NEXT, limit=N, and numbers=string or numbers=number";

/// What follows the question mark.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Only names that begin with this.
    #[serde(default)]
    prefix: String,
    /// Only keys after this one, which need not exist.
    after: Option<String>,
    /// Go on where a page ended: its `next`. It takes the place of `after`.
    page: Option<String>,
    /// How many keys at most; 100 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The form of numbers in the answer.
    #[serde(default)]
    numbers: Form,
}

/// Some keys of a namespace, in the order of ids, or of the bytes of names.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page {
    /// The keys that have a ceiling: those that ever got a number.
    keys: Vec<Listed>,
    /// Give this as `page` to go on; null at the end.
    next: Option<String>,
    /// How many unclean leader changes have given out chunks so far.
    epoch: Number,
}

/// A key, or the ids of a section that share a ceiling.
#[derive(Debug, Serialize, ToSchema)]
pub struct Listed {
    /// The key. Of ids that share a ceiling it is the first one. A name that is no text is escaped.
    key: String,
    /// The last of the ids that share the ceiling; null if the key has a ceiling of its own.
    last_id: Option<String>,
    /// The last number handed out, if the leader has it in memory; 0 before the first one.
    last: Option<Number>,
    /// No number above it was handed out.
    ceiling: Number,
    /// The epoch in which the section was last written.
    epoch: Number,
    /// How many numbers the next unclean leader change gives the leader of the section.
    step: Number,
}

/// What the cluster knows of a key.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explanation {
    /// The first of the ids that share the key's ceiling; null for a name.
    first_id: Option<String>,
    /// The last of the ids that share the key's ceiling; null for a name.
    last_id: Option<String>,
    /// The leader's Raft term.
    term: u64,
    /// How many unclean leader changes have given out chunks so far.
    epoch: Number,
    /// What is stored; null if the section never got a number.
    stored: Option<Stored>,
    /// No number above it was handed out.
    ceiling: Number,
    /// Numbers up to here may have been handed out by earlier leaders, or were by this one before it let the key go.
    floor: Number,
    /// Whether the next unclean leader change gives the new leader a step of the section without asking the log.
    live: bool,
    /// What the leader has in memory; null if it has nothing of the section.
    held: Option<Held>,
    /// What became of the numbers up to the ceiling; null if keys share the section, or it never got a number.
    accounts: Option<Accounts>,
}

/// What became of a key's numbers: together they are all numbers up to the ceiling.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accounts {
    /// At least so many were handed out.
    handed_out: Number,
    /// At most so many were skipped by leaders that ended without giving back what they had.
    skipped: Number,
    /// So many are left for the leader to hand out.
    left: Number,
}

/// A section as it was last written by an entry of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct Stored {
    /// No number above it was handed out when it was written.
    ceiling: Number,
    /// Numbers up to here may have been handed out by earlier leaders when it was written, or were released by this one.
    floor: Number,
    /// The epoch in which it was written.
    epoch: Number,
    /// How many numbers an unclean leader change gives the new leader.
    step: Number,
    /// How many numbers were unused at most when it was written.
    unused_max: Number,
    /// How many numbers at or below the floor were skipped at most.
    skipped: Number,
    /// When it was written, by the leader's clock: milliseconds since 1970; null if that is not known.
    written_ms: Option<u64>,
}

/// What the leader has of a section in memory.
#[derive(Debug, Serialize, ToSchema)]
pub struct Held {
    /// Its numbers end here.
    ceiling: Number,
    /// The last number handed out for the key; 0 before the first one.
    last: Number,
    /// How many numbers the key has left up to the ceiling.
    left: Number,
    /// How long ago the last chunk was granted, in milliseconds; null if that is not known: another leader got it, or a floor
    /// was raised since.
    granted_ms_ago: Option<u64>,
}

/// Lists the keys of a namespace that got numbers, page by page.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/keys", tag = "numbers",
    params(OfNamespace, Options, Timeout),
    responses((status = 200, body = Page), Problems))]
pub async fn list(
    State(context): Node, due: Due, path: InPath<String>, options: InQuery<Options>,
) -> Result<Response, Problem> {
    let (namespace, options) = (in_path(path)?, in_query(options, ALLOWED)?);
    let after = after(&context, &namespace, &options, due).await?;
    let limit = limit(options.limit)?;
    let request = Administer::ListKeys(v1::ListKeysRequest {
        namespace,
        prefix: options.prefix.into_bytes().into(),
        after: after.as_ref().and_then(to_key),
        limit,
    });
    let (page, reserved) = administer(&context, request, due.deadline).await?;
    body::reserved_json(&shown_page(&page, options.numbers), reserved)
}

/// Tells what the cluster knows of a key.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/keys/{key}/explanation", tag = "numbers",
    params(OfKey, Shown, Timeout),
    responses((status = 200, body = Explanation), Problems))]
pub async fn explain(
    State(context): Node, due: Due, path: InPath<(String, String)>, shown: InQuery<Shown>,
) -> Result<Json<Explanation>, Problem> {
    let (namespace, written) = in_path(path)?;
    let form = in_query(shown, SHOWN)?.numbers;
    let key = key(&context, &namespace, written.as_bytes(), due).await?;
    let request = Administer::Explain(v1::ExplainRequest { namespace, key: to_key(&key) });
    let (known, _) = administer(&context, request, due.deadline).await?;
    Ok(Json(shown_explanation(&known, form)))
}

/// Where the page begins.
async fn after(
    context: &Arc<NodeContext>, namespace: &str, options: &Options, due: Due,
) -> Result<Option<OwnedKey>, Refusal> {
    let written = match (&options.after, &options.page) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(refusal!(
                InvalidRequest,
                "after and page are both given; page alone goes on where a page ended"
            ));
        }
        (Some(after), None) => after.clone().into_bytes(),
        (None, Some(page)) => from_hex(page).ok_or_else(|| {
            refusal!(InvalidRequest, "page is not what an earlier page has as next")
        })?,
    };
    key(context, namespace, &written, due).await.map(Some)
}

/// How many keys a page has. 0 is not left out: it is refused here.
fn limit(given: Option<u32>) -> Result<u32, Refusal> {
    match given {
        None => Ok(0),
        Some(0) => Err(refusal!(InvalidRequest, "limit is 0; a page has 1 to 1000 keys")),
        Some(limit) => Ok(limit),
    }
}

fn name_of(listed: &v1::ListedKey) -> Option<&[u8]> {
    match listed.key.as_ref()?.kind.as_ref()? {
        Kind::Name(name) => Some(name),
        Kind::Id(_) => None,
    }
}

fn shown_page(page: &v1::ListKeysResponse, form: Form) -> Page {
    let last = page.keys.last().filter(|_| page.more);
    Page {
        next: last.map(|last| match name_of(last) {
            Some(name) => hex(name),
            None => hex(written_key(last.key.as_ref()).as_bytes()),
        }),
        keys: (page.keys.iter())
            .map(|listed| Listed {
                key: written_key(listed.key.as_ref()),
                last_id: listed.last_id.map(|id| id.to_string()),
                last: listed.last.map(|last| Number(last, form)),
                ceiling: Number(listed.ceiling, form),
                epoch: Number(listed.epoch, form),
                step: Number(listed.step, form),
            })
            .collect(),
        epoch: Number(page.epoch, form),
    }
}

/// A key as text. A name that is no text is escaped.
fn written_key(key: Option<&v1::Key>) -> String {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => id.to_string(),
        Some(Kind::Name(name)) => match std::str::from_utf8(name) {
            Ok(text) => text.to_owned(),
            Err(_) => name.escape_ascii().to_string(),
        },
        None => String::new(),
    }
}

fn shown_explanation(known: &v1::Explanation, form: Form) -> Explanation {
    let number = |number| Number(number, form);
    Explanation {
        first_id: known.first_id.map(|id| id.to_string()),
        last_id: known.last_id.map(|id| id.to_string()),
        term: known.term,
        epoch: number(known.epoch),
        stored: known.stored.as_ref().map(|stored| Stored {
            ceiling: number(stored.ceiling),
            floor: number(stored.floor),
            epoch: number(stored.epoch),
            step: number(stored.step),
            unused_max: number(stored.unused_max),
            skipped: number(stored.skipped),
            written_ms: stored.written_ms,
        }),
        ceiling: number(known.ceiling),
        floor: number(known.floor),
        live: known.live,
        held: known.held.as_ref().map(|held| Held {
            ceiling: number(held.ceiling),
            last: number(held.last),
            left: number(held.left),
            granted_ms_ago: held.granted_ms_ago,
        }),
        accounts: known.accounts.as_ref().map(|accounts| Accounts {
            handed_out: number(accounts.handed_out),
            skipped: number(accounts.skipped),
            left: number(accounts.left),
        }),
    }
}

/// Bytes as two hexadecimal digits each.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that [`hex`] wrote.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair).ok()?;
        let are_digits = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        u8::from_str_radix(digits, 16).ok().filter(|_| are_digits)
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_after_a_page_holds_any_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&hex(&all)), Some(all));
        for none in ["0", "0g", "+1", "00 ", "\u{e9}"] {
            assert_eq!(from_hex(none), None, "{none}");
        }
    }
}
