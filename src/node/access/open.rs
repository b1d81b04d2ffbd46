//! Finds what strangers may do on a node that they can reach. Such a node does not start, is not founded and is added to no
//! cluster, unless the setting `insecure` says so.
//!
//! Strangers reach a port for clients, or for administrators, beyond loopback that serves connections without TLS. They are
//! granted what everybody is, and what a range of addresses is that are not all private. Whether several ranges have every
//! address together is so never asked.

use std::{fmt, net::SocketAddr, sync::Arc};

use crate::{
    consensus::Group,
    node::{Config, config::ConfigError, settings::PeerTls},
    proto::{Refusal, refusal},
    sequence::{AddressRange, Grant, NodeId, Principals},
};

/// How many letters of a list of grants are told of a port that is open. The leader keeps the text of each member.
const GRANTED_MAX: usize = 256;

/// A port for clients, or for administrators, that strangers reach.
struct Reached {
    node: NodeId,
    setting: &'static str,
    address: SocketAddr,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { node, setting, address } = self;
        write!(f, "{setting} is {address}, where strangers reach node {node} without TLS")
    }
}

/// The ports of a node that strangers reach.
fn reached(config: &Config) -> impl Iterator<Item = Reached> {
    let ports = [
        ("listen", Some(config.listen)),
        ("http_listen", config.http_listen),
        ("resp_listen", config.resp_listen),
        ("admin_listen", config.admin_listen),
    ];
    let (node, is_plain) = (config.node_id, config.tls.takes_plain());
    ports.into_iter().filter_map(move |(setting, address)| {
        let address = address.filter(|at| is_plain && !at.ip().to_canonical().is_loopback())?;
        Some(Reached { node, setting, address })
    })
}

/// A port that strangers reach, unless the setting `insecure` allows that.
fn exposed(config: &Config) -> Option<Reached> {
    reached(config).next().filter(|_| !config.insecure)
}

/// Whether strangers reach a port of the node with this configuration that may not be open.
pub(super) fn is_exposed(config: &Config) -> bool {
    exposed(config).is_some()
}

/// Whether nobody can reach `address` but from its own machine. A name, even localhost, may lead elsewhere.
fn is_loopback(address: &str) -> bool {
    address.parse().is_ok_and(|at: SocketAddr| at.ip().to_canonical().is_loopback())
}

/// Where strangers reach the port for peers of the node with this configuration, and may say that they are a node; in words.
/// A connection to a loopback address may have been passed on from another one.
fn strangers_as_peers(config: &Config) -> Option<String> {
    if config.peer_tls == PeerTls::Require {
        return None;
    }
    let beyond = |address: &String| !is_loopback(address);
    let listen = Some(config.peer_listen.to_string()).filter(beyond);
    let advertised = config.peer_advertise.as_ref().filter(|address| beyond(address));
    let of_peers = config.peers.get(&config.node_id).filter(|address| beyond(address));
    let at = match (listen, advertised, of_peers) {
        (Some(address), ..) => format!("peer_listen is {address}"),
        (None, Some(address), _) => format!("peer_advertise is {address}"),
        (None, None, Some(address)) => format!("peers names the address {address}"),
        (None, None, None) => return None,
    };
    Some(format!("{at}, where strangers reach node {} without TLS", config.node_id))
}

/// Whether a node is at the other end of each connection to the port for peers of the node with this configuration: it shows
/// that by a certificate, or is on the same machine.
pub fn are_peers_nodes(config: &Config) -> bool {
    strangers_as_peers(config).is_none()
}

/// Sees that nobody can tell the leader of a principal that is not there, in a cluster whose nodes are reached by their peers
/// at `addresses`, as far as this node's configuration tells.
///
/// # Errors
/// FAILED_PRECONDITION if nodes talk without TLS beyond loopback.
pub(in crate::node) fn check_peer_addresses<'a>(
    config: &Config, mut addresses: impl Iterator<Item = &'a String>,
) -> Result<(), Refusal> {
    check_peer_port(config)?;
    match addresses.find(|address| !is_loopback(address)) {
        Some(address) if config.peer_tls != PeerTls::Require => Err(refusal!(
            WrongState,
            "nothing is changed: a node is reached by its peers at {address}, and node {} does not have peer_tls = require, so \
             anybody could pretend to speak for a token; set it on all nodes first, see the page about certificates",
            config.node_id
        )),
        Some(_) | None => Ok(()),
    }
}

/// Why the node with this configuration may not be in a cluster with tokens, if so.
fn false_peers(config: &Config) -> Option<String> {
    strangers_as_peers(config).map(|reached| {
        format!(
            "{reached}, and in a cluster with tokens they could pretend to be a node, and to speak for a token; set peer_tls = \
             require on all nodes, see the page about certificates"
        )
    })
}

/// Sees that the node with this configuration may be in a cluster with tokens.
///
/// # Errors
/// FAILED_PRECONDITION if strangers pass for nodes there.
pub fn check_peer_port(config: &Config) -> Result<(), Refusal> {
    match false_peers(config) {
        Some(why) => Err(refusal!(WrongState, "nothing is changed: {why}")),
        None => Ok(()),
    }
}

/// The grants of strangers in words; `None` if they have none.
fn strangers_have(principals: &Principals) -> Option<String> {
    match principals.is_open() {
        true => Some("everything".to_owned()),
        false => in_words(principals.granted_to_strangers()),
    }
}

/// The grants in words; `None` if there is none.
fn in_words<'a>(
    granted: impl Iterator<Item = (Option<AddressRange>, &'a Grant)>,
) -> Option<String> {
    let grants: Vec<String> = granted.map(in_word).collect();
    (!grants.is_empty()).then(|| grants.join(", "))
}

fn in_word((addresses, grant): (Option<AddressRange>, &Grant)) -> String {
    addresses.map_or_else(|| grant.to_string(), |range| format!("{grant} at {range}"))
}

/// Whether strangers are granted something.
pub fn is_open_to_strangers(principals: &Principals) -> bool {
    principals.granted_to_strangers().next().is_some()
}

/// Why a port for peers is refused in this cluster, if it is: strangers would pass for nodes there, and not everybody is
/// granted everything.
fn refused_peers(config: &Config, principals: &Principals) -> Option<String> {
    false_peers(config).filter(|_| !principals.is_open())
}

/// Sees that a node may start in a cluster of these principals.
///
/// # Errors
/// [`ConfigError`] if strangers reach it, and are granted something; or if they reach it as peers, and not everybody is granted
/// everything.
pub fn check_start(config: &Config, principals: &Principals) -> Result<(), ConfigError> {
    if let Some(why) = refused_peers(config, principals) {
        return Err(ConfigError(why));
    }
    let (Some(reached), Some(granted)) = (exposed(config), strangers_have(principals)) else {
        return Ok(());
    };
    Err(ConfigError(format!(
        "{reached}, and everybody is granted {granted}: set tls = require; or turn tokens on, and take that back, as the page \
         about tokens and grants tells step by step (nodes on several machines need peer_tls = require for that); or set \
         insecure = true if whoever reaches {} may have that. To turn tokens on, or if that was done while this node was away, \
         start it with its ports for clients on loopback, or with insecure = true, until it has heard of them",
        reached.address
    )))
}

/// Sees that a cluster may be founded without a token of which the node with this configuration is a member.
///
/// # Errors
/// FAILED_PRECONDITION if strangers reach the node.
pub fn check_founding(config: &Config) -> Result<(), Refusal> {
    let Some(reached) = exposed(config) else {
        return Ok(());
    };
    Err(refusal!(
        WrongState,
        "nothing is founded: {reached}, and in a cluster without a token everybody is granted everything: found it with one \
         (ratchet found --admin-token-file FILE; nodes on several machines need peer_tls = require for that), or set tls = require or insecure = true on node {}",
        config.node_id
    ))
}

/// Sees that the node with this configuration may be added to a cluster in which strangers are granted something.
///
/// # Errors
/// FAILED_PRECONDITION if strangers reach the node.
pub fn check_joining(config: &Config) -> Result<(), Refusal> {
    let Some(reached) = exposed(config) else {
        return Ok(());
    };
    Err(refusal!(
        WrongState,
        "nothing is added: {reached}, and in the cluster strangers are granted something: set tls = require or insecure = true \
         on node {}; or turn tokens on, and take that back, as the page about tokens and grants tells step by step (nodes on \
         several machines need peer_tls = require for that)",
        config.node_id
    ))
}

/// Sees that strangers may be granted what `after` has, on the leader with this configuration.
///
/// # Errors
/// FAILED_PRECONDITION if strangers reach the leader, and that is more than `before` has.
pub(in crate::node) fn check_granting(
    config: &Config, before: &Principals, after: &Principals,
) -> Result<(), Refusal> {
    let is_known = |(addresses, grant): &(Option<AddressRange>, &Grant)| {
        let is_there = |known: Option<AddressRange>| match (known, addresses) {
            (None, _) => true,
            (Some(known), Some(addresses)) => known.contains(*addresses),
            (Some(_), None) => false,
        };
        before.granted_to_strangers().any(|(at, known)| is_there(at) && known.covers(grant))
    };
    let more = after.granted_to_strangers().find(|granted| !is_known(granted));
    let (Some(reached), Some(more), false) = (exposed(config), more, before.is_open()) else {
        return Ok(());
    };
    Err(refusal!(
        WrongState,
        "nothing is changed: {reached}, and everybody would be granted {}: grant it to the private addresses that need it \
         (10.0.0.0/8 and the like), or set tls = require or insecure = true on all nodes",
        in_word(more)
    ))
}

/// As many grants of a list as are told.
fn first_of(granted: String) -> String {
    let Some((end, _)) = granted.char_indices().nth(GRANTED_MAX) else {
        return granted;
    };
    let whole = granted[..end].rfind(", ").unwrap_or(end);
    format!("{} and more", &granted[..whole])
}

/// The ports of a node that are open, to whom, and the grants there, in words; empty if none is.
fn told(config: &Config, principals: &Principals) -> String {
    let ports =
        reached(config).map(|Reached { setting, address, .. }| format!("{setting} {address}"));
    let ports = ports.collect::<Vec<_>>().join(" or ");
    let open = |to: &str, granted: Option<String>| {
        let granted = first_of(granted.filter(|_| !ports.is_empty())?);
        Some(format!(
            "node {} is open to {to}: whoever reaches {ports} is granted {granted}, without a token and without TLS",
            config.node_id
        ))
    };
    let private = in_words(principals.granted_to_private()).filter(|_| !principals.is_open());
    let all = [
        open("strangers", strangers_have(principals)),
        open("private addresses", private),
        refused_peers(config, principals).map(|why| {
            format!("{why}. Until then the node takes no message of a peer without TLS")
        }),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The ports of this node that are open, to whom, and the grants there, in words; empty if none is, or it belongs to no cluster
/// yet.
pub fn what_is_open(config: &Config, group: &Group) -> String {
    match group.view.cluster_id() {
        Some(_) => told(config, &group.view.principals()),
        None => String::new(),
    }
}

/// Warns of what is open, and tells the leader: once this node belongs to a cluster, and whenever it is something else.
pub async fn warn_of_what_is_open(config: Arc<Config>, group: Arc<Group>) {
    group.view.until_named().await;
    loop {
        let open = what_is_open(&config, &group);
        if !open.is_empty() {
            tracing::warn!("{open}");
        }
        group.this_node.tell_open(&open);
        group.view.until_principals(|known| told(&config, known) != open).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::settings::ClientTls,
        proto::v1::Reason,
        sequence::{AccessChange, NamespacePattern, PrincipalKey, TokenHash, Verb},
    };

    const STRANGE: [u8; 4] = [10, 0, 0, 1];

    fn grant(verb: Verb, namespaces: &str) -> Grant {
        Grant { verb, namespaces: NamespacePattern::parse(namespaces).expect("a pattern") }
    }

    /// Those of a cluster that was founded with a token, where anonymous is granted something.
    fn with(addresses: Option<&str>, grants: &[Grant]) -> Principals {
        let found = AccessChange::Found {
            admin: TokenHash([1; 32]),
            grants: Grant::everything(),
            now_ms: 0,
        };
        let addresses = addresses.map(|text| AddressRange::parse(text).expect("a range"));
        let key = PrincipalKey::Anonymous(addresses);
        let granted = AccessChange::Grant { key, grants: grants.to_vec(), principals_max: 9 };
        let mut principals = Principals::default();
        for (change, is_founded) in [(found, false), (granted, true)] {
            for (key, record) in change.records(&principals, is_founded).expect("records") {
                principals.put(key, record);
            }
        }
        principals
    }

    fn listening(change: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config { data_dir: "/data".into(), ..Config::default() };
        change(&mut config);
        config
    }

    fn refusal(config: &Config, principals: &Principals) -> String {
        check_start(config, principals).expect_err("it is open").0
    }

    #[test]
    fn a_node_that_strangers_reach_does_not_start_open_and_is_told_each_way_out() {
        let config = listening(|config| config.http_listen = Some((STRANGE, 7603).into()));
        let text = refusal(&config, &Principals::default());
        for part in [
            "http_listen is 10.0.0.1:7603",
            "everybody is granted everything",
            "set tls = require",
            "turn tokens on",
            "need peer_tls = require",
            "set insecure = true",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        // Over the socket, one command would shut out all callers before anybody has a token.
        assert!(!text.contains("ratchet grant"), "{text}");
        let some = with(None, &[grant(Verb::Next, "book"), grant(Verb::Read, "*")]);
        let text = refusal(&config, &some);
        assert!(text.contains("everybody is granted next:book, read:*: set"), "{text}");
        assert_eq!(check_start(&config, &with(None, &[])), Ok(()));
        let there = with(Some("10.0.0.0/8"), &Grant::everything());
        assert_eq!(check_start(&config, &there), Ok(()), "no strangers");
        for half in ["0.0.0.0/1", "128.0.0.0/1", "::/1", "203.0.113.0/24"] {
            let text = refusal(&config, &with(Some(half), &[grant(Verb::Next, "book")]));
            assert!(text.contains(&format!("granted next:book at {half}: set")), "{text}");
        }
    }

    #[test]
    fn each_port_for_clients_counts_beyond_loopback_without_tls() {
        let open = Principals::default();
        let [everywhere, mapped] = ["[::]:1", "[::ffff:10.0.0.1]:1"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        for config in [
            listening(|config| config.listen = (STRANGE, 1).into()),
            listening(|config| config.listen = ([0, 0, 0, 0], 1).into()),
            listening(|config| config.resp_listen = Some(everywhere)),
            listening(|config| config.http_listen = Some(mapped)),
            listening(|config| config.admin_listen = Some(everywhere)),
        ] {
            refusal(&config, &open);
            check_founding(&config).expect_err("nobody has a token");
            check_joining(&config).expect_err("everybody is granted something");
            let encrypted = Config { tls: ClientTls::Accept, ..config.clone() };
            refusal(&encrypted, &open);
            for allowed in [
                Config { insecure: true, ..config.clone() },
                Config { tls: ClientTls::Require, ..config },
            ] {
                assert_eq!(check_start(&allowed, &open), Ok(()));
                check_founding(&allowed).expect("it may be founded");
                check_joining(&allowed).expect("it may be added");
            }
        }
        let [loopback, mapped] = ["[::1]:1", "[::ffff:127.0.0.1]:1"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        let config = listening(|config| {
            (config.listen, config.http_listen, config.resp_listen) =
                (([127, 3, 2, 1], 1).into(), Some(loopback), Some(mapped));
            config.admin_listen = Some(loopback);
            // No calls of clients come there.
            config.peer_listen = (STRANGE, 1).into();
            config.metrics_listen = Some((STRANGE, 1).into());
        });
        assert_eq!(check_start(&config, &open), Ok(()));
        check_founding(&config).expect("nobody else reaches it");
    }

    #[test]
    fn a_node_of_a_cluster_with_tokens_does_not_start_where_strangers_pass_for_peers() {
        let with_tokens = with(None, &[]);
        let config = listening(|config| {
            (config.peer_listen, config.insecure) = ((STRANGE, 7601).into(), true);
            config.peer_tls = PeerTls::Accept;
        });
        let text = refusal(&config, &with_tokens);
        for part in ["peer_listen is 10.0.0.1:7601", "peer_tls = require"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let of_running = told(&config, &with_tokens);
        assert!(of_running.starts_with(&text) && of_running.contains("takes no message of a peer"));
        let refused = check_peer_port(&config).expect_err("it is to have tokens");
        assert!(refused.message().contains(&text), "{refused}");
        let required = Config { peer_tls: PeerTls::Require, ..config.clone() };
        let loopback = Config { peer_listen: ([127, 0, 0, 1], 7601).into(), ..config.clone() };
        for config in [&required, &loopback] {
            check_peer_port(config).expect("no stranger passes for a node");
            assert!(are_peers_nodes(config));
        }
        assert!(!are_peers_nodes(&config));
        // Others reach that one through a proxy.
        for advertised in ["db-1:7601", "localhost:7601", "10.0.0.1:7601"] {
            let peer_advertise = Some(advertised.to_owned());
            let proxied = Config { peer_advertise, ..loopback.clone() };
            let refused = check_peer_port(&proxied).expect_err("strangers reach the proxy");
            assert!(refused.message().contains(&format!("peer_advertise is {advertised}, where")));
            check_peer_port(&Config { peer_tls: PeerTls::Require, ..proxied }).expect("TLS");
        }
        let peers = [(1, "db-1:7601".to_owned()), (2, "127.0.0.1:7602".to_owned())];
        let of_peers = Config { peers: peers.into(), ..loopback.clone() };
        let refused = check_peer_port(&of_peers).expect_err("strangers reach the proxy");
        assert!(refused.message().contains("peers names the address db-1:7601, where"));
        check_peer_port(&Config { node_id: 2, ..of_peers }).expect("at home");
        let peer_advertise = Some("127.0.0.1:7601".to_owned());
        check_peer_port(&Config { peer_advertise, ..loopback.clone() }).expect("at home");
        // Without tokens, everybody may do everything.
        for (config, principals) in [
            (&config, &Principals::default()),
            (&required, &with_tokens),
            (&loopback, &with_tokens),
        ] {
            assert_eq!(check_start(config, principals), Ok(()));
            assert_eq!(told(config, principals), "");
        }
    }

    #[test]
    fn tokens_need_peers_over_tls_unless_all_addresses_of_peers_are_loopback() {
        let check = |peer_tls, peer_listen: &str, members: &[&str]| {
            let config = listening(|config| {
                let peer_listen = peer_listen.parse::<SocketAddr>().expect("an address");
                (config.peer_tls, config.peer_listen) = (peer_tls, peer_listen);
            });
            let members: Vec<String> = members.iter().map(|&at| at.to_owned()).collect();
            check_peer_addresses(&config, members.iter())
        };
        let (at_home, elsewhere) = ("127.0.0.1:7601", "10.0.0.1:7601");
        for plain in [PeerTls::Off, PeerTls::Accept, PeerTls::Send] {
            check(plain, at_home, &[at_home, "127.0.0.2:7601", "[::1]:7601"]).expect("at home");
            for (listen, members) in [
                (at_home, &[at_home, elsewhere][..]),
                (at_home, &["localhost:7601"][..]),
                (elsewhere, &[at_home][..]),
                ("0.0.0.0:7601", &[at_home][..]),
            ] {
                let refused = check(plain, listen, members).expect_err("anybody passes for a node");
                assert_eq!(refused.reason(), Reason::WrongState);
                assert!(refused.message().contains("peer_tls = require"), "{refused}");
            }
        }
        check(PeerTls::Require, elsewhere, &[elsewhere, "db-1:7601"])
            .expect("nodes show who they are");
    }

    #[test]
    fn everybody_is_granted_nothing_more_where_strangers_reach_the_leader() {
        let [read, next] = [Verb::Read, Verb::Next].map(|verb| grant(verb, "*"));
        let (none, one) = (with(None, &[]), with(None, std::slice::from_ref(&read)));
        let two = with(None, &[read.clone(), next]);
        let exposed = listening(|config| config.listen = (STRANGE, 7600).into());
        let check =
            |before: &Principals, after: &Principals| check_granting(&exposed, before, after);
        let refused = check(&one, &two).expect_err("more is granted");
        for part in
            ["listen is 10.0.0.1:7600", "granted next:*", "tls = require", "insecure = true"]
        {
            assert!(refused.message().contains(part), "{part:?} is not in {refused}");
        }
        check(&none, &one).expect_err("something is granted");
        for (before, after) in [(&two, &one), (&one, &none), (&one, &one)] {
            check(before, after).expect("nothing more is granted");
        }
        check(&Principals::default(), &one).expect("less is granted");
        let at = |range: &str| with(Some(range), std::slice::from_ref(&read));
        check(&none, &at("10.0.0.0/8")).expect("not to strangers");
        let refused = check(&none, &at("0.0.0.0/1")).expect_err("to half of all addresses");
        assert!(refused.message().contains("granted read:* at 0.0.0.0/1: "), "{refused}");
        for (before, after) in [("::/1", "0.0.0.0/1"), ("0.0.0.0/2", "0.0.0.0/1")] {
            check(&at(before), &at(after)).expect_err("to more addresses");
        }
        for (before, after) in [(&at("0.0.0.0/1"), &at("8.0.0.0/8")), (&one, &at("0.0.0.0/1"))] {
            check(before, after).expect("nothing more is granted");
        }
        check(&at("0.0.0.0/1"), &one).expect_err("to all addresses");
        let insecure = Config { insecure: true, ..exposed.clone() };
        check_granting(&insecure, &none, &two).expect("it may be open");
    }

    #[test]
    fn what_is_open_is_told_with_each_port_and_all_that_is_granted() {
        let config = listening(|config| {
            config.insecure = true;
            (config.listen, config.resp_listen) =
                ((STRANGE, 7600).into(), Some((STRANGE, 7604).into()));
        });
        let text = told(&config, &with(None, &[grant(Verb::Next, "*")]));
        let expected = "whoever reaches listen 10.0.0.1:7600 or resp_listen 10.0.0.1:7604 is granted next:*, without";
        assert!(text.starts_with("node 1 is open") && text.contains(expected), "{text}");
        let many: Vec<Grant> =
            (10..70).map(|n| grant(Verb::Next, &format!("namespace-{n}"))).collect();
        let text = told(&config, &with(None, &many));
        let (first, last) = ("is granted next:namespace-10, next:namespace-11, ", ", without");
        assert!(text.contains(first) && text.contains(" and more, without a token"), "{text}");
        let granted = text.split_once(first).and_then(|(_, rest)| rest.split_once(last));
        let (granted, _) = granted.expect("a list of grants");
        assert!(granted.len() < GRANTED_MAX && !granted.contains("namespace-69"), "{text}");
        let text = told(&config, &with(Some("10.0.0.0/8"), &[grant(Verb::Next, "leaf")]));
        let expected = "node 1 is open to private addresses: whoever reaches listen 10.0.0.1:7600 or resp_listen \
                        10.0.0.1:7604 is granted next:leaf at 10.0.0.0/8, without";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(told(&config, &with(None, &[])), "");
        assert_eq!(told(&Config { tls: ClientTls::Require, ..config }, &Principals::default()), "");
        let at_home = Config { insecure: true, ..Config::default() };
        assert_eq!(told(&at_home, &Principals::default()), "");
    }
}
