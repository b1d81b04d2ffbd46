//! Ranges of addresses: where callers are to which something is granted.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

use super::limits::InvalidAccess;
use crate::sequence::caller_ids::{IPV4, NO_NETWORK, network_of};

/// The ranges that nobody has on the Internet: private, shared and link-local ones, and loopback.
static PRIVATE: LazyLock<Vec<AddressRange>> = LazyLock::new(|| {
    let ranges = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "127.0.0.0/8",
        "fc00::/7",
        "fe80::/10",
        "::/64",
    ];
    ranges.iter().filter_map(|range| AddressRange::parse(range).ok()).collect()
});

/// The addresses that begin with the same bits, as in 10.1.0.0/16. Of IPv6, at most the 64 bits that name a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressRange {
    network: u64,
    bits: u8,
}

impl AddressRange {
    /// Reads a range, or a single address.
    ///
    /// # Errors
    /// [`InvalidAccess`] if it is none, names bits beyond its length, or splits a network of IPv6.
    pub fn parse(text: &str) -> Result<Self, InvalidAccess> {
        let invalid = || InvalidAccess::Addresses(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| invalid())?)),
        };
        let address = address.parse::<IpAddr>().map_err(|_| invalid())?;
        // Where the bits of the address begin in what names its network, and how many there are.
        let (begin, most) = if address.is_ipv4() { (32, 32) } else { (0, 64) };
        let is_whole = match address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => bits.is_some() && address.to_bits() as u64 == 0,
        };
        let bits = bits.unwrap_or(most);
        if !is_whole || bits == 0 || bits > most {
            return Err(invalid());
        }
        let range = AddressRange { network: network_of(address), bits: begin + bits };
        match range.network & !range.mask() {
            0 => Ok(range),
            _ => Err(invalid()),
        }
    }

    fn is_ipv4(self) -> bool {
        self.bits > 32 && self.network >> 32 == IPV4
    }

    /// Whether nobody on the Internet has an address in it: who is granted something there is no stranger.
    pub fn is_private(self) -> bool {
        PRIVATE.iter().any(|range| range.contains(self))
    }

    /// Whether all addresses of `other` are in it.
    pub fn contains(self, other: AddressRange) -> bool {
        self.bits <= other.bits && self.has(other.network)
    }

    fn mask(self) -> u64 {
        u64::MAX.checked_shl(64 - u32::from(self.bits)).unwrap_or(0)
    }

    /// Whether the address is in it that `network` names.
    pub(super) fn has(self, network: u64) -> bool {
        // The bits that stand for an address of IPv4 are those of no network of IPv6.
        let is_of_family = self.is_ipv4() == (network >> 32 == IPV4);
        is_of_family && network != NO_NETWORK && network & self.mask() == self.network
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_ipv4() {
            let address = Ipv6Addr::from_bits(u128::from(self.network) << 64);
            return write!(f, "{address}/{}", self.bits);
        }
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.network as u32), self.bits - 32)
    }
}
