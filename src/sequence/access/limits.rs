//! The limits of principals, grants and quotas: how many there are, how long, with which names; and why something is none.

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

/// Checks that something may be granted to the certificates with this URI.
///
/// # Errors
/// [`InvalidAccess`] if the URI is too long, has no scheme, or has a character that is not visible ASCII.
pub fn check_uri(uri: &str) -> Result<(), InvalidAccess> {
    let is_visible = uri.bytes().all(|byte| byte.is_ascii_graphic());
    match uri.len() <= URI_BYTES_MAX && is_visible && uri.contains("://") {
        true => Ok(()),
        false => Err(InvalidAccess::Principal(uri.chars().take(2 * URI_BYTES_MAX).collect())),
    }
}
