//! The commands of a Redis client, as the node's reader has them.

use ratchet::server::fuzzing::{Reading, Words};

/// How the error ends after which a connection is closed.
pub const CLOSED: &str = "the connection is closed, since this seems to be another protocol";

/// The commands that are to be answered, with their names in upper case, and whether the bytes after them are no command.
pub fn commands(bytes: &[u8]) -> (Vec<Words>, bool) {
    let (mut commands, outcome) = Reading::default().read(bytes);
    for words in &mut commands {
        words[0].make_ascii_uppercase();
    }
    match commands.iter().position(|words| words[0] == b"QUIT") {
        Some(last) => {
            commands.truncate(last + 1);
            (commands, false)
        }
        None => (commands, outcome.is_err()),
    }
}
