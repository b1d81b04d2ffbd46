//! Checks all of a file before anything of it is raised: malformed rows, and keys that come twice.
//!
//! Memory: 8 bytes a row, the key's id or a hash of its name, which are sorted: 160 MB for 20 million rows. Only if two
//! are the same is the file read again, to find their lines.

use std::{
    collections::HashMap,
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Seek, SeekFrom},
};

use indicatif::ProgressBar;
use ratchet_client::Key;

use super::{
    reader::read,
    rows::{BadRow, Expected, FAULTS_SHOWN, Format, Row},
};

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Checked {
    /// How many rows it has.
    pub rows: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The CRC-32 of the bytes.
    pub checksum: u32,
    /// How many faults it has.
    pub faults: u64,
    /// The first of them.
    pub shown: Vec<String>,
}

/// Counts and sums up what is read.
pub struct Summed<R> {
    inner: R,
    bytes: u64,
    crc: crc32fast::Hasher,
    bar: ProgressBar,
}

impl<R: Read> Summed<R> {
    /// Reads from `inner`, and shows on `bar` how many bytes were read.
    pub fn new(inner: R, bar: ProgressBar) -> Self {
        Summed {
            inner,
            bytes: 0,
            crc: crc32fast::Hasher::new(),
            bar,
        }
    }

    /// How many bytes were read, and their CRC-32.
    pub fn sum(&self) -> (u64, u32) {
        (self.bytes, self.crc.clone().finalize())
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        self.crc.update(&buffer[..read]);
        self.bar.inc(read as u64);
        Ok(read)
    }
}

impl Checked {
    fn note(&mut self, line: u64, why: &str) {
        self.faults += 1;
        if self.shown.len() < FAULTS_SHOWN {
            self.shown.push(format!("line {line}: {why}"));
        }
    }
}

/// Checks the rows of a file.
///
/// # Errors
/// If it cannot be read.
pub fn check(
    file: &mut File,
    format: Format,
    expected: &Expected,
    bar: &ProgressBar,
) -> io::Result<Checked> {
    let mut checked = Checked::default();
    let mut keys = Vec::new();
    let mut summed = Summed::new(&mut *file, bar.clone());
    read(&mut summed, format, expected, |row| {
        match row {
            Ok(Row { key, .. }) => {
                checked.rows += 1;
                keys.push(digest(&key));
            }
            Err(BadRow { line, why }) => checked.note(line, &why),
        }
        true
    })?;
    (checked.bytes, checked.checksum) = summed.sum();
    let twice = twice(keys);
    if !twice.is_empty() {
        file.seek(SeekFrom::Start(0))?;
        note_duplicates(file, format, expected, twice, &mut checked)?;
    }
    Ok(checked)
}

/// An id, or a hash of a name.
fn digest(key: &Key) -> u64 {
    match key {
        Key::Id(id) => *id,
        Key::Name(name) => {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        }
    }
}

/// What is there more than once, without its keys: at most as many as are shown, and some more for names that share a
/// hash.
fn twice(mut digests: Vec<u64>) -> HashMap<u64, Vec<(Key, u64)>> {
    digests.sort_unstable();
    let same = digests.chunk_by(|one, next| one == next);
    let same = same.filter(|chunk| chunk.len() > 1);
    same.map(|chunk| (chunk[0], Vec::new()))
        .take(1_000)
        .collect()
}

fn note_duplicates(
    file: &File,
    format: Format,
    expected: &Expected,
    mut twice: HashMap<u64, Vec<(Key, u64)>>,
    checked: &mut Checked,
) -> io::Result<()> {
    read(file, format, expected, |row| {
        if let Ok(Row { line, key, .. }) = row
            && let Some(seen) = twice.get_mut(&digest(&key))
        {
            match seen.iter().find(|(other, _)| *other == key) {
                Some((_, first)) => {
                    let why = format!("key {} is on line {first} already", written(&key));
                    checked.note(line, &why);
                }
                None => seen.push((key, line)),
            }
        }
        true
    })
}

/// A key, for an error.
pub fn written(key: &Key) -> String {
    match key {
        Key::Id(id) => id.to_string(),
        Key::Name(name) => format!("'{}'", name.escape_ascii()),
    }
}
