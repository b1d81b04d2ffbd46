//! Commands that take numbers of one namespace and follow one another: one request to the node.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{reader::Command, refused::Refused, replies::Replies};
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, Origin, REQUEST_KEYS_MAX, ROUTE_UNWANTED, refused_at},
    proto::{
        refusal,
        v1::{NextManyRequest, NextManyResponse},
    },
    sequence::{Key, KeyKind, WrittenKey},
    server::written::key as key_of,
};

/// Room for so many counts is kept.
const COUNTS_KEPT: usize = 1_024;

/// Commands that were not answered yet.
pub struct Run {
    context: Arc<NodeContext>,
    namespace: String,
    kind: KeyKind,
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
            ids: Vec::new(),
            names: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Adds the command, which wants `count` numbers of a key. Answers those before it if it cannot be one request with
    /// them.
    pub async fn add(
        &mut self, command: Command<'_>, written: WrittenKey<'_>, count: u64, deadline: Instant,
        replies: &mut Replies,
    ) {
        if self.namespace != written.namespace || self.counts.len() == REQUEST_KEYS_MAX {
            self.finish(deadline, replies).await;
        }
        if self.counts.is_empty() {
            let kind = self.context.leader.key_kind(written.namespace, deadline).await;
            match kind.map_err(Refused::from) {
                Ok(kind) => self.kind = kind,
                Err(refused) => return replies.refuse(&refused, 1, &self.context.metrics),
            }
            self.namespace.clear();
            self.namespace.push_str(written.namespace);
        }
        match key_of(self.kind, written.namespace, written.key) {
            Ok(Key::Id(id)) => self.ids.push(id),
            Ok(Key::Name(name)) => self.names.push(command.share(name)),
            Err(refused) => {
                self.finish(deadline, replies).await;
                replies.refuse(&refused.into(), 1, &self.context.metrics);
                return;
            }
        }
        self.counts.push(count);
    }

    /// Takes the numbers and answers the commands, at the latest at `deadline`.
    pub async fn finish(&mut self, deadline: Instant, replies: &mut Replies) {
        if self.counts.is_empty() {
            return;
        }
        let arrived = Instant::now();
        let counts = std::mem::take(&mut self.counts);
        let taken = self.take(&counts, deadline).await;
        let metrics = &self.context.metrics;
        metrics.request_seconds.of(Door::redis).observe(arrived.elapsed(), counts.len() as u64);
        match taken {
            Ok(ranges) => {
                for (place, (first, count)) in ranges.firsts.iter().zip(&counts).enumerate() {
                    match first {
                        0 => {
                            let why = refused_at(&ranges, place).cloned().map(Refused::from);
                            replies.refuse(&why.unwrap_or_else(nothing_taken), 1, metrics);
                        }
                        first => replies.number(first + (count - 1) * ranges.increment),
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
        &mut self, counts: &[u64], deadline: Instant,
    ) -> Result<NextManyResponse, Refused> {
        let asked = counts.len();
        let counts = match counts.iter().all(|count| *count == 1) {
            true => Vec::new(),
            false => counts.to_vec(),
        };
        let request = Asked::new(NextManyRequest {
            namespace: self.namespace.clone(),
            ids: std::mem::take(&mut self.ids),
            names: std::mem::take(&mut self.names),
            counts,
            route_version: ROUTE_UNWANTED,
            ..NextManyRequest::default()
        })?;
        let ranges = self.context.leader.serve(&request, Origin::Client, deadline).await?;
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
