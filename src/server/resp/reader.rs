//! Reads commands out of the bytes of a connection: arrays of bulk strings, as Redis clients send them, and inline
//! commands, as somebody types them into telnet.
//!
//! Invariant: an argument is looked at once, and a line again with each part of it that arrives; reading a command
//! allocates nothing. A command beyond the limits is refused as soon as it says how long it is, and bytes of another protocol
//! as soon as one of them is none of a text.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::server::written::{integer, shown};

/// The most bytes of a command, with all its arguments.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The most arguments of a command, with its name.
pub const ARGUMENTS_MAX: usize = 16_384;
/// The most bytes of a line, with its end.
const LINE_BYTES_MAX: usize = 1_024;
/// The most digits of a length.
const DIGITS_MAX: usize = 20;
/// A buffer that held more is replaced.
const KEPT_BYTES: usize = 64 << 10;
/// Room is kept for the places of so many arguments.
const PLACES_KEPT: usize = 1_024;

/// The reason why bytes are no command. The bytes after them cannot be read any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// Commands that have arrived in full.
#[derive(Debug, Default)]
pub struct Commands {
    bytes: Bytes,
    /// Where the arguments are in `bytes`, those of all commands one after the other.
    arguments: Vec<Range<usize>>,
    /// Where the arguments of each command end in `arguments`.
    ends: Vec<usize>,
    /// True if the first of them is an inline command.
    begins_inline: bool,
}

/// One command: its name, and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct RedisCommand<'a> {
    bytes: &'a Bytes,
    arguments: &'a [Range<usize>],
    begins_inline: bool,
}

/// Copies of commands that are carried out later.
#[derive(Debug, Default)]
pub struct CopiedCommands {
    bytes: BytesMut,
    arguments: Vec<Range<usize>>,
    ends: Vec<usize>,
}

/// Reads commands.
#[derive(Debug, Default)]
pub struct CommandReader {
    /// Begins with the command that has not arrived in full.
    buffer: BytesMut,
    /// Up to here the buffer was looked at.
    position: usize,
    /// The arguments of the unfinished command, as far as they are here.
    arguments: Vec<Range<usize>>,
    /// How many arguments it lacks.
    lacks: usize,
    /// The length of the next argument, if it was told.
    length: Option<usize>,
    /// True if the command is an inline command.
    is_inline: bool,
}

impl Commands {
    /// The commands, in the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = RedisCommand<'_>> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(&begin, &end)| RedisCommand {
            bytes: &self.bytes,
            arguments: &self.arguments[begin..end],
            begins_inline: begin == 0 && self.begins_inline,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Gives the bytes back to the reader.
    pub fn clear(&mut self) {
        self.bytes = Bytes::new();
        self.arguments.clear();
        self.arguments.shrink_to(PLACES_KEPT);
        self.ends.clear();
        self.ends.shrink_to(PLACES_KEPT);
        self.begins_inline = false;
    }
}

impl<'a> RedisCommand<'a> {
    /// The command's name, as it was sent.
    pub fn name(&self) -> &'a [u8] {
        self.at(0).unwrap_or_default()
    }

    /// True if it is the first that one read brought, and came as a line of words.
    pub fn begins_inline(&self) -> bool {
        self.begins_inline
    }

    /// How many arguments follow the name.
    pub fn len(&self) -> usize {
        self.arguments.len() - 1
    }

    /// Argument number `place`, from 1 on; 0 is the name.
    pub fn at(&self, place: usize) -> Option<&'a [u8]> {
        Some(&self.bytes[self.arguments.get(place)?.clone()])
    }

    /// The arguments after the name.
    pub fn rest(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes: &'a [u8] = self.bytes;
        let rest = self.arguments.iter().skip(1);
        rest.map(move |range| &bytes[range.clone()])
    }

    /// A part of an argument, for keeps. It shares the memory of the commands.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

impl CopiedCommands {
    /// Adds a copy of a command.
    pub fn push(&mut self, command: RedisCommand<'_>) {
        for argument in std::iter::once(command.name()).chain(command.rest()) {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.arguments.push(begin..self.bytes.len());
        }
        self.ends.push(self.arguments.len());
    }

    /// How many bytes they take, with the places of their arguments.
    pub fn held(&self) -> usize {
        self.bytes.len() + size_of_val(&self.arguments[..]) + size_of_val(&self.ends[..])
    }

    /// The commands.
    pub fn finish(self) -> Commands {
        let CopiedCommands { bytes, arguments, ends } = self;
        Commands { bytes: bytes.freeze(), arguments, ends, begins_inline: false }
    }
}

impl CommandReader {
    /// Where the bytes that arrive are added.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Frees the memory that no unfinished command needs.
    pub fn release(&mut self) {
        self.buffer = match self.buffer.is_empty() {
            true => BytesMut::new(),
            false => BytesMut::from(&self.buffer[..]),
        };
        self.arguments.shrink_to_fit();
    }

    /// How many bytes of an unfinished command are held.
    pub fn unfinished(&self) -> usize {
        self.buffer.len()
    }

    /// How many bytes it takes, with the places of its arguments.
    pub fn held(&self) -> usize {
        self.buffer.len() + size_of_val(&self.arguments[..])
    }

    /// Replaces `commands` by those that have arrived in full since the last call.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes after `commands` are no command, or one beyond the limits.
    pub fn read(&mut self, commands: &mut Commands) -> Result<(), Malformed> {
        commands.clear();
        let mut finished = 0;
        let ended = loop {
            match self.step(finished) {
                Ok(true) if self.lacks == 0 => {
                    finished = self.position;
                    if !self.arguments.is_empty() {
                        commands.begins_inline |= commands.ends.is_empty() && self.is_inline;
                        commands.arguments.append(&mut self.arguments);
                        commands.ends.push(commands.arguments.len());
                    }
                }
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(malformed) => break Err(malformed),
            }
        };
        let grown = finished + self.buffer.capacity() > KEPT_BYTES;
        commands.bytes = self.buffer.split_to(finished).freeze();
        if grown && self.buffer.len() < KEPT_BYTES / 4 {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.position -= finished;
        for Range { start, end } in &mut self.arguments {
            *start -= finished;
            *end -= finished;
        }
        if self.arguments.is_empty() {
            self.arguments.shrink_to(PLACES_KEPT);
        }
        ended
    }

    /// Reads the next part: the beginning of a command, or the length of an argument, or an argument. False if it has
    /// not arrived in full. The command begins at `begin`.
    fn step(&mut self, begin: usize) -> Result<bool, Malformed> {
        if self.position - begin > COMMAND_BYTES_MAX {
            return Err(Malformed(format!("the command is longer than {COMMAND_BYTES_MAX} bytes")));
        }
        if let Some(length) = self.length {
            let end = self.position + length;
            let Some(after) = self.buffer.get(end..end + 2) else {
                return Ok(false);
            };
            if after != b"\r\n" {
                return Err(Malformed(format!("an argument of {length} bytes does not end there")));
            }
            self.arguments.push(self.position..end);
            self.position = end + 2;
            self.length = None;
            self.lacks -= 1;
            return Ok(true);
        }
        let Some(line) = self.line()? else {
            return Ok(false);
        };
        let (first, number) = match &self.buffer[line.clone()] {
            [] => (None, &[][..]),
            [first, number @ ..] => (Some(*first), number),
        };
        self.is_inline = self.lacks == 0 && first != Some(b'*');
        match (self.lacks, first) {
            // Null and empty arrays are passed over, as Redis does.
            (0, Some(b'*')) if number.starts_with(b"-") => {}
            (0, Some(b'*')) => self.lacks = length_in(number, ARGUMENTS_MAX, "arguments")?,
            (0, _) => self.split(line),
            (_, Some(b'$')) => {
                let left = COMMAND_BYTES_MAX.saturating_sub(self.position - begin);
                self.length = Some(length_in(number, left, "bytes")?);
            }
            (_, _) => {
                let found = first.unwrap_or(b'\n').escape_ascii();
                return Err(Malformed(format!(
                    "expected '$', the length of an argument, got '{found}'"
                )));
            }
        }
        Ok(true)
    }

    /// The next line without its end. `None` if it has not arrived in full.
    fn line(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let rest = &self.buffer[self.position..];
        let rest = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let end = rest.iter().position(|byte| *byte == b'\n');
        // A client of TLS, or of a database, or a proxy (PROXY, version 2), waits for an answer, and may send no end of a line.
        let line = &rest[..end.unwrap_or(rest.len())];
        if let Some(byte) =
            line.iter().find(|byte| byte.is_ascii_control() && !b"\t\r".contains(byte))
        {
            return Err(Malformed(format!(
                "a line has the byte 0x{byte:02x}; this port speaks the Redis protocol, without TLS unless tls is on, and no \
                 proxy may write a line of its own in front"
            )));
        }
        let Some(end) = end else {
            return match rest.len() < LINE_BYTES_MAX {
                true => Ok(None),
                false => Err(Malformed(format!("a line has more than {LINE_BYTES_MAX} bytes"))),
            };
        };
        let begin = self.position;
        self.position += end + 1;
        let end = begin + end;
        Ok(Some(match end > begin && self.buffer[end - 1] == b'\r' {
            true => begin..end - 1,
            false => begin..end,
        }))
    }

    /// Takes the words of an inline command as its arguments.
    fn split(&mut self, line: Range<usize>) {
        let text = &self.buffer[line.clone()];
        let mut at = line.start;
        for word in text.split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.arguments.push(at..at + word.len());
            }
            at += word.len() + 1;
        }
    }
}

/// A length from 0 to `most`.
fn length_in(digits: &[u8], most: usize, of: &str) -> Result<usize, Malformed> {
    let number = integer(digits).filter(|_| digits.len() <= DIGITS_MAX);
    match number {
        Some(length) if length <= most as u64 => Ok(length as usize),
        Some(length) => Err(Malformed(format!(
            "{length} {of} are too many; a command has at most {ARGUMENTS_MAX} arguments and \
             {COMMAND_BYTES_MAX} bytes"
        ))),
        None => Err(Malformed(format!("'{}' is no number of {of}", shown(digits)))),
    }
}

#[cfg(test)]
mod tests;
