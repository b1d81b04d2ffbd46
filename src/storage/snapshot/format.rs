//! The format of a snapshot on its way. Pure.
//!
//! In this order: magic, format version, set, what the snapshot covers, the records, [`END`], how many
//! records there are, and a CRC-32 of all the bytes before it. A record is the length of its key, the
//! length of its value, key and value. Numbers are little-endian.
//!
//! Invariant: if a [`Decoder`] reached the end without an error, it read the bytes that an [`Encoder`]
//! wrote.

use crate::{
    sequence::SetId,
    storage::{codec, error::StoreError, raft_types::SnapshotMeta},
};

const MAGIC: &[u8; 8] = b"RATCHSNP";
const FORMAT_VERSION: u8 = 1;
/// Takes the place of a key's length after the last record.
const END: u32 = u32::MAX;
/// The largest key, and the largest value, in bytes.
const RECORD_BYTES_MAX: u32 = 1 << 20;
/// A part is complete once it has this many bytes.
const PART_BYTES: usize = 32 << 10;
/// The largest part, in bytes: the record that fills a part is its last.
pub const PART_BYTES_MAX: usize = PART_BYTES + 3 * RECORD_BYTES_MAX as usize;

/// Encodes a snapshot, part by part.
pub struct Encoder {
    part: Vec<u8>,
    checksum: crc32fast::Hasher,
    count: u64,
}

impl Encoder {
    /// Begins a snapshot of `set` that covers `meta`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if `meta` is too large.
    pub fn new(set: SetId, meta: &SnapshotMeta) -> Result<Self, StoreError> {
        let covers = codec::encode(meta)?;
        let mut part = Vec::with_capacity(PART_BYTES + 4_096);
        part.extend_from_slice(MAGIC);
        part.push(FORMAT_VERSION);
        part.extend_from_slice(&set.to_le_bytes());
        part.extend_from_slice(&length(&covers)?);
        part.extend_from_slice(&covers);
        Ok(Encoder { part, checksum: crc32fast::Hasher::new(), count: 0 })
    }

    /// Adds a record. Returns the part if the record completes one.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if key or value is too large.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.part.extend_from_slice(&length(key)?);
        self.part.extend_from_slice(&length(value)?);
        self.part.extend_from_slice(key);
        self.part.extend_from_slice(value);
        self.count += 1;
        if self.part.len() < PART_BYTES {
            return Ok(None);
        }
        assert!(self.part.len() <= PART_BYTES_MAX, "a receiver refuses such a part");
        self.checksum.update(&self.part);
        let next = Vec::with_capacity(PART_BYTES + 4_096);
        Ok(Some(std::mem::replace(&mut self.part, next)))
    }

    /// Ends the snapshot. Returns its last part.
    pub fn finish(mut self) -> Vec<u8> {
        self.part.extend_from_slice(&END.to_le_bytes());
        self.part.extend_from_slice(&self.count.to_le_bytes());
        self.checksum.update(&self.part);
        self.part.extend_from_slice(&self.checksum.finalize().to_le_bytes());
        self.part
    }
}

/// The part of a snapshot that comes next.
enum Expects {
    Header,
    Records,
    Nothing,
}

/// Decodes a snapshot that comes in pieces of any size.
pub struct Decoder {
    set: SetId,
    meta: Option<SnapshotMeta>,
    expects: Expects,
    /// The bytes that came and were not decoded yet.
    rest: Vec<u8>,
    checksum: crc32fast::Hasher,
    count: u64,
}

impl Decoder {
    /// A decoder for a snapshot of `set`.
    pub fn new(set: SetId) -> Self {
        Decoder {
            set,
            meta: None,
            expects: Expects::Header,
            rest: Vec::new(),
            checksum: crc32fast::Hasher::new(),
            count: 0,
        }
    }

    /// Takes the next bytes and calls `each` with the key and the value of every record that they
    /// complete. The records can be trusted only after [`Decoder::finish`].
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the bytes are not a snapshot of this set; the error of `each`.
    pub fn read(
        &mut self, bytes: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(used) = self.next(&rest[at..], &mut each)? {
            at += used;
        }
        rest.drain(..at);
        self.rest = rest;
        Ok(())
    }

    /// Ends the snapshot. Returns what it covers.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the end of the snapshot did not come yet.
    pub fn finish(self) -> Result<SnapshotMeta, StoreError> {
        match (self.expects, self.meta) {
            (Expects::Nothing, Some(meta)) => Ok(meta),
            (Expects::Header | Expects::Records | Expects::Nothing, _) => {
                Err(damaged("it ends too early"))
            }
        }
    }

    /// Decodes the item at the start of `bytes`. Returns its length, or `None` if it is not complete.
    fn next(
        &mut self, bytes: &[u8], each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<Option<usize>, StoreError> {
        match self.expects {
            Expects::Header => self.head(bytes),
            Expects::Records if u32_at(bytes, 0) == Some(END) => self.end(bytes),
            Expects::Records => self.record(bytes, each),
            Expects::Nothing if bytes.is_empty() => Ok(None),
            Expects::Nothing => Err(damaged("there are bytes after its end")),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, StoreError> {
        let magic = &MAGIC[..bytes.len().min(MAGIC.len())];
        if !bytes.starts_with(magic) {
            return Err(damaged("it does not begin as a snapshot does"));
        }
        match bytes.get(8) {
            Some(&FORMAT_VERSION) | None => {}
            Some(version) => {
                return Err(damaged(&format!(
                    "its format version is {version}, and this release reads version {FORMAT_VERSION}"
                )));
            }
        }
        let (Some(set), Some(length)) = (u32_at(bytes, 9), u32_at(bytes, 13)) else {
            return Ok(None);
        };
        if set != self.set {
            return Err(damaged(&format!("it is of set {set}, not of {}", self.set)));
        }
        let end = 17 + bounded(length)?;
        let Some(head) = bytes.get(..end) else {
            return Ok(None);
        };
        let meta = codec::decode(&head[17..]).map_err(|error| damaged(&error.to_string()))?;
        self.checksum.update(head);
        self.meta = Some(meta);
        self.expects = Expects::Records;
        Ok(Some(end))
    }

    fn record(
        &mut self, bytes: &[u8], each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<Option<usize>, StoreError> {
        let (Some(key), Some(value)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else {
            return Ok(None);
        };
        let key_end = 8 + bounded(key)?;
        let end = key_end + bounded(value)?;
        let Some(record) = bytes.get(..end) else {
            return Ok(None);
        };
        self.checksum.update(record);
        self.count += 1;
        each(&record[8..key_end], &record[key_end..])?;
        Ok(Some(end))
    }

    fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, StoreError> {
        let Some((end, checksum)) = bytes
            .split_first_chunk::<12>()
            .and_then(|(end, rest)| Some((end, rest.first_chunk::<4>()?)))
        else {
            return Ok(None);
        };
        self.checksum.update(end);
        let found = self.checksum.clone().finalize();
        let count = end.last_chunk().map(|count| u64::from_le_bytes(*count));
        if found != u32::from_le_bytes(*checksum) || count != Some(self.count) {
            return Err(damaged("its checksum or its number of records is wrong"));
        }
        self.expects = Expects::Nothing;
        Ok(Some(16))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

fn bounded(length: u32) -> Result<usize, StoreError> {
    match length {
        0..=RECORD_BYTES_MAX => Ok(length as usize),
        _ => Err(damaged("it holds a key or a value that is too large")),
    }
}

fn damaged(why: &str) -> StoreError {
    StoreError::invalid(format!(
        "the snapshot that arrives is damaged: {why}; it is discarded, and the leader sends another"
    ))
}

fn length(bytes: &[u8]) -> Result<[u8; 4], StoreError> {
    match u32::try_from(bytes.len()) {
        Ok(length) if length <= RECORD_BYTES_MAX => Ok(length.to_le_bytes()),
        _ => Err(StoreError::invalid(format!(
            "a snapshot cannot carry a key or value of {} bytes: the limit is {RECORD_BYTES_MAX}",
            bytes.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    fn records() -> Records {
        let record = |n: u32| (n.to_be_bytes().to_vec(), vec![7; n as usize % 300]);
        (0..3_000).map(record).collect()
    }

    fn written(records: &Records) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new(1, &SnapshotMeta::default()).unwrap();
        let mut parts = Vec::new();
        for (key, value) in records {
            parts.extend(encoder.record(key, value).unwrap());
        }
        parts.push(encoder.finish());
        parts
    }

    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Records, StoreError> {
        let mut decoder = Decoder::new(1);
        let mut records = Vec::new();
        for piece in pieces {
            decoder.read(piece, |key, value| {
                records.push((key.to_vec(), value.to_vec()));
                Ok(())
            })?;
        }
        decoder.finish().map(|_| records)
    }

    #[test]
    fn a_snapshot_is_decoded_from_pieces_of_any_size() {
        let parts = written(&records());
        assert!(parts.len() > 1);
        assert_eq!(read(parts.iter().map(Vec::as_slice)).unwrap(), records());
        let whole = parts.concat();
        for size in [1, 3, 17, 4_096, whole.len()] {
            assert_eq!(read(whole.chunks(size)).unwrap(), records(), "{size}");
        }
    }

    #[test]
    fn a_snapshot_with_a_changed_missing_or_extra_byte_is_refused() {
        let whole = written(&records()[..20].to_vec()).concat();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            assert!(read(changed.chunks(64)).is_err(), "byte {at} changed");
            assert!(read(whole[..at].chunks(64)).is_err(), "ends at {at}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert!(read(longer.chunks(64)).is_err());
        let other = Decoder::new(2).read(&whole, |_, _| Ok(())).unwrap_err();
        assert!(other.to_string().contains("of set 1, not of 2"), "{other}");
    }
}
