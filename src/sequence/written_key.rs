//! A key and its namespace as one text, `namespace:key`.

use super::namespace::check_name;

/// A key and its namespace, as they were written. The namespace ends at the first colon, so that a key may hold colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenKey<'a> {
    /// The namespace's name.
    pub namespace: &'a str,
    /// The rest.
    pub key: &'a [u8],
}

/// Why a text does not name a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidWrittenKey<'a> {
    /// It has no colon, or what comes before it is no text.
    NoNamespace,
    /// The text before the colon is no name of a namespace.
    BadNamespace(&'a str),
}

impl<'a> WrittenKey<'a> {
    /// Parses a text.
    ///
    /// # Errors
    /// If it has no colon, or what comes before it is no name. The key is not checked: that takes its kind.
    pub fn parse(text: &'a [u8]) -> Result<Self, InvalidWrittenKey<'a>> {
        let colon = text.iter().position(|byte| *byte == b':');
        let split = colon.and_then(|at| {
            let namespace = std::str::from_utf8(&text[..at]).ok()?;
            Some((namespace, &text[at + 1..]))
        });
        let (namespace, key) = split.ok_or(InvalidWrittenKey::NoNamespace)?;
        check_name(namespace).map_err(|_| InvalidWrittenKey::BadNamespace(namespace))?;
        Ok(WrittenKey { namespace, key })
    }
}

#[cfg(test)]
mod tests;
