//! The commands of the Redis interface: their names, what they do, and what COMMAND tells of them.

use std::fmt::Write;

use super::{
    reader::Command,
    replies::{Refused, Replies},
};
use crate::{node::NodeContext, server::written::shown, version};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Incr,
    IncrBy,
    Get,
    MGet,
    Set,
    Type,
    Exists,
    Ping,
    Echo,
    Hello,
    Auth,
    Select,
    Client,
    Command,
    Info,
    Cluster,
    ReadOnly,
    Quit,
    Reset,
}

/// A command.
#[derive(Debug)]
pub struct Entry {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What it does.
    pub action: Action,
    /// The fewest and the most arguments that follow the name.
    arguments: (usize, usize),
    /// How the arguments are called.
    usage: &'static str,
    /// The places of the keys: the first, and the last; -1 is the last argument, 0 is none.
    keys: (i64, i64),
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

macro_rules! commands {
    ($($action:ident $name:literal $arguments:expr, $usage:literal, $keys:expr, $flags:expr, $group:literal: $summary:literal;)*) => {
        /// All commands. Those that are asked for most often come first.
        pub const ALL: &[Entry] = &[$(Entry {
            name: $name,
            action: Action::$action,
            arguments: $arguments,
            usage: $usage,
            keys: $keys,
            flags: &$flags,
            group: $group,
            summary: $summary,
        }),*];
    };
}

const MANY: usize = usize::MAX;

commands! {
    Incr "incr" (1, 1), "key", (1, 1), ["write", "fast"], "string":
        "Takes the next number of a key, namespace:key. It is greater than every number that anyone got of the key before.";
    IncrBy "incrby" (2, 2), "key increment", (1, 1), ["write", "fast"], "string":
        "Takes the next so many numbers of a key. Answers the last of them; the others lie right below it.";
    Get "get" (1, 1), "key", (1, 1), ["readonly", "fast"], "string":
        "The last number handed out for a key, or nothing before the first one.";
    MGet "mget" (1, MANY), "key", (1, -1), ["readonly", "fast"], "string":
        "The last numbers handed out for keys.";
    Set "set" (2, MANY), "key value", (1, 1), ["write", "fast"], "string":
        "Raises a key's floor: the numbers handed out later are greater. A value below the last number is refused.";
    Type "type" (1, 1), "key", (1, 1), ["readonly", "fast"], "generic":
        "string, or none before the first number.";
    Exists "exists" (1, MANY), "key", (1, -1), ["readonly", "fast"], "generic":
        "How many of the keys have numbers.";
    Ping "ping" (0, 1), "message", (0, 0), ["fast"], "connection":
        "Answers PONG, or the message.";
    Echo "echo" (1, 1), "message", (0, 0), ["fast"], "connection":
        "Answers the message.";
    Hello "hello" (0, MANY), "protover", (0, 0), ["fast"], "connection":
        "Chooses the version of the protocol, 2 or 3, and tells what answers.";
    Auth "auth" (1, 2), "password", (0, 0), ["fast"], "connection":
        "Refused: there are no passwords.";
    Select "select" (1, 1), "index", (0, 0), ["fast"], "connection":
        "There is one database, number 0.";
    Client "client" (1, MANY), "subcommand", (0, 0), [], "connection":
        "ID, GETNAME, SETNAME and SETINFO of this connection.";
    Command "command" (0, MANY), "subcommand", (0, 0), [], "server":
        "COUNT, DOCS, INFO and LIST of the commands.";
    Info "info" (0, MANY), "section", (0, 0), [], "server":
        "The node in lines of name:value.";
    Cluster "cluster" (1, MANY), "subcommand", (0, 0), [], "cluster":
        "SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT: one shard, whose master is the leader.";
    ReadOnly "readonly" (0, 0), "", (0, 0), ["fast"], "cluster":
        "Accepted: every node answers as the leader does.";
    ReadOnly "readwrite" (0, 0), "", (0, 0), ["fast"], "cluster":
        "Accepted: every node answers as the leader does.";
    Quit "quit" (0, MANY), "", (0, 0), ["fast"], "connection":
        "Closes the connection.";
    Reset "reset" (0, 0), "", (0, 0), ["fast"], "connection":
        "Makes the connection as a new one.";
}

/// The command of this name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Entry {
    /// True if the command takes as many arguments.
    pub fn takes(&self, arguments: usize) -> bool {
        (self.arguments.0..=self.arguments.1).contains(&arguments)
    }

    /// How many words it has, its name among them; negative if it may have more.
    fn arity(&self) -> i64 {
        let least = self.arguments.0 as i64 + 1;
        match self.arguments.0 == self.arguments.1 {
            true => least,
            false => -least,
        }
    }

    /// What COMMAND INFO tells of it.
    pub fn write_info(&self, replies: &mut Replies) {
        replies.array(6);
        replies.bulk(self.name);
        replies.number(self.arity());
        replies.array(self.flags.len());
        self.flags.iter().for_each(|flag| replies.simple(flag));
        replies.number(self.keys.0);
        replies.number(self.keys.1);
        replies.number(u8::from(self.keys.0 != 0));
    }

    /// What COMMAND DOCS tells of it.
    pub fn write_docs(&self, replies: &mut Replies) {
        let words = self.usage.split_whitespace();
        replies.bulk(self.name);
        replies.map(4);
        replies.field("summary", self.summary);
        replies.field("since", "1.0.0");
        replies.field("group", self.group);
        replies.bulk("arguments");
        replies.array(words.clone().count());
        for word in words {
            let kind = match word {
                "key" => "key",
                "increment" | "index" | "protover" => "integer",
                _ => "string",
            };
            replies.map(3);
            replies.field("name", word);
            replies.field("type", kind);
            replies.field("display_text", word);
        }
    }
}

/// Why a command that Redis has is none here; `None` if Redis does not have it either.
pub fn why_refused(name: &[u8]) -> Option<&'static str> {
    const WRITES: &[&str] = &[
        "setnx",
        "setex",
        "psetex",
        "getset",
        "getdel",
        "getex",
        "mset",
        "msetnx",
        "append",
        "del",
        "unlink",
        "decr",
        "decrby",
        "incrbyfloat",
        "rename",
        "renamenx",
        "copy",
        "restore",
        "flushdb",
        "flushall",
    ];
    const EXPIRY: &[&str] =
        &["expire", "pexpire", "expireat", "pexpireat", "persist", "ttl", "pttl"];
    const TRANSACTIONS: &[&str] =
        &["multi", "exec", "discard", "watch", "unwatch", "eval", "evalsha", "fcall", "script"];
    const SETTINGS: &[&str] =
        &["config", "acl", "debug", "save", "bgsave", "bgrewriteaof", "shutdown"];
    let is_in =
        |names: &[&str]| names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name));
    if is_in(WRITES) {
        return Some(
            "numbers only grow: nobody can lower or delete one; take the next with INCR or INCRBY, go up with SET key \
             value",
        );
    }
    if is_in(EXPIRY) {
        return Some("numbers are kept for ever, they do not expire");
    }
    if is_in(TRANSACTIONS) {
        return Some(
            "there are no transactions and no scripts; send the commands one after the other, as a pipeline \
             without a transaction",
        );
    }
    is_in(SETTINGS).then_some(
        "settings are those of `ratchet start`; they are not changed over this interface",
    )
}

// What the node tells of itself and its commands: INFO, HELLO and COMMAND.

/// The release of Redis whose commands and replies these are. Clients choose by it what they may ask.
const REDIS_VERSION: &str = "7.0.0";

/// Clients ask no replica for numbers, and every node answers: a follower asks the leader.
const ROLE: &str = "master";

/// What INFO tells.
pub fn text(context: &NodeContext) -> String {
    let (config, metrics) = (&context.config, &context.metrics);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:cluster\r\nserver_name:ratchet\r\n\
         ratchet_version:{}\r\nratchet_cluster:{}\r\nratchet_cluster_id:{}\r\nratchet_node:{}\r\n\r\n\
         # Replication\r\nrole:{}\r\nratchet_term:{}\r\n\r\n\
         # Stats\r\nratchet_numbers:{}\r\nratchet_answers:{}\r\n\r\n\
         # Cluster\r\ncluster_enabled:1\r\n",
        version::VERSION,
        config.cluster,
        context.services.members.printed_cluster_id(),
        config.node_id,
        ROLE,
        metrics.term.get(),
        metrics.numbers.get(),
        metrics.answers.get(),
    );
    text
}

/// What HELLO tells connection number `id`.
pub fn greet(id: u64, replies: &mut Replies) {
    let version = replies.version;
    replies.map(7);
    replies.field("server", "redis");
    replies.field("version", REDIS_VERSION);
    replies.bulk("proto");
    replies.number(version.number());
    replies.bulk("id");
    replies.number(id);
    replies.field("mode", "cluster");
    replies.field("role", ROLE);
    replies.bulk("modules");
    replies.array(0);
}

/// COMMAND, and its subcommands.
///
/// # Errors
/// If there is no such subcommand.
pub fn commands(command: Command<'_>, replies: &mut Replies) -> Result<(), Refused> {
    let subcommand = command.at(1).unwrap_or_default();
    let named: Vec<&[u8]> = command.rest().skip(1).collect();
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => replies.number(ALL.len()),
        b"list" => {
            replies.array(ALL.len());
            ALL.iter().for_each(|entry| replies.bulk(entry.name));
        }
        b"" | b"info" if named.is_empty() => {
            replies.array(ALL.len());
            ALL.iter().for_each(|entry| entry.write_info(replies));
        }
        b"info" => {
            replies.array(named.len());
            for name in named {
                match find(name) {
                    Some(entry) => entry.write_info(replies),
                    None => replies.null(),
                }
            }
        }
        b"docs" => {
            let entries: Vec<&Entry> = match named.is_empty() {
                true => ALL.iter().collect(),
                false => named.into_iter().filter_map(find).collect(),
            };
            replies.map(entries.len());
            entries.iter().for_each(|entry| entry.write_docs(replies));
        }
        _ => {
            return Err(Refused::invalid(format!(
                "unknown subcommand '{}'; there are COUNT, DOCS, INFO and LIST",
                shown(subcommand)
            )));
        }
    }
    Ok(())
}
