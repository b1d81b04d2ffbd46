//! Whether the members of a cluster can reach each other at the addresses that they advertise.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{
    node::config::host_of,
    proto::{Refusal, refuse},
    sequence::NodeId,
    storage::Member,
};

/// Refuses members of which some advertise an address of the loopback interface and others do not: a loopback address leads
/// each node to itself.
///
/// # Errors
/// FAILED_PRECONDITION; the text says what to set.
pub fn check_reach(members: &BTreeMap<NodeId, Member>) -> Result<(), Refusal> {
    let peers: fn(&Member) -> &str = |member| &member.peer_address;
    let clients: fn(&Member) -> &str = |member| &member.client_address;
    let kinds = [
        (peers, "peers", "peer_listen and peer_advertise (or its entry in peers)"),
        (clients, "clients", "listen and advertise"),
    ];
    for (address, of, settings) in kinds {
        let at = |loopback: bool| {
            members.iter().find(|(_, member)| is_loopback(address(member)) == loopback)
        };
        let (Some((here, hidden)), Some((there, open))) = (at(true), at(false)) else {
            continue;
        };
        refuse!(
            WrongState,
            "node {here} tells {of} the address {}, which leads every other machine to itself, and node {there} at {} is on \
             another one: set {settings} on node {here} to an address that all reach, start it again, and, if it is a member \
             already, tell the others: ratchet node update {here} --peer-address HOST:PORT",
            address(hidden),
            address(open),
        );
    }
    Ok(())
}

/// True if an address, "host:port", leads each machine to itself.
fn is_loopback(address: &str) -> bool {
    let host = host_of(address);
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(peer_address: &str, client_address: &str) -> Member {
        Member {
            peer_address: peer_address.to_owned(),
            client_address: client_address.to_owned(),
            incarnation: 1,
        }
    }

    #[test]
    fn members_on_loopback_and_members_on_a_network_do_not_go_together() {
        let check = |one: Member, two: Member| {
            let checked = check_reach(&BTreeMap::from([(1, one), (2, two)]));
            checked.map_err(|refusal| refusal.message().to_owned())
        };
        let open = || member("10.0.0.2:7601", "two.example:7600");
        assert_eq!(check(open(), open()), Ok(()));
        let hidden = || member("127.0.0.1:7601", "127.3.2.1:7600");
        assert_eq!(check(hidden(), hidden()), Ok(()), "all on one machine");
        for loopback in ["127.0.0.1:7601", "localhost:7601", "[::1]:7601", "[::ffff:127.0.0.1]:1"] {
            let refused = check(member(loopback, "10.0.0.1:7600"), open()).unwrap_err();
            for part in ["node 1 tells peers", loopback, "10.0.0.2:7601", "peer_advertise"] {
                assert!(refused.contains(part), "{part:?} is not in {refused}");
            }
        }
        let refused = check(open(), member("10.0.0.1:7601", "127.0.0.1:7600")).unwrap_err();
        for part in ["node 2 tells clients", "two.example:7600", "listen and advertise"] {
            assert!(refused.contains(part), "{part:?} is not in {refused}");
        }
    }
}
