//! The ids of clusters, nodes, sets, namespaces and sections.

use std::fmt;

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
        // At once, and not byte by byte: every answer to a caller that knows no route tells it.
        let hex = format!("{:032x}", u128::from_be_bytes(self.0));
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
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
}
