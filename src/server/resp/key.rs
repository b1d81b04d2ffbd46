//! What Redis clients ask of keys: their numbers, their floors, and ids of them.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use super::{
    reader::Command,
    replies::{Refused, Replies},
};
use crate::{
    metrics::Interface,
    node::{
        Asked, NodeContext, Origin, Principal, REQUEST_KEYS_MAX, ROUTE_UNWANTED, refused_at, to_key,
    },
    proto::{
        refusal,
        v1::{CurrentRequest, NextIdsRequest, NextManyRequest, NextManyResponse, RaiseRequest},
    },
    sequence::{InvalidWrittenKey, Key, KeyKind, Verb, Wanted, WrittenKey},
    server::written::{integer, key, key_in, shown},
};

/// The node, and who asks it.
pub type Asking<'a> = (&'a Arc<NodeContext>, &'a Principal);

/// How many of a command's keys are asked for at a time.
const READS_AT_ONCE: usize = 64;

/// Waits for the answer to so many `requests`, and records how long it took.
pub async fn timed<A>(
    context: &NodeContext, requests: usize, answering: impl Future<Output = A>,
) -> A {
    let arrived = Instant::now();
    let answer = answering.await;
    observe(context, arrived, requests);
    answer
}

fn observe(context: &NodeContext, arrived: Instant, requests: usize) {
    let spans = context.metrics.request_seconds.of(Interface::redis);
    spans.observe(arrived.elapsed(), requests as u64);
}

/// A key and its namespace, as a client wrote them.
///
/// # Errors
/// If there is no colon, or what comes before it is no name.
pub fn written_key(argument: &[u8]) -> Result<WrittenKey<'_>, Refused> {
    WrittenKey::parse(argument).map_err(|invalid| {
        Refused::invalid(match invalid {
            InvalidWrittenKey::NoNamespace => format!(
                "key '{}' names no namespace; write it as namespace:key, as in INCR book:42",
                shown(argument)
            ),
            InvalidWrittenKey::BadNamespace(name) => format!(
                "'{}' is no name of a namespace: 1 to 64 characters out of A-Z a-z 0-9 . _ -",
                shown(name.as_bytes())
            ),
        })
    })
}

/// The last numbers handed out for keys, in their order; `None` for one of which none was. Asks until `deadline`.
///
/// # Errors
/// If one is no key, or the node cannot tell.
pub async fn last_numbers(
    (context, by): Asking<'_>, keys: impl Iterator<Item = &[u8]>, deadline: Instant,
) -> Result<Vec<Option<u64>>, Refused> {
    let mut requests = Vec::new();
    for argument in keys {
        let written = written_key(argument)?;
        let wanted = Wanted::On(Verb::Read, written.namespace);
        let key = key_in(context, wanted, (written.key, by), deadline).await?;
        let message = CurrentRequest {
            namespace: written.namespace.to_owned(),
            key: to_key(&key),
            route_version: ROUTE_UNWANTED,
            members_version: None,
        };
        requests.push(Asked::new(message, by.clone())?);
    }
    let answers = stream::iter(requests).map(|request| async move {
        let answered = context.numbers.serve(&request, Origin::Client, deadline).await;
        let answered = answered.map_err(Refused::from)?;
        Ok::<_, Refused>(answered.last)
    });
    answers.buffered(READS_AT_ONCE).try_collect().await
}

/// Answers INCRBY by 0: the last number handed out for a key, and 0 for none.
///
/// # Errors
/// As [`last_numbers`].
pub async fn last_number(
    (context, by): Asking<'_>, command: Command<'_>, deadline: Instant, replies: &mut Replies,
) -> Result<(), Refused> {
    let last = last_numbers((context, by), command.rest().take(1), deadline).await?;
    let namespace = written_key(command.at(1).unwrap_or_default())?.namespace;
    let wanted = Wanted::On(Verb::Read, namespace);
    let keys = context.namespaces.keys_of(wanted, by, deadline).await.map_err(Refused::from)?;
    let last = last.into_iter().flatten().next().unwrap_or(0);
    replies.number_of_key(last, keys.redis_strings);
    Ok(())
}

// SET and SETNX: raise a key's floor. It goes upwards only.

/// What raising a key came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// It is raised, or was new and is to begin with 0, where it stands already.
    Done,
    /// It was not new, and is as it was.
    NotNew,
}

/// Raises the key that SET or SETNX names to the value that it gives, by `deadline`. `only_if_new` is true for SETNX.
///
/// # Errors
/// If the command has other options than NX, the value is none or below the last number, or the node cannot raise the floor.
pub async fn raise(
    (context, by): Asking<'_>, command: Command<'_>, mut only_if_new: bool, deadline: Instant,
) -> Result<Raised, Refused> {
    for option in command.rest().skip(2) {
        if !option.eq_ignore_ascii_case(b"nx") {
            return Err(Refused::invalid(format!(
                "syntax error: SET has no option '{}' here; there are SET key value and SET key value NX, which raise the key",
                shown(option)
            )));
        }
        only_if_new = true;
    }
    let written = written_key(command.at(1).unwrap_or_default())?;
    let value = command.at(2).unwrap_or_default();
    let at_least = integer(value).ok_or_else(|| {
        Refused::invalid(format!(
            "value is not an integer or out of range: it is '{}'; give an integer from 0 on",
            shown(value)
        ))
    })?;
    let wanted = Wanted::On(Verb::Raise, written.namespace);
    let key = key_in(context, wanted, (written.key, by), deadline).await?;
    let message = RaiseRequest {
        namespace: written.namespace.to_owned(),
        key: to_key(&key),
        at_least,
        route_version: ROUTE_UNWANTED,
        members_version: None,
        // A new key stands at 0.
        only_if_new: only_if_new || at_least == 0,
    };
    let asked = Asked::new(message, by.clone())?;
    let raised = context.numbers.serve(&asked, Origin::Client, deadline).await?;
    // A node asks a second leader by itself if the first one's answer is lost, and so may a client. What the first try did
    // is no reason to refuse the second.
    if raised.raised || (!only_if_new && raised.floor == at_least) {
        return Ok(Raised::Done);
    }
    if only_if_new {
        return Ok(Raised::NotNew);
    }
    let refused = refusal!(
        WrongState,
        "value {at_least} is below {}, up to which numbers are handed out; numbers only grow",
        raised.floor
    );
    Err(refused.into())
}

// Ids with a shape for Redis clients: `INCR id:orders` makes one of the namespace `orders`, and `INCR id:room:42` one
// of key 42 of the namespace `room`.

/// What comes before the namespace.
const ID: &str = "id";

/// Whose ids a key stands for.
#[derive(Debug, Clone, Copy)]
pub struct IdsOf<'a> {
    namespace: &'a str,
    /// As it was written.
    key: Option<&'a [u8]>,
}

/// Whose ids a key stands for. A namespace of the name `id` has keys of its own: then there are none.
pub fn ids_of<'a>(context: &NodeContext, key: WrittenKey<'a>) -> Option<IdsOf<'a>> {
    if key.namespace != ID || context.group.view.namespaces().by_name(ID).is_some() {
        return None;
    }
    let of_key =
        WrittenKey::parse(key.key).map(|of| IdsOf { namespace: of.namespace, key: Some(of.key) });
    let of_all = || {
        let namespace = std::str::from_utf8(key.key).ok()?;
        Some(IdsOf { namespace, key: None })
    };
    of_key.ok().or_else(of_all)
}

/// The refusal of INCRBY by more than 1. Libraries send INCRBY by 1 for INCR.
pub fn one_at_a_time() -> Refused {
    Refused::invalid(
        "INCRBY makes one id, with the increment 1, as INCR: ids do not follow one another",
    )
}

/// Makes an id. One that is written as a number is a number, any other a text.
///
/// # Errors
/// Whatever the node refuses it for.
pub async fn next(
    (context, by): Asking<'_>, of: IdsOf<'_>, deadline: Instant, replies: &mut Replies,
) -> Result<(), Refused> {
    let wanted = Wanted::On(Verb::Next, of.namespace);
    let key = match of.key {
        Some(written) => to_key(&key_in(context, wanted, (written, by), deadline).await?),
        None => None,
    };
    let request =
        NextIdsRequest { namespace: of.namespace.to_owned(), key, ..NextIdsRequest::default() };
    let (made, _reserved) = context.ids.next(&request, by, deadline).await?;
    let keys = context.namespaces.keys_of(wanted, by, deadline).await.map_err(Refused::from)?;
    for text in made.texts() {
        match text.parse::<u64>() {
            Ok(number) => replies.number_of_key(number, keys.redis_strings),
            Err(_) => replies.bulk(text),
        }
    }
    Ok(())
}

// Commands that take numbers of one namespace and follow one another: one request to the node.

/// Room for so many counts is kept.
const COUNTS_KEPT: usize = 1_024;

/// Commands that were not answered yet.
pub struct Run {
    context: Arc<NodeContext>,
    namespace: String,
    /// The kind of the namespace's keys.
    kind: KeyKind,
    /// True if numbers are strings.
    redis_strings: bool,
    ids: Vec<u64>,
    names: Vec<Bytes>,
    /// How many numbers each wants.
    counts: Vec<u64>,
}

impl Run {
    /// An empty run of commands for the node.
    pub fn new(context: Arc<NodeContext>) -> Self {
        Run {
            context,
            namespace: String::new(),
            kind: KeyKind::Id,
            redis_strings: false,
            ids: Vec::new(),
            names: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Adds the command, which wants `count` numbers of a key. Answers those before it if it cannot be one request with
    /// them.
    pub async fn add(
        &mut self, (command, by): (Command<'_>, &Principal), written: WrittenKey<'_>, count: u64,
        deadline: Instant, replies: &mut Replies,
    ) {
        if self.namespace != written.namespace || self.counts.len() == REQUEST_KEYS_MAX {
            self.finish(by, deadline, replies).await;
        }
        if self.counts.is_empty() {
            let arrived = Instant::now();
            let wanted = Wanted::On(Verb::Next, written.namespace);
            let keys = self.context.namespaces.keys_of(wanted, by, deadline).await;
            match keys.map_err(Refused::from) {
                Ok(keys) => (self.kind, self.redis_strings) = (keys.kind, keys.redis_strings),
                Err(refused) => return self.refuse(&refused, arrived, replies),
            }
            self.namespace.clear();
            self.namespace.push_str(written.namespace);
        }
        match key(self.kind, written.namespace, written.key) {
            Ok(Key::Id(id)) => self.ids.push(id),
            Ok(Key::Name(name)) => self.names.push(command.share(name)),
            Err(refused) => {
                let arrived = Instant::now();
                self.finish(by, deadline, replies).await;
                return self.refuse(&refused.into(), arrived, replies);
            }
        }
        self.counts.push(count);
    }

    /// Refuses a command for which the node is not asked.
    fn refuse(&self, refused: &Refused, arrived: Instant, replies: &mut Replies) {
        observe(&self.context, arrived, 1);
        replies.refuse(refused, 1, &self.context.metrics);
    }

    /// Takes the numbers and answers the commands, at the latest at `deadline`. All of them are of one caller.
    pub async fn finish(&mut self, by: &Principal, deadline: Instant, replies: &mut Replies) {
        if self.counts.is_empty() {
            return;
        }
        let arrived = Instant::now();
        let counts = std::mem::take(&mut self.counts);
        let taken = self.take(&counts, by, deadline).await;
        observe(&self.context, arrived, counts.len());
        let metrics = &self.context.metrics;
        match taken {
            Ok(ranges) => {
                for (place, (first, count)) in ranges.firsts.iter().zip(&counts).enumerate() {
                    match first {
                        0 => {
                            let why = refused_at(&ranges, place).cloned().map(Refused::from);
                            replies.refuse(&why.unwrap_or_else(nothing_taken), 1, metrics);
                        }
                        first => {
                            let last = first + (count - 1) * ranges.increment;
                            replies.number_of_key(last, self.redis_strings);
                        }
                    }
                }
            }
            Err(refused) => replies.refuse(&refused, counts.len(), metrics),
        }
        self.counts = counts;
        self.counts.clear();
        self.counts.shrink_to(COUNTS_KEPT);
    }

    async fn take(
        &mut self, counts: &[u64], by: &Principal, deadline: Instant,
    ) -> Result<NextManyResponse, Refused> {
        let asked = counts.len();
        let counts = match counts.iter().all(|count| *count == 1) {
            true => Vec::new(),
            false => counts.to_vec(),
        };
        let message = NextManyRequest {
            namespace: self.namespace.clone(),
            ids: std::mem::take(&mut self.ids),
            names: std::mem::take(&mut self.names),
            counts,
            route_version: ROUTE_UNWANTED,
            ..NextManyRequest::default()
        };
        let request = Asked::new(message, by.clone())?;
        let ranges = self.context.numbers.serve(&request, Origin::Client, deadline).await?;
        match ranges.firsts.len() == asked {
            true => Ok(ranges),
            // A reply to each command, or the client takes one for another.
            false => Err(nothing_taken()),
        }
    }
}

fn nothing_taken() -> Refused {
    Refused::from(refusal!(Internal, "the key got no number, and the node does not say why"))
}
