//! The changes of the principals that a log entry makes.

use serde::{Deserialize, Serialize};

use super::{
    grant::Grant,
    principal::{PrincipalKey, PrincipalRecord, TokenHash, TokenRecord, granted},
    principals::Principals,
    quota::Quota,
};

/// A change of the principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessChange {
    /// Add a token that may do everything, and grant anonymous nothing, unless the cluster was founded before.
    Found {
        /// The token.
        admin: TokenHash,
        /// All grants, as the release that proposes the entry knows them.
        grants: Vec<Grant>,
        /// When it was proposed, by the leader's clock: milliseconds since 1970.
        now_ms: u64,
    },
    /// Add a token. The same token with the same properties is not added again.
    AddToken {
        /// The token.
        hash: TokenHash,
        /// Its record.
        record: PrincipalRecord,
        /// How many principals there may be, this one included.
        principals_max: u64,
    },
    /// Say what is granted to anonymous or to a certificate.
    Grant {
        /// To whom.
        key: PrincipalKey,
        /// All of it.
        grants: Vec<Grant>,
        /// How many principals there may be, this one included.
        principals_max: u64,
    },
    /// Remove a token.
    RemoveToken(TokenHash),
    /// Say how much some principals may use.
    SetQuotas {
        /// The principals.
        keys: Vec<PrincipalKey>,
        /// All quotas of each.
        quotas: Vec<Quota>,
        /// All grants, as the release that proposes the entry knows them: anonymous has them before anything was written.
        everything: Vec<Grant>,
    },
}

/// Why the principals were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AccessRefused {
    /// The token is there, with other properties.
    #[error("token {0} exists already, with other properties; draw another one")]
    Exists(String),
    /// There are as many principals as there may be.
    #[error(
        "there are {0} principals already, as many as there may be; revoke a token that is not needed"
    )]
    TooMany(u64),
    /// There is no such token.
    #[error("there is no token {0}; see ratchet token list")]
    NotFound(String),
    /// Nothing is granted to that principal any more.
    #[error("nothing is granted to a principal that is to have quotas; see ratchet token list")]
    NoPrincipal,
}

impl AccessChange {
    /// The records that the change writes and removes, if it changes `access`. `is_founded` says whether the cluster was
    /// founded before.
    ///
    /// # Errors
    /// [`AccessRefused`] if it is refused.
    pub fn records(
        &self, access: &Principals, is_founded: bool,
    ) -> Result<Vec<(PrincipalKey, Option<PrincipalRecord>)>, AccessRefused> {
        match self {
            AccessChange::Found { .. } if is_founded => Ok(Vec::new()),
            AccessChange::Found { admin, grants, now_ms } => Ok(founded(*admin, grants, *now_ms)),
            AccessChange::AddToken { hash, record, principals_max } => {
                let key = PrincipalKey::Token(*hash);
                match access.get(&key) {
                    Some(known) if is_same(known, record) => Ok(Vec::new()),
                    Some(_) => Err(AccessRefused::Exists(hash.id())),
                    None => {
                        check_count(access, *principals_max)?;
                        Ok(vec![(key, Some(record.clone()))])
                    }
                }
            }
            AccessChange::Grant { key, grants, principals_max } => {
                // A name to which nothing is granted is no principal, but for anonymous: that one is open unless it is said.
                let is_kept = !grants.is_empty() || *key == PrincipalKey::Anonymous(None);
                if is_kept && !access.principals.contains_key(key) {
                    check_count(access, *principals_max)?;
                }
                let known = access.principals.get(key);
                let quotas = known.map(|known| known.quotas.clone()).unwrap_or_default();
                let record = PrincipalRecord { quotas, ..granted(grants) };
                Ok(vec![(key.clone(), is_kept.then_some(record))])
            }
            AccessChange::RemoveToken(hash) => {
                let key = PrincipalKey::Token(*hash);
                match access.get(&key) {
                    Some(_) => Ok(vec![(key, None)]),
                    None => Err(AccessRefused::NotFound(hash.id())),
                }
            }
            AccessChange::SetQuotas { keys, quotas, everything } => keys
                .iter()
                .map(|key| {
                    let known = match (access.principals.get(key), key) {
                        (Some(known), _) => known.clone(),
                        (None, PrincipalKey::Anonymous(None)) => granted(everything),
                        (None, _) => return Err(AccessRefused::NoPrincipal),
                    };
                    let record = PrincipalRecord { quotas: quotas.clone(), ..known };
                    Ok((key.clone(), Some(record)))
                })
                .collect(),
        }
    }
}

/// The records of a cluster that is founded with the token `admin`: it has all `grants`, and anonymous has none.
fn founded(
    admin: TokenHash, grants: &[Grant], now_ms: u64,
) -> Vec<(PrincipalKey, Option<PrincipalRecord>)> {
    let token = TokenRecord {
        name: "admin".to_owned(),
        expires_ms: None,
        made_by: "the founder".to_owned(),
        made_ms: now_ms,
    };
    let admin_record = PrincipalRecord { token: Some(token), ..granted(grants) };
    vec![
        (PrincipalKey::Anonymous(None), Some(granted(&[]))),
        (PrincipalKey::Token(admin), Some(admin_record)),
    ]
}

/// Whether two records are of one token that was added twice.
fn is_same(known: &PrincipalRecord, added: &PrincipalRecord) -> bool {
    let properties = |record: &PrincipalRecord| {
        let token = record.token.clone();
        token.map(|token| (token.name, token.expires_ms))
    };
    known.grants == added.grants && properties(known) == properties(added)
}

fn check_count(access: &Principals, principals_max: u64) -> Result<(), AccessRefused> {
    let count = access.principals.len() as u64;
    match count < principals_max {
        true => Ok(()),
        false => Err(AccessRefused::TooMany(count)),
    }
}
