//! All principals of a cluster, and what each of them may do.
//!
//! Invariant: a table to which nothing was written grants anonymous everything. The grants that a cluster was founded with, or
//! got since, are written.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{
    grant::{Grant, Verb},
    principal::{Credential, PrincipalKey, PrincipalRecord, TokenHash, granted},
    quota::Quota,
    range::AddressRange,
    wanted::{Wanted, grants},
};
use crate::sequence::caller_ids::principal_id;

/// All principals of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principals {
    pub(super) principals: BTreeMap<PrincipalKey, PrincipalRecord>,
    /// How often they were changed.
    version: u64,
    /// Whether everybody may do everything.
    is_open: bool,
    /// Whether any principal has quotas.
    has_quotas: bool,
}

impl Default for Principals {
    fn default() -> Self {
        Principals::new([], 0)
    }
}

/// The grants of anonymous before anything was written.
static OPEN: LazyLock<PrincipalRecord> = LazyLock::new(|| granted(&Grant::everything()));

/// Why a caller may not do what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// There is no token with that hash.
    UnknownToken,
    /// The token has expired.
    Expired,
    /// The caller shows nothing, and that is not granted to anonymous.
    NothingShown,
    /// It is not granted to the caller.
    NotGranted,
}

impl Principals {
    /// Those of a table with these records, after so many changes.
    pub fn new(
        principals: impl IntoIterator<Item = (PrincipalKey, PrincipalRecord)>, version: u64,
    ) -> Self {
        let principals = principals.into_iter().collect();
        let mut all = Principals { principals, version, is_open: false, has_quotas: false };
        all.look();
        all
    }

    /// The records that were written.
    pub fn records(&self) -> impl Iterator<Item = (&PrincipalKey, &PrincipalRecord)> {
        self.principals.iter()
    }

    /// All principals, and what is known of them. Anonymous is one of them, also if nothing was written of it.
    pub fn iter(&self) -> impl Iterator<Item = (&PrincipalKey, &PrincipalRecord)> {
        const ANYBODY: &PrincipalKey = &PrincipalKey::Anonymous(None);
        let open = (!self.principals.contains_key(ANYBODY)).then(|| (ANYBODY, &*OPEN));
        open.into_iter().chain(&self.principals)
    }

    /// The record of a principal.
    pub fn get(&self, key: &PrincipalKey) -> Option<&PrincipalRecord> {
        let open = || (*key == PrincipalKey::Anonymous(None)).then(|| &*OPEN);
        self.principals.get(key).or_else(open)
    }

    /// The tokens of a name.
    pub fn tokens_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = TokenHash> + 'a {
        self.principals.iter().filter_map(move |(key, record)| match (key, &record.token) {
            (PrincipalKey::Token(hash), Some(token)) if token.name == name => Some(*hash),
            _ => None,
        })
    }

    /// Writes what is known of a principal, or removes it.
    pub fn put(&mut self, key: PrincipalKey, record: Option<PrincipalRecord>) {
        match record {
            Some(record) => self.principals.insert(key, record),
            None => self.principals.remove(&key),
        };
        self.look();
    }

    /// Works out what is asked of all principals together.
    fn look(&mut self) {
        self.is_open = self.grants_everything();
        self.has_quotas = self.principals.values().any(|record| !record.quotas.is_empty());
    }

    /// How often they were changed: a node that knows of fewer changes than another one is behind it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sets how often they were changed.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The quotas that hold for a caller on a namespace, each with whose it is. The caller shows this, and is at the address
    /// that `network` names. A caller that has no principal of its own has those of anonymous.
    pub fn quotas<'a>(
        &'a self, shown: &Credential, network: u64, namespace: &'a str,
    ) -> impl Iterator<Item = (&'a PrincipalKey, &'a Quota)> {
        let own = match shown {
            Credential::Nothing => None,
            Credential::Certificate(uri) => Some(PrincipalKey::Certificate((**uri).to_owned())),
            Credential::Token(hash) => Some(PrincipalKey::Token(*hash)),
        };
        let own = own.and_then(|key| self.principals.get_key_value(&key));
        let is_anonymous = own.is_none();
        let anonymous = self.anonymous_at(network).filter(move |_| is_anonymous);
        let holders = own.into_iter().chain(anonymous);
        let all =
            holders.flat_map(|(key, record)| record.quotas.iter().map(move |quota| (key, quota)));
        all.filter(move |(_, quota)| quota.namespaces.fits(namespace))
    }

    /// The id of a caller that shows this, where callers share something: two tokens of one name are one principal. `None` if
    /// it shows nothing, or a token that is worth nothing at `now_ms`: it is one of its address then.
    pub fn id_of(&self, shown: &Credential, now_ms: impl FnOnce() -> u64) -> Option<u64> {
        match shown {
            Credential::Nothing => None,
            Credential::Certificate(uri) => Some(principal_id(uri)),
            Credential::Token(hash) => {
                let token = self.get(&PrincipalKey::Token(*hash))?.token.as_ref()?;
                let is_over = token.expires_ms.is_some_and(|end| end <= now_ms());
                (!is_over).then(|| principal_id(&token.name))
            }
        }
    }

    /// Whether callers at the address that `network` names may do nothing unless they show something.
    pub fn are_closed_to(&self, network: u64) -> bool {
        !self.is_open && !self.grants_anybody(network, Wanted::Anything)
    }

    /// The grants of strangers, who show nothing: to anybody, or in a range of addresses that are not all private. Together
    /// such ranges may have every address.
    pub fn granted_to_strangers(&self) -> impl Iterator<Item = (Option<AddressRange>, &Grant)> {
        self.granted_to_anonymous(|range| range.is_none_or(|range| !range.is_private()))
    }

    /// The grants to callers that show nothing, in a range of addresses that are all private.
    pub fn granted_to_private(&self) -> impl Iterator<Item = (Option<AddressRange>, &Grant)> {
        self.granted_to_anonymous(|range| range.is_some_and(AddressRange::is_private))
    }

    /// The grants to callers that show nothing, at these addresses.
    fn granted_to_anonymous(
        &self, are_meant: impl Fn(Option<AddressRange>) -> bool,
    ) -> impl Iterator<Item = (Option<AddressRange>, &Grant)> {
        let anonymous = self.iter().filter_map(move |(key, record)| match key {
            PrincipalKey::Anonymous(range) if are_meant(*range) => Some((*range, record)),
            _ => None,
        });
        anonymous.flat_map(|(range, record)| record.grants.iter().map(move |grant| (range, grant)))
    }

    /// Whether any principal has quotas.
    pub fn has_quotas(&self) -> bool {
        self.has_quotas
    }

    /// The records of anonymous, for all addresses and for the one that `network` names.
    fn anonymous_at(
        &self, network: u64,
    ) -> impl Iterator<Item = (&PrincipalKey, &PrincipalRecord)> {
        self.principals
            .iter()
            .take_while(|(key, _)| matches!(key, PrincipalKey::Anonymous(_)))
            .filter(move |(key, _)| match key {
                PrincipalKey::Anonymous(Some(range)) => range.has(network),
                _ => true,
            })
    }

    fn grants_everything(&self) -> bool {
        // A grant to a range of addresses is one to nobody elsewhere.
        let everybody = self.get(&PrincipalKey::Anonymous(None));
        let has =
            |verb| everybody.is_some_and(|record| grants(&record.grants, Wanted::OnAll(verb)));
        Verb::ALL.into_iter().all(has)
    }

    /// Whether somebody may administer the cluster at `now_ms`: the owner of a token that has not ended, or callers that show
    /// none.
    pub fn has_administrator(&self, now_ms: u64) -> bool {
        self.iter().any(|(_, record)| {
            let ends_ms = record.token.as_ref().and_then(|token| token.expires_ms);
            ends_ms.is_none_or(|end| end > now_ms)
                && grants(&record.grants, Wanted::OnAll(Verb::Admin))
        })
    }

    /// Whether a caller that shows this, at the address that `network` names, may do what it wants at `now_ms`. Only what
    /// expires asks for the time.
    ///
    /// # Errors
    /// [`Denied`] if not.
    pub fn check(
        &self, shown: &Credential, network: u64, wanted: Wanted<'_>, now_ms: impl FnOnce() -> u64,
    ) -> Result<(), Denied> {
        let own = match shown {
            Credential::Nothing => None,
            Credential::Certificate(uri) => {
                self.principals.get(&PrincipalKey::Certificate((**uri).to_owned()))
            }
            // A token that is wrong is refused, also where none is needed: its caller would not notice else.
            Credential::Token(hash) => {
                let known = self.principals.get(&PrincipalKey::Token(*hash));
                let record = known.ok_or(Denied::UnknownToken)?;
                let expires_ms = record.token.as_ref().and_then(|token| token.expires_ms);
                if expires_ms.is_some_and(|end| end <= now_ms()) {
                    return Err(Denied::Expired);
                }
                Some(record)
            }
        };
        match own {
            _ if self.is_open && wanted != Wanted::OfNodes => Ok(()),
            Some(record) if wanted == Wanted::Anything || grants(&record.grants, wanted) => Ok(()),
            _ if self.grants_anybody(network, wanted) => Ok(()),
            None if *shown == Credential::Nothing => Err(Denied::NothingShown),
            _ => Err(Denied::NotGranted),
        }
    }

    fn grants_anybody(&self, network: u64, wanted: Wanted<'_>) -> bool {
        let anybody = self.get(&PrincipalKey::Anonymous(None));
        let there = self.anonymous_at(network).map(|(_, record)| record);
        anybody.into_iter().chain(there).any(|record| grants(&record.grants, wanted))
    }
}
