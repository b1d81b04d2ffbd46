//! What a connection's commands are answered. Those that take numbers of one namespace and follow one another are one
//! request to the node (`key.rs`): it looks at the fence once for all of them.
//!
//! Invariant: each command gets one reply, in the order of the commands.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    cluster,
    key::{self, IdsOf, Run, last_numbers, timed, written_key},
    reader::Command,
    replies::{Refused, Replies, Version},
    table::{self, Action},
};
use crate::{
    node::NodeContext,
    sequence::WrittenKey,
    server::written::{integer, shown},
    version,
};

/// The most keys of a command that reads.
const READ_KEYS_MAX: usize = 1_024;

/// The most bytes of the name that a client gives its connection.
const NAME_BYTES_MAX: usize = 256;

/// One connection's state.
pub struct Session {
    context: Arc<NodeContext>,
    /// The number of this connection at this node.
    id: u64,
    /// The name that the client gave it.
    name: Vec<u8>,
    run: Run,
    /// True once the client asked for the end of the connection.
    ended: bool,
}

impl Session {
    /// The state of a new connection, number `id`.
    pub fn new(context: Arc<NodeContext>, id: u64) -> Self {
        Session { run: Run::new(context.clone()), context, id, name: Vec::new(), ended: false }
    }

    /// True once the connection is to be closed, after the replies were sent.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Answers one command by `deadline`, or puts it off until [`Session::finish`].
    pub async fn answer(&mut self, command: Command<'_>, deadline: Instant, replies: &mut Replies) {
        let answered = match self.check(command) {
            Ok(Asked::Numbers(key, count)) => {
                return self.run.add(command, key, count, deadline, replies).await;
            }
            Ok(Asked::Id(of)) => {
                self.finish(deadline, replies).await;
                let making = key::next(&self.context, of, deadline, replies);
                timed(&self.context, 1, making).await
            }
            Ok(Asked::Other(action)) => {
                self.finish(deadline, replies).await;
                self.answer_other(action, command, deadline, replies).await
            }
            Err(refused) => {
                self.ended |= is_http(command.name());
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
        self.run.finish(deadline, replies).await;
    }

    /// What a command asks for.
    fn check<'a>(&self, command: Command<'a>) -> Result<Asked<'a>, Refused> {
        let entry = table::find(command.name()).ok_or_else(|| why_unknown(command))?;
        if !entry.takes(command.len()) {
            let name = entry.name;
            return Err(Refused::invalid(format!(
                "wrong number of arguments for '{name}'; see COMMAND DOCS {name}"
            )));
        }
        let count = match entry.action {
            Action::Incr => 1,
            Action::IncrBy => self.count_of(command.at(2).unwrap_or_default())?,
            other => return Ok(Asked::Other(other)),
        };
        let key = written_key(command.at(1).unwrap_or_default())?;
        match key::ids_of(&self.context, key) {
            Some(_) if entry.action == Action::IncrBy => Err(key::one_at_a_time()),
            Some(of) => Ok(Asked::Id(of)),
            None => Ok(Asked::Numbers(key, count)),
        }
    }

    /// How many numbers INCRBY asks for.
    fn count_of(&self, argument: &[u8]) -> Result<u64, Refused> {
        let most = self.context.config.count_max;
        let count = integer(argument);
        count.filter(|count| (1..=most).contains(count)).ok_or_else(|| {
            Refused::invalid(format!(
                "value is not an integer or out of range: the increment is {}; it tells how many numbers to take, \
                 between 1 and {most}",
                shown(argument)
            ))
        })
    }

    async fn answer_other(
        &mut self, action: Action, command: Command<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        use Action::*;
        match action {
            Incr | IncrBy => unreachable!("they are put off"),
            Get | MGet | Exists | Type => {
                return self.read(action, command, deadline, replies).await;
            }
            Set => {
                timed(&self.context, 1, key::raise(&self.context, command, deadline)).await?;
                replies.simple("OK");
            }
            Ping => match command.at(1) {
                Some(message) => replies.bulk(message),
                None => replies.simple("PONG"),
            },
            Echo => replies.bulk(command.at(1).unwrap_or_default()),
            Hello => return self.hello(command, replies),
            Auth => return Err(no_passwords()),
            Select => match command.at(1) {
                Some(b"0") => replies.simple("OK"),
                _ => {
                    return Err(Refused::invalid(
                        "DB index is out of range: there is one database, number 0",
                    ));
                }
            },
            Client => return self.client(command, replies),
            Command => return table::commands(command, replies),
            Cluster => return cluster::answer(&self.context, command, replies),
            ReadOnly => replies.simple("OK"),
            Info => replies.bulk(table::text(&self.context)),
            Quit => {
                self.ended = true;
                replies.simple("OK");
            }
            Reset => {
                replies.version = Version::default();
                self.name.clear();
                replies.simple("RESET");
            }
        }
        Ok(())
    }

    async fn read(
        &self, action: Action, command: Command<'_>, deadline: Instant, replies: &mut Replies,
    ) -> Result<(), Refused> {
        if command.len() > READ_KEYS_MAX {
            return Err(Refused::invalid(format!(
                "the command has {} keys; give at most {READ_KEYS_MAX}",
                command.len()
            )));
        }
        let reading = last_numbers(&self.context, command.rest(), deadline);
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

    /// HELLO [version [AUTH user password] [SETNAME name]].
    fn hello(&mut self, command: Command<'_>, replies: &mut Replies) -> Result<(), Refused> {
        let mut version = replies.version;
        let mut words = command.rest();
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
                b"auth" => return Err(no_passwords()),
                b"setname" => self.name = name_of(words.next().unwrap_or_default())?,
                _ => {
                    return Err(Refused::invalid(format!(
                        "syntax error in HELLO option '{}'",
                        shown(option)
                    )));
                }
            }
        }
        replies.version = version;
        table::greet(self.id, replies);
        Ok(())
    }

    fn client(&mut self, command: Command<'_>, replies: &mut Replies) -> Result<(), Refused> {
        let subcommand = command.at(1).unwrap_or_default();
        match (subcommand.to_ascii_lowercase().as_slice(), command.len()) {
            (b"id", 1) => replies.number(self.id),
            (b"getname", 1) if self.name.is_empty() => replies.null(),
            (b"getname", 1) => replies.bulk(&self.name),
            (b"setname", 2) => {
                self.name = name_of(command.at(2).unwrap_or_default())?;
                replies.simple("OK");
            }
            // What library the client is: nobody asks.
            (b"setinfo", 3) => replies.simple("OK"),
            _ => {
                return Err(Refused::invalid(format!(
                    "unknown subcommand or wrong number of arguments for 'client {}'; there are ID, GETNAME, SETNAME \
                     and SETINFO",
                    shown(subcommand)
                )));
            }
        }
        Ok(())
    }
}

/// What a command asks for.
enum Asked<'a> {
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

/// True for the lines that a request over HTTP begins with. A page of another site may have a browser send one here,
/// with commands in its body: nothing after it is carried out.
fn is_http(name: &[u8]) -> bool {
    [&b"post"[..], b"put", b"host:"].iter().any(|line| name.eq_ignore_ascii_case(line))
}

fn no_passwords() -> Refused {
    Refused::invalid(
        "AUTH was called, and there are no passwords here; whoever reaches the port may ask",
    )
}

fn why_unknown(command: Command<'_>) -> Refused {
    let name = shown(command.name());
    Refused::invalid(match table::why_refused(command.name()) {
        Some(why) => format!("'{name}' is refused: {why}"),
        None => format!(
            "unknown command '{name}'; ratchet {} answers INCR, INCRBY, GET, SET, MGET, EXISTS, TYPE and those that \
             COMMAND LIST names",
            version::VERSION
        ),
    })
}
