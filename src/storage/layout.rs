//! Where each record stands: the column families and the keys in them. Pure.
//!
//! Invariant: every key starts with the id of its set, but for the two records of the whole directory.
//!
//! | family | key after the set's id | record |
//! | --- | --- | --- |
//! | `log` | index | log entry |
//! | `hard_state` | `v` | vote |
//! | `hard_state` | `p` | last purged log id |
//! | `hard_state` | `f` | the token with which the cluster is to be founded that has claimed the node; none: without one |
//! | `hard_state` | `t` | how long a promise of the node lasts, in milliseconds |
//! | `applied` | 0 | [`AppliedMeta`](super::AppliedMeta) |
//! | `applied` | 1, generation, `l` | ledger |
//! | `applied` | 1, generation, `c` | id of the next namespace; there is none before the cluster is founded |
//! | `applied` | 1, generation, `u` | id of the cluster; there is none in data of earlier releases, until a leader gives it one |
//! | `applied` | 1, generation, `a`, `a`, `c` or `t`, addresses, URI or hash | what is known of a principal |
//! | `applied` | 1, generation, `d`, name | tombstone of a deleted namespace |
//! | `applied` | 1, generation, `m`, node | nothing; the node was a member once, and was removed |
//! | `applied` | 1, generation, `n`, namespace | namespace |
//! | `applied` | 1, generation, `q`, `b` | book of request ids |
//! | `applied` | 1, generation, `q`, `i`, namespace, request id, part | what the part of that message took |
//! | `applied` | 1, generation, `q`, `p`, lifetime, number | the id that came at this place |
//! | `applied` | 1, generation, `q`, `h`, `n` or `c`, namespace or address | how many bytes of ids are remembered for it |
//! | `applied` | 1, generation, `t`, namespace | totals of a namespace that has sections |
//! | `applied` | 1, generation, `g`, namespace, day | the accounts of a day |
//! | `applied` | 1, generation, `s`, namespace, `i` or `b`, section | section record |
//! | `applied` | 1, generation, `v` | how often the principals were changed; none before the first change |
//! | `applied` | 1, generation, `w`, namespace, worker id | the last lease of a worker id |
//! | `applied` | 2, generation, namespace | nothing; the space of the deleted namespace is not free yet |
//!
//! `hard_state` also holds [`IDENTITY_KEY`] and [`RECOVERY_KEY`]. All numbers are big-endian, so that
//! records lie in the order of their numbers.

use crate::sequence::{
    IdPlace, IdShare, NamespaceId, NodeId, PartId, PrincipalKey, SectionId, SectionKey, SetId,
};

/// A column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The Raft logs.
    Log,
    /// Raft's hard state, and the node's identity.
    HardState,
    /// The applied tables.
    Applied,
}

impl Family {
    /// All column families.
    pub const ALL: [Family; 3] = [Family::Log, Family::HardState, Family::Applied];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Family::Log => "log",
            Family::HardState => "hard_state",
            Family::Applied => "applied",
        }
    }
}

/// The key of the node's identity, in the hard state.
pub const IDENTITY_KEY: &[u8] = b"identity";
/// The key of the record of an unfinished recovery, in the hard state.
pub const RECOVERY_KEY: &[u8] = b"recovery";

/// The key of the vote of `set`, in the hard state.
pub fn vote_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'v')
}

/// The key of the last purged log id of `set`, in the hard state.
pub fn purged_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'p')
}

/// The key of how long a promise of the node lasts in `set`, in the hard state.
pub fn promise_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b't')
}

/// The key of the token with which the cluster of `set` is to be founded, in the hard state.
pub fn founding_token_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'f')
}

/// True for what is written before Raft has any state: the [`promise_key`] and the [`founding_token_key`] of any set.
pub fn is_before_raft(key: &[u8]) -> bool {
    matches!(key, [_, _, _, _, b't' | b'f'])
}

fn hard_state_key(set: SetId, what: u8) -> [u8; 5] {
    let [a, b, c, d] = set.to_be_bytes();
    [a, b, c, d, what]
}

/// The key of log entry `index` of `set`.
pub fn log_key(set: SetId, index: u64) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &index.to_be_bytes()].concat()
}

/// The key of the [`AppliedMeta`](super::AppliedMeta) of `set`.
pub fn meta_key(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[0]].concat()
}

/// The prefix of the keys of a generation's records.
pub fn generation_prefix(set: SetId, generation: u32) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[1], &generation.to_be_bytes()].concat()
}

/// The range of the keys of a generation's records; its end is exclusive.
pub fn generation_range(set: SetId, generation: u32) -> (Vec<u8>, Vec<u8>) {
    (generation_prefix(set, generation), generation_prefix(set, generation + 1))
}

/// The exclusive end of the keys of all generations of `set`.
pub fn generations_end(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[2]].concat()
}

/// The key of the ledger in the generation with this prefix.
pub fn ledger_key(generation: &[u8]) -> Vec<u8> {
    [generation, b"l"].concat()
}

/// The range of the keys of one kind of records in the generation with this prefix: the byte that the table above names. Its
/// end is exclusive.
pub fn kind_range(generation: &[u8], kind: u8) -> (Vec<u8>, Vec<u8>) {
    ([generation, &[kind]].concat(), [generation, &[kind + 1]].concat())
}

/// The key of a namespace in the generation with this prefix.
pub fn namespace_key(generation: &[u8], id: NamespaceId) -> Vec<u8> {
    [generation, b"n", &id.0.to_be_bytes()].concat()
}

/// The key of the book of request ids in the generation with this prefix.
pub fn request_book_key(generation: &[u8]) -> Vec<u8> {
    [generation, b"qb"].concat()
}

/// The key of what a part of a message took in the generation with this prefix.
pub fn request_key(generation: &[u8], namespace: NamespaceId, id: &PartId) -> Vec<u8> {
    let (namespace, part) = (namespace.0.to_be_bytes(), id.part.to_be_bytes());
    [generation, b"qi", &namespace, id.request.as_bytes(), &part].concat()
}

/// The key of the request id that came at `place` in the generation with this prefix.
pub fn request_place_key(generation: &[u8], place: IdPlace) -> Vec<u8> {
    let (lifetime, number) = ([place.lifetime.index()], place.number.to_be_bytes());
    [generation, b"qp", &lifetime, &number].concat()
}

/// The key of how many bytes of request ids a share has in the generation with this prefix.
pub fn id_bytes_key(generation: &[u8], share: IdShare) -> Vec<u8> {
    match share {
        IdShare::Namespace(id) => [generation, b"qhn", &id.0.to_be_bytes()].concat(),
        IdShare::Caller(address) => [generation, b"qhc", &address.to_be_bytes()].concat(),
    }
}

/// The key of the id of the next namespace in the generation with this prefix.
pub fn next_namespace_key(generation: &[u8]) -> Vec<u8> {
    [generation, b"c"].concat()
}

/// The key of the cluster's id in the generation with this prefix.
pub fn cluster_id_key(generation: &[u8]) -> Vec<u8> {
    [generation, b"u"].concat()
}

/// The key that says that a node was removed in the generation with this prefix.
pub fn former_member_key(generation: &[u8], node: NodeId) -> Vec<u8> {
    [generation, b"m", &node.to_be_bytes()].concat()
}

/// The key of what is known of a principal in the generation with this prefix.
pub fn principal_key(generation: &[u8], key: &PrincipalKey) -> Vec<u8> {
    match key {
        PrincipalKey::Anonymous(None) => [generation, b"aa"].concat(),
        PrincipalKey::Anonymous(Some(range)) => {
            [generation, b"aa", range.to_string().as_bytes()].concat()
        }
        PrincipalKey::Certificate(uri) => [generation, b"ac", uri.as_bytes()].concat(),
        PrincipalKey::Token(hash) => [generation, b"at", &hash.0].concat(),
    }
}

/// The key of how often the principals were changed in the generation with this prefix.
pub fn principals_version_key(generation: &[u8]) -> Vec<u8> {
    [generation, b"v"].concat()
}

/// The key of the tombstone under `name` in the generation with this prefix.
pub fn tombstone_key(generation: &[u8], name: &str) -> Vec<u8> {
    [generation, b"d", name.as_bytes()].concat()
}

/// The key of a namespace's totals in the generation with this prefix.
pub fn totals_key(generation: &[u8], id: NamespaceId) -> Vec<u8> {
    [generation, b"t", &id.0.to_be_bytes()].concat()
}

/// The key of the accounts of a namespace and a day in the generation with this prefix.
pub fn day_key(generation: &[u8], id: NamespaceId, day: u32) -> Vec<u8> {
    [generation, b"g", &id.0.to_be_bytes(), &day.to_be_bytes()].concat()
}

/// The range of the keys of a namespace's accounts in the generation with this prefix; its end is exclusive.
pub fn days_range_of(generation: &[u8], id: NamespaceId) -> (Vec<u8>, Vec<u8>) {
    // No clock shows that day.
    (day_key(generation, id, 0), day_key(generation, id, u32::MAX))
}

/// The key of a worker id in the generation with this prefix.
pub fn worker_key(generation: &[u8], id: NamespaceId, worker: u32) -> Vec<u8> {
    [generation, b"w", &id.0.to_be_bytes(), &worker.to_be_bytes()].concat()
}

/// The range of the keys of a namespace's worker ids in the generation with this prefix; its end is exclusive.
pub fn workers_range(generation: &[u8], id: NamespaceId) -> (Vec<u8>, Vec<u8>) {
    // No namespace has that many worker ids.
    let end = worker_key(generation, id, u32::MAX);
    (worker_key(generation, id, 0), end)
}

/// The range of the keys of a namespace's sections in the generation with this prefix; its end is exclusive.
pub fn namespace_sections_range(generation: &[u8], id: NamespaceId) -> (Vec<u8>, Vec<u8>) {
    let from = [generation, b"s", &id.0.to_be_bytes()].concat();
    let to = match id.0.checked_add(1) {
        Some(next) => [generation, b"s", &next.to_be_bytes()].concat(),
        None => kind_range(generation, b's').1,
    };
    (from, to)
}

/// The range of the keys that name deleted namespaces of `set` whose space is not free yet; its end is exclusive.
pub fn reclaims_range(set: SetId) -> (Vec<u8>, Vec<u8>) {
    (generations_end(set), [set.to_be_bytes().as_slice(), &[3]].concat())
}

/// The key that says that the space of a deleted namespace, in the generation with this prefix, is not free yet.
pub fn reclaim_key(generation: &[u8], id: NamespaceId) -> Vec<u8> {
    let mut key = generation.to_vec();
    // Behind the generations.
    if let Some(kind) = key.get_mut(size_of::<SetId>()) {
        *kind = 2;
    }
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

/// The range of the keys of the sections whose space a key that [`reclaim_key`] made stands for. `None` if it is no
/// such key.
pub fn reclaimed_range(key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (generation, id) = key.split_last_chunk()?;
    let mut generation = generation.to_vec();
    let kind = generation.get_mut(size_of::<SetId>())?;
    if *kind != 2 {
        return None;
    }
    *kind = 1;
    let id = NamespaceId(u32::from_be_bytes(*id));
    Some(namespace_sections_range(&generation, id))
}

/// The key of a section's record in the generation with this prefix.
pub fn section_key(generation: &[u8], id: &SectionId) -> Vec<u8> {
    let namespace = id.namespace.0.to_be_bytes();
    let (kind, key): (&[u8], &[u8]) = match &id.key {
        SectionKey::Id(number) => (b"i", &number.to_be_bytes()),
        SectionKey::Name(name) => (b"b", name),
    };
    [generation, b"s", &namespace, kind, key].concat()
}

/// The section whose record stands under this key, without its generation's prefix: the inverse of [`section_key`].
/// `None` if it is not a section's key.
pub fn section_of(key: &[u8]) -> Option<SectionId> {
    let (namespace, key) = key.strip_prefix(b"s")?.split_first_chunk()?;
    let key = match key.split_first()? {
        (b'i', number) => SectionKey::Id(u64::from_be_bytes(number.try_into().ok()?)),
        (b'b', name) => SectionKey::Name(name.into()),
        _ => return None,
    };
    let namespace = NamespaceId(u32::from_be_bytes(*namespace));
    Some(SectionId { namespace, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reclaim_names_the_sections_of_its_namespace_and_no_others() {
        let prefix = generation_prefix(1, 7);
        let section = |namespace| {
            let key = SectionKey::Id(5);
            let namespace = NamespaceId(namespace);
            section_key(&prefix, &SectionId { namespace, key })
        };
        for id in [1, 255, u32::MAX] {
            let reclaim = reclaim_key(&prefix, NamespaceId(id));
            let (begin, end) = reclaims_range(1);
            assert!((begin..end).contains(&reclaim));
            let (from, to) = reclaimed_range(&reclaim).unwrap();
            let range = from..to;
            assert!(range.contains(&section(id)));
            assert!(!range.contains(&section(id - 1)));
            assert!(id == u32::MAX || !range.contains(&section(id + 1)));
        }
        assert_eq!(reclaimed_range(&section(7)), None);
    }

    #[test]
    fn a_section_is_known_by_its_key() {
        let prefix = generation_prefix(1, 7);
        let names = [b"i".as_slice(), b"", &[0; 8]].map(|name| SectionKey::Name(name.into()));
        let ids = [0, u64::MAX].map(SectionKey::Id);
        for key in names.into_iter().chain(ids) {
            let namespace = NamespaceId(3);
            let id = SectionId { namespace, key };
            let key = section_key(&prefix, &id);
            assert_eq!(section_of(&key[prefix.len()..]), Some(id));
        }
        for other in [b"l".as_slice(), b"s", b"s\0\0\0\x03", b"s\0\0\0\x03i\0", b"s\0\0\0\x03x"] {
            assert_eq!(section_of(other), None);
        }
    }
}
