//! The format of a snapshot's file: magic, format version, set, what it covers, the records one
//! after the other, their number, and a CRC-32 of all before it.
//!
//! Invariant: no byte of a file that [`scan`] has read to the end differs from what [`write`] wrote.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use super::{codec, error::StoreError, raft_types::SnapshotMeta};
use crate::sequence::SetId;

/// A record's key and value.
pub type Record = (Box<[u8]>, Box<[u8]>);

const MAGIC: &[u8; 8] = b"RATCHSNP";
const FORMAT_VERSION: u8 = 1;
/// Stands where a record's key length would, after the last record.
const END: u32 = u32::MAX;
/// No record is larger, in bytes.
const RECORD_BYTES_MAX: u32 = 1 << 20;

/// Writes a whole file and brings it to the disk.
///
/// # Errors
/// [`StoreError`]: the disk's, or the records'.
pub fn write(
    path: &Path,
    set: SetId,
    meta: &SnapshotMeta,
    records: impl Iterator<Item = Result<Record, StoreError>>,
) -> Result<(), StoreError> {
    let io = || StoreError::io("cannot write", path);
    let mut writer = Checksummed {
        inner: BufWriter::new(File::create(path).map_err(io())?),
        checksum: crc32fast::Hasher::new(),
    };
    let mut put = |bytes: &[u8]| writer.write_all(bytes).map_err(io());
    let about = codec::encode(meta)?;
    put(MAGIC)?;
    put(&[FORMAT_VERSION])?;
    put(&set.to_le_bytes())?;
    put(&length(&about)?)?;
    put(&about)?;
    let mut count = 0u64;
    for record in records {
        let (key, value) = record?;
        put(&length(&key)?)?;
        put(&length(&value)?)?;
        put(&key)?;
        put(&value)?;
        count += 1;
    }
    put(&END.to_le_bytes())?;
    put(&count.to_le_bytes())?;
    let checksum = writer.checksum.clone().finalize();
    let finish = || {
        writer.inner.write_all(&checksum.to_le_bytes())?;
        let file = writer.inner.into_inner().map_err(io::Error::from)?;
        file.sync_all()
    };
    finish().map_err(io())
}

/// Reads what a file covers, and no more of it.
///
/// # Errors
/// [`StoreError`]: the disk's, or [`StoreError::Damaged`].
pub fn read_head(path: &Path, file: &File, set: SetId) -> Result<SnapshotMeta, StoreError> {
    Checked::new(path, BufReader::new(At { file, at: 0 })).head(set)
}

/// Reads a whole file, checking all of it, and calls `each` for every record.
///
/// # Errors
/// [`StoreError`]: the disk's, [`StoreError::Damaged`], or what `each` came to.
pub fn scan(
    path: &Path,
    file: &File,
    mut each: impl FnMut(Vec<u8>, Vec<u8>) -> Result<(), StoreError>,
) -> Result<(SetId, SnapshotMeta), StoreError> {
    let mut reader = Checked::new(
        path,
        BufReader::with_capacity(256 << 10, At { file, at: 0 }),
    );
    let (set, meta) = reader.any_head()?;
    let mut count = 0u64;
    loop {
        let key_length = reader.u32()?;
        if key_length == END {
            break;
        }
        let value_length = reader.u32()?;
        let key = reader.bytes(key_length)?;
        let value = reader.bytes(value_length)?;
        each(key, value)?;
        count += 1;
    }
    let expected_count = u64::from_le_bytes(reader.array()?);
    let found = reader.checksum.clone().finalize();
    let expected = u32::from_le_bytes(reader.array()?);
    if found != expected || count != expected_count {
        return Err(reader.damaged("its checksum does not fit"));
    }
    if reader
        .inner
        .read(&mut [0])
        .map_err(StoreError::io("cannot read", path))?
        != 0
    {
        return Err(reader.damaged("there are bytes after its end"));
    }
    Ok((set, meta))
}

/// Reads a shared file from its start, whatever others read of it.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

struct Checked<'a, R> {
    path: &'a Path,
    inner: R,
    checksum: crc32fast::Hasher,
}

impl<'a, R: Read> Checked<'a, R> {
    fn new(path: &'a Path, inner: R) -> Self {
        Checked {
            path,
            inner,
            checksum: crc32fast::Hasher::new(),
        }
    }

    fn damaged(&self, why: &str) -> StoreError {
        StoreError::Damaged {
            what: "the snapshot".to_owned(),
            place: self.path.to_owned(),
            why: why.to_owned(),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), StoreError> {
        match self.inner.read_exact(buffer) {
            Ok(()) => {
                self.checksum.update(buffer);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged("it ends too early"))
            }
            Err(error) => Err(StoreError::io("cannot read", self.path)(error)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, StoreError> {
        self.array().map(u32::from_le_bytes)
    }

    fn bytes(&mut self, length: u32) -> Result<Vec<u8>, StoreError> {
        if length > RECORD_BYTES_MAX {
            return Err(self.damaged("it holds a record that is too large"));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn any_head(&mut self) -> Result<(SetId, SnapshotMeta), StoreError> {
        if &self.array::<8>()? != MAGIC {
            return Err(self.damaged("it is not a snapshot"));
        }
        let [version] = self.array()?;
        if version != FORMAT_VERSION {
            let why =
                format!("its format version is {version}, this release reads {FORMAT_VERSION}");
            return Err(self.damaged(&why));
        }
        let set = self.u32()?;
        let length = self.u32()?;
        let about = self.bytes(length)?;
        let meta = codec::decode(&about).map_err(|error| self.damaged(&error.to_string()))?;
        Ok((set, meta))
    }

    fn head(&mut self, set: SetId) -> Result<SnapshotMeta, StoreError> {
        match self.any_head()? {
            (found, meta) if found == set => Ok(meta),
            (found, _) => Err(self.damaged(&format!("it is of set {found}"))),
        }
    }
}

fn length(bytes: &[u8]) -> Result<[u8; 4], StoreError> {
    match u32::try_from(bytes.len()) {
        Ok(length) if length <= RECORD_BYTES_MAX => Ok(length.to_le_bytes()),
        _ => Err(StoreError::invalid(format!(
            "a record of {} bytes is too large for a snapshot",
            bytes.len()
        ))),
    }
}

struct Checksummed<W> {
    inner: W,
    checksum: crc32fast::Hasher,
}

impl<W: Write> Write for Checksummed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
