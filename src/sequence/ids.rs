//! What has a name: clusters, nodes, sets, namespaces, sections and keys.

use std::{fmt, net::IpAddr};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// How long an id of a cluster is where it is printed, and at which places its hyphens stand.
const PRINTED_BYTES: usize = 36;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Identifies a cluster: a UUID of version 4, drawn at its founding. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterId([u8; 16]);

impl ClusterId {
    /// The id that is made of these random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        ClusterId(bytes)
    }

    /// The id with these bytes; `None` if there are not 16 of them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(ClusterId)
    }

    /// The id that is printed as `text`, in digits of either case; `None` if there is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != PRINTED_BYTES {
            return None;
        }
        let (mut bytes, mut digits) = ([0; 16], 0);
        for (place, written) in text.iter().enumerate() {
            if HYPHENS.contains(&place) {
                (*written == b'-').then_some(())?;
                continue;
            }
            let digit = char::from(*written).to_digit(16)?;
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit as u8;
            digits += 1;
        }
        Some(ClusterId(bytes))
    }

    /// Its bytes, in the order in which they are printed.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Identifies a node of a cluster. Chosen by the operator, at least 1, never reused.
pub type NodeId = u64;

/// Identifies a set: one Raft group with the sections that it owns.
pub type SetId = u32;

/// Identifies a namespace inside a cluster. Assigned at creation, from 1, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespaceId(pub u32);

/// Identifies a section inside its namespace: the keys that share one ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SectionKey {
    /// The `section_size` ids that begin at this number x `section_size`.
    Id(u64),
    /// The one key with this name.
    Name(Box<[u8]>),
}

impl SectionKey {
    /// How many bytes it has where it is stored, at most.
    pub fn bytes(&self) -> usize {
        match self {
            SectionKey::Id(_) => size_of::<u64>(),
            SectionKey::Name(name) => name.len(),
        }
    }
}

/// Identifies a section of a set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SectionId {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Which section of the namespace.
    pub key: SectionKey,
}

// Keys. Each key of a namespace has a sequence of its own.

/// The greatest length of a byte-string key, in bytes.
pub const KEY_NAME_BYTES_MAX: usize = 256;

/// Which kind of key a namespace takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyKind {
    /// Unsigned 64-bit integers.
    Id,
    /// Byte strings of 1 to [`KEY_NAME_BYTES_MAX`] bytes.
    Name,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::Id => "id (an unsigned 64-bit integer)",
            KeyKind::Name => "name (a byte string)",
        })
    }
}

/// What a sequence belongs to: a book, a user, a conversation. Borrowed from its message, so that handing
/// out numbers allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key<'a> {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// A byte string.
    Name(&'a [u8]),
}

/// A key that outlives its message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnedKey {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// A byte string.
    Name(Bytes),
}

impl OwnedKey {
    /// The key, borrowed.
    pub fn as_key(&self) -> Key<'_> {
        match self {
            OwnedKey::Id(id) => Key::Id(*id),
            OwnedKey::Name(name) => Key::Name(name),
        }
    }

    /// How many bytes it holds besides its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            OwnedKey::Id(_) => 0,
            OwnedKey::Name(name) => name.len(),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Id(id) => OwnedKey::Id(id),
            Key::Name(name) => OwnedKey::Name(Bytes::copy_from_slice(name)),
        }
    }
}

/// Why a byte string is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has no bytes.
    #[error("the key is empty; give an id or a name of 1 to {KEY_NAME_BYTES_MAX} bytes")]
    Empty,
    /// It has too many bytes.
    #[error("the key has {0} bytes; a name has at most {KEY_NAME_BYTES_MAX}")]
    TooLong(usize),
}

impl<'a> Key<'a> {
    /// A byte-string key.
    ///
    /// # Errors
    /// [`InvalidKey`] if it is empty or has more than [`KEY_NAME_BYTES_MAX`] bytes.
    pub fn name(bytes: &'a [u8]) -> Result<Self, InvalidKey> {
        match bytes.len() {
            0 => Err(InvalidKey::Empty),
            1..=KEY_NAME_BYTES_MAX => Ok(Key::Name(bytes)),
            longer => Err(InvalidKey::TooLong(longer)),
        }
    }

    /// The kind of this key.
    pub fn kind(&self) -> KeyKind {
        match self {
            Key::Id(_) => KeyKind::Id,
            Key::Name(_) => KeyKind::Name,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Id(id) => write!(f, "{id}"),
            Key::Name(name) => write!(f, "\"{}\"", name.escape_ascii()),
        }
    }
}

/// The URI by which a certificate names a node.
pub fn node_uri(cluster: &str, node: NodeId) -> String {
    format!("ratchet://{cluster}/{node}")
}

/// The URI by which a certificate names a client. No node has it: ids of nodes are numbers.
pub fn client_uri(cluster: &str, name: &str) -> String {
    format!("ratchet://{cluster}/client/{name}")
}

/// What the names of networks that are addresses of IPv4 begin with: 32 bits that no network of IPv6 has.
pub(super) const IPV4: u64 = 0xffff;

/// Stands for no address: of a caller that no connection tells of.
pub const NO_NETWORK: u64 = u64::MAX;

/// What the ids of principals begin with, among those of networks: 8 bits of addresses from which nobody asks (multicast), and one
/// that [`NO_NETWORK`] has not.
const PRINCIPAL: u64 = 0xff << 1;
const PRINCIPAL_BITS: u32 = 9;

/// What stands for a principal of this name where callers share something: for each address, [`network_of`] it stands there. All
/// nodes say the same. Two names may have one id, if rarely: they share one share then. (The hash is FNV-1a: Fowler, Noll and Vo.)
pub fn principal_id(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    PRINCIPAL << (64 - PRINCIPAL_BITS) | hash >> PRINCIPAL_BITS
}

/// Whether it is the id of a principal, and of no network.
pub fn is_principal(id: u64) -> bool {
    id >> (64 - PRINCIPAL_BITS) == PRINCIPAL
}

/// What stands for an address and its neighbours: the half of an IPv6 address that names its network, or an IPv4 address
/// after bits that no network has.
pub fn network_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => IPV4 << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_cluster_is_printed_as_a_uuid_of_version_4() {
        let id = ClusterId::from_random([0xff; 16]);
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let id = ClusterId::from_random([0; 16]);
        assert_eq!(id.to_string(), "00000000-0000-4000-8000-000000000000");
        assert_eq!(ClusterId::from_bytes(id.as_bytes()), Some(id));
        assert_eq!(ClusterId::from_bytes(&[1; 15]), None);
    }

    #[test]
    fn an_id_of_a_cluster_is_read_as_it_is_printed_and_nothing_else_is_one() {
        let id = ClusterId::from_random([0xb7; 16]);
        let printed = id.to_string();
        assert_eq!(ClusterId::parse(printed.as_bytes()), Some(id));
        assert_eq!(ClusterId::parse(printed.to_ascii_uppercase().as_bytes()), Some(id));
        let swapped = printed.replace('-', "b").replacen("bb", "--", 1);
        for none in ["", "x", &printed[1..], &printed.replace('b', "g"), &swapped, &"-".repeat(36)]
        {
            assert_eq!(ClusterId::parse(none.as_bytes()), None, "{none}");
        }
        assert_eq!(ClusterId::parse(&[0xff; 36]), None);
    }

    #[test]
    fn a_name_has_1_to_256_bytes() {
        assert_eq!(Key::name(b""), Err(InvalidKey::Empty));
        assert!(Key::name(&[7; 256]).is_ok());
        assert_eq!(Key::name(&[7; 257]), Err(InvalidKey::TooLong(257)));
    }

    #[test]
    fn the_uris_of_nodes_and_of_clients_are_what_certificates_have_had_from_the_first() {
        assert_eq!(node_uri("orders", 1), "ratchet://orders/1");
        assert_eq!(client_uri("orders", "1"), "ratchet://orders/client/1");
    }
}
