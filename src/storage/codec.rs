//! How values become bytes, for the disk and for peers. Only this file knows bincode.
//!
//! Invariant: encoded values start with the version of their format; bytes that are not exactly one
//! value of the known version are refused. Stored records also carry a checksum.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Serialize, de::DeserializeOwned};

use super::error::StoreError;
use crate::version;

/// The version of the format that this release writes and reads.
pub const VERSION: u8 = 12;

/// The largest value, in bytes. A value that says it is larger is refused before memory is allocated
/// for it.
const VALUE_BYTES_MAX: usize = 64 << 20;

const FORMAT: Configuration<LittleEndian, Varint, Limit<VALUE_BYTES_MAX>> =
    bincode::config::standard().with_limit::<VALUE_BYTES_MAX>();

/// Why bytes cannot be decoded, or a value not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes are fewer than a header.
    #[error("it has {0} bytes, fewer than a header")]
    Short(usize),
    /// Another release wrote the value.
    #[error(
        "it has format version {0}, and release {release} reads version {VERSION}",
        release = version::VERSION
    )]
    Version(u8),
    /// The bytes changed since they were written.
    #[error("its checksum is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum that was written with them.
        expected: u32,
    },
    /// Bytes follow the value.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// The bytes are not a value of this type, or the value is too large. The text is bincode's.
    #[error("{0}")]
    Format(String),
}

impl From<CodecError> for StoreError {
    fn from(error: CodecError) -> Self {
        StoreError::Invalid(format!("a record cannot be written: {error}"))
    }
}

/// Encodes a value for a peer: version and payload. The connection has checksums of its own.
///
/// # Errors
/// [`CodecError::Format`] if the value is too large.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![VERSION];
    append(value, &mut bytes)?;
    Ok(bytes)
}

/// Decodes what [`encode`] wrote.
///
/// # Errors
/// [`CodecError`] if the bytes are not exactly one value of this version.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (&version, payload) = bytes.split_first().ok_or(CodecError::Short(0))?;
    check_version(version)?;
    read(payload)
}

/// Encodes a value for the disk: version, CRC-32 of the payload, payload.
///
/// # Errors
/// [`CodecError::Format`] if the value is too large.
pub fn encode_record<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![VERSION, 0, 0, 0, 0];
    append(value, &mut bytes)?;
    let checksum = crc32fast::hash(&bytes[5..]).to_le_bytes();
    bytes[1..5].copy_from_slice(&checksum);
    Ok(bytes)
}

/// Decodes what [`encode_record`] wrote.
///
/// # Errors
/// [`CodecError::Checksum`] if a byte of the payload changed; other [`CodecError`]s if the bytes are not
/// exactly one value of this version.
pub fn decode_record<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    read(check_record(bytes)?)
}

/// The payload of what [`encode_record`] wrote.
///
/// # Errors
/// [`CodecError`] if a byte of the payload changed, or it has another version.
pub fn check_record(bytes: &[u8]) -> Result<&[u8], CodecError> {
    let short = || CodecError::Short(bytes.len());
    let (header, payload) = bytes.split_first_chunk::<5>().ok_or_else(short)?;
    let [version, checksum @ ..] = header;
    check_version(*version)?;
    let expected = u32::from_le_bytes(*checksum);
    let found = crc32fast::hash(payload);
    if found != expected {
        return Err(CodecError::Checksum { found, expected });
    }
    Ok(payload)
}

fn check_version(version: u8) -> Result<(), CodecError> {
    match version {
        VERSION => Ok(()),
        other => Err(CodecError::Version(other)),
    }
}

fn append<T: Serialize>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let written = bincode::serde::encode_into_std_write(value, bytes, FORMAT)
        .map_err(|e| CodecError::Format(e.to_string()))?;
    if written > VALUE_BYTES_MAX {
        let why = format!("it has {written} bytes, and a value has at most {VALUE_BYTES_MAX}");
        return Err(CodecError::Format(why));
    }
    Ok(())
}

fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, CodecError> {
    let (value, used) = bincode::serde::decode_from_slice(payload, FORMAT)
        .map_err(|e| CodecError::Format(e.to_string()))?;
    match payload.len() - used {
        0 => Ok(value),
        trailing => Err(CodecError::Trailing(trailing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_decoded_as_it_was_encoded_and_other_bytes_are_refused() {
        let value = (7u64, "seven".to_owned());
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<(u64, String)>(&bytes).unwrap(), value);
        assert_eq!(decode::<(u64, String)>(&[]), Err(CodecError::Short(0)));
        let later = VERSION + 1;
        assert_eq!(decode::<u8>(&[later, 1]), Err(CodecError::Version(later)));
        assert_eq!(decode::<u8>(&[VERSION, 1, 1]), Err(CodecError::Trailing(1)));
        assert!(decode::<(u64, String)>(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_allocated() {
        let mut bytes = vec![VERSION, 253];
        bytes.extend((1u64 << 60).to_le_bytes());
        assert!(matches!(decode::<Vec<u8>>(&bytes), Err(CodecError::Format(_))));
    }

    #[test]
    fn a_value_above_the_limit_is_not_written() {
        let value = "x".repeat(VALUE_BYTES_MAX);
        let refused = encode_record(&value).unwrap_err().to_string();
        assert!(refused.contains("at most 67108864"), "{refused}");
    }

    #[test]
    fn a_record_with_any_byte_changed_is_refused() {
        let bytes = encode_record(&(7u64, 300u64)).unwrap();
        assert_eq!(decode_record::<(u64, u64)>(&bytes).unwrap(), (7, 300));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(decode_record::<(u64, u64)>(&changed).is_err(), "byte {at}");
        }
        assert_eq!(decode_record::<u64>(&bytes[..3]), Err(CodecError::Short(3)));
    }
}
