//! All namespaces of a set, in memory.
//!
//! A change makes a new version; readers keep the version that they hold. Versions share their unchanged
//! parts: a change copies one part of the names and one of the ids, however many namespaces there are.

use std::{collections::BTreeMap, hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{
    metrics::{CountsGuard, Metrics},
    sequence::{Namespace, NamespaceId},
};

/// How many parts hold the names.
const PARTS: usize = 128;
/// How many consecutive ids one part holds.
const IDS_PER_PART: u32 = 128;

/// One version of all namespaces of a set.
#[derive(Debug, Clone)]
pub struct NamespaceMap {
    /// Namespaces by id, in parts: part n holds the ids from n * [`IDS_PER_PART`] on.
    by_id: BTreeMap<u32, Arc<BTreeMap<NamespaceId, Arc<Namespace>>>>,
    /// Namespaces by name, in [`PARTS`] parts by the name's hash.
    by_name: Vec<Arc<HashTable<Arc<Namespace>>>>,
    hasher: DefaultHashBuilder,
}

impl Default for NamespaceMap {
    fn default() -> Self {
        NamespaceMap {
            by_id: BTreeMap::new(),
            by_name: vec![Arc::default(); PARTS],
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl NamespaceMap {
    /// The namespace with this id.
    pub fn by_id(&self, id: NamespaceId) -> Option<&Namespace> {
        let namespace = self.by_id.get(&(id.0 / IDS_PER_PART))?.get(&id)?;
        Some(namespace)
    }

    /// The namespace with this name.
    pub fn by_name(&self, name: &str) -> Option<&Namespace> {
        let (hash, part) = self.find(name);
        let namespace = self.by_name[part].find(hash, |known| known.config.name == name)?;
        Some(namespace)
    }

    /// The counts in `metrics` of the namespace with this id. One that is deleted has the counts of all without a place.
    pub fn counts_of(&self, id: NamespaceId, metrics: &Metrics) -> CountsGuard {
        match self.by_id(id) {
            Some(known) => metrics.namespaces().of(id.0, &known.config.name),
            None => metrics.namespaces().others(),
        }
    }

    /// All namespaces, in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_id.values().flat_map(|part| part.values().map(|namespace| &**namespace))
    }

    /// How many namespaces there are.
    pub fn count(&self) -> usize {
        self.by_id.values().map(|part| part.len()).sum()
    }

    /// Adds a namespace, or replaces the one with the same id.
    pub(in crate::storage) fn put(&mut self, namespace: Namespace) {
        // A change keeps the name, and a new namespace has an id that none has had.
        assert!(
            self.by_id(namespace.id).is_none_or(|known| known.config.name == namespace.config.name),
            "the table is damaged: a namespace keeps its name: {namespace:?}"
        );
        let namespace = Arc::new(namespace);
        let (hash, part) = self.find(&namespace.config.name);
        let names = Arc::make_mut(&mut self.by_name[part]);
        match names.find_mut(hash, |known| known.id == namespace.id) {
            Some(known) => *known = namespace.clone(),
            None => {
                let hasher = &self.hasher;
                names.insert_unique(hash, namespace.clone(), |known| {
                    hasher.hash_one(known.config.name.as_str())
                });
            }
        }
        let ids = self.by_id.entry(namespace.id.0 / IDS_PER_PART).or_default();
        Arc::make_mut(ids).insert(namespace.id, namespace);
    }

    /// Removes the namespace with this id, if there is one.
    pub(in crate::storage) fn remove(&mut self, id: NamespaceId) {
        let part = id.0 / IDS_PER_PART;
        let Some(ids) = self.by_id.get_mut(&part) else {
            return;
        };
        let Some(namespace) = Arc::make_mut(ids).remove(&id) else {
            return;
        };
        if ids.is_empty() {
            self.by_id.remove(&part);
        }
        let (hash, part) = self.find(&namespace.config.name);
        let names = Arc::make_mut(&mut self.by_name[part]);
        if let Ok(known) = names.find_entry(hash, |known| known.id == id) {
            known.remove();
        }
    }

    /// A name's hash, and which part holds the name.
    fn find(&self, name: &str) -> (u64, usize) {
        let hash = self.hasher.hash_one(name);
        // The middle bits: the hash tables inside the parts use the lowest and the highest.
        (hash, (hash >> 32) as usize % PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::NamespaceConfig;

    fn namespace(id: u32, step: u64) -> Namespace {
        Namespace::new(
            NamespaceId(id),
            NamespaceConfig { step, ..NamespaceConfig::new(format!("n{id}")) },
        )
    }

    #[test]
    fn a_change_leaves_older_versions_as_they_were_and_copies_one_part() {
        let mut versions = vec![NamespaceMap::default()];
        for id in 1..=1_000 {
            let mut next = versions[versions.len() - 1].clone();
            next.put(namespace(id, 1));
            versions.push(next);
        }
        let mut changed = versions[1_000].clone();
        changed.put(namespace(7, 2));
        for (count, version) in versions.iter().enumerate() {
            assert_eq!(version.count(), count);
            let ids: Vec<u32> = version.iter().map(|namespace| namespace.id.0).collect();
            assert_eq!(ids, (1..=count as u32).collect::<Vec<_>>());
            assert!(version.by_name(&format!("n{}", count + 1)).is_none());
        }
        let step = |version: &NamespaceMap| {
            let (by_name, by_id) = (version.by_name("n7"), version.by_id(NamespaceId(7)));
            assert_eq!(by_name, by_id);
            by_name.map(|namespace| namespace.config.step)
        };
        assert_eq!(step(&versions[6]), None);
        assert_eq!((step(&versions[1_000]), step(&changed)), (Some(1), Some(2)));
        assert_eq!(changed.count(), 1_000);

        let (before, after) = (&versions[1_000], &changed);
        let parts = before.by_name.iter().zip(&after.by_name);
        let copied = parts.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        let ids = before.by_id.values().zip(after.by_id.values());
        let copied_ids = ids.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!((copied, copied_ids), (1, 1), "how many parts were copied");
    }

    #[test]
    fn a_namespace_that_is_removed_is_found_under_neither_id_nor_name_and_its_name_can_be_taken_again()
     {
        let mut namespaces = NamespaceMap::default();
        (1..=300).for_each(|id| namespaces.put(namespace(id, 1)));
        let before = namespaces.clone();
        for id in 1..=300 {
            namespaces.remove(NamespaceId(id));
            namespaces.remove(NamespaceId(id));
            assert!(namespaces.by_id(NamespaceId(id)).is_none());
            assert!(namespaces.by_name(&format!("n{id}")).is_none());
            assert_eq!(namespaces.count(), 300 - id as usize);
        }
        assert_eq!(before.count(), 300);
        let mut again = namespace(7, 1);
        again.id = NamespaceId(301);
        namespaces.put(again);
        let found = namespaces.by_name("n7").map(|found| found.id);
        assert_eq!(found, Some(NamespaceId(301)));
    }
}
