//! Writes replies in RESP2 or RESP3.
//!
//! Invariant: whatever a text holds, it is written as one reply.

use super::refused::{AGAIN, ELSEWHERE, Refused};
use crate::metrics::{Interface, Metrics};

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// The version that every connection begins with.
    #[default]
    Resp2,
    /// The version that a client asks for with HELLO 3.
    Resp3,
}

impl Version {
    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        }
    }
}

/// Replies that are to be sent.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// The version of the protocol from here on.
    pub version: Version,
    /// True while the replies are those within EXEC's. Then no error begins with a word after which clients send a command
    /// again: they would send the whole transaction again, although a part of it is done.
    pub within_exec: bool,
}

impl Replies {
    /// The bytes that were written since the last [`Replies::clear`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets the bytes that were sent. Memory beyond `kept` bytes is freed.
    pub fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
    }

    /// A number.
    pub fn number(&mut self, number: impl itoa::Integer) {
        self.head(b':', number);
    }

    /// A number of a key, or an id, `as_string` or as an integer.
    pub fn number_of_key(&mut self, number: u64, as_string: bool) {
        match as_string {
            true => self.bulk(itoa::Buffer::new().format(number)),
            false => self.number(number),
        }
    }

    /// A short text that needs no quotes, as OK.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// The error of `commands` commands, which is counted.
    pub fn refuse(&mut self, refused: &Refused, commands: usize, metrics: &Metrics) {
        metrics.errors.of(Interface::redis).add(refused.code, commands as u64);
        let word = match self.within_exec && [AGAIN, ELSEWHERE].contains(&refused.word) {
            true => "ERR",
            false => refused.word,
        };
        let text = format!("{word} {}", refused.why);
        for _ in 0..commands {
            self.line(b'-', &text);
        }
    }

    /// A text or bytes.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.head(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A text of lines, for people.
    pub fn text(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                const FORMAT: &str = "txt:";
                self.head(b'=', FORMAT.len() + text.len());
                self.bytes.extend_from_slice(FORMAT.as_bytes());
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// An array; `length` replies follow, which are its items.
    pub fn array(&mut self, length: usize) {
        self.head(b'*', length);
    }

    /// A set; `length` replies follow. In RESP2 an array of these.
    pub fn set(&mut self, length: usize) {
        match self.version {
            Version::Resp2 => self.array(length),
            Version::Resp3 => self.head(b'~', length),
        }
    }

    /// A set of short texts.
    pub fn simple_set(&mut self, texts: &[&str]) {
        self.set(texts.len());
        texts.iter().for_each(|text| self.simple(text));
    }

    /// A map; twice `length` replies follow: a key, its value, and so on. In RESP2 an array of these.
    pub fn map(&mut self, length: usize) {
        match self.version {
            Version::Resp2 => self.array(2 * length),
            Version::Resp3 => self.head(b'%', length),
        }
    }

    /// A key of a map, and its value.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.bulk(name);
        self.bulk(value);
    }

    fn head(&mut self, kind: u8, number: impl itoa::Integer) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A reply of one line. A character that would end the line becomes a space.
    fn line(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        let letters = text.bytes().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            other => other,
        });
        self.bytes.extend(letters);
        self.bytes.extend_from_slice(b"\r\n");
    }
}
