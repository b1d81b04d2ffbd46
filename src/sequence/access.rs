//! Principals, and the grants that say what each may do.
//!
//! A principal is a token, a client's certificate, or *anonymous*: callers that show neither. What is granted to anonymous is
//! granted to everybody. There are no rules but grants: what is not granted is denied. They do not hold for callers that ask
//! over the local socket of a node, who are called *local* where people read.
//!
//! Invariant: a table to which nothing was written grants anonymous everything. What a cluster was founded for, or told since,
//! is written.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::{NonZeroU32, NonZeroU64},
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Serialize};

use super::{
    caller_ids::{IPV4, NO_NETWORK, network_of, principal_id},
    namespace::{NAMESPACE_NAME_CHARS_MAX, check_name},
};

/// How many grants a principal may have.
pub const GRANTS_MAX: usize = 64;
/// How many principals a cluster may have: every node holds all of them in memory.
pub const PRINCIPALS_MAX: u64 = 1_000;
/// How many quotas a principal may have.
pub const QUOTAS_MAX: usize = 16;
/// The most calls, or numbers, that a quota may allow in a second.
pub const PER_SECOND_MAX: u32 = 100_000_000;

/// How many characters the name of a token may have.
const TOKEN_NAME_CHARS_MAX: usize = 64;
/// How many bytes the URI of a certificate may have.
const URI_BYTES_MAX: usize = 256;
/// The name of the principal of callers that show nothing.
pub const ANONYMOUS: &str = "anonymous";
/// The name of callers that ask over the local socket of a node.
pub const LOCAL: &str = "local";
/// How many hexadecimal digits of a token's hash are its id.
const ID_DIGITS: usize = 12;

/// The action that a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// Take numbers and ids.
    Next,
    /// See numbers, keys and namespaces; on all namespaces, the cluster.
    Read,
    /// Raise floors.
    Raise,
    /// Create, change and delete namespaces.
    Namespaces,
    /// Administer the cluster.
    Admin,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 5] = [Verb::Next, Verb::Read, Verb::Raise, Verb::Namespaces, Verb::Admin];

    /// Whether those who may do it change what there is for others.
    pub fn is_administrative(self) -> bool {
        matches!(self, Verb::Namespaces | Verb::Admin)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Next => "next",
            Verb::Read => "read",
            Verb::Raise => "raise",
            Verb::Namespaces => "namespaces",
            Verb::Admin => "admin",
        })
    }
}

/// A verb on namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The action.
    pub verb: Verb,
    /// On which namespaces.
    pub namespaces: NamespacePattern,
}

impl Grant {
    /// Everything.
    pub fn everything() -> Vec<Grant> {
        let all = || NamespacePattern(ALL_NAMESPACES.to_owned());
        Verb::ALL.map(|verb| Grant { verb, namespaces: all() }).to_vec()
    }

    /// Whether the owner of this one may do all that `other` allows.
    pub fn covers(&self, other: &Grant) -> bool {
        // No name has a star: a pattern fits as a name would that begins so.
        self.verb == other.verb && self.namespaces.fits(&other.namespaces.0)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.verb, self.namespaces.0)
    }
}

const ALL_NAMESPACES: &str = "*";

/// The name of a namespace, the beginning of names with a star behind it, or a star alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespacePattern(String);

impl NamespacePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`InvalidAccess`] if no name of a namespace fits it.
    pub fn parse(text: &str) -> Result<Self, InvalidAccess> {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        let fits = (beginning.is_empty() && !text.is_empty())
            || (beginning.chars().count() <= NAMESPACE_NAME_CHARS_MAX
                && check_name(beginning).is_ok());
        match fits {
            true => Ok(NamespacePattern(text.to_owned())),
            false => Err(InvalidAccess::Namespaces(text.to_owned())),
        }
    }

    /// The one name that fits; `None` if several may.
    pub fn name(&self) -> Option<&str> {
        (!self.0.ends_with('*')).then_some(&self.0)
    }

    /// The text that [`NamespacePattern::parse`] reads.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn fits(&self, namespace: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => namespace.starts_with(beginning),
            None => self.0 == namespace,
        }
    }

    fn is_all(&self) -> bool {
        self.0 == ALL_NAMESPACES
    }
}

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
    fn has(self, network: u64) -> bool {
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

/// The SHA-256 of a token. Nobody can make the token of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The id of the token for people: its first twelve hexadecimal digits.
    pub fn id(&self) -> String {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        digits.take(ID_DIGITS / 2).collect()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())
    }
}

/// How much all calls of a principal may use together, of the namespaces that fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quota {
    /// The namespaces, which are counted together.
    pub namespaces: NamespacePattern,
    /// How many calls each node takes in a second; at most [`PER_SECOND_MAX`].
    pub calls_per_second: Option<NonZeroU32>,
    /// How many numbers may be asked for in a second, and at once; at most [`PER_SECOND_MAX`].
    pub numbers_per_second: Option<NonZeroU32>,
    /// How many numbers calls that failed may have taken in a day, as far as a node knows.
    pub burnt_per_day: Option<NonZeroU64>,
}

/// The identity of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PrincipalKey {
    /// A caller that shows nothing, at these addresses, or at any.
    Anonymous(Option<AddressRange>),
    /// The owner of the certificate with this URI.
    Certificate(String),
    /// The owner of the token with this hash.
    Token(TokenHash),
}

/// The record of a principal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrincipalRecord {
    /// Its grants.
    pub grants: Vec<Grant>,
    /// Of a token: its properties.
    pub token: Option<TokenRecord>,
    /// How much it may use.
    pub quotas: Vec<Quota>,
}

/// The properties of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The name of its owner.
    pub name: String,
    /// From when on it is worth nothing, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The principal that made it.
    pub made_by: String,
    /// When it was made, by the leader's clock, in milliseconds since 1970.
    pub made_ms: u64,
}

/// All principals of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principals {
    principals: BTreeMap<PrincipalKey, PrincipalRecord>,
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

/// The credential that a caller shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    Nothing,
    /// The certificate with this URI.
    Certificate(Arc<str>),
    /// The token with this hash.
    Token(TokenHash),
}

/// The grant that an action needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// None: any known caller may do it.
    Anything,
    /// This, on the namespace of that name.
    On(Verb, &'a str),
    /// This, on all namespaces.
    OnAll(Verb),
    /// This, on whatever namespaces it is granted.
    OnSome(Verb),
    /// One that is granted to nobody: the nodes of the cluster alone may do it.
    OfNodes,
}

impl<'a> Wanted<'a> {
    /// The verb that has to be granted. `None` if it is no single one.
    pub fn verb(self) -> Option<Verb> {
        match self {
            Wanted::On(verb, _) | Wanted::OnAll(verb) | Wanted::OnSome(verb) => Some(verb),
            Wanted::Anything | Wanted::OfNodes => None,
        }
    }

    /// The namespace on which it has to be granted, if it is one.
    pub fn namespace(self) -> Option<&'a str> {
        match self {
            Wanted::On(_, namespace) => Some(namespace),
            Wanted::Anything | Wanted::OnAll(_) | Wanted::OnSome(_) | Wanted::OfNodes => None,
        }
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Anything => f.write_str("anything"),
            Wanted::On(verb, namespace) => write!(f, "{verb}:{namespace}"),
            Wanted::OnAll(verb) => write!(f, "{verb}:{ALL_NAMESPACES}"),
            Wanted::OnSome(verb) => write!(f, "{verb} on any namespace"),
            Wanted::OfNodes => f.write_str("what only nodes do"),
        }
    }
}

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
    /// that `network` names. Who has no principal of its own has those of anonymous.
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
        // What is granted to a range of addresses is granted to nobody elsewhere.
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

fn grants(grants: &[Grant], wanted: Wanted<'_>) -> bool {
    grants.iter().any(|grant| match wanted {
        Wanted::Anything => true,
        Wanted::On(verb, namespace) => grant.verb == verb && grant.namespaces.fits(namespace),
        Wanted::OnAll(verb) => grant.verb == verb && grant.namespaces.is_all(),
        Wanted::OnSome(verb) => grant.verb == verb,
        Wanted::OfNodes => false,
    })
}

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
            AccessChange::Found { admin, grants, now_ms } => {
                let token = TokenRecord {
                    name: "admin".to_owned(),
                    expires_ms: None,
                    made_by: "the founder".to_owned(),
                    made_ms: *now_ms,
                };
                let admin_record = PrincipalRecord { token: Some(token), ..granted(grants) };
                Ok(vec![
                    (PrincipalKey::Anonymous(None), Some(granted(&[]))),
                    (PrincipalKey::Token(*admin), Some(admin_record)),
                ])
            }
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
                // What nothing is granted to is nobody, but for anonymous: that one is open unless it is said.
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

fn granted(grants: &[Grant]) -> PrincipalRecord {
    PrincipalRecord { grants: grants.to_vec(), ..PrincipalRecord::default() }
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

/// Why something is no principal, or cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccess {
    /// No namespace can have such a name.
    #[error(
        "namespaces is {0:?}; give the name of a namespace, the beginning of names with a star behind it as in 'order*', or '*'"
    )]
    Namespaces(String),
    /// It is no range of addresses.
    #[error(
        "addresses is {0:?}; give a range as 10.1.0.0/16 or fd00:1::/64 (at least 1 bit; IPv6: at most 64), with no bits set \
         behind its length; leave it out for all addresses"
    )]
    Addresses(String),
    /// A token cannot have the name.
    #[error(
        "name is {0:?}; the name of a token has 1 to 64 letters, digits, and any of '._-', and is neither {ANONYMOUS:?} nor \
         {LOCAL:?}"
    )]
    TokenName(String),
    /// It is no principal to which something is granted.
    #[error(
        "principal is {0:?}; give {ANONYMOUS:?}, or the URI of a certificate, of at most 256 bytes"
    )]
    Principal(String),
    /// There are too many quotas.
    #[error("{0} quotas; give at most {QUOTAS_MAX}")]
    QuotaCount(usize),
    /// A quota allows nothing, or more than can be counted.
    #[error(
        "{0} is {1} in a quota; give 1 to {PER_SECOND_MAX} a second, or at least 1 a day, or leave it out where nothing is limited"
    )]
    QuotaLimit(&'static str, u64),
    /// There are too many grants, or none.
    #[error("{0} grants; give 1 to {GRANTS_MAX}")]
    GrantCount(usize),
}

/// Checks the name of a token.
///
/// # Errors
/// [`InvalidAccess`] if it is empty, too long, `anonymous`, `local`, or has other characters.
pub fn check_token_name(name: &str) -> Result<(), InvalidAccess> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_long = name.len() > TOKEN_NAME_CHARS_MAX;
    let is_taken = [ANONYMOUS, LOCAL].contains(&name);
    match !name.is_empty() && !is_long && !is_taken && name.chars().all(is_good) {
        true => Ok(()),
        false => {
            Err(InvalidAccess::TokenName(name.chars().take(2 * TOKEN_NAME_CHARS_MAX).collect()))
        }
    }
}

/// Checks that something is a URI by which certificates may be granted something.
///
/// # Errors
/// [`InvalidAccess`] if it is too long, or has no scheme or other than visible characters.
pub fn check_uri(uri: &str) -> Result<(), InvalidAccess> {
    let is_visible = uri.bytes().all(|byte| byte.is_ascii_graphic());
    match uri.len() <= URI_BYTES_MAX && is_visible && uri.contains("://") {
        true => Ok(()),
        false => Err(InvalidAccess::Principal(uri.chars().take(2 * URI_BYTES_MAX).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn grant(text: &str) -> Grant {
        let (verb, namespaces) = text.split_once(':').expect("a grant");
        let verb = Verb::ALL.into_iter().find(|known| known.to_string() == verb).expect("a verb");
        Grant { verb, namespaces: NamespacePattern::parse(namespaces).expect("a pattern") }
    }

    fn token(hash: u8, grants: &[&str], expires_ms: Option<u64>) -> AccessChange {
        let token = TokenRecord {
            name: "ci".to_owned(),
            expires_ms,
            made_by: ANONYMOUS.to_owned(),
            made_ms: u64::from(hash),
        };
        let grants = grants.iter().map(|text| grant(text)).collect();
        let record = PrincipalRecord { grants, token: Some(token), quotas: Vec::new() };
        AccessChange::AddToken { hash: TokenHash([hash; 32]), record, principals_max: 4 }
    }

    fn granting(key: PrincipalKey, grants: &[&str]) -> AccessChange {
        let grants = grants.iter().map(|text| grant(text)).collect();
        AccessChange::Grant { key, grants, principals_max: 4 }
    }

    fn change(access: &mut Principals, change: &AccessChange) -> Result<(), AccessRefused> {
        for (key, record) in change.records(access, true)? {
            access.put(key, record);
        }
        Ok(())
    }

    fn anybody() -> PrincipalKey {
        PrincipalKey::Anonymous(None)
    }

    fn shown(hash: u8) -> Credential {
        Credential::Token(TokenHash([hash; 32]))
    }

    #[test]
    fn a_table_without_records_grants_anybody_everything_and_a_founding_with_a_token_only_that_one()
    {
        let open = Principals::default();
        assert!(open.is_open());
        assert_eq!((open.records().count(), open.iter().count()), (0, 1), "nothing was written");
        for verb in Verb::ALL {
            assert_eq!(open.check(&Credential::Nothing, 7, Wanted::OnAll(verb), || NOW), Ok(()));
        }
        let founding = AccessChange::Found {
            admin: TokenHash([1; 32]),
            grants: Grant::everything(),
            now_ms: NOW,
        };
        assert_eq!(founding.records(&open, true), Ok(vec![]), "a cluster is founded once");
        let founded = founding.records(&open, false).expect("records");
        let founded = Principals::new(
            founded.into_iter().filter_map(|(key, record)| Some((key, record?))),
            1,
        );
        assert!(!founded.is_open());
        for wanted in [Wanted::Anything, Wanted::On(Verb::Next, "book"), Wanted::OnAll(Verb::Admin)]
        {
            let check = |shown: &Credential| founded.check(shown, 7, wanted, || NOW);
            assert_eq!(check(&Credential::Nothing), Err(Denied::NothingShown), "{wanted}");
            let stranger = Credential::Certificate("ratchet://main/client/a".into());
            assert_eq!(check(&stranger), Err(Denied::NotGranted), "{wanted}");
            assert_eq!(check(&shown(2)), Err(Denied::UnknownToken), "{wanted}");
            assert_eq!(check(&shown(1)), Ok(()), "{wanted}");
        }
    }

    #[test]
    fn a_grant_holds_for_its_verb_and_the_namespaces_that_fit() {
        let mut access = Principals::default();
        change(&mut access, &granting(anybody(), &[])).unwrap();
        change(&mut access, &token(1, &["next:order*", "read:book"], None)).unwrap();
        let check = |wanted| access.check(&shown(1), 7, wanted, || NOW);
        for wanted in [
            Wanted::Anything,
            Wanted::On(Verb::Next, "order"),
            Wanted::On(Verb::Next, "orders"),
            Wanted::On(Verb::Read, "book"),
            Wanted::OnSome(Verb::Read),
        ] {
            assert_eq!(check(wanted), Ok(()), "{wanted}");
        }
        for wanted in [
            Wanted::On(Verb::Next, "orde"),
            Wanted::On(Verb::Next, "book"),
            Wanted::On(Verb::Raise, "order"),
            Wanted::On(Verb::Read, "books"),
            Wanted::OnAll(Verb::Next),
            Wanted::OnSome(Verb::Admin),
        ] {
            assert_eq!(check(wanted), Err(Denied::NotGranted), "{wanted}");
        }
    }

    #[test]
    fn a_token_is_worth_nothing_from_its_end_on_and_what_is_granted_to_anonymous_does_not_save_it()
    {
        let mut access = Principals::default();
        change(&mut access, &token(1, &["next:*"], Some(NOW + 1))).unwrap();
        let at = |now| access.check(&shown(1), 7, Wanted::On(Verb::Next, "book"), || now);
        assert_eq!((at(NOW), at(NOW + 1)), (Ok(()), Err(Denied::Expired)));
        // Everybody may what anonymous may.
        assert_eq!(access.check(&shown(1), 7, Wanted::OnAll(Verb::Admin), || NOW), Ok(()));
    }

    #[test]
    fn what_is_granted_to_addresses_holds_for_callers_there() {
        let mut access = Principals::default();
        change(&mut access, &granting(anybody(), &["read:*"])).unwrap();
        let range = AddressRange::parse("10.1.0.0/16").expect("a range");
        let there = PrincipalKey::Anonymous(Some(range));
        change(&mut access, &granting(there.clone(), &["next:book"])).unwrap();
        let check = |address: &str, wanted| {
            let network = network_of(address.parse().expect("an address"));
            access.check(&Credential::Nothing, network, wanted, || NOW)
        };
        let next = Wanted::On(Verb::Next, "book");
        assert_eq!(check("10.1.255.3", next), Ok(()));
        assert_eq!(check("10.2.0.0", next), Err(Denied::NothingShown));
        assert_eq!(check("10.2.0.0", Wanted::On(Verb::Read, "book")), Ok(()));
        change(&mut access, &granting(there.clone(), &[])).unwrap();
        assert_eq!(access.get(&there), None);
        // Of anonymous it is remembered that nothing is granted.
        change(&mut access, &granting(anybody(), &[])).unwrap();
        assert_eq!(access.get(&anybody()).map(|record| record.grants.len()), Some(0));
    }

    #[test]
    fn everything_granted_to_a_range_is_granted_to_nobody_elsewhere_and_to_no_other_family() {
        let mut access = Principals::default();
        change(&mut access, &granting(anybody(), &[])).unwrap();
        let all: Vec<String> = Verb::ALL.map(|verb| format!("{verb}:*")).into();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for (range, inside) in [("::/64", "::1"), ("::/1", "fd00::"), ("127.0.0.0/8", "127.0.0.1")]
        {
            let key = PrincipalKey::Anonymous(AddressRange::parse(range).ok());
            change(&mut access, &granting(key.clone(), &all)).unwrap();
            assert!(!access.is_open(), "{range}");
            let check = |network| {
                access.check(&Credential::Nothing, network, Wanted::OnAll(Verb::Admin), || NOW)
            };
            let at = |address: &str| check(network_of(address.parse().expect("an address")));
            assert_eq!(at(inside).is_ok(), range != "::/1", "{range}");
            assert_eq!(at("10.2.0.0"), Err(Denied::NothingShown), "{range}");
            assert_eq!(check(NO_NETWORK), Err(Denied::NothingShown), "{range}");
            change(&mut access, &granting(key, &[])).unwrap();
        }
    }

    #[test]
    fn what_is_granted_to_strangers_is_all_but_what_private_addresses_have() {
        let mut access = Principals::default();
        let all = Verb::ALL.len();
        assert_eq!(access.granted_to_strangers().count(), all, "nothing was written");
        change(&mut access, &granting(anybody(), &[])).unwrap();
        let range = |text: &str| AddressRange::parse(text).expect(text);
        for (text, is_private) in [
            ("10.0.0.0/8", true),
            ("10.1.2.3", true),
            ("172.16.0.0/12", true),
            ("192.168.7.0/24", true),
            ("127.0.0.1", true),
            ("::/64", true),
            ("fd00:1::/32", true),
            ("0.0.0.0/1", false),
            ("128.0.0.0/1", false),
            ("8.0.0.0/6", false),
            ("172.0.0.0/8", false),
            ("203.0.113.7", false),
            ("::/1", false),
            ("::/63", false),
            ("8000::/1", false),
            ("2001:db8::/32", false),
        ] {
            let key = PrincipalKey::Anonymous(Some(range(text)));
            change(&mut access, &granting(key.clone(), &["next:book"])).unwrap();
            let granted: Vec<_> = access.granted_to_strangers().collect();
            let expected = vec![(Some(range(text)), grant("next:book"))];
            let granted: Vec<_> =
                granted.into_iter().map(|(range, grant)| (range, grant.clone())).collect();
            assert_eq!(granted, if is_private { vec![] } else { expected }, "{text}");
            assert_eq!(access.granted_to_private().count(), usize::from(is_private), "{text}");
            change(&mut access, &granting(key, &[])).unwrap();
        }
    }

    #[test]
    fn a_grant_covers_another_one_if_it_allows_all_of_it() {
        let covers = |own: &str, other: &str| grant(own).covers(&grant(other));
        for (own, other) in [
            ("next:*", "next:a"),
            ("next:*", "next:a*"),
            ("next:a*", "next:ab"),
            ("next:a", "next:a"),
        ] {
            assert!(covers(own, other) && (own == other || !covers(other, own)), "{own} {other}");
        }
        for (own, other) in [("next:*", "read:a"), ("next:a", "next:a*"), ("next:ab*", "next:a")] {
            assert!(!covers(own, other), "{own} {other}");
        }
    }

    #[test]
    fn quotas_leave_grants_alone_and_what_anonymous_has_unwritten_is_what_the_proposer_says() {
        let anybody = PrincipalKey::Anonymous(None);
        let quota = Quota {
            namespaces: NamespacePattern::parse("*").expect("a pattern"),
            calls_per_second: NonZeroU32::new(1),
            numbers_per_second: None,
            burnt_per_day: None,
        };
        let limiting = |key: &PrincipalKey, quotas: &[Quota]| AccessChange::SetQuotas {
            keys: vec![key.clone()],
            quotas: quotas.to_vec(),
            // Another release may know other verbs.
            everything: vec![grant("next:*")],
        };
        let mut access = Principals::default();
        change(&mut access, &limiting(&anybody, std::slice::from_ref(&quota))).expect("limited");
        let written = access.get(&anybody).expect("written");
        assert_eq!(
            (&written.grants[..], &written.quotas[..]),
            (&[grant("next:*")][..], &[quota][..])
        );
        assert!(access.has_quotas());
        change(&mut access, &granting(anybody.clone(), &["read:*"])).expect("granted");
        assert!(access.has_quotas(), "a grant leaves quotas alone");
        change(&mut access, &limiting(&anybody, &[])).expect("not limited");
        assert_eq!(access.get(&anybody).expect("written").grants, [grant("read:*")]);
        assert!(!access.has_quotas());
        let nobody = PrincipalKey::Token(TokenHash([9; 32]));
        assert_eq!(change(&mut access, &limiting(&nobody, &[])), Err(AccessRefused::NoPrincipal));
    }

    #[test]
    fn a_token_is_added_once_and_there_is_an_end_to_them() {
        let mut access = Principals::default();
        change(&mut access, &token(1, &["next:*"], None)).unwrap();
        let again = AccessChange::records(&token(1, &["next:*"], None), &access, true);
        assert_eq!(again, Ok(vec![]));
        let exists = Err(AccessRefused::Exists("010101010101".to_owned()));
        assert_eq!(change(&mut access, &token(1, &["read:*"], None)), exists);
        assert_eq!(change(&mut access, &token(1, &["next:*"], Some(5))), exists);
        for hash in 2..=4 {
            change(&mut access, &token(hash, &["next:*"], None)).unwrap();
        }
        let too_many = Err(AccessRefused::TooMany(4));
        assert_eq!(change(&mut access, &token(5, &["next:*"], None)), too_many);
        assert_eq!(change(&mut access, &granting(anybody(), &[])), too_many);
        assert_eq!(access.tokens_named("ci").count(), 4);
        let remove = AccessChange::RemoveToken(TokenHash([2; 32]));
        change(&mut access, &remove).unwrap();
        assert_eq!(access.tokens_named("ci").count(), 3);
        assert!(matches!(change(&mut access, &remove), Err(AccessRefused::NotFound(_))));
    }

    #[test]
    fn ranges_and_patterns_and_names_that_are_none_are_refused() {
        for (text, shown) in [
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00:1::/32", "fd00:1::/32"),
            ("fd00:1:2:3::/64", "fd00:1:2:3::/64"),
            ("::/64", "::/64"),
        ] {
            let range = AddressRange::parse(text).expect(text);
            assert_eq!(range.to_string(), shown);
        }
        for text in [
            "",
            "10.1.2.3/33",
            "0.0.0.0/0",
            "::/0",
            "10.1.0.0/8",
            "10.1/16",
            "fd00::1/64",
            "fd00::/65",
            "fd00::",
            "a/8",
        ] {
            AddressRange::parse(text).expect_err(text);
        }
        for text in ["*", "order", "order*"] {
            assert_eq!(NamespacePattern::parse(text).expect(text).as_str(), text);
        }
        for text in ["", "**", "or*der", "a b", "a:b"] {
            NamespacePattern::parse(text).expect_err(text);
        }
        for name in ["ci", "a.b_c-9"] {
            check_token_name(name).expect(name);
        }
        for name in ["", ANONYMOUS, LOCAL, "a b", "ratchet://x", &"n".repeat(65)] {
            check_token_name(name).expect_err(name);
        }
        check_uri("ratchet://main/client/ci").expect("a URI");
        for uri in ["ci", "ratchet://a b", &format!("a://{}", "b".repeat(300))] {
            check_uri(uri).expect_err(uri);
        }
    }
}
