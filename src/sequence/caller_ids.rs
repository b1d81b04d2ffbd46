//! The id of a caller where callers share something: that of its principal, or of the network that it asks from.

use std::net::IpAddr;

/// The beginning of the ids of networks that are addresses of IPv4: 32 bits that no network of IPv6 has.
pub(super) const IPV4: u64 = 0xffff;

/// Stands for no address: of a caller that no connection tells of.
pub const NO_NETWORK: u64 = u64::MAX;

/// The beginning of the ids of principals, among those of networks: 8 bits of addresses from which nobody asks (multicast),
/// and one that [`NO_NETWORK`] has not.
const PRINCIPAL: u64 = 0xff << 1;

const PRINCIPAL_BITS: u32 = 9;

/// The id of a principal of this name where callers share something. For an address, see [`network_of`]. All nodes give a name
/// the same id. Two names may have one id, if rarely: they share one share then. (The hash is FNV-1a: Fowler, Noll and Vo.)
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

/// The id of an address and its neighbours: the half of an IPv6 address that names its network, or an IPv4 address
/// after bits that no network has.
pub fn network_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => IPV4 << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}
