//! Logins of a Redis client at a node that wants a token: no client is let in that has not shown it, and no reply has it.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ratchet::server::fuzzing::{Conversation, Words};
use ratchet_fuzz::{
    commands::{CLOSED, commands},
    node::{FuzzedNode, TOKEN, TOKEN_NAME},
    parts::parts,
    replies::{Reply, Version, reply},
};

/// The most logins of an input: the node looks at fifty tokens a second that it does not know.
const LOGINS_MAX: usize = 16;

/// A shorter text may stand in a reply for another reason.
const SECRET_BYTES_MIN: usize = 8;

static NODE: LazyLock<FuzzedNode> = LazyLock::new(FuzzedNode::start_closed);

/// The replies to logins without a secret.
static SAID: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let logins =
        "AUTH a\r\nAUTH a b\r\nAUTH\r\nAUTH a b c\r\nHELLO 3 AUTH a b\r\nHELLO 3 AUTH a\r\n";
    let mut conversation = Conversation::new(NODE.context());
    NODE.run(conversation.answer(logins.as_bytes()));
    conversation.replies().to_vec()
});

fuzz_target!(
    init: {
        LazyLock::force(&SAID);
    },
    |input: &[u8]| {
        let parts = parts(input);
        let (commands, _) = commands(&parts.concat());
        let logins = commands.iter().filter(|words| !secrets(words).is_empty()).count();
        if logins > LOGINS_MAX {
            return;
        }
        let mut conversation = Conversation::new(NODE.context());
        NODE.run(async {
            for part in &parts {
                if !conversation.answer(part).await {
                    return;
                }
            }
        });
        check(&commands, conversation.replies());
    }
);

/// The name and the token that a command shows: the ones of the last AUTH in it.
fn shown(words: &Words) -> Option<(Option<&[u8]>, &[u8])> {
    match &*words[0] {
        b"AUTH" => match &words[1..] {
            [token] => Some((None, token)),
            [name, token] => Some((Some(name), token)),
            _ => None,
        },
        b"HELLO" => {
            let mut options = words.get(2..)?.iter();
            let mut last = None;
            while let Some(option) = options.next() {
                match &*option.to_ascii_uppercase() {
                    b"AUTH" => last = Some((Some(&**options.next()?), &**options.next()?)),
                    b"SETNAME" => drop(options.next()?),
                    _ => return None,
                }
            }
            last
        }
        _ => None,
    }
}

/// The secrets that no reply to a command may have.
fn secrets(words: &Words) -> Vec<&[u8]> {
    match &*words[0] {
        b"AUTH" => words[1..].iter().map(Vec::as_slice).collect(),
        b"HELLO" => shown(words).into_iter().map(|(_, token)| token).collect(),
        _ => Vec::new(),
    }
}

fn is_good((name, token): (Option<&[u8]>, &[u8])) -> bool {
    let names = [&b"default"[..], TOKEN_NAME.as_bytes()];
    token == TOKEN.as_bytes() && name.is_none_or(|name| names.contains(&name))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn check(commands: &[Words], mut replies: &[u8]) {
    let (mut version, mut is_in) = (Version::Resp2, false);
    for words in commands {
        let to = || {
            let words: Vec<String> =
                words.iter().map(|word| word.escape_ascii().to_string()).collect();
            words.join(" ")
        };
        let wanted = match (&*words[0], words.get(1).map(Vec::as_slice)) {
            (b"HELLO", Some(b"2")) | (b"RESET", None) => Version::Resp2,
            (b"HELLO", Some(b"3")) => Version::Resp3,
            _ => version,
        };
        let (answer, rest) =
            reply(replies, wanted).unwrap_or_else(|why| panic!("{why}; to {}", to()));
        let said = &replies[..replies.len() - rest.len()];
        for secret in secrets(words) {
            let is_long = secret.len() >= SECRET_BYTES_MIN && !contains(&SAID, secret);
            assert!(!is_long || !contains(said, secret), "{} to {}", said.escape_ascii(), to());
        }
        replies = rest;
        let refused = match &answer {
            Reply::Error(error) => Some(*error),
            _ => None,
        };
        if refused.is_some_and(|error| error.ends_with(CLOSED)) {
            return;
        }
        let shows_good = shown(words).is_some_and(is_good);
        match (&*words[0], refused) {
            (b"AUTH", refused) => {
                assert_eq!(refused.is_none(), shows_good, "{answer:?} to {}", to());
                is_in |= shows_good;
            }
            (b"HELLO", None) => {
                let shows_wrong = shown(words).is_some() && !shows_good;
                assert!((is_in || shows_good) && !shows_wrong, "{answer:?} to {}", to());
                (is_in, version) = (true, wanted);
            }
            (b"HELLO", Some(error)) => {
                assert!(!shows_good || !error.starts_with("WRONGPASS"), "{error} to {}", to());
            }
            (b"RESET", None) => (is_in, version) = (false, wanted),
            (b"QUIT", None) => return,
            (_, None) => assert!(is_in, "{answer:?} to {}", to()),
            (_, Some(error)) => {
                let is_asked = ["NOAUTH", "WRONGPASS"].iter().any(|word| error.starts_with(word));
                assert!(!is_in || !is_asked, "{error} to {}", to());
            }
        }
        // The commands after it are put off, and log in later.
        if words[0] == b"MULTI" && refused.is_none() {
            return;
        }
    }
}
