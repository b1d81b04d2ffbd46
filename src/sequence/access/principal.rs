//! A principal: what identifies it, what is known of it, and the credential that a caller shows to be one.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{grant::Grant, quota::Quota, range::AddressRange};

/// How many hexadecimal digits of a token's hash are its id.
const ID_DIGITS: usize = 12;

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

/// The record of a principal to which this is granted, and of which nothing else is known.
pub(super) fn granted(grants: &[Grant]) -> PrincipalRecord {
    PrincipalRecord { grants: grants.to_vec(), ..PrincipalRecord::default() }
}
