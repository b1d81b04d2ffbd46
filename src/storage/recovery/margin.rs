//! By how much a recovery raises the ceilings of each namespace, and how far the times of ids may have got. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ratchet_ids::{Format, Source};

use crate::{
    sequence::{
        AHEAD_MAX_MS, LeaseFloor, NUMBER_MAX, NamespaceConfig, NamespaceId, NamespaceTotals,
        SectionRecord, Tombstone,
    },
    storage::{error::StoreError, identity::RaisedNamespace, table::Namespaces},
    version,
};

/// By how many steps ceilings are raised. The step of a namespace is the greatest that one of its
/// sections may have had.
#[derive(Debug, Clone)]
pub struct Margin {
    /// For namespaces that are not named. Those whose ids come from keys and hold a time have none then, unless it is not
    /// known how far their times got.
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
    /// How far the times of ids of keys may have got, where ids hold one.
    pub lost_times: BTreeMap<NamespaceId, LostTimes>,
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
        self.check_names(&known.namespaces, dir)?;
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

    /// Raises the `start` of a namespace: above the times that may be lost, if its ids come from keys and hold a time, and by
    /// its margin.
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
        let first = first_after_lost_ids(&format, reached_ms, now_ms, config.max);
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
/// As [`format_of`].
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
fn first_after_lost_ids(format: &Format, reached_ms: u64, now_ms: u64, max: u64) -> u64 {
    let after_ms = now_ms.max(reached_ms).saturating_add(AHEAD_MAX_MS);
    let first = format.number_at(after_ms.max(format.first_ms()));
    first.unwrap_or_else(|_ended| max.saturating_add(1))
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

// How far the times of ids of keys may have got after the copy's end.
//
// Keys that the copy does not know may have got ids then, and no record of the copy bounds them but this: a namespace
// whose time lies ahead of the clock goes on at half speed. When a record was written, its ceiling lay above the
// namespace's time. So that time is at most the ceiling's, and half of what has passed since.

/// A key that was evicted may have had its last id so long before: `key_idle_ms` is ten minutes unless it is set, and up to
/// twice as much passes.
const EVICTED_AFTER_MS: u64 = 20 * 60_000;

/// How far the times of a namespace's ids may have got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostTimes {
    /// No time lay above this one, or above the lost leader's own: milliseconds since 1970.
    pub reached_ms: u64,
    /// True if that is a guess: it is not known when a record was written whose numbers lie ahead of the time, since the
    /// clock of the leader that wrote it was wrong.
    pub is_guess: bool,
}

impl LostTimes {
    /// Notes a record of the copy. `now_ms` is the time of day.
    pub fn note(&mut self, format: &Format, record: &SectionRecord, now_ms: u64) {
        let ceiling_ms = format.parts_of_number(record.max_seq, 0).time_ms;
        let written_ms = record.written_ms;
        let is_ahead_of = |ms: u64| ceiling_ms > ms.saturating_add(AHEAD_MAX_MS);
        // A time of writing in the future is a wrong clock's. How long ago it was is not known: nothing is added for it here.
        let is_wrong = written_ms == 0 || written_ms > now_ms.saturating_add(AHEAD_MAX_MS);
        let since_ms = match written_ms {
            _ if is_wrong => now_ms,
            // Its namespace may have been ahead although its last id was not any more.
            _ if record.was_evicted()
                && is_ahead_of(written_ms.saturating_sub(EVICTED_AFTER_MS)) =>
            {
                written_ms.saturating_sub(EVICTED_AFTER_MS)
            }
            _ => written_ms,
        };
        let passed_ms = now_ms.saturating_sub(since_ms) / 2;
        self.reached_ms = self.reached_ms.max(ceiling_ms.saturating_add(passed_ms));
        self.is_guess |= is_wrong && is_ahead_of(now_ms);
    }
}

/// The format of a namespace's ids, if it has one.
///
/// # Errors
/// [`StoreError::Refused`] if this release does not know it: nobody can tell which numbers its ids hold.
pub fn format_of(config: &NamespaceConfig) -> Result<Option<Format>, StoreError> {
    let format = config.format.as_deref().map(Format::parse).transpose();
    format.map_err(|invalid| {
        StoreError::Refused(format!(
            "release {} does not know the format of namespace {:?}: {invalid}; recover with the release that the lost nodes \
             ran",
            version::VERSION,
            config.name
        ))
    })
}

/// The format of a namespace whose ids come from keys and hold a time.
///
/// # Errors
/// As [`format_of`].
pub fn timed_format_of(config: &NamespaceConfig) -> Result<Option<Format>, StoreError> {
    Ok(format_of(config)?.filter(|format| format.source() == Source::Key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    /// What the copy tells whose only record has a ceiling at `ceiling_ms`, and was written at `written_ms`.
    fn lost(ceiling_ms: u64, written_ms: u64, unused_max: u64) -> LostTimes {
        let format = Format::parse("rongcloud").unwrap();
        let max_seq = format.number_at(ceiling_ms).unwrap();
        let record = SectionRecord {
            max_seq,
            floor: max_seq - unused_max,
            step: 13,
            unused_max,
            written_ms,
            ..SectionRecord::default()
        };
        let mut lost = LostTimes::default();
        lost.note(&format, &record, NOW_MS);
        lost
    }

    #[test]
    fn a_namespace_that_was_ahead_may_have_gone_on_at_half_speed_since_its_record_was_written() {
        let ahead = lost(NOW_MS + HOUR_MS, NOW_MS - 10 * HOUR_MS, 5);
        let known = LostTimes { reached_ms: NOW_MS + 6 * HOUR_MS, is_guess: false };
        assert_eq!(ahead, known);
        // It was ahead by two hours, of which half an hour is left.
        let behind = lost(NOW_MS - HOUR_MS, NOW_MS - 3 * HOUR_MS, 5);
        assert_eq!(behind.reached_ms, NOW_MS + HOUR_MS / 2);
        // In order, a key lies some seconds ahead.
        let usual = lost(NOW_MS - HOUR_MS + 3_000, NOW_MS - HOUR_MS, 5);
        assert!(usual.reached_ms < NOW_MS && !usual.is_guess, "{usual:?}");
        let at_once = lost(NOW_MS + 3_000, NOW_MS + 10, 5);
        assert_eq!(at_once.reached_ms, NOW_MS + 3_000);
        assert!(!at_once.is_guess, "clocks differ a little");
    }

    #[test]
    fn a_key_that_was_evicted_had_its_last_id_before_that_was_written() {
        let ahead = lost(NOW_MS + HOUR_MS, NOW_MS - HOUR_MS, 0);
        let since_ms = HOUR_MS + EVICTED_AFTER_MS;
        assert_eq!(ahead.reached_ms, NOW_MS + HOUR_MS + since_ms / 2);
        // Its last id was as old as the record, and 15 minutes before that its namespace was as far ahead of it.
        let last_ms = NOW_MS - HOUR_MS;
        let reached_ms = lost(last_ms, last_ms, 0).reached_ms;
        assert!(reached_ms >= last_ms + EVICTED_AFTER_MS / 2);
        let usual = lost(NOW_MS - HOUR_MS - EVICTED_AFTER_MS, NOW_MS - HOUR_MS, 0);
        assert!(usual.reached_ms < NOW_MS - HOUR_MS / 2);
    }

    #[test]
    fn how_far_it_went_is_a_guess_if_the_clock_that_wrote_a_record_ahead_of_the_time_was_wrong() {
        for written_ms in [0, NOW_MS + HOUR_MS] {
            let guess = lost(NOW_MS + HOUR_MS, written_ms, 5);
            assert_eq!(guess.reached_ms, NOW_MS + HOUR_MS);
            assert!(guess.is_guess, "written at {written_ms}");
        }
        assert!(!lost(NOW_MS - HOUR_MS, 0, 5).is_guess);
    }
}
