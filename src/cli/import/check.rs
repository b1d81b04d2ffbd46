//! Checks all of a file before anything of it is raised: malformed rows, and keys or ranges of ids that come twice; and
//! names that another program would take for one (`alike.rs`).
//!
//! Memory: 8 bytes a row, the key's id or a hash of its name, which are sorted: 160 MB for 20 million rows. A name has 8 more,
//! for its likeness. Only if two are the same, or an id is within a range, is the file read again, to find their lines. A range
//! has 24 bytes.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use indicatif::ProgressBar;
use ratchet_client::Key;

use super::{
    alike::{Alike, MappedKeys, hashed, likeness},
    ranges::{Ranged, around, overlaps},
    reader::read,
    rows::{BadRow, Expected, Faults, Row, RowFormat, RowOf, written},
};

/// The facts that the check found in a file.
#[derive(Debug, Default)]
pub struct Checked {
    /// How many rows it has.
    pub rows: u64,
    /// True if some are of ranges of ids.
    pub has_ranges: bool,
    /// How many sections they are in.
    pub sections: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The CRC-32 of the bytes.
    pub checksum: u32,
    /// The faults of the file.
    pub faults: Faults,
    /// The warnings about it: names that are alike.
    pub warnings: Faults,
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
        Summed { inner, bytes: 0, crc: crc32fast::Hasher::new(), bar }
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

/// Checks the rows of a file, and compares its names with each other and with those that are `mapped`.
///
/// # Errors
/// If it cannot be read.
pub fn check(
    file: &mut File, format: RowFormat, expected: &Expected, mapped: &MappedKeys, bar: &ProgressBar,
) -> io::Result<Checked> {
    let mut checked = Checked::default();
    let (mut keys, mut ranges, mut likenesses) = (Vec::new(), Vec::new(), Vec::new());
    let mut summed = Summed::new(&mut *file, bar.clone());
    read(&mut summed, format, expected, |row| {
        match row {
            Ok(Row { of, line, .. }) => {
                checked.rows += 1;
                match of {
                    RowOf::Key(key) => {
                        keys.push(digest(&key));
                        likenesses.extend(likeness(&key));
                        if let Some(told) = mapped.beside(&key) {
                            checked.warnings.note(line, told);
                        }
                    }
                    RowOf::Sections(range) => ranges.push((range, line)),
                }
            }
            Err(BadRow { line, why }) => checked.faults.note(line, why),
        }
        true
    })?;
    (checked.bytes, checked.checksum) = summed.sum();
    keys.sort_unstable();
    let section = |digest: &u64| digest / expected.section_size();
    let sections = keys.chunk_by(|one, next| section(one) == section(next));
    let ranged = (ranges.iter()).map(|(range, _): &Ranged| range.count(expected.section_size()));
    checked.sections = sections.count() as u64 + ranged.sum::<u64>();
    for overlap in overlaps(&mut ranges) {
        checked.faults.note(overlap.range.1, overlap);
    }
    checked.has_ranges = !ranges.is_empty();
    let twice: Twice = same(&keys).map(|digest| (digest, Vec::new())).collect();
    likenesses.sort_unstable();
    let alike = Alike::new(same(&likenesses));
    let is_within = |id: &u64| around(&ranges, *id).is_some();
    let is_repeated = !twice.is_empty() || !alike.is_empty();
    if is_repeated || (!ranges.is_empty() && keys.iter().any(is_within)) {
        file.seek(SeekFrom::Start(0))?;
        note_repeated(file, format, expected, (twice, alike, &ranges), &mut checked)?;
    }
    Ok(checked)
}

/// An id, or a hash of a name.
fn digest(key: &Key) -> u64 {
    match key {
        Key::Id(id) => *id,
        Key::Name(name) => hashed(name),
    }
}

/// Keys that may come twice, by their digests, and the lines on which they were seen.
type Twice = HashMap<u64, Vec<(Key, u64)>>;

/// The hashes among these sorted ones that are there more than once: at most as many as are shown, and some more for names that
/// share a hash.
fn same(sorted: &[u64]) -> impl Iterator<Item = u64> {
    let same = sorted.chunk_by(|one, next| one == next);
    same.filter(|chunk| chunk.len() > 1).map(|chunk| chunk[0]).take(1_000)
}

/// Notes keys that come twice or are alike, and ids within ranges, which are sorted.
fn note_repeated(
    file: &File, format: RowFormat, expected: &Expected,
    (mut twice, mut alike, ranges): (Twice, Alike, &[Ranged]), checked: &mut Checked,
) -> io::Result<()> {
    let Checked { faults, warnings, .. } = checked;
    read(file, format, expected, |row| {
        let Ok(Row { line, of: RowOf::Key(key), .. }) = row else {
            return true;
        };
        if let Key::Id(id) = key
            && let Some((range, on)) = around(ranges, id)
        {
            faults.note(line, format_args!("key {id} is within {range}, which is on line {on}"));
        }
        if let Some(told) = alike.beside(&key, line) {
            warnings.note(line, told);
        }
        if let Some(seen) = twice.get_mut(&digest(&key)) {
            match seen.iter().find(|(other, _)| *other == key) {
                Some((_, first)) => {
                    let key = written(&key);
                    faults.note(line, format_args!("key {key} is on line {first} already"));
                }
                None => seen.push((key, line)),
            }
        }
        true
    })
}
