//! The commands of the Redis interface: their names, and their actions. COMMAND describes the commands out of this table. A
//! command that it lacks is refused.

use super::{reader::RedisCommand, refused::Refused, replies::Replies};
use crate::server::written::shown;

/// The action of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Incr,
    IncrBy,
    Get,
    MGet,
    Set,
    SetNx,
    Type,
    Exists,
    Ping,
    Echo,
    Hello,
    Auth,
    Acl,
    Select,
    Client,
    Command,
    Info,
    Cluster,
    Multi,
    Exec,
    Discard,
    Watch,
    /// Nothing. The answer is OK.
    Accepted,
    Quit,
    Reset,
}

impl Action {
    /// True for a command that is not put off in a transaction.
    pub fn is_never_put_off(self) -> bool {
        use Action::*;
        matches!(self, Multi | Exec | Discard | Watch | Quit | Reset)
    }
}

/// A command.
#[derive(Debug)]
pub struct CommandEntry {
    /// Its name, in lower case. Of a subcommand `command|subcommand`.
    pub name: &'static str,
    /// Its action.
    pub action: Action,
    /// The fewest and the most arguments that follow the name.
    arguments: (usize, usize),
    /// The names of the arguments.
    usage: &'static str,
    /// The places of the keys: the first, and the last; -1 is the last argument, 0 is none.
    keys: (i64, i64),
    /// Redis' flags for the effect on its keys (`RO`, `RW` and others).
    access: &'static [&'static str],
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
    /// All subcommands, if the first argument names one.
    pub subcommands: &'static [CommandEntry],
}

macro_rules! commands {
    ($($(#[$doc:meta])* $list:ident, $group:literal { $(
        $action:ident $name:literal $arguments:expr, $usage:literal, $keys:expr, $access:expr, $flags:expr
            $(, $subcommands:ident)? => $summary:literal;
    )* })*) => {
        $($(#[$doc])* const $list: &[CommandEntry] = &[$(CommandEntry {
            name: $name,
            action: Action::$action,
            arguments: $arguments,
            usage: $usage,
            keys: $keys,
            access: &$access,
            flags: &$flags,
            group: $group,
            summary: $summary,
            subcommands: commands!(@ $($subcommands)?),
        }),*];)*
    };
    (@) => { &[] };
    (@ $subcommands:ident) => { $subcommands };
}

/// All commands. Those that are asked for most often come first.
pub fn all() -> impl Iterator<Item = &'static CommandEntry> {
    [STRING, GENERIC, TRANSACTIONS, CONNECTION, SERVER, CLUSTER].into_iter().flatten()
}

const MANY: usize = usize::MAX;
const NONE: (i64, i64) = (0, 0);

commands! {
    STRING, "string" {
        Incr "incr" (1, 1), "key", (1, 1), ["RW", "access", "update"], ["write", "denyoom", "fast"] =>
            "Takes the next number of a key, namespace:key. It is greater than every number that anyone got of the key before.";
        IncrBy "incrby" (2, 2), "key increment", (1, 1), ["RW", "access", "update"], ["write", "denyoom", "fast"] =>
            "Takes the next so many numbers of a key. Answers the last of them; the others lie right below it. Of 0 numbers: the last number of the key, or 0.";
        Get "get" (1, 1), "key", (1, 1), ["RO", "access"], ["readonly", "fast"] =>
            "The last number handed out for a key, or nothing before the first one.";
        MGet "mget" (1, MANY), "key", (1, -1), ["RO", "access"], ["readonly", "fast"] =>
            "The last numbers handed out for keys.";
        Set "set" (2, MANY), "key value", (1, 1), ["RW", "access", "update", "variable_flags"], ["write", "denyoom"] =>
            "Raises a key's floor: the numbers handed out later are greater. A value below the last number is refused. With NX, only if the key never had a number.";
        SetNx "setnx" (2, 2), "key value", (1, 1), ["OW", "insert"], ["write", "denyoom", "fast"] =>
            "SET with NX. Answers 1 if the key was raised, 0 if it had a number.";
    }
    GENERIC, "generic" {
        Exists "exists" (1, MANY), "key", (1, -1), ["RO"], ["readonly", "fast"] =>
            "How many of the keys have numbers.";
        Type "type" (1, 1), "key", (1, 1), ["RO"], ["readonly", "fast"] =>
            "string, or none before the first number.";
    }
    TRANSACTIONS, "transactions" {
        Multi "multi" (0, 0), "", NONE, [], ["noscript", "loading", "stale", "fast", "allow_busy"] =>
            "Puts the commands that follow off, until EXEC.";
        Exec "exec" (0, 0), "", NONE, [], ["noscript", "loading", "stale", "skip_slowlog"] =>
            "Carries out what was put off, as a pipeline with one reply: not atomic, and not isolated from others.";
        Discard "discard" (0, 0), "", NONE, [], ["noscript", "loading", "stale", "fast", "allow_busy"] =>
            "Forgets what was put off.";
        Watch "watch" (1, MANY), "key", (1, -1), ["RO"], ["noscript", "loading", "stale", "fast", "allow_busy"] =>
            "Refused: a transaction is not isolated from others.";
        Accepted "unwatch" (0, 0), "", NONE, [], ["noscript", "loading", "stale", "fast", "allow_busy"] =>
            "Accepted: nothing is watched.";
    }
    CONNECTION, "connection" {
        Ping "ping" (0, 1), "message", NONE, [], ["fast"] =>
            "Answers PONG, or the message.";
        Echo "echo" (1, 1), "message", NONE, [], ["loading", "stale", "fast"] =>
            "Answers the message.";
        Hello "hello" (0, MANY), "protover", NONE, [], ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] =>
            "Chooses the version of the protocol, 2 or 3, and tells what answers.";
        Auth "auth" (1, MANY), "token", NONE, [], ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] =>
            "Says who asks from here on: with a token, and the name of the token or 'default' before it.";
        Select "select" (1, 1), "index", NONE, [], ["loading", "stale", "fast"] =>
            "There is one database, number 0.";
        Client "client" (1, MANY), "", NONE, [], [], OF_CLIENT =>
            "Of this connection.";
        Accepted "readonly" (0, 0), "", NONE, [], ["loading", "stale", "fast"] =>
            "Accepted: every node answers as the leader does.";
        Accepted "readwrite" (0, 0), "", NONE, [], ["loading", "stale", "fast"] =>
            "Accepted: every node answers as the leader does.";
        Quit "quit" (0, MANY), "", NONE, [], ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] =>
            "Closes the connection.";
        Reset "reset" (0, 0), "", NONE, [], ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] =>
            "Makes the connection as a new one.";
    }
    OF_CLIENT, "connection" {
        Client "client|id" (0, 0), "", NONE, [], ["noscript", "loading", "stale"] =>
            "The number of the connection at this node.";
        Client "client|getname" (0, 0), "", NONE, [], ["noscript", "loading", "stale"] =>
            "The name that CLIENT SETNAME gave it.";
        Client "client|setname" (1, 1), "connection-name", NONE, [], ["noscript", "loading", "stale"] =>
            "Gives the connection a name.";
        Client "client|setinfo" (2, 2), "attribute value", NONE, [], ["noscript", "loading", "stale"] =>
            "Accepted: what library the client is, nobody asks.";
    }
    SERVER, "server" {
        Acl "acl" (1, MANY), "", NONE, [], [], OF_ACL =>
            "Of the principal that asks.";
        Command "command" (0, MANY), "", NONE, [], ["loading", "stale"], OF_COMMAND =>
            "All commands, as COMMAND INFO tells them.";
        Info "info" (0, MANY), "section", NONE, [], ["loading", "stale"] =>
            "The node in lines of name:value.";
    }
    OF_ACL, "server" {
        Acl "acl|whoami" (0, 0), "", NONE, [], ["noscript", "loading", "stale"] =>
            "The name of the token, the URI of the certificate, or anonymous.";
    }
    OF_COMMAND, "server" {
        Command "command|count" (0, 0), "", NONE, [], ["loading", "stale"] =>
            "How many commands there are.";
        Command "command|docs" (0, MANY), "command-name", NONE, [], ["loading", "stale"] =>
            "What commands do.";
        Command "command|info" (0, MANY), "command-name", NONE, [], ["loading", "stale"] =>
            "What clients need to know of commands: arguments, flags, places of the keys.";
        Command "command|list" (0, MANY), "", NONE, [], ["loading", "stale"] =>
            "The names of the commands.";
    }
    CLUSTER, "cluster" {
        Cluster "cluster" (1, MANY), "", NONE, [], [], OF_CLUSTER =>
            "One shard, whose master is the leader.";
    }
    OF_CLUSTER, "cluster" {
        Cluster "cluster|slots" (0, 0), "", NONE, [], ["stale"] =>
            "The nodes that answer: the leader first.";
        Cluster "cluster|shards" (0, 0), "", NONE, [], ["stale"] =>
            "All nodes, and whether the leader hears them.";
        Cluster "cluster|nodes" (0, 0), "", NONE, [], ["stale"] =>
            "As CLUSTER SHARDS, in lines.";
        Cluster "cluster|info" (0, 0), "", NONE, [], ["stale"] =>
            "The cluster in lines of name:value.";
        Cluster "cluster|myid" (0, 0), "", NONE, [], ["stale"] =>
            "The name of the node.";
        Cluster "cluster|keyslot" (1, 1), "key", NONE, [], ["stale"] =>
            "0: the slots do not matter.";
    }
}

/// The command of this name, in any case. A subcommand is named as `command|subcommand`.
pub fn find(name: &[u8]) -> Option<&'static CommandEntry> {
    let named = |entry: &&CommandEntry| entry.name.as_bytes().eq_ignore_ascii_case(name);
    all().find(named).or_else(|| all().flat_map(|entry| entry.subcommands).find(named))
}

/// The entry of a command.
///
/// # Errors
/// If there is no such command or subcommand, or it does not take so many arguments.
pub fn look_up(command: RedisCommand<'_>) -> Result<&'static CommandEntry, Refused> {
    let named = |entry: &&CommandEntry| entry.name.as_bytes().eq_ignore_ascii_case(command.name());
    let entry = all().find(named).ok_or_else(|| why_unknown(command))?;
    let (mut of, mut given) = (entry, command.len());
    if let Some(subcommand) = command.at(1).filter(|_| !entry.subcommands.is_empty()) {
        of = entry.subcommand(subcommand)?;
        given -= 1;
    }
    match (of.arguments.0..=of.arguments.1).contains(&given) {
        true => Ok(entry),
        false => Err(Refused::invalid(format!(
            "wrong number of arguments for '{0}' command; see COMMAND DOCS {0}",
            of.name
        ))),
    }
}

fn why_unknown(command: RedisCommand<'_>) -> Refused {
    let name = shown(command.name());
    Refused::invalid(match why_refused(command.name()) {
        Some(why) => format!("'{name}' is refused: {why}"),
        None => {
            let of_keys = [STRING, GENERIC].into_iter().flatten();
            let names: Vec<String> = of_keys.map(|entry| entry.name.to_ascii_uppercase()).collect();
            let names = names.join(", ");
            format!("unknown command '{name}'; there are {names} and those that COMMAND LIST names")
        }
    })
}

impl CommandEntry {
    /// Whether it is answered to callers that are not known.
    pub fn is_for_anybody(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// The last part of its name.
    fn word(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or_default()
    }

    fn subcommand(&self, word: &[u8]) -> Result<&'static CommandEntry, Refused> {
        let mut all = self.subcommands.iter();
        let found = all.find(|known| known.word().as_bytes().eq_ignore_ascii_case(word));
        found.ok_or_else(|| {
            let words: Vec<&str> = self.subcommands.iter().map(CommandEntry::word).collect();
            Refused::invalid(format!(
                "unknown subcommand '{}' of {}; there are {}",
                shown(word),
                self.name,
                words.join(", ")
            ))
        })
    }

    /// How many words it has, its name among them; negative if it may have more.
    fn arity(&self) -> i64 {
        let least = self.arguments.0 + self.name.split('|').count();
        match self.arguments.0 == self.arguments.1 {
            true => least as i64,
            false => -(least as i64),
        }
    }

    /// Writes the answer of COMMAND INFO: ten items, as Redis has told since release 7.0.
    pub(super) fn write_info(&self, replies: &mut Replies) {
        replies.array(10);
        replies.bulk(self.name);
        replies.number(self.arity());
        replies.simple_set(self.flags);
        replies.number(self.keys.0);
        replies.number(self.keys.1);
        replies.number(u8::from(self.keys.0 != 0));
        // Categories of access lists, and tips for proxies.
        replies.simple_set(&[]);
        replies.simple_set(&[]);
        match self.keys.0 {
            0 => replies.set(0),
            _ => self.write_key_places(replies),
        }
        // As Redis does: without any, an empty set, and otherwise an array.
        match self.subcommands.len() {
            0 => replies.set(0),
            some => replies.array(some),
        }
        self.subcommands.iter().for_each(|subcommand| subcommand.write_info(replies));
    }

    /// Where the keys are, once more, as Redis has told since release 7.0.
    fn write_key_places(&self, replies: &mut Replies) {
        replies.set(1);
        replies.map(3);
        replies.bulk("flags");
        replies.simple_set(self.access);
        replies.bulk("begin_search");
        replies.map(2);
        replies.field("type", "index");
        replies.bulk("spec");
        replies.map(1);
        replies.bulk("index");
        replies.number(self.keys.0);
        replies.bulk("find_keys");
        replies.map(2);
        replies.field("type", "range");
        replies.bulk("spec");
        replies.map(3);
        // The distance of the last key from the first, or its place from the end.
        let last = if self.keys.1 < 0 { self.keys.1 } else { self.keys.1 - self.keys.0 };
        for (name, value) in [("lastkey", last), ("keystep", 1), ("limit", 0)] {
            replies.bulk(name);
            replies.number(value);
        }
    }

    /// Writes the answer of COMMAND DOCS.
    pub(super) fn write_docs(&self, replies: &mut Replies) {
        let words: Vec<&str> = self.usage.split_whitespace().collect();
        let optional = usize::from(!words.is_empty()) + usize::from(!self.subcommands.is_empty());
        replies.bulk(self.name);
        replies.map(3 + optional);
        replies.field("summary", self.summary);
        replies.field("since", "1.0.0");
        replies.field("group", self.group);
        if !words.is_empty() {
            replies.bulk("arguments");
            replies.array(words.len());
        }
        for word in words {
            let kind = match word {
                "key" => "key",
                "increment" | "index" | "protover" => "integer",
                _ => "string",
            };
            replies.map(2);
            replies.field("name", word);
            replies.field("type", kind);
        }
        if !self.subcommands.is_empty() {
            replies.bulk("subcommands");
            replies.map(self.subcommands.len());
            self.subcommands.iter().for_each(|subcommand| subcommand.write_docs(replies));
        }
    }
}

/// The reason why a command of Redis is none here; `None` if Redis does not have it either.
fn why_refused(name: &[u8]) -> Option<&'static str> {
    const WRITES: &[&str] = &[
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
    const SCRIPTS: &[&str] = &["eval", "evalsha", "fcall", "function", "script"];
    const SETTINGS: &[&str] = &["config", "debug", "save", "bgsave", "bgrewriteaof", "shutdown"];
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
    if is_in(SCRIPTS) {
        return Some("there are no scripts; send the commands one after the other, as a pipeline");
    }
    is_in(SETTINGS).then_some(
        "settings are those of `ratchet start`; they are not changed over this interface",
    )
}
