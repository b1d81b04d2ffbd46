//! A Redis client's conversation with a node: each command gets one reply, which the client can read, and numbers grow.
#![no_main]

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use libfuzzer_sys::fuzz_target;
use ratchet::{
    sequence::WrittenKey,
    server::fuzzing::{Conversation, Words, integer},
};
use ratchet_fuzz::{
    commands::{CLOSED, commands},
    node::FuzzedNode,
    parts::parts,
    replies::{Reply, Version, reply},
};

/// With more keys, all are forgotten.
const KEYS_MAX: usize = 100_000;

/// How an error begins.
const ERRORS: [&str; 5] = ["ERR", "TRYAGAIN", "NOPROTO", "CLUSTERDOWN", "EXECABORT"];

static NODE: LazyLock<FuzzedNode> = LazyLock::new(FuzzedNode::start);

/// The greatest number that anyone got of each key.
static GREATEST: LazyLock<Mutex<HashMap<Vec<u8>, u64>>> = LazyLock::new(Mutex::default);

fuzz_target!(
    init: {
        LazyLock::force(&NODE);
    },
    |input: &[u8]| {
        let parts = parts(input);
        let mut conversation = Conversation::new(NODE.context());
        NODE.run(async {
            for part in &parts {
                if !conversation.answer(part).await {
                    return;
                }
            }
        });
        let (commands, is_malformed) = commands(&parts.concat());
        check(&commands, is_malformed, conversation.replies());
    }
);

fn check(commands: &[Words], is_malformed: bool, mut replies: &[u8]) {
    let mut version = Version::Resp2;
    // The commands that were put off since MULTI.
    let mut put_off: Vec<&Words> = Vec::new();
    for words in commands {
        if let Some(items) = exec_items(words, replies) {
            assert_eq!(items.0, put_off.len(), "the replies within that to EXEC");
            replies = items.1;
            for words in put_off.drain(..) {
                (version, replies) = check_reply(words, version, replies);
            }
            continue;
        }
        let read = reply(replies, version);
        match read {
            Ok((Reply::Simple("QUEUED"), rest)) => {
                put_off.push(words);
                replies = rest;
                continue;
            }
            Ok((Reply::Error(error), rest)) if error.ends_with(CLOSED) => {
                assert!(rest.is_empty(), "{error}");
                return;
            }
            _ => {}
        }
        if [&b"MULTI"[..], b"EXEC", b"DISCARD", b"RESET"].contains(&&*words[0]) {
            let is_nested =
                matches!(read, Ok((Reply::Error(error), _)) if error.contains("nested"));
            if !is_nested {
                put_off.clear();
            }
        }
        (version, replies) = check_reply(words, version, replies);
    }
    if is_malformed {
        let read = reply(replies, version);
        let (last, rest) = read.unwrap_or_else(|why| panic!("{why}; to no command"));
        let is_told =
            matches!(last, Reply::Error(error) if error.starts_with("ERR Protocol error: "));
        assert!(is_told, "{last:?} to no command");
        replies = rest;
    }
    let rest = replies.escape_ascii();
    assert!(replies.is_empty(), "nobody asked for this: {rest}");
}

/// How many replies the one to EXEC has, and their bytes. `None` for another command, or an error.
fn exec_items<'a>(words: &Words, replies: &'a [u8]) -> Option<(usize, &'a [u8])> {
    if words[0] != b"EXEC" {
        return None;
    }
    let line = replies.strip_prefix(b"*")?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let count = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((count, &line[end + 2..]))
}

/// Checks the first of the replies. Returns the version of those after it, and these.
fn check_reply<'a>(words: &Words, version: Version, replies: &'a [u8]) -> (Version, &'a [u8]) {
    // The reply to HELLO is one of the version that it asks for.
    let wanted = match (&*words[0], words.get(1).map(Vec::as_slice)) {
        (b"HELLO", Some(b"2")) | (b"RESET", None) => Version::Resp2,
        (b"HELLO", Some(b"3")) => Version::Resp3,
        _ => version,
    };
    let read = reply(replies, wanted);
    let (answer, rest) = read.unwrap_or_else(|why| panic!("{why}; to {}", shown(words)));
    match answer {
        Reply::Error(error) => {
            check_error(error);
            (version, rest)
        }
        answer => {
            assert!(fits(words, &answer), "{answer:?} to {}", shown(words));
            (wanted, rest)
        }
    }
}

/// Whether a reply answers the command.
fn fits(words: &Words, reply: &Reply<'_>) -> bool {
    let argument = |place: usize| words.get(place).map_or(&b""[..], Vec::as_slice);
    match (&*words[0], reply) {
        (b"PING", Reply::Simple("PONG")) => words.len() == 1,
        (b"PING" | b"ECHO", Reply::Bulk(bytes)) => *bytes == argument(1),
        (b"INCR", Reply::Integer(last)) => grows(argument(1), *last, 1),
        (b"INCRBY", Reply::Integer(last)) => match integer(argument(2)) {
            Some(0) => *last >= 0,
            Some(count) => grows(argument(1), *last, count),
            None => false,
        },
        (b"SET", Reply::Simple("OK")) => is_raised(argument(1), argument(2)),
        (b"SET", Reply::Null) => words.len() > 3,
        (b"SETNX", Reply::Integer(1)) => is_raised(argument(1), argument(2)),
        (b"SETNX", Reply::Integer(0)) => true,
        (b"MULTI" | b"DISCARD" | b"UNWATCH", Reply::Simple("OK")) => true,
        (b"GET", last) => words.len() == 2 && is_last(argument(1), last),
        (b"MGET", Reply::Array(lasts)) => {
            let mut of_keys = words[1..].iter().zip(lasts);
            lasts.len() == words.len() - 1 && of_keys.all(|(key, last)| is_last(key, last))
        }
        (b"EXISTS", Reply::Integer(count)) => (0..words.len() as i128).contains(count),
        (b"TYPE", Reply::Simple(kind)) => ["string", "none"].contains(kind),
        (b"HELLO", Reply::Array(facts)) => facts.len() == 14,
        (b"HELLO", Reply::Map(facts)) => facts.len() == 7,
        (b"SELECT" | b"READONLY" | b"READWRITE" | b"QUIT", Reply::Simple("OK")) => true,
        (b"RESET", Reply::Simple("RESET")) => true,
        (b"INFO", Reply::Bulk(_)) => true,
        (b"CLIENT" | b"COMMAND" | b"CLUSTER", _) => true,
        _ => false,
    }
}

/// Whether `count` numbers, of which `last` is the last, are greater than all before. They are the greatest from now on.
fn grows(key: &[u8], last: i128, count: u64) -> bool {
    let Ok(last) = u64::try_from(last) else {
        return false;
    };
    let mut greatest = GREATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if greatest.len() > KEYS_MAX {
        greatest.clear();
    }
    let before = greatest.insert(same(key), last).unwrap_or(0);
    last.checked_sub(count).is_some_and(|below| below >= before)
}

/// Whether SET may have raised a key: from now on its numbers are greater than `to`.
fn is_raised(key: &[u8], to: &[u8]) -> bool {
    let to = match integer(to) {
        // It leaves no trace.
        Some(0) => return true,
        Some(to) => to,
        None => return false,
    };
    let mut greatest = GREATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = greatest.entry(same(key)).or_default();
    *known = to.max(*known);
    true
}

/// Whether `last` may be the answer of GET for a key.
fn is_last(key: &[u8], last: &Reply<'_>) -> bool {
    let greatest = GREATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = greatest.get(&same(key)).copied();
    match last {
        Reply::Null => known.is_none(),
        Reply::Bulk(digits) => {
            integer(digits).is_some_and(|last| last > 0 && last >= known.unwrap_or(0))
        }
        _ => false,
    }
}

/// The same for all ways in which a key is written: an id may begin with zeros.
fn same(key: &[u8]) -> Vec<u8> {
    match WrittenKey::parse(key) {
        Ok(written) if written.namespace != "names" => {
            let id = integer(written.key).expect("a key that was answered for");
            format!("{}:{id}", written.namespace).into_bytes()
        }
        _ => key.to_vec(),
    }
}

/// A client knows the first word of an error, and its text is short and can be shown.
fn check_error(error: &str) {
    let (word, why) = error.split_once(' ').unwrap_or((error, ""));
    assert!(ERRORS.contains(&word) && !why.is_empty(), "{error}");
    assert!(error.len() <= 512, "{} bytes: {error}", error.len());
    assert!(error.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{error:?}");
}

fn shown(words: &Words) -> String {
    let words: Vec<String> =
        (words.iter()).map(|word| format!("'{}'", word.escape_ascii())).collect();
    words.join(" ")
}
