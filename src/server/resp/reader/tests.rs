//! How commands are found in bytes, whole and in parts.

use proptest::prelude::*;

use super::*;

/// The commands in `parts`, which arrive one after the other, and whether what follows them is malformed.
fn read(parts: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Result<(), Malformed>) {
    let (mut reader, mut commands) = (CommandReader::default(), Commands::default());
    let mut found = Vec::new();
    for part in parts {
        reader.buffer().extend_from_slice(part);
        let outcome = reader.read(&mut commands);
        found.extend(commands.iter().map(|command| {
            let words = std::iter::once(command.name()).chain(command.rest());
            words.map(<[u8]>::to_vec).collect()
        }));
        if outcome.is_err() {
            return (found, outcome);
        }
    }
    (found, Ok(()))
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command as clients send it.
fn sent(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn arrays_and_lines_are_commands_and_empty_ones_are_passed_over() {
    let bytes =
        b"*2\r\n$4\r\nINCR\r\n$6\r\nbook:1\r\nPING\r\n\r\n*0\r\n*-1\r\n  incr   book:2 \nQUIT\r\n";
    let (found, outcome) = read(&[bytes]);
    assert_eq!(outcome, Ok(()));
    let expected = ["INCR book:1", "PING", "incr book:2", "QUIT"].map(words);
    assert_eq!(found, expected);
}

#[test]
fn arguments_may_hold_any_bytes() {
    let odd = vec![b"ECHO".to_vec(), b"\r\n*1\r\n$\0\xff".to_vec(), Vec::new()];
    assert_eq!(read(&[&sent(&odd)]), (vec![odd], Ok(())));
}

#[test]
fn what_is_no_command_is_named_after_the_commands_before_it() {
    let too_many = format!("*{}\r\n", ARGUMENTS_MAX + 1);
    let too_long = format!("*1\r\n${}\r\n", COMMAND_BYTES_MAX + 1);
    let endless = "x".repeat(LINE_BYTES_MAX);
    for (bytes, says) in [
        ("*x\r\n", "'x' is no number of arguments"),
        ("*1\r\n:5\r\n", "expected '$', the length of an argument, got ':'"),
        ("*1\r\n*1\r\n", "expected '$', the length of an argument, got '*'"),
        ("*1\r\n\r\n", "expected '$', the length of an argument, got '\\n'"),
        ("*1\r\n$-1\r\n", "'-1' is no number of bytes"),
        ("*1\r\n$+\r\n", "'+' is no number of bytes"),
        ("*1\r\n$+4\r\n", "'+4' is no number of bytes"),
        ("*1\r\n$000000000000000000004\r\n", "is no number of bytes"),
        ("*99999999999999999999\r\n", "is no number of arguments"),
        ("*1\r\n$2\r\nabcd\r\n", "an argument of 2 bytes does not end there"),
        (&too_many, "arguments are too many"),
        (&too_long, "bytes are too many"),
        (&endless, "a line has more than 1024 bytes"),
    ] {
        let bytes = ["PING\r\n", bytes].concat();
        let (found, outcome) = read(&[bytes.as_bytes()]);
        assert_eq!(found, [words("PING")], "{bytes:?}");
        let why = outcome.expect_err(&bytes).to_string();
        assert!(why.contains(says), "{why:?} for {says:?}");
    }
}

#[test]
fn the_limit_is_on_all_arguments_of_a_command_together() {
    let half = vec![b'x'; COMMAND_BYTES_MAX / 2];
    let (found, outcome) = read(&[&sent(&[half.clone(), half.clone()])]);
    assert!(found.is_empty());
    let why = outcome.expect_err("too long").to_string();
    assert!(why.contains("bytes are too many"), "{why}");
    // The bytes that frame the arguments count as well.
    let all = vec![b'x'; COMMAND_BYTES_MAX - "*2\r\n$1048562\r\n".len()];
    let (found, outcome) = read(&[&sent(&[all, Vec::new()])]);
    assert!(found.is_empty());
    let why = outcome.expect_err("too long").to_string();
    assert!(why.contains("longer than"), "{why}");
    assert_eq!(read(&[&sent(std::slice::from_ref(&half))]), (vec![vec![half]], Ok(())));
}

#[test]
fn a_reader_without_an_unfinished_command_gives_its_memory_back() {
    let (mut reader, mut commands) = (CommandReader::default(), Commands::default());
    reader.buffer().extend_from_slice(b"PING\r\n*1\r\n$");
    assert_eq!(reader.read(&mut commands), Ok(()));
    commands.clear();
    reader.release();
    assert_eq!(reader.unfinished(), 5, "it waits for the rest");
    assert!(reader.buffer().capacity() < 1_024);
    reader.buffer().extend_from_slice(b"4\r\nPING\r\n");
    assert_eq!(reader.read(&mut commands), Ok(()));
    assert_eq!(commands.iter().count(), 1);
    commands.clear();
    reader.release();
    assert_eq!((reader.unfinished(), reader.buffer().capacity()), (0, 0));
}

#[test]
fn the_room_of_a_command_with_many_arguments_is_freed() {
    let (mut reader, mut commands) = (CommandReader::default(), Commands::default());
    reader.buffer().extend_from_slice(&sent(&vec![Vec::new(); ARGUMENTS_MAX]));
    assert_eq!(reader.read(&mut commands), Ok(()));
    assert_eq!(commands.iter().count(), 1);
    commands.clear();
    reader.buffer().extend_from_slice(&b"\n".repeat(ARGUMENTS_MAX));
    reader.buffer().extend_from_slice(&b"x\n".repeat(ARGUMENTS_MAX));
    assert_eq!(reader.read(&mut commands), Ok(()));
    assert_eq!(commands.iter().count(), ARGUMENTS_MAX);
    commands.clear();
    let kept = [&commands.arguments, &reader.arguments].map(Vec::capacity);
    assert!(kept.iter().all(|room| *room <= PLACES_KEPT), "{kept:?}");
    assert!(commands.ends.capacity() <= PLACES_KEPT);
}

proptest! {
    #[test]
    fn commands_are_the_same_in_however_many_parts_they_arrive(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| sent(words)).collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let parts: Vec<&[u8]> = at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        prop_assert_eq!(read(&parts), (commands, Ok(())));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(prop::sample::select(b"*$0123456789\r\nINCR -:x".to_vec()), 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let (one, two) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(read(&[one, two]), read(&[&bytes]));
    }
}
