//! One connection: reads commands, has them answered, and writes the replies.
//!
//! Invariant: a connection that nobody uses holds no buffer.

use std::{io, pin::pin, sync::Arc, time::Duration};

use bytes::BufMut;
use futures::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::unconstrained,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    reader::{CommandReader, Commands},
    refused::Refused,
    replies::Replies,
    session::RedisSession,
};
use crate::{
    metrics::Interface,
    node::{NodeContext, Reservation, time_to_answer},
    proto::refusal,
    server::connections::{
        aside::aside, opening::GREETING_TIME_MAX, owner::Owner, places::ConnectionPlace,
        stream::Stream, until_known::UntilKnown,
    },
};

/// How many bytes are read at a time. An unfinished command of more is counted in the memory of requests.
const READ_BYTES: usize = 16 << 10;
/// With more bytes of replies, they are sent before the next command is answered.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// How often a connection is looked at, whether it is in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When the node stops: how long the client may take to notice that the connection ends, and to read its replies.
const CLOSING_TIME: Duration = Duration::from_millis(250);

/// A connection of a Redis client.
struct RedisConnection<'a> {
    context: &'a NodeContext,
    stream: UntilKnown<Stream>,
    reader: CommandReader,
    commands: Commands,
    session: RedisSession,
    replies: Replies,
    /// For the bytes of an unfinished command.
    reservation: Option<Reservation>,
    /// Since when the connection waits for more of a command, or of a transaction.
    unfinished_since: Option<Instant>,
    /// How long a client may neither send nor read.
    idle: Duration,
    /// Cancelled when the node stops.
    stop: CancellationToken,
}

/// Serves connection number `id`, in `place`, until the client closes it, is idle for `idle`, or the node stops.
///
/// # Errors
/// A text if the connection breaks, or the bytes that arrive are no command.
pub async fn serve(
    stream: Stream, context: Arc<NodeContext>, place: Arc<ConnectionPlace>, id: u64,
    idle: Duration, stop: CancellationToken,
) -> Result<(), String> {
    let owner = Owner::of(&stream, Interface::redis);
    let mut connection = RedisConnection {
        context: &context,
        stream: UntilKnown::new(stream, place.guest()),
        reader: CommandReader::default(),
        commands: Commands::default(),
        session: RedisSession::new(context.clone(), id, owner),
        replies: Replies::default(),
        reservation: None,
        unfinished_since: None,
        idle,
        stop,
    };
    connection.serve(&place).await.map_err(|error| error.to_string())
}

impl RedisConnection<'_> {
    async fn serve(&mut self, place: &ConnectionPlace) -> io::Result<()> {
        let mut stopped = pin!(aside(self.stop.clone().cancelled_owned()));
        let greeted =
            place.greeted(self.stream.inner_mut().has_more(), GREETING_TIME_MAX, self.idle);
        let greeted = tokio::select! {
            biased;
            () = &mut stopped => None,
            greeted = greeted => Some(greeted),
        };
        match greeted {
            None => return self.close().await,
            Some(greeted) => greeted.map_err(io::Error::other)??,
        };
        let patience = Duration::from_millis(self.context.config.request_timeout_max_ms);
        let look_every = LOOK_EVERY.min(self.idle).min(patience);
        let mut look = pin!(sleep(look_every));
        let mut used = Instant::now();
        let mut is_used = false;
        while !self.session.ended() {
            tokio::select! {
                biased;
                () = &mut stopped => return self.close().await,
                read = self.read() => {
                    if read? == 0 {
                        return self.end().await;
                    }
                    is_used = true;
                    self.answer().await?;
                }
                () = &mut look => {
                    let now = Instant::now();
                    if self.unfinished_since.is_some_and(|since| now - since >= patience) {
                        return self.give_up(patience).await;
                    }
                    if is_used {
                        used = now;
                    } else if now - used >= self.idle {
                        return self.end().await;
                    } else {
                        self.reader.release();
                        self.commands = Commands::default();
                        self.replies.clear(0);
                    }
                    is_used = false;
                    look.as_mut().reset(now + look_every);
                }
            }
        }
        self.end().await
    }

    /// Reads the bytes that have arrived: at most [`READ_BYTES`]. Returns how many; 0 at the end.
    async fn read(&mut self) -> io::Result<usize> {
        let buffer = self.reader.buffer();
        if buffer.capacity() == 0 {
            self.stream.inner_mut().has_more().await?;
        }
        buffer.reserve(READ_BYTES);
        self.stream.read_buf(&mut buffer.limit(READ_BYTES)).await
    }

    /// Answers the commands that have arrived in full.
    async fn answer(&mut self) -> io::Result<()> {
        // One deadline for all: a client that waits for the first reply waits for no other meanwhile.
        let deadline = Instant::now() + time_to_answer(None, &self.context.config);
        let mut commands = std::mem::take(&mut self.commands);
        let read = self.reader.read(&mut commands);
        for command in commands.iter() {
            // Pinned where it is made: otherwise all of it is copied for each command.
            let answered = pin!(self.session.answer(command, deadline, &mut self.replies)).await;
            if let Some(put_off) = answered {
                for command in put_off.commands.iter() {
                    let replies = &mut self.replies;
                    pin!(self.session.answer_put_off(command, deadline, replies)).await;
                    self.after_command().await?;
                }
                self.session.end_exec(deadline, &mut self.replies).await;
            }
            self.after_command().await?;
            if self.session.ended() {
                break;
            }
        }
        self.session.finish(deadline, &mut self.replies).await;
        if commands.iter().next().is_some() {
            self.unfinished_since = None;
        }
        commands.clear();
        self.commands = commands;
        self.reservation = None;
        let mut over = Ok(());
        if self.session.ended() {
            // Commands after QUIT are not answered.
        } else if let Err(error) = read {
            let refused = Refused::invalid(format_args!("Protocol error: {error}"));
            self.replies.refuse(&refused, 1, &self.context.metrics);
            over = Err(io::Error::new(io::ErrorKind::InvalidData, error));
        } else if self.reader.held() >= READ_BYTES {
            match self.context.request_memory.reserve(self.reader.held()) {
                Ok(reservation) => self.reservation = Some(reservation),
                Err(refusal) => {
                    let refused = Refused::from(refusal);
                    self.replies.refuse(&refused, 1, &self.context.metrics);
                    over = Err(io::Error::new(io::ErrorKind::OutOfMemory, refused.why));
                }
            }
        }
        self.send().await?;
        match self.reader.unfinished() > 0 || self.session.is_in_transaction() {
            false => self.unfinished_since = None,
            true => {
                self.unfinished_since.get_or_insert_with(Instant::now);
            }
        }
        over
    }

    /// Lets other tasks have their turn, and sends the replies if they are many.
    async fn after_command(&mut self) -> io::Result<()> {
        tokio::task::consume_budget().await;
        match self.replies.bytes().len() > REPLY_BYTES_MAX {
            true => self.send().await,
            false => Ok(()),
        }
    }

    /// A command or a transaction has begun, and nothing more of it came within `patience`: says so.
    async fn give_up(&mut self, patience: Duration) -> io::Result<()> {
        let what = match self.reader.unfinished() {
            0 => "EXEC",
            _ => "the command",
        };
        let why = format!(
            "{what} did not arrive within {} ms (request_timeout_max_ms); send it at once",
            patience.as_millis()
        );
        let refused = Refused::from(refusal!(DeadlineExceeded, "{}", &why));
        self.replies.refuse(&refused, 1, &self.context.metrics);
        self.send().await?;
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// The node stops. The end of the connection says so: after it, clients connect to another node and ask there, but after an
    /// error some of them give up. Bytes that still arrive are dropped. Otherwise the system would answer them with a reset,
    /// and the client might not read the replies before.
    async fn close(&mut self) -> io::Result<()> {
        self.end().await?;
        let dropping = async {
            loop {
                self.reader = CommandReader::default();
                if self.read().await? == 0 {
                    return Ok::<_, io::Error>(());
                }
            }
        };
        match timeout(CLOSING_TIME, dropping).await {
            Ok(dropped) => dropped,
            Err(_) => Ok(()),
        }
    }

    /// Tells the client that nothing follows. It may not read that: TLS has something to send then.
    async fn end(&mut self) -> io::Result<()> {
        timeout(CLOSING_TIME, self.stream.shutdown()).await.unwrap_or(Ok(()))
    }

    /// Sends the replies.
    async fn send(&mut self) -> io::Result<()> {
        if !self.replies.bytes().is_empty() {
            self.send_replies().await?;
            self.replies.clear(REPLY_BYTES_MAX);
        }
        Ok(())
    }

    /// Sends the replies. If the client does not read them, their memory is counted meanwhile.
    async fn send_replies(&mut self) -> io::Result<()> {
        let bytes = self.replies.bytes();
        // A task that has used up its turn would seem to wait for its client.
        let mut sending = pin!(unconstrained(send_all(&mut self.stream, bytes)));
        if let Some(sent) = sending.as_mut().now_or_never() {
            return sent;
        }
        let reserved = self.context.request_memory.reserve(bytes.len());
        let _reserved = reserved.map_err(|refusal| {
            io::Error::new(io::ErrorKind::OutOfMemory, refusal.message().to_owned())
        })?;
        let stopping = async {
            self.stop.cancelled().await;
            tokio::time::sleep(CLOSING_TIME).await;
        };
        tokio::select! {
            biased;
            sent = timeout(self.idle, sending) => sent?,
            () = stopping => {
                let why = "the node stops, and the client does not read its replies";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }
}

async fn send_all(stream: &mut UntilKnown<Stream>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
