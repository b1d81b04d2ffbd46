//! The part of the interface for Redis clients that the fuzz targets use.

use std::sync::Arc;

use tokio::time::Instant;

pub use super::{
    key::written_key,
    reader::{ARGUMENTS_MAX, COMMAND_BYTES_MAX, Malformed},
    refused::Refused,
};
use super::{
    reader::{CommandReader, Commands, RedisCommand},
    replies::Replies,
    session::RedisSession,
};
use crate::{
    node::{NodeContext, time_to_answer},
    server::connections::owner::Owner,
};

/// The name of a command and its arguments.
pub type Words = Vec<Vec<u8>>;

/// Reads commands, and copies them.
#[derive(Default)]
pub struct Reading(CommandReader);

impl Reading {
    /// The commands that have arrived in full, and whether the bytes after them can be read.
    pub fn read(&mut self, arrived: &[u8]) -> (Vec<Words>, Result<(), Malformed>) {
        let mut commands = Commands::default();
        self.0.buffer().extend_from_slice(arrived);
        let read = self.0.read(&mut commands);
        let copy = |command: RedisCommand<'_>| {
            let words = (0..=command.len()).filter_map(|place| command.at(place));
            words.map(<[u8]>::to_vec).collect()
        };
        (commands.iter().map(copy).collect(), read)
    }

    /// Frees the memory that no unfinished command needs.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// How many bytes of an unfinished command are held.
    pub fn unfinished(&self) -> usize {
        self.0.unfinished()
    }
}

/// A connection without a socket. It answers the bytes that arrive, as `connection.rs` does.
pub struct Conversation {
    context: Arc<NodeContext>,
    reader: CommandReader,
    session: RedisSession,
    replies: Replies,
}

impl Conversation {
    /// The first connection of a node.
    pub fn new(context: Arc<NodeContext>) -> Self {
        Conversation {
            session: RedisSession::new(context.clone(), 1, Owner::nobody()),
            context,
            reader: CommandReader::default(),
            replies: Replies::default(),
        }
    }

    /// Answers the bytes that have arrived. False if the connection is closed after that.
    pub async fn answer(&mut self, arrived: &[u8]) -> bool {
        let deadline = Instant::now() + time_to_answer(None, &self.context.config);
        let mut commands = Commands::default();
        self.reader.buffer().extend_from_slice(arrived);
        let read = self.reader.read(&mut commands);
        for command in commands.iter() {
            let answering = self.session.answer(command, deadline, &mut self.replies);
            if let Some(put_off) = answering.await {
                for command in put_off.commands.iter() {
                    let replies = &mut self.replies;
                    self.session.answer_put_off(command, deadline, replies).await;
                }
                self.session.end_exec(deadline, &mut self.replies).await;
            }
            if self.session.ended() {
                break;
            }
        }
        self.session.finish(deadline, &mut self.replies).await;
        if self.session.ended() {
            return false;
        }
        if let Err(malformed) = &read {
            let refused = Refused::invalid(format_args!("Protocol error: {malformed}"));
            self.replies.refuse(&refused, 1, &self.context.metrics);
        }
        read.is_ok()
    }

    /// All replies so far.
    pub fn replies(&self) -> &[u8] {
        self.replies.bytes()
    }
}
