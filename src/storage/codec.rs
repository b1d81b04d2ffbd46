//! How values become bytes: the only place that knows bincode.
//!
//! Invariant: every value starts with the version of its format, and bytes that are not exactly one
//! value of a known version are refused. Stored records carry a checksum as well.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Serialize, de::DeserializeOwned};

use super::error::StoreError;
use crate::version;

/// The version of the format that is written, and read.
pub const VERSION: u8 = 3;

/// No value is larger, in bytes: what claims to be is refused before memory is set aside for it.
const VALUE_BYTES_MAX: usize = 64 << 20;

const FORMAT: Configuration<LittleEndian, Varint, Limit<VALUE_BYTES_MAX>> =
    bincode::config::standard().with_limit::<VALUE_BYTES_MAX>();

/// Why bytes are not a value, or a value cannot be bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// There are not enough bytes for a header.
    #[error("{0} bytes are too few")]
    Short(usize),
    /// Written by another release.
    #[error(
        "format version {0}, where release {release} reads version {VERSION}",
        release = version::VERSION
    )]
    Version(u8),
    /// The bytes changed since they were written.
    #[error("checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Of the bytes as they are.
        found: u32,
        /// As written.
        expected: u32,
    },
    /// More bytes than the value has.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// Not a value of this type.
    #[error("{0}")]
    Format(String),
}

impl From<CodecError> for StoreError {
    fn from(error: CodecError) -> Self {
        StoreError::Invalid(format!("a record cannot be written: {error}"))
    }
}

/// A value for a peer: version and payload (the connection has its own checksums).
///
/// # Errors
/// [`CodecError::Format`] if the value is too large.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![VERSION];
    append(value, &mut bytes)?;
    Ok(bytes)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// [`CodecError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (&version, payload) = bytes.split_first().ok_or(CodecError::Short(0))?;
    check_version(version)?;
    read(payload)
}

/// A value for the disk: version, CRC-32 of the payload, payload.
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

/// Reads what [`encode_record`] wrote.
///
/// # Errors
/// [`CodecError`]; a changed byte shows as [`CodecError::Checksum`].
pub fn decode_record<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let short = || CodecError::Short(bytes.len());
    let (header, payload) = bytes.split_first_chunk::<5>().ok_or_else(short)?;
    let [version, checksum @ ..] = header;
    check_version(*version)?;
    let expected = u32::from_le_bytes(*checksum);
    let found = crc32fast::hash(payload);
    if found != expected {
        return Err(CodecError::Checksum { found, expected });
    }
    read(payload)
}

fn check_version(version: u8) -> Result<(), CodecError> {
    match version {
        VERSION => Ok(()),
        other => Err(CodecError::Version(other)),
    }
}

fn append<T: Serialize>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_std_write(value, bytes, FORMAT)
        .map(drop)
        .map_err(|e| CodecError::Format(e.to_string()))
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
    fn values_come_back_and_anything_else_is_refused() {
        let value = (7u64, "seven".to_owned());
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<(u64, String)>(&bytes).unwrap(), value);
        assert_eq!(decode::<(u64, String)>(&[]), Err(CodecError::Short(0)));
        assert_eq!(decode::<u8>(&[9, 1]), Err(CodecError::Version(9)));
        assert_eq!(decode::<u8>(&[VERSION, 1, 1]), Err(CodecError::Trailing(1)));
        assert!(decode::<(u64, String)>(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_set_aside() {
        let mut bytes = vec![VERSION, 253];
        bytes.extend((1u64 << 60).to_le_bytes());
        assert!(matches!(
            decode::<Vec<u8>>(&bytes),
            Err(CodecError::Format(_))
        ));
    }

    #[test]
    fn a_changed_byte_of_a_stored_record_is_noticed_wherever_it_is() {
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
