//! By how much a recovery raises the ceilings of each namespace. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ratchet_ids::{Format, Source};

use super::lost_times::{LostTimes, format_of, timed_format_of};
use crate::{
    sequence::{
        AHEAD_MAX_MS, LeaseBound, NUMBER_MAX, NamespaceConfig, NamespaceId, NamespaceTotals,
        Tombstone,
    },
    storage::{error::StoreError, recovery_record::RaisedNamespace, table::NamespaceMap},
};

/// By how many steps ceilings are raised. The step of a namespace is the greatest that one of its
/// sections may have had.
#[derive(Debug, Clone)]
pub struct Margin {
    /// For namespaces that are not named. Those whose ids come from keys and hold a time have none then, unless it is not
    /// known how far their times got.
    pub default_steps: u64,
    /// For the namespaces with these names, also deleted ones.
    pub steps_by_namespace: BTreeMap<String, u64>,
}

/// How many leases of a worker id the lost nodes may have given after the copy's end. No worker id gets that many.
const TOKENS: u64 = 1 << 32;

/// The namespaces that the surviving copy knows, with the entries that were not applied yet.
#[derive(Default)]
pub struct Known {
    /// The namespaces.
    pub namespaces: NamespaceMap,
    /// The greatest step that a section of each namespace may have had, by all versions of its configuration.
    pub greatest_steps: BTreeMap<NamespaceId, u64>,
    /// An upper bound of what the sections and the leases of worker ids of each namespace have reached.
    pub totals: BTreeMap<NamespaceId, NamespaceTotals>,
    /// How far the times of ids of keys may have got, where ids hold one.
    pub lost_times: BTreeMap<NamespaceId, LostTimes>,
    /// The tombstones of deleted namespaces.
    pub tombstones: BTreeMap<String, Tombstone>,
}

/// The content of the raised table.
pub struct RaisePlan {
    /// The namespaces, with `start` raised.
    pub namespaces: NamespaceMap,
    /// How each namespace is raised. Its sections are not counted yet.
    pub raised: BTreeMap<NamespaceId, RaisedNamespace>,
    /// The tombstones of deleted namespaces, raised as well: the lost nodes may have created a namespace again.
    pub tombstones: BTreeMap<String, Tombstone>,
    /// The time of day, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Margin {
    /// Decides by how much the `start` and the ceilings of each namespace are raised, and each tombstone. `now_ms` is the
    /// time of day. `dir` is for the text of errors.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a named namespace does not exist, a margin ends above a namespace's greatest number, or
    /// this release does not know the format of one.
    pub fn plan(&self, known: &Known, now_ms: u64, dir: &Path) -> Result<RaisePlan, StoreError> {
        self.check_names(known, dir)?;
        let mut plan = RaisePlan {
            namespaces: known.namespaces.clone(),
            raised: BTreeMap::new(),
            tombstones: known.tombstones.clone(),
            now_ms,
        };
        for mut namespace in known.namespaces.iter().cloned() {
            let mut raised =
                self.raise_namespace(&mut namespace.config, namespace.id, known, now_ms)?;
            // So that neither a change of `start` nor a deletion undoes it.
            namespace.floor = namespace.floor.max(namespace.config.start - 1);
            let totals = known.totals.get(&namespace.id).copied().unwrap_or_default();
            let leased = namespace.lease_floor.max(totals.leased);
            namespace.lease_floor = above_lost_leases(leased, now_ms);
            let has_format = namespace.config.format.is_some();
            let leased_ms = namespace.lease_floor.ceiling_ms;
            raised.ids_after_ms = raised.ids_after_ms.or(has_format.then_some(leased_ms));
            plan.raised.insert(namespace.id, raised);
            plan.namespaces.put(namespace);
        }
        for (name, tombstone) in &mut plan.tombstones {
            let steps = self.steps_by_namespace.get(name).copied().unwrap_or(self.default_steps);
            let margin = steps.saturating_mul(tombstone.step_width);
            tombstone.floor = tombstone.floor.saturating_add(margin).min(NUMBER_MAX);
            tombstone.leased = above_lost_leases(tombstone.leased, now_ms);
        }
        Ok(plan)
    }

    fn check_names(&self, known: &Known, dir: &Path) -> Result<(), StoreError> {
        let names = known.namespaces.iter().map(|n| n.config.name.as_str());
        let deleted = known.tombstones.keys().map(String::as_str);
        let names: BTreeSet<&str> = names.chain(deleted).collect();
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

    /// Raises the `start` of a namespace: above the times that lost entries may have given, if its ids come from keys and hold
    /// a time, and by its margin.
    fn raise_namespace(
        &self, config: &mut NamespaceConfig, id: NamespaceId, known: &Known, now_ms: u64,
    ) -> Result<RaisedNamespace, StoreError> {
        let greatest_step = known.greatest_steps.get(&id).copied();
        let Some(format) = timed_format_of(config)? else {
            return self.raise(config, self.default_steps, greatest_step);
        };
        let lost = known.lost_times.get(&id).copied().unwrap_or_default();
        let ceiling_max = known.totals.get(&id).map_or(0, |totals| totals.ceiling_max);
        let ceiling_ms = format.parts_of_number(ceiling_max, 0).time_ms;
        let reached_ms = lost.reached_ms.max(ceiling_ms);
        let first = first_after_lost_entries(&format, reached_ms, now_ms, config.max);
        config.start = config.start.max(first);
        let default_steps = match lost.is_guess {
            true if first <= config.max => self.default_steps,
            _ => 0,
        };
        let raised = self.raise(config, default_steps, greatest_step)?;
        Ok(RaisedNamespace {
            ids_after_ms: Some(format.parts_of_number(config.start, 0).time_ms),
            follows_the_time: true,
            ..raised
        })
    }

    /// Raises the `start` of a namespace by its margin.
    fn raise(
        &self, config: &mut NamespaceConfig, default_steps: u64, greatest_step: Option<u64>,
    ) -> Result<RaisedNamespace, StoreError> {
        let margin_steps = self.steps_by_namespace.get(&config.name).copied();
        let margin_steps = margin_steps.unwrap_or(default_steps);
        let step = greatest_step.unwrap_or_else(|| config.step_bounds().1);
        let step = step.saturating_mul(config.increment);
        let raised_by = margin_steps.checked_mul(step);
        let left = config.max.saturating_sub(config.start);
        let Some(raised_by) = raised_by.filter(|by| *by <= left) else {
            return Err(too_wide(config, margin_steps, step)?);
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
            follows_the_time: false,
        })
    }
}

/// Why a margin is refused that ends above a namespace's greatest number.
///
/// # Errors
/// [`StoreError::Refused`] if this release does not know the format of the namespace's ids.
fn too_wide(
    config: &NamespaceConfig, margin_steps: u64, step: u64,
) -> Result<StoreError, StoreError> {
    let NamespaceConfig { name, max, .. } = config;
    let source = format_of(config)?.map(|format| format.source());
    Ok(StoreError::Refused(match source {
        // A key has few of them, and can get no more: the greatest margin that fits would leave one.
        Some(Source::Date) => format!(
            "a margin of {margin_steps} steps of {step} leaves none of the {max} order numbers that a key of namespace \
             {name:?} has in all; state how many steps of {step} the lost nodes may have given any one key after the end of \
             this copy: --margin {name}=STEPS; every key loses as many, also a new one"
        ),
        _ => format!(
            "a margin of {margin_steps} steps of {step} ends above the greatest number of \
             namespace {name:?}, {max}; state a margin of at most {most} steps for it: --margin {name}={most}",
            most = max.saturating_sub(config.start) / step
        ),
    }))
}

/// The first number of keys with ids of this format that lies above all that lost entries may have given. They lay at most
/// [`AHEAD_MAX_MS`] above the leader's time, or above the namespace's where that was ahead. One more than `max` if the format
/// has ended by then.
fn first_after_lost_entries(format: &Format, reached_ms: u64, now_ms: u64, max: u64) -> u64 {
    let after_ms = now_ms.max(reached_ms).saturating_add(AHEAD_MAX_MS);
    let first = format.number_at(after_ms.max(format.first_ms()));
    first.unwrap_or_else(|_ended| max.saturating_add(1))
}

/// A bound above all leases of worker ids, the lost ones included. They were given before now, by clocks near this one, and
/// reached at most [`AHEAD_MAX_MS`] ahead.
fn above_lost_leases(known: LeaseBound, now_ms: u64) -> LeaseBound {
    known.max(LeaseBound {
        // Lost renewals may have raised a known ceiling, too.
        ceiling_ms: known.ceiling_ms.max(now_ms).saturating_add(AHEAD_MAX_MS),
        token: known.token.saturating_add(TOKENS),
    })
}
