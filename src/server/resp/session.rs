//! The answers to a connection's commands. Those that take numbers of one namespace and follow one another are one
//! request to the node (`merged_commands.rs`): it looks at the fence once for all of them.
//!
//! Invariant: each command gets one reply, in the order of the commands.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    about, cluster,
    ids::{self, IdsOf},
    key::{self, last_numbers, timed, written_key},
    merged_commands::MergedCommands,
    raise::{self, RaiseOutcome},
    reader::RedisCommand,
    refused::Refused,
    replies::{Replies, Version},
    table::{self, Action, CommandEntry},
    transaction::{PutOff, Transaction, aborted},
};
use crate::{
    node::{Asker, LetIn, NodeContext},
    proto::{Code, refusal},
    sequence::{Wanted, WrittenKey},
    server::{
        connections::owner::Owner,
        written::{integer, shown},
    },
};

/// The most keys of a command that reads.
const READ_KEYS_MAX: usize = 1_024;

/// The most bytes of the name that a client gives its connection.
const NAME_BYTES_MAX: usize = 256;

/// One connection's state.
pub struct RedisSession {
    context: Arc<NodeContext>,
    /// The number of this connection at this node.
    id: u64,
    /// Its owner.
    owner: Owner,
    /// The asker: the owner of the token that AUTH showed, or the connection's owner.
    by: Asker,
    /// The proof that the asker was let in.
    let_in: LetIn,
    /// The name that the client gave it.
    name: Vec<u8>,
    merged: MergedCommands,
    /// The commands since MULTI.
    transaction: Option<Transaction>,
    /// True once a command came.
    has_begun: bool,
    /// True once the connection is to be closed: the client asked for it, or speaks another protocol.
    ended: bool,
}

impl RedisSession {
    /// The state of a new connection, number `id`, of this owner.
    pub fn new(context: Arc<NodeContext>, id: u64, owner: Owner) -> Self {
        owner.begins(&context.services.access);
        RedisSession {
            merged: MergedCommands::new(context.clone()),
            context,
            id,
            by: owner.asker(),
            let_in: LetIn::default(),
            owner,
            name: Vec::new(),
            transaction: None,
            has_begun: false,
            ended: false,
        }
    }

    /// True once the connection is to be closed, after the replies were sent.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// True between MULTI and EXEC.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Answers one command by `deadline`, or puts it off until [`RedisSession::finish`]. For EXEC it returns the commands to
    /// carry out. The caller has [each of them](RedisSession::answer_put_off) answered, and then calls
    /// [`RedisSession::end_exec`].
    pub async fn answer(
        &mut self, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Option<PutOff> {
        let begins = !std::mem::replace(&mut self.has_begun, true) && command.begins_inline();
        let found = table::look_up(command);
        let found = found.map_err(|refused| self.unknown(command, refused, begins));
        let found = found.and_then(|entry| self.check_asker(entry).map(|()| entry));
        let answered = match (found, self.transaction.take()) {
            (Ok(entry), None) => {
                self.carry_out(entry, command, deadline, replies).await;
                return None;
            }
            (Ok(entry), Some(transaction)) if entry.action == Action::Exec => {
                transaction.finish().map(Some)
            }
            (Ok(entry), Some(transaction)) if entry.action.is_never_put_off() => {
                self.transaction = Some(transaction);
                self.carry_out(entry, command, deadline, replies).await;
                return None;
            }
            (Ok(_), Some(mut transaction)) => {
                let put_off = transaction.put_off(command, &self.context.request_memory);
                self.transaction = Some(transaction);
                put_off.map(|()| None)
            }
            (Err(refused), None) => Err(refused),
            (Err(refused), Some(_)) if command.name().eq_ignore_ascii_case(b"exec") => {
                Err(aborted(&format!("of: {}", refused.why)))
            }
            (Err(refused), Some(mut transaction)) => {
                transaction.fail();
                self.transaction = Some(transaction);
                Err(refused)
            }
        };
        self.finish(deadline, replies).await;
        match answered {
            Ok(Some(put_off)) => {
                replies.array(put_off.commands.len());
                replies.within_exec = true;
                return Some(put_off);
            }
            Ok(None) => replies.simple("QUEUED"),
            Err(refused) => replies.refuse(&refused, 1, &self.context.metrics),
        }
        None
    }

    /// Lets a command through if its caller is known.
    fn check_asker(&mut self, entry: &CommandEntry) -> Result<(), Refused> {
        match entry.is_for_anybody() {
            true => Ok(()),
            false => {
                let access = &self.context.services.access;
                let let_in = access.is_let_in_still(&mut self.let_in, &self.by);
                let_in.map_err(|refusal| match refusal.code() {
                    // It names no key.
                    Code::PermissionDenied => {
                        let (name, why) = (entry.name, refusal.message());
                        let why = format!(
                            "this user has no permissions to run the '{name}' command: {why}"
                        );
                        Refused { word: "NOPERM", why, ..Refused::from(refusal) }
                    }
                    _ => Refused::from(refusal),
                })
            }
        }
    }

    /// The refusal of bytes that are no command. `begins` is true for the first line of a connection. Clients of other
    /// protocols, browsers and proxies send such a line before the message itself. A page may have a browser begin with a word
    /// of its choice, but headers follow. None of that may be carried out, and no reply to such a line may be taken for the
    /// reply to a later command.
    fn unknown(&mut self, command: RedisCommand<'_>, refused: Refused, begins: bool) -> Refused {
        if !begins && !command.name().ends_with(b":") {
            return refused;
        }
        self.ended = true;
        let why = format!(
            "{}; the connection is closed, since this seems to be another protocol",
            refused.why
        );
        Refused { why, ..refused }
    }

    /// Answers one command of a transaction, as [`RedisSession::answer`].
    pub async fn answer_put_off(
        &mut self, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) {
        match table::look_up(command) {
            Ok(entry) => self.carry_out(entry, command, deadline, replies).await,
            Err(refused) => replies.refuse(&refused, 1, &self.context.metrics),
        }
    }

    async fn carry_out(
        &mut self, entry: &CommandEntry, command: RedisCommand<'_>, deadline: Instant,
        replies: &mut Replies,
    ) {
        let answered = match self.check(entry, command) {
            Ok(RedisRequest::Numbers(key, count)) => {
                if !self.merged.goes_on(command, key, count) {
                    let asked = (command, &self.by);
                    self.merged.add(asked, key, count, deadline, replies).await;
                }
                return;
            }
            Ok(RedisRequest::Id(of)) => {
                self.finish(deadline, replies).await;
                let making = ids::next((&self.context, &self.by), of, deadline, replies);
                Box::pin(timed(&self.context, 1, making)).await
            }
            Ok(RedisRequest::Other(action)) => {
                self.finish(deadline, replies).await;
                // Boxed, so that the future of commands that take numbers stays small.
                Box::pin(self.answer_other(action, command, deadline, replies)).await
            }
            Err(refused) => {
                self.finish(deadline, replies).await;
                Err(refused)
            }
        };
        if let Err(refused) = answered {
            replies.refuse(&refused, 1, &self.context.metrics);
        }
    }

    /// Answers the commands that were put off, by `deadline`.
    pub async fn finish(&mut self, deadline: Instant, replies: &mut Replies) {
        self.merged.finish(&self.by, deadline, replies).await;
    }

    /// Ends the reply to EXEC.
    pub async fn end_exec(&mut self, deadline: Instant, replies: &mut Replies) {
        self.finish(deadline, replies).await;
        replies.within_exec = false;
    }

    /// The request of a command.
    fn check<'a>(
        &self, entry: &CommandEntry, command: RedisCommand<'a>,
    ) -> Result<RedisRequest<'a>, Refused> {
        let count = match entry.action {
            Action::Incr => 1,
            Action::IncrBy => self.count_of(command.at(2).unwrap_or_default())?,
            other => return Ok(RedisRequest::Other(other)),
        };
        let key = written_key(command.at(1).unwrap_or_default())?;
        match ids::ids_of(&self.context, key) {
            Some(_) if count != 1 => Err(ids::one_at_a_time()),
            Some(of) => Ok(RedisRequest::Id(of)),
            None if count == 0 => Ok(RedisRequest::Other(entry.action)),
            None => Ok(RedisRequest::Numbers(key, count)),
        }
    }

    /// How many numbers INCRBY asks for.
    fn count_of(&self, argument: &[u8]) -> Result<u64, Refused> {
        let most = self.context.config.count_max;
        let count = integer(argument);
        count.filter(|count| *count <= most).ok_or_else(|| {
            Refused::invalid(format!(
                "value is not an integer or out of range: the increment is {}; it tells how many numbers to take, at \
                 most {most}",
                shown(argument)
            ))
        })
    }

    async fn answer_other(
        &mut self, action: Action, command: RedisCommand<'_>, deadline: Instant,
        replies: &mut Replies,
    ) -> Result<(), Refused> {
        use Action::*;
        match action {
            Multi if self.transaction.is_some() => {
                return Err(Refused::invalid("MULTI calls can not be nested"));
            }
            Multi => {
                self.transaction = Some(Transaction::default());
                replies.simple("OK");
            }
            // `answer` has the commands of a transaction carried out.
            Exec => return Err(Refused::invalid("EXEC without MULTI")),
            Discard => {
                let begun = self.transaction.take();
                begun.ok_or_else(|| Refused::invalid("DISCARD without MULTI"))?;
                replies.simple("OK");
            }
            Watch => return Err(self.why_unwatched()),
            Accepted => replies.simple("OK"),
            // By 0, and so INCRBY: `check` makes requests for numbers of all others.
            Incr | IncrBy => {
                let asking = (&self.context, &self.by);
                let reading = key::last_number(asking, command, deadline, replies);
                return timed(&self.context, 1, reading).await;
            }
            Get | MGet | Exists | Type => {
                return self.read(action, command, deadline, replies).await;
            }
            Set | SetNx => return self.set(action, command, deadline, replies).await,
            Ping => match command.at(1) {
                Some(message) => replies.bulk(message),
                None => replies.simple("PONG"),
            },
            Echo => replies.bulk(command.at(1).unwrap_or_default()),
            Hello => return self.hello(command, deadline, replies).await,
            Auth if command.len() > 2 => return Err(Refused::invalid("syntax error")),
            Auth => return self.auth(command, deadline, replies).await,
            Acl => replies.bulk(self.context.services.access.name_of(&self.by)),
            Select => match command.at(1) {
                Some(b"0") => replies.simple("OK"),
                _ => {
                    return Err(Refused::invalid(
                        "DB index is out of range: there is one database, number 0",
                    ));
                }
            },
            Client => return self.client(command, replies),
            Command => return about::commands(command, replies),
            Cluster => cluster::answer(&self.context, command, replies),
            Info => replies.text(&about::text(&self.context)),
            Quit => {
                self.ended = true;
                replies.simple("OK");
            }
            Reset => self.reset(replies),
        }
        Ok(())
    }

    fn why_unwatched(&self) -> Refused {
        Refused::invalid(match self.transaction {
            Some(_) => "WATCH inside MULTI is not allowed",
            None => {
                "'WATCH' is refused: a transaction is a pipeline with one reply, and not isolated from others; send it \
                 without WATCH"
            }
        })
    }

    async fn read(
        &self, action: Action, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        if command.len() > READ_KEYS_MAX {
            return Err(Refused::invalid(format!(
                "the command has {} keys; give at most {READ_KEYS_MAX}",
                command.len()
            )));
        }
        let reading = last_numbers((&self.context, &self.by), command.rest(), deadline);
        let last = timed(&self.context, command.len(), reading).await?;
        let write = |last: &Option<u64>, replies: &mut Replies| match last {
            Some(number) => replies.bulk(number.to_string()),
            None => replies.null(),
        };
        match action {
            Action::Exists => replies.number(last.iter().flatten().count()),
            Action::Type => replies.simple(match last.first() {
                Some(Some(_)) => "string",
                _ => "none",
            }),
            Action::MGet => {
                replies.array(last.len());
                last.iter().for_each(|last| write(last, replies));
            }
            _ => last.iter().for_each(|last| write(last, replies)),
        }
        Ok(())
    }

    /// SET and SETNX, which raise a key.
    async fn set(
        &self, action: Action, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        let asking = (&self.context, &self.by);
        let raising = raise::raise(asking, command, action == Action::SetNx, deadline);
        match (action, timed(&self.context, 1, raising).await?) {
            (Action::SetNx, raised) => replies.number(u8::from(raised == RaiseOutcome::Done)),
            (_, RaiseOutcome::Done) => replies.simple("OK"),
            (_, RaiseOutcome::NotNew) => replies.null(),
        }
        Ok(())
    }

    /// AUTH, with a token, or with its name and the token.
    async fn auth(
        &mut self, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        match (command.at(1), command.at(2)) {
            (Some(name), Some(token)) => self.log_in(Some(name), token, deadline).await?,
            (token, _) => self.log_in(None, token.unwrap_or_default(), deadline).await?,
        }
        replies.simple("OK");
        Ok(())
    }

    /// RESET. The connection is as it was when it began.
    fn reset(&mut self, replies: &mut Replies) {
        replies.version = Version::default();
        self.name.clear();
        self.by = self.owner.asker();
        self.let_in = LetIn::default();
        self.transaction = None;
        replies.simple("RESET");
    }

    /// HELLO [version [AUTH user password] [SETNAME name]].
    async fn hello(
        &mut self, command: RedisCommand<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        let mut version = replies.version;
        let mut words = command.rest();
        let (mut login, mut named) = (None, None);
        if let Some(asked) = words.next() {
            version = match asked {
                b"2" => Version::Resp2,
                b"3" => Version::Resp3,
                _ => {
                    return Err(Refused {
                        word: "NOPROTO",
                        ..Refused::invalid("unsupported protocol version: 2 and 3 are spoken")
                    });
                }
            };
        }
        while let Some(option) = words.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"auth" => match (words.next(), words.next()) {
                    (Some(name), Some(token)) => login = Some((name, token)),
                    _ => return Err(wrong_option(option)),
                },
                b"setname" => named = Some(name_of(words.next().unwrap_or_default())?),
                _ => return Err(wrong_option(option)),
            }
        }
        if let Some((name, token)) = login {
            self.log_in(Some(name), token, deadline).await?;
        }
        let let_in = self.context.services.access.let_in(&self.by, Wanted::Anything);
        let_in.map_err(|refusal| match refusal.code() {
            Code::Unauthenticated => Refused { word: HELLO_FIRST, ..Refused::from(refusal) },
            _ => Refused::from(refusal),
        })?;
        if let Some(name) = named {
            self.name = name;
        }
        replies.version = version;
        about::greet(self.id, replies);
        Ok(())
    }

    /// The asker is the owner of the token from here on. Libraries that are given a token alone send `default` as its name.
    ///
    /// # Errors
    /// WRONGPASS if the token is not valid, or has another name.
    async fn log_in(
        &mut self, name: Option<&[u8]>, token: &[u8], deadline: Instant,
    ) -> Result<(), Refused> {
        let (by, access) = (self.owner.with_token(token), &self.context.services.access);
        let admitted = self.context.admission.admit(&by, Wanted::Anything, deadline).await;
        let is_wrong = match &admitted {
            Ok(()) => name
                .is_some_and(|name| name != b"default" && name != access.name_of(&by).as_bytes()),
            Err(refusal) => refusal.code() == Code::Unauthenticated,
        };
        if is_wrong && !access.has_tokens() {
            return Err(Refused::invalid(
                "AUTH <password> called without any password configured for the default user: there are no tokens here, and \
                 whoever reaches the port may do what is granted to anonymous",
            ));
        }
        if is_wrong {
            let refusal = refusal!(
                Unauthenticated,
                "invalid username-password pair or user is disabled. The token is worth nothing, or has another name; AUTH TOKEN, or \
                 AUTH NAME TOKEN"
            );
            // The audit has an invalid token already, but not a valid one with another name.
            if admitted.is_ok() {
                access.turned_away(&by, Wanted::Anything, &refusal);
            }
            return Err(Refused { word: "WRONGPASS", ..Refused::from(refusal) });
        }
        admitted?;
        self.by = by;
        self.let_in = LetIn::default();
        Ok(())
    }

    fn client(&mut self, command: RedisCommand<'_>, replies: &mut Replies) -> Result<(), Refused> {
        let subcommand = command.at(1).unwrap_or_default();
        match subcommand.to_ascii_lowercase().as_slice() {
            b"id" => replies.number(self.id),
            b"getname" if self.name.is_empty() => replies.null(),
            b"getname" => replies.bulk(&self.name),
            b"setname" => {
                self.name = name_of(command.at(2).unwrap_or_default())?;
                replies.simple("OK");
            }
            // SETINFO.
            _ => replies.simple("OK"),
        }
        Ok(())
    }
}

fn wrong_option(option: &[u8]) -> Refused {
    Refused::invalid(format!("Syntax error in HELLO option '{}'", shown(option)))
}

/// The words of Redis for a HELLO of a caller that it does not know.
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
    option can be used to authenticate the client and select the RESP protocol version at the same time:";

/// The request of a command.
enum RedisRequest<'a> {
    /// So many numbers of a key.
    Numbers(WrittenKey<'a>, u64),
    /// An id.
    Id(IdsOf<'a>),
    Other(Action),
}

/// The name that a client gives its connection.
fn name_of(given: &[u8]) -> Result<Vec<u8>, Refused> {
    match given.len() <= NAME_BYTES_MAX && given.iter().all(u8::is_ascii_graphic) {
        true => Ok(given.to_owned()),
        false => Err(Refused::invalid(format!(
            "the name '{}' is refused: give at most {NAME_BYTES_MAX} bytes, without spaces or special characters",
            shown(given)
        ))),
    }
}
