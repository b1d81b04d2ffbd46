//! Keys of a namespace: a list of them, page by page, and an explanation of one. Both have the stored records, and beside them
//! the leader's memory of the key.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::Namespaces;
use crate::{
    allocator::{self, Explained, Holding, ListedSection, Term, list_sections},
    node::{
        Asker,
        requests::{
            checks::{check_kind, namespace_named},
            keys::{key_of, to_key},
            operation::ByLeader,
            refused::failed,
        },
        way::attempt::Attempt,
    },
    proto::{Refusal, refusal, refuse, v1},
    sequence::{
        KEY_NAME_BYTES_MAX, KeyKind, Namespace, OwnedKey, Progression, SectionKey, SectionRecord,
    },
    storage::PageAsked,
};

/// How many keys a page has, unless the caller asks for another number.
const PAGE_KEYS: u32 = 100;
/// The most keys of a page.
const PAGE_KEYS_MAX: u32 = 1_000;

/// How many bytes the numbers of a listed key have at most, encoded.
const NUMBERS_BYTES: usize = 96;

impl ByLeader for v1::ListKeysRequest {
    type Service = Namespaces;

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::ListKeysResponse> {
        let namespace = namespace_named(&namespaces.group, &self.namespace)?;
        let asked = page_asked(&namespace, self)?;
        let page = list_sections(term, &namespace, asked, deadline).await;
        let page = page.map_err(|error| failed(error, &namespace, term, 0))?;
        let sections = page.sections.into_iter();
        let keys = sections.map(|section| listed(&namespace, section, page.epoch));
        let keys: Vec<_> = keys.collect();
        let last = keys.last().filter(|_| page.more).and_then(|last| last.key.as_ref());
        let next_page_token = last.map(page_token).unwrap_or_default();
        Ok(v1::ListKeysResponse { keys, next_page_token, epoch: page.epoch })
    }

    fn answer_bytes(&self, _: &Namespaces) -> usize {
        let keys = match self.page_size {
            0 => PAGE_KEYS,
            // A greater one is refused.
            limit => limit.min(PAGE_KEYS_MAX),
        };
        keys as usize * (size_of::<v1::ListedKey>() + 2 * (NUMBERS_BYTES + KEY_NAME_BYTES_MAX))
    }
}

impl ByLeader for v1::ExplainRequest {
    type Service = Namespaces;

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::Explanation> {
        let namespace = namespace_named(&namespaces.group, &self.namespace)?;
        let key = OwnedKey::from(key_of(&self.key)?);
        check_kind(&namespace, key.as_key())?;
        let explained = allocator::explain(term, &namespace, key.as_key(), deadline).await;
        let explained = explained.map_err(|error| failed(error, &namespace, term, 0))?;
        Ok(explanation(&namespace, &key, term.term(), &explained))
    }
}

/// Which page a message asks for.
fn page_asked(namespace: &Namespace, list: v1::ListKeysRequest) -> Result<PageAsked, Refusal> {
    let limit = match list.page_size {
        0 => PAGE_KEYS,
        size if size <= PAGE_KEYS_MAX => size,
        size => {
            refuse!(
                InvalidRequest,
                "page_size is {size}; a page has at most {PAGE_KEYS_MAX} keys: ask for the next one with page_token"
            );
        }
    };
    if namespace.config.key_kind == KeyKind::Id && !list.prefix.is_empty() {
        refuse!(
            InvalidRequest,
            "namespace {:?} takes ids as keys, which have no prefix; give after to begin at an id; prefix is \"{}\"",
            namespace.config.name,
            list.prefix.escape_ascii()
        );
    }
    let after = match list.page_token.as_str() {
        "" => list.after,
        token => Some(last_key(token)?),
    };
    let after = after.is_some().then(|| {
        let after = key_of(&after)?;
        check_kind(namespace, after)?;
        Ok::<_, Refusal>(namespace.section_of(after).key)
    });
    Ok(PageAsked {
        namespace: namespace.id,
        prefix: (&list.prefix[..]).into(),
        after: after.transpose()?,
        limit: limit as usize,
    })
}

/// Where a page ends whose last key is `last`: the bytes of the key's message.
fn page_token(last: &v1::Key) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(last.encode_to_vec())
}

/// The key that a [`page_token`] was made from.
fn last_key(token: &str) -> Result<v1::Key, Refusal> {
    let read = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
    let read = read.and_then(|bytes| v1::Key::decode(&*bytes).ok());
    read.filter(|key| key.kind.is_some()).ok_or_else(|| {
        refusal!(InvalidRequest, "page_token is not what an earlier page has as next_page_token")
    })
}

fn listed(namespace: &Namespace, section: ListedSection, epoch: u64) -> v1::ListedKey {
    let ListedSection { key, record, held } = section;
    let (key, last_id) = match key {
        SectionKey::Name(name) => (OwnedKey::Name(Bytes::from_owner(name)), None),
        SectionKey::Id(number) => {
            let (first, last) = namespace.ids_of_section(number);
            (OwnedKey::Id(first), (first < last).then_some(last))
        }
    };
    let is_shared = last_id.is_some();
    v1::ListedKey {
        key: to_key(&key),
        last_id,
        ceiling: ceiling(namespace, &record, held.as_ref(), epoch),
        epoch: record.epoch,
        step: record.step,
        last: held.filter(|_| !is_shared).map(|held| held.last.min(namespace.greatest_number())),
    }
}

fn explanation(
    namespace: &Namespace, key: &OwnedKey, term: u64, explained: &Explained,
) -> v1::Explanation {
    let Explained { record, held, epoch, .. } = explained;
    let (epoch, progression) = (*epoch, namespace.config.progression());
    let ids = match namespace.section_of(key.as_key()).key {
        SectionKey::Id(number) => Some(namespace.ids_of_section(number)),
        SectionKey::Name(_) => None,
    };
    let floor = record.floor_at(epoch, progression.increment);
    let is_shared = ids.is_some_and(|(first, last)| first < last);
    let ceiling = ceiling(namespace, record, held.as_ref(), epoch);
    let is_stored = *record != SectionRecord::default();
    v1::Explanation {
        namespace: namespace.config.name.clone(),
        key: to_key(key),
        first_id: ids.map(|(first, _)| first),
        last_id: ids.map(|(_, last)| last),
        increment: progression.increment,
        term,
        epoch,
        stored: is_stored.then(|| stored(record)),
        ceiling,
        floor: floor.min(namespace.greatest_number()),
        live: record.epoch_chunk(progression, epoch + 1).is_some(),
        held: held.as_ref().map(|held| held_section(held, progression, explained.granted_ms_ago)),
        accounts: (is_stored && !is_shared)
            .then(|| accounts(record, progression, (epoch, ceiling), held.as_ref())),
    }
}

fn stored(record: &SectionRecord) -> v1::StoredSection {
    v1::StoredSection {
        ceiling: record.max_seq,
        floor: record.floor,
        epoch: record.epoch,
        step: record.step,
        unused_max: record.unused_max,
        skipped: record.skipped,
        written_ms: Some(record.written_ms).filter(|ms| *ms > 0),
    }
}

/// The accounts of the numbers up to `ceiling` of a key with a section of its own.
fn accounts(
    record: &SectionRecord, progression: Progression, (epoch, ceiling): (u64, u64),
    held: Option<&Holding>,
) -> v1::Accounts {
    let accounts = record.accounts_at(progression, epoch);
    let all = progression.unbounded();
    // The leader knows what it has used. The numbers at or below its floor are in the accounts of earlier epochs, or were used
    // by the leader that left its memory to this one.
    let handed_out = held.map_or(accounts.handed_out, |held| {
        let used = all.count_between(0, held.last);
        used.saturating_sub(accounts.skipped)
    });
    let known = handed_out + accounts.skipped;
    v1::Accounts {
        handed_out,
        skipped: accounts.skipped,
        left: all.count_between(0, ceiling).saturating_sub(known),
    }
}

fn held_section(
    held: &Holding, progression: Progression, granted_ms_ago: Option<u64>,
) -> v1::HeldSection {
    v1::HeldSection {
        ceiling: held.ceiling,
        last: held.last,
        left: progression.count_between(held.last, held.ceiling),
        granted_ms_ago,
    }
}

/// The ceiling that is in force. A bump may have been applied between the reads of the table and of the memory.
fn ceiling(
    namespace: &Namespace, record: &SectionRecord, held: Option<&Holding>, epoch: u64,
) -> u64 {
    let ceiling = record.ceiling_at(epoch, namespace.config.increment);
    let in_memory = held.map_or(0, |held| held.ceiling);
    // A ceiling may lie above all numbers that could be handed out.
    ceiling.max(in_memory).min(namespace.greatest_number())
}
