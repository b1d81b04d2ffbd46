//! The reader of Redis commands: it finds the same commands however the bytes arrive, and the bytes that it holds are
//! bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet::server::fuzzing::{ARGUMENTS_MAX, COMMAND_BYTES_MAX, Malformed, Reading, Words};
use ratchet_fuzz::parts::parts;

/// How many bytes arrive at a time at the most, as `connection.rs` reads them.
const READ_BYTES: usize = 16 << 10;
/// An unfinished command, its line, and the bytes that arrived last.
const HELD_BYTES_MAX: usize = COMMAND_BYTES_MAX + 1_024 + READ_BYTES;

fuzz_target!(|input: &[u8]| {
    let parts = parts(input);
    let whole = parts.concat();
    let (commands, outcome, mut reading) = read(&[&whole]);
    let (in_parts, outcome_in_parts, _) = read(&parts);
    assert_eq!((&in_parts, &outcome_in_parts), (&commands, &outcome));

    let again: Vec<u8> = commands.iter().flat_map(written).collect();
    let (read_again, outcome_again, after) = read(&[&again]);
    assert_eq!((read_again, outcome_again), (commands, Ok(())));
    assert_eq!(after.unfinished(), 0);

    match outcome {
        Ok(()) => flood(&mut reading),
        Err(malformed) => check_reason(&malformed),
    }
});

/// The commands in `parts`, which arrive one after the other; how it ended; and the reader. Like a connection it stops at
/// the first error.
fn read(parts: &[&[u8]]) -> (Vec<Words>, Result<(), Malformed>, Reading) {
    let mut reading = Reading::default();
    let mut found = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let (commands, outcome) = reading.read(part);
        let fits = |words: &Words| (1..=ARGUMENTS_MAX).contains(&words.len());
        assert!(commands.iter().all(fits));
        found.extend(commands);
        if outcome.is_err() {
            return (found, outcome, reading);
        }
        // As if nobody had used the connection for a while.
        if at % 2 == 1 {
            reading.release();
        }
    }
    (found, Ok(()), reading)
}

/// A command as clients send it.
fn written(words: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A client that never ends its command is refused in time, and holds no more than it may until then.
fn flood(reading: &mut Reading) {
    let mut sent = 0;
    let block = [b'x'; READ_BYTES];
    loop {
        assert!(sent <= HELD_BYTES_MAX, "{sent} bytes of x are no command");
        assert!(reading.unfinished() <= HELD_BYTES_MAX);
        let (commands, outcome) = reading.read(&block);
        assert!(commands.is_empty(), "x alone ends no command");
        if outcome.is_err() {
            return;
        }
        sent += block.len();
    }
}

/// A client can read why it is refused.
fn check_reason(malformed: &Malformed) {
    let why = malformed.to_string();
    assert!(why.len() <= 512, "{} bytes: {why}", why.len());
    assert!(why.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{why:?}");
}
