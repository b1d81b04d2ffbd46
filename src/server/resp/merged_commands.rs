//! Commands that take numbers of one namespace and follow one another are merged into one request to the node. So a pipeline
//! costs one look at the fence. Another command, or another namespace, is not merged with those before it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{key::observe, reader::RedisCommand, refused::Refused, replies::Replies};
use crate::{
    node::{
        Asker, CheckedRequest, NodeContext, Origin, REQUEST_KEYS_MAX, ROUTE_UNWANTED, refused_at,
    },
    proto::{
        refusal,
        v1::{NextManyRequest, NextManyResponse},
    },
    sequence::{Key, KeyKind, Verb, Wanted, WrittenKey},
    server::written::key,
};

/// For how many counts room is kept.
const COUNTS_KEPT: usize = 1_024;

/// Commands that were merged, and were not answered yet.
pub struct MergedCommands {
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

impl MergedCommands {
    /// No commands yet, for the node.
    pub fn new(context: Arc<NodeContext>) -> Self {
        MergedCommands {
            context,
            namespace: String::new(),
            kind: KeyKind::Id,
            redis_strings: false,
            ids: Vec::new(),
            names: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Adds the command, which wants `count` numbers of a key, if it can be one request with those before it. Returns false if
    /// it cannot, or there are none.
    pub fn goes_on(
        &mut self, command: RedisCommand<'_>, written: WrittenKey<'_>, count: u64,
    ) -> bool {
        !self.counts.is_empty()
            && self.counts.len() < REQUEST_KEYS_MAX
            && self.namespace == written.namespace
            && self.push(command, written, count).is_ok()
    }

    /// Adds the command to those of its namespace.
    fn push(
        &mut self, command: RedisCommand<'_>, written: WrittenKey<'_>, count: u64,
    ) -> Result<(), Refused> {
        match key(self.kind, written.namespace, written.key)? {
            Key::Id(id) => self.ids.push(id),
            Key::Name(name) => self.names.push(command.share(name)),
        }
        self.counts.push(count);
        Ok(())
    }

    /// Adds the command, which wants `count` numbers of a key. Answers those before it if it cannot be one request with
    /// them.
    pub async fn add(
        &mut self, (command, by): (RedisCommand<'_>, &Asker), written: WrittenKey<'_>, count: u64,
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
        if let Err(refused) = self.push(command, written, count) {
            let arrived = Instant::now();
            self.finish(by, deadline, replies).await;
            self.refuse(&refused, arrived, replies);
        }
    }

    /// Refuses a command for which the node is not asked.
    fn refuse(&self, refused: &Refused, arrived: Instant, replies: &mut Replies) {
        observe(&self.context, arrived, 1);
        replies.refuse(refused, 1, &self.context.metrics);
    }

    /// Takes the numbers and answers the commands, at the latest at `deadline`. All of them are of one caller.
    pub async fn finish(&mut self, by: &Asker, deadline: Instant, replies: &mut Replies) {
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
        &mut self, counts: &[u64], by: &Asker, deadline: Instant,
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
        let traces = &self.context.traces;
        let request = CheckedRequest::of_caller(message, by.clone(), traces, None)?;
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
