//! Askers in messages, as one node tells another; and principals, as callers write and read what these may do. A message
//! that is read is checked here: a grant or a quota that makes no sense is refused before it is proposed.

use std::num::{NonZeroU32, NonZeroU64};

use super::{Asker, Who};
use crate::{
    proto::{
        Refusal,
        peer::{self, asker::Shown},
        refusal, v1,
    },
    sequence::{
        ANONYMOUS, AddressRange, Credential, GRANTS_MAX, Grant, InvalidAccess, NO_NETWORK,
        NamespacePattern, PER_SECOND_MAX, PrincipalKey, PrincipalRecord, Principals, QUOTAS_MAX,
        Quota, TokenHash, Verb, check_uri,
    },
};

impl Asker {
    /// It, for the leader. `None`: a caller that shows nothing.
    pub(in crate::node) fn to_wire(&self) -> Option<peer::Asker> {
        let shown = match &self.who {
            Who::Node(node) => Shown::Node(*node),
            Who::Local => Shown::Local(true),
            Who::Caller(Credential::Nothing) => return None,
            Who::Caller(Credential::Token(hash)) => Shown::TokenSha256(hash.0.to_vec().into()),
            Who::Caller(Credential::Certificate(uri)) => Shown::Certificate((**uri).to_owned()),
        };
        Some(peer::Asker { shown: Some(shown) })
    }

    /// The asker that a peer names, with the id of the network of the caller's address.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the peer tells of a token without its hash.
    pub fn from_wire(asker: Option<peer::Asker>, network: Option<u64>) -> Result<Self, Refusal> {
        let shown = match asker.and_then(|asker| asker.shown) {
            None | Some(Shown::Local(false)) => Credential::Nothing,
            Some(Shown::Local(true)) => return Ok(Asker::local()),
            Some(Shown::Node(node)) => return Ok(Asker::node(node)),
            Some(Shown::TokenSha256(hash)) => Credential::Token(read_hash(&hash)?),
            Some(Shown::Certificate(uri)) => Credential::Certificate(uri.into()),
        };
        // No range has the address of a caller that is not told.
        Ok(Asker::caller(shown, network.unwrap_or(NO_NETWORK)))
    }
}

/// Reads the hash of a token.
///
/// # Errors
/// INVALID_ARGUMENT if it has another length.
pub(in crate::node) fn read_hash(bytes: &[u8]) -> Result<TokenHash, Refusal> {
    let length = bytes.len();
    let hash = bytes.try_into().map(TokenHash);
    hash.map_err(|_| {
        refusal!(
            InvalidRequest,
            "sha256 has {length} bytes; give the 32 bytes of the token's SHA-256"
        )
    })
}

/// Reads grants, each once.
///
/// # Errors
/// INVALID_ARGUMENT if one is none, or there are too many.
pub(in crate::node) fn read_grants(grants: &[v1::Grant]) -> Result<Vec<Grant>, Refusal> {
    if grants.len() > GRANTS_MAX {
        return Err(invalid(&InvalidAccess::GrantCount(grants.len())));
    }
    let read = grants.iter().map(|grant| {
        let verb = match grant.verb() {
            v1::Verb::Next => Verb::Next,
            v1::Verb::Read => Verb::Read,
            v1::Verb::Raise => Verb::Raise,
            v1::Verb::Namespaces => Verb::Namespaces,
            v1::Verb::Admin => Verb::Admin,
            v1::Verb::Unspecified => {
                let known = Verb::ALL.map(|verb| verb.to_string()).join(", ");
                return Err(refusal!(
                    InvalidRequest,
                    "a grant has verb {}, which this release does not know; give one of {known}",
                    grant.verb
                ));
            }
        };
        let namespaces = NamespacePattern::parse(&grant.namespaces).map_err(|why| invalid(&why))?;
        Ok(Grant { verb, namespaces })
    });
    let mut read = read.collect::<Result<Vec<_>, _>>()?;
    read.sort();
    read.dedup();
    Ok(read)
}

/// Reads quotas.
///
/// # Errors
/// INVALID_ARGUMENT if one is none, or there are too many.
pub(in crate::node) fn read_quotas(quotas: &[v1::Quota]) -> Result<Vec<Quota>, Refusal> {
    if quotas.len() > QUOTAS_MAX {
        return Err(invalid(&InvalidAccess::QuotaCount(quotas.len())));
    }
    let mut read = quotas.iter().map(read_quota).collect::<Result<Vec<_>, _>>()?;
    read.sort();
    read.dedup();
    Ok(read)
}

/// Quotas as they are written.
pub fn written_quotas(quotas: &[v1::Quota]) -> String {
    if quotas.is_empty() {
        return "none".to_owned();
    }
    let one = |quota: &v1::Quota| {
        let limits = [
            ("calls", quota.calls_per_second.map(u64::from)),
            ("numbers", quota.numbers_per_second.map(u64::from)),
            ("burnt", quota.burnt_per_day),
        ];
        let given = limits.iter().filter_map(|(what, limit)| Some(format!("{what}={}", (*limit)?)));
        format!("{}:{}", quota.namespaces, given.collect::<Vec<_>>().join(","))
    };
    quotas.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn read_quota(quota: &v1::Quota) -> Result<Quota, Refusal> {
    let limited = |what, limit| invalid(&InvalidAccess::QuotaLimit(what, limit));
    let a_second = |what, limit: u32| {
        let read = NonZeroU32::new(limit).filter(|limit| limit.get() <= PER_SECOND_MAX);
        read.ok_or_else(|| limited(what, limit.into()))
    };
    let a_day = |limit| {
        let read = NonZeroU64::new(limit);
        read.ok_or_else(|| limited("burnt_per_day", limit))
    };
    let (calls, numbers) = (quota.calls_per_second, quota.numbers_per_second);
    Ok(Quota {
        namespaces: NamespacePattern::parse(&quota.namespaces).map_err(|why| invalid(&why))?,
        calls_per_second: calls.map(|n| a_second("calls_per_second", n)).transpose()?,
        numbers_per_second: numbers.map(|n| a_second("numbers_per_second", n)).transpose()?,
        burnt_per_day: quota.burnt_per_day.map(a_day).transpose()?,
    })
}

/// A quota as callers read it.
fn quota_to_wire(quota: &Quota) -> v1::Quota {
    v1::Quota {
        namespaces: quota.namespaces.as_str().to_owned(),
        calls_per_second: quota.calls_per_second.map(NonZeroU32::get),
        numbers_per_second: quota.numbers_per_second.map(NonZeroU32::get),
        burnt_per_day: quota.burnt_per_day.map(NonZeroU64::get),
    }
}

/// Reads to whom something is granted, of those who show no token.
///
/// # Errors
/// INVALID_ARGUMENT if it is nobody of them.
pub(in crate::node) fn read_key(
    name: &str, addresses: Option<&str>,
) -> Result<PrincipalKey, Refusal> {
    match (name, addresses) {
        (ANONYMOUS, None) => Ok(PrincipalKey::Anonymous(None)),
        (ANONYMOUS, Some(addresses)) => {
            let range = AddressRange::parse(addresses).map_err(|why| invalid(&why))?;
            Ok(PrincipalKey::Anonymous(Some(range)))
        }
        (_, Some(_)) => Err(refusal!(
            InvalidRequest,
            "addresses goes with the principal {ANONYMOUS:?} alone: leave it out for a certificate"
        )),
        (uri, None) => {
            check_uri(uri).map_err(|why| invalid(&why))?;
            Ok(PrincipalKey::Certificate(uri.to_owned()))
        }
    }
}

pub(in crate::node) fn invalid(why: &InvalidAccess) -> Refusal {
    refusal!(InvalidRequest, "{why}")
}

/// All principals, in the order in which people read them. Tokens lie in that of their hashes.
pub(in crate::node) fn in_order(principals: &Principals) -> Vec<(&PrincipalKey, &PrincipalRecord)> {
    let mut all: Vec<_> = principals.iter().collect();
    all.sort_by_key(|(_, record)| record.token.as_ref().map(|token| token.name.clone()));
    all
}

/// All principals as callers read them.
pub(in crate::node) fn all_to_wire(principals: &Principals) -> Vec<v1::Principal> {
    in_order(principals).into_iter().map(|(key, record)| to_wire(key, record)).collect()
}

/// A principal as callers read it.
pub(in crate::node) fn to_wire(key: &PrincipalKey, record: &PrincipalRecord) -> v1::Principal {
    let verb = |verb| match verb {
        Verb::Next => v1::Verb::Next,
        Verb::Read => v1::Verb::Read,
        Verb::Raise => v1::Verb::Raise,
        Verb::Namespaces => v1::Verb::Namespaces,
        Verb::Admin => v1::Verb::Admin,
    };
    let grants = record.grants.iter().map(|grant| v1::Grant {
        verb: verb(grant.verb).into(),
        namespaces: grant.namespaces.as_str().to_owned(),
    });
    let quotas = record.quotas.iter().map(quota_to_wire);
    let principal = v1::Principal {
        grants: grants.collect(),
        quotas: quotas.collect(),
        ..v1::Principal::default()
    };
    match (key, &record.token) {
        (PrincipalKey::Anonymous(range), _) => v1::Principal {
            name: ANONYMOUS.to_owned(),
            addresses: range.map(|range| range.to_string()),
            ..principal
        },
        (PrincipalKey::Certificate(uri), _) => v1::Principal { name: uri.clone(), ..principal },
        (PrincipalKey::Token(hash), token) => {
            let token = token.as_ref();
            v1::Principal {
                name: token.map(|token| token.name.clone()).unwrap_or_default(),
                id: Some(hash.id()),
                expires_ms: token.and_then(|token| token.expires_ms),
                made_by: token.map(|token| token.made_by.clone()),
                made_ms: token.map(|token| token.made_ms),
                ..principal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::{Principals, Wanted};

    const NETWORK: u64 = 7;

    #[test]
    fn the_leader_hears_who_asks() {
        let shown = [
            Credential::Nothing,
            Credential::Token(TokenHash([3; 32])),
            Credential::Certificate("ratchet://main/client/ci".into()),
        ];
        let callers = shown.map(|shown| Asker::caller(shown, NETWORK));
        for by in callers.into_iter().chain([Asker::local(), Asker::node(2)]) {
            let heard = Asker::from_wire(by.to_wire(), Some(NETWORK));
            assert_eq!(heard.expect("somebody"), by);
        }
        let half = peer::Asker { shown: Some(Shown::Local(false)) };
        let heard = Asker::from_wire(Some(half), Some(NETWORK)).expect("somebody");
        assert_eq!(heard, Asker::caller(Credential::Nothing, NETWORK));
    }

    #[test]
    fn who_asks_over_the_local_socket_may_do_all_but_what_nodes_do() {
        let mut closed = Principals::default();
        let nothing = PrincipalRecord::default();
        closed.put(PrincipalKey::Anonymous(None), Some(nothing));
        let local = Asker::local();
        for wanted in [Wanted::Anything, Wanted::OnAll(Verb::Admin), Wanted::On(Verb::Next, "book")]
        {
            assert_eq!(local.check(&closed, wanted, || 0), Ok(()), "{wanted}");
        }
        local.check(&closed, Wanted::OfNodes, || 0).expect_err("it is no node");
        assert_eq!(local.name(&closed), "local");
    }
}
