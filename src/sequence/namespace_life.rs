//! The life of namespaces in the replicated table: founding, creation, change, deletion, creation again.
//!
//! A namespace that is deleted leaves a `Tombstone` under its name. A namespace that is created under the name again
//! begins above it, so that the numbers of one (name, key) go up through it, and so do the times of one (name, worker
//! id).
//!
//! Invariant: an id of a namespace is used once. Nobody who comes later finds the keys that a leader holds of a namespace that
//! is gone, or was replaced: they stand under the old id.

use super::{
    command::NamespaceRefused,
    identifiers::{ClusterId, NamespaceId},
    namespace::{Namespace, NamespaceConfig},
    namespace_change::{NamespaceChange, why_fixed},
    table::Table,
    totals::Tombstone,
    workers::LeaseBound,
};

/// The outcome of an entry: a value, or a refusal.
type Refusable<T, E> = Result<Result<T, NamespaceRefused>, E>;

/// Creates the namespaces of a fresh cluster, all in one entry. Changes nothing if the cluster was founded before:
/// namespaces that were deleted since do not come back.
pub fn found<T: Table>(table: &mut T, namespaces: &[NamespaceConfig]) -> Result<(), T::Error> {
    if table.next_namespace_id()?.is_some() {
        return Ok(());
    }
    table.put_next_namespace_id(NamespaceId(1));
    for config in namespaces {
        // The configurations are this product's own; one that is refused is left out on every node.
        drop(create(table, config, u64::MAX)?);
    }
    Ok(())
}

/// Gives the cluster its id. Changes nothing if it has one: an id never changes.
pub fn name_cluster<T: Table>(table: &mut T, id: ClusterId) -> Result<(), T::Error> {
    if table.cluster_id()?.is_none() {
        table.put_cluster_id(id);
    }
    Ok(())
}

/// Creates a namespace. Its numbers begin above those that a deleted namespace of this name may have handed out.
pub fn create<T: Table>(
    table: &mut T, config: &NamespaceConfig, namespaces_max: u64,
) -> Refusable<Namespace, T::Error> {
    if let Err(invalid) = config.check() {
        return Ok(Err(invalid.into()));
    }
    if table.namespace_named(&config.name).is_some() {
        return Ok(Err(NamespaceRefused::Exists(config.name.clone())));
    }
    let count = table.namespace_count() as u64;
    if count >= namespaces_max {
        return Ok(Err(NamespaceRefused::TooMany(count)));
    }
    let tombstone = table.tombstone(&config.name)?;
    let floor = tombstone.map_or(0, |tombstone| tombstone.floor);
    let leased = tombstone.map_or(LeaseBound::default(), |tombstone| tombstone.leased);
    match above(config.clone(), floor) {
        Ok(config) => insert(table, config.with_fitting_steps(), floor, leased, None),
        Err(refused) => Ok(Err(refused)),
    }
}

/// Whether a namespace is what `create` makes of `config`, above what a deleted namespace of the name handed out.
pub fn is_as_created(namespace: &Namespace, config: &NamespaceConfig) -> bool {
    let created = above(config.clone(), namespace.floor).map(NamespaceConfig::with_fitting_steps);
    created.is_ok_and(|config| config == namespace.config)
}

/// Changes a namespace. A setting whose change would disorder numbers is changed only while nothing was handed out, and then by
/// a namespace under a new id that takes the place of the old one: a bump for the old id that is still to be applied finds no
/// namespace, and no chunk of the old layout is used under the new one.
pub fn update<T: Table>(
    table: &mut T, name: &str, change: &NamespaceChange,
) -> Refusable<Namespace, T::Error> {
    let Some(old) = table.namespace_named(name).cloned() else {
        return Ok(Err(NamespaceRefused::NotFound(name.to_owned())));
    };
    let config = change.applied_to(old.config.clone());
    let checked = config.check();
    if let Err(invalid) = checked.and_then(|()| change.check_keys_of(&old.config)) {
        return Ok(Err(invalid.into()));
    }
    let Some(reasons) = why_fixed(&old.config, &config) else {
        let max_ever = old.max_ever.max(config.max);
        let namespace = Namespace { config: config.with_fitting_steps(), max_ever, ..old };
        table.put_namespace(namespace.clone());
        return Ok(Ok(namespace));
    };
    if !table.totals(old.id)?.is_unused() {
        return Ok(Err(NamespaceRefused::Fixed { name: name.to_owned(), reasons }));
    }
    match above(config, old.floor) {
        Ok(config) => {
            let config = config.with_fitting_steps();
            insert(table, config, old.floor, old.lease_floor, Some(old.id))
        }
        Err(refused) => Ok(Err(refused)),
    }
}

/// Deletes a namespace. Unless it is to be forgotten, its tombstone stays. Returns the tombstone; `None` if there is none.
/// With `forget`, a tombstone alone is removed as well.
pub fn delete<T: Table>(
    table: &mut T, name: &str, forget: bool,
) -> Refusable<Option<Tombstone>, T::Error> {
    let Some(namespace) = table.namespace_named(name).cloned() else {
        return Ok(match (table.tombstone(name)?, forget) {
            (Some(_), true) => {
                table.put_tombstone(name, None);
                Ok(None)
            }
            (Some(tombstone), false) => {
                Err(NamespaceRefused::DeletedBefore { name: name.to_owned(), tombstone })
            }
            (None, _) => Err(NamespaceRefused::NotFound(name.to_owned())),
        });
    };
    let tombstone = Tombstone::of(&namespace, *table.totals(namespace.id)?);
    let tombstone = tombstone.filter(|_| !forget);
    table.remove_namespace(namespace.id)?;
    table.put_tombstone(name, tombstone);
    Ok(Ok(tombstone))
}

/// The configuration with its first number above `floor`.
fn above(mut config: NamespaceConfig, floor: u64) -> Result<NamespaceConfig, NamespaceRefused> {
    if config.start <= floor {
        let first = config.progression().first_above(floor);
        config.start = first.ok_or_else(|| NamespaceRefused::BelowFloor {
            name: config.name.clone(),
            floor,
            max: config.max,
        })?;
    }
    Ok(config)
}

/// Writes a new namespace under the next id, in the place of the tombstone of its name, or of `old`.
fn insert<T: Table>(
    table: &mut T, config: NamespaceConfig, floor: u64, lease_floor: LeaseBound,
    old: Option<NamespaceId>,
) -> Refusable<Namespace, T::Error> {
    let id = table.next_namespace_id()?.unwrap_or(NamespaceId(1));
    let Some(next) = id.0.checked_add(1) else {
        return Ok(Err(NamespaceRefused::IdsUsedUp));
    };
    table.put_next_namespace_id(NamespaceId(next));
    table.put_tombstone(&config.name, None);
    if let Some(old) = old {
        table.remove_namespace(old)?;
    }
    let namespace = Namespace { floor, lease_floor, ..Namespace::new(id, config) };
    table.put_namespace(namespace.clone());
    Ok(Ok(namespace))
}

#[cfg(test)]
mod tests;
