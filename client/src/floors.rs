//! Floors: the numbers that the next ones of a key lie above.

use bytes::Bytes;

use crate::{
    api::{self as v1, sequencer_client::SequencerClient},
    client::Client,
    error::Error,
    key::Key,
    unary_call::ask,
};

/// The result of raising a key's floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The floor in force: every number that is handed out later is greater.
    pub floor: u64,
    /// True if the floor was lower before.
    pub is_higher: bool,
}

impl Client {
    /// Raises the floor of a key: every number that is handed out later is greater than `at_least`. A floor that is
    /// there or higher already stays. It is safe to call it again.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses the request or does not answer in time. The floor may then be raised
    /// or not.
    pub async fn raise(
        &self, namespace: &str, key: impl Into<Key>, at_least: u64,
    ) -> Result<Raised, Error> {
        let request = v1::RaiseRequest {
            namespace: namespace.to_owned(),
            key: Some(key.into().into()),
            at_least,
            route_version: u64::MAX,
            members_version: None,
            only_if_new: false,
        };
        let answer = ask!(self, false, SequencerClient::raise, request).await?;
        Ok(Raised { floor: answer.floor, is_higher: answer.raised })
    }

    /// Raises the floors of up to 65 536 keys of one kind, each to its number. Answers the floors in force, in their
    /// order. A key may come several times.
    ///
    /// # Errors
    /// As [`Client::raise`]; [`Error::Invalid`] if there are keys of both kinds. If the request is refused because a key or a
    /// floor is wrong, nothing was raised, and the text names its place from 0. If it is refused for want of room for a new
    /// key, the text says how many of the first floors may be raised.
    pub async fn raise_many(
        &self, namespace: &str, floors: impl IntoIterator<Item = (Key, u64)>,
    ) -> Result<Vec<u64>, Error> {
        let (keys, at_least): (Vec<Key>, Vec<u64>) = floors.into_iter().unzip();
        let (ids, names) = of_one_kind(keys)?;
        let request = v1::RaiseManyRequest {
            namespace: namespace.to_owned(),
            ids,
            names,
            at_least,
            route_version: u64::MAX,
            members_version: None,
        };
        Ok(ask!(self, false, SequencerClient::raise_many, request).await?.floors)
    }

    /// Raises the floors of up to 65 536 sections that ids share. Of each comes one of its ids, and a number: every later
    /// number of every id of the section, asked for before or not, is greater. Otherwise as [`Client::raise_many`].
    ///
    /// # Errors
    /// As [`Client::raise_many`]; also if the ids of the namespace do not share sections, or a server is of a release that
    /// raises none.
    pub async fn raise_sections(
        &self, namespace: &str, floors: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<Vec<u64>, Error> {
        let (ids, at_least) = floors.into_iter().unzip();
        let request = v1::RaiseSectionsRequest {
            namespace: namespace.to_owned(),
            ids,
            at_least,
            route_version: u64::MAX,
            members_version: None,
        };
        Ok(ask!(self, false, SequencerClient::raise_sections, request).await?.floors)
    }

    /// The last numbers handed out for up to 65 536 keys of one kind, in their order; `None` for one that has none yet.
    ///
    /// # Errors
    /// As [`Client::current`]; [`Error::Invalid`] if there are keys of both kinds.
    pub async fn current_many(
        &self, namespace: &str, keys: impl IntoIterator<Item = Key>,
    ) -> Result<Vec<Option<u64>>, Error> {
        let (ids, names) = of_one_kind(keys)?;
        let request = v1::CurrentManyRequest {
            namespace: namespace.to_owned(),
            ids,
            names,
            route_version: u64::MAX,
            members_version: None,
        };
        let answer = ask!(self, false, SequencerClient::current_many, request).await?;
        Ok(answer.last.into_iter().map(|last| (last > 0).then_some(last)).collect())
    }
}

/// Ids and names, one of them empty.
fn of_one_kind(keys: impl IntoIterator<Item = Key>) -> Result<(Vec<u64>, Vec<Bytes>), Error> {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for key in keys {
        match key {
            Key::Id(id) => ids.push(id),
            Key::Name(name) => names.push(name),
        }
    }
    if ids.is_empty() || names.is_empty() {
        return Ok((ids, names));
    }
    Err(Error::Invalid(format!(
        "there are {} ids and {} names; give keys that are all of one kind",
        ids.len(),
        names.len()
    )))
}
