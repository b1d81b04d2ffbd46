//! By how much a recovery raises the ceilings of each namespace. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ratchet_ids::{Format, Source};

use crate::{
    sequence::{
        AHEAD_MAX_MS, LeaseFloor, NUMBER_MAX, NamespaceConfig, NamespaceId, NamespaceTotals,
        Tombstone,
    },
    storage::{error::StoreError, recovery_record::RaisedNamespace, table::Namespaces},
};

/// By how many steps ceilings are raised. The step of a namespace is the greatest that one of its
/// sections may have had.
#[derive(Debug, Clone)]
pub struct Margin {
    /// For namespaces that are not named.
    pub default_steps: u64,
    /// For the namespaces with these names.
    pub steps_by_namespace: BTreeMap<String, u64>,
}

/// How many leases of a worker id the lost nodes may have given after the copy's end. No worker id gets that many.
const TOKENS: u64 = 1 << 32;

/// What the surviving copy knows of namespaces, with the entries that were not applied yet.
#[derive(Default)]
pub struct Known {
    /// The namespaces.
    pub namespaces: Namespaces,
    /// The greatest step that a section of each namespace may have had, by all versions of its configuration.
    pub greatest_steps: BTreeMap<NamespaceId, u64>,
    /// What no section, and no lease of a worker id, of each namespace went beyond.
    pub totals: BTreeMap<NamespaceId, NamespaceTotals>,
    /// The tombstones of deleted namespaces.
    pub tombstones: BTreeMap<String, Tombstone>,
}

/// What the raised table will hold.
pub struct RaisePlan {
    /// The namespaces, with `start` raised.
    pub namespaces: Namespaces,
    /// How each namespace is raised. Its sections are not counted yet.
    pub raised: BTreeMap<NamespaceId, RaisedNamespace>,
    /// The tombstones of deleted namespaces, raised as well: the lost nodes may have created a namespace again.
    pub tombstones: BTreeMap<String, Tombstone>,
}

impl Margin {
    /// Decides by how much the `start` and the ceilings of each namespace are raised, and each tombstone. `now_ms` is the
    /// time of day. `dir` is for the text of errors.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a named namespace does not exist, or a margin ends above a namespace's greatest
    /// number.
    pub fn plan(&self, known: &Known, now_ms: u64, dir: &Path) -> Result<RaisePlan, StoreError> {
        self.check_names(&known.namespaces, dir)?;
        let mut plan = RaisePlan {
            namespaces: known.namespaces.clone(),
            raised: BTreeMap::new(),
            tombstones: known.tombstones.clone(),
        };
        for mut namespace in known.namespaces.iter().cloned() {
            let greatest_step = known.greatest_steps.get(&namespace.id).copied();
            let mut raised = self.raise(&mut namespace.config, greatest_step)?;
            let totals = known.totals.get(&namespace.id).copied().unwrap_or_default();
            let first = first_after_lost_ids(&namespace.config, totals.ceiling_max, now_ms);
            namespace.config.start = namespace.config.start.max(first);
            raised.start = namespace.config.start;
            // So that neither a change of `start` nor a deletion undoes it.
            namespace.floor = namespace.floor.max(namespace.config.start - 1);
            let leased = namespace.lease_floor.max(totals.leased);
            namespace.lease_floor = above_lost_leases(leased, now_ms);
            let has_format = namespace.config.format.is_some();
            raised.ids_after_ms = has_format.then_some(namespace.lease_floor.ceiling_ms);
            plan.raised.insert(namespace.id, raised);
            plan.namespaces.put(namespace);
        }
        for tombstone in plan.tombstones.values_mut() {
            let margin = self.default_steps.saturating_mul(tombstone.step_width);
            tombstone.floor = tombstone.floor.saturating_add(margin).min(NUMBER_MAX);
            tombstone.leased = above_lost_leases(tombstone.leased, now_ms);
        }
        Ok(plan)
    }

    fn check_names(&self, namespaces: &Namespaces, dir: &Path) -> Result<(), StoreError> {
        let names = namespaces.iter().map(|n| n.config.name.as_str());
        let names: BTreeSet<&str> = names.collect();
        let mut named = self.steps_by_namespace.keys();
        match named.find(|name| !names.contains(name.as_str())) {
            None => Ok(()),
            Some(unknown) => Err(StoreError::Refused(format!(
                "there is no namespace {unknown:?} in {}; it holds {}",
                dir.display(),
                Vec::from_iter(names).join(", ")
            ))),
        }
    }

    /// Raises the `start` of a namespace.
    fn raise(
        &self,
        config: &mut NamespaceConfig,
        greatest_step: Option<u64>,
    ) -> Result<RaisedNamespace, StoreError> {
        let margin_steps = self.steps_by_namespace.get(&config.name).copied();
        let margin_steps = margin_steps.unwrap_or(self.default_steps);
        let step = greatest_step.unwrap_or_else(|| config.step_bounds().1);
        let step = step.saturating_mul(config.increment);
        let raised_by = margin_steps.checked_mul(step);
        let left = config.max.saturating_sub(config.start);
        let Some(raised_by) = raised_by.filter(|by| *by <= left) else {
            return Err(StoreError::Refused(format!(
                "a margin of {margin_steps} steps of {step} ends above the greatest number of \
                 namespace {0:?}, {1}; state a margin of at most {2} steps for it: --margin {0}={2}",
                config.name,
                config.max,
                left / step
            )));
        };
        config.start += raised_by;
        Ok(RaisedNamespace {
            name: config.name.clone(),
            margin_steps,
            raised_by,
            sections: 0,
            exhausted: 0,
            start: config.start,
            ids_after_ms: None,
        })
    }
}

/// The first number of keys whose ids hold a time, above those that lost entries gave: they lay at most [`AHEAD_MAX_MS`] above
/// the time, or above the greatest ceiling that is known, where the namespace was ahead of the time. 0 for other namespaces,
/// and if the format has ended by then.
fn first_after_lost_ids(config: &NamespaceConfig, ceiling_max: u64, now_ms: u64) -> u64 {
    let format = config.format.as_deref();
    let format = format.and_then(|text| Format::parse(text).ok());
    let of_key = format.filter(|format| format.source() == Source::Key);
    of_key.map_or(0, |format| {
        let ceiling_ms = format.parts_of_number(ceiling_max, 0).time_ms;
        let after = now_ms.max(ceiling_ms).saturating_add(AHEAD_MAX_MS);
        format.number_at(after).unwrap_or(0)
    })
}

/// What no lease of worker ids went beyond, the lost ones included. They were given before now, by clocks near this one,
/// and reached at most [`AHEAD_MAX_MS`] ahead.
fn above_lost_leases(known: LeaseFloor, now_ms: u64) -> LeaseFloor {
    known.max(LeaseFloor {
        // Lost renewals may have raised a known ceiling, too.
        ceiling_ms: known.ceiling_ms.max(now_ms).saturating_add(AHEAD_MAX_MS),
        token: known.token.saturating_add(TOKENS),
    })
}
