//! The namespaces that have counts of their own: a bounded number of them. `counts.rs` has the counts, and `figures.rs` shows
//! them.
//!
//! A namespace gets a place when something of it is counted first. Those that come when all places are taken are counted
//! together, under a name that no namespace can have. The place of a deleted namespace is given to another one once that
//! needs it; until then its counters stay, and one that is created under its name goes on with them. A namespace that was
//! counted with the others gets a place that becomes free when it is counted next: from then on it has counters of its own,
//! which begin at 0, and what it had before stays where it was counted.
//!
//! Invariant: each event is counted in one place, and in the totals. No counter falls; one that a place had for a deleted
//! namespace disappears with it.

mod counts;
mod figures;

pub use self::counts::NamespaceCounts;
pub(super) use self::figures::{Figure, OfNamespaces};

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use arc_swap::{ArcSwap, Guard};
use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use self::counts::{OTHERS, Totals};
use super::{labels::Counters, skip_cause::SkipCause};

/// How many namespaces have a place, unless a node says otherwise.
const PLACES_MAX: usize = 100;

/// The counts for each namespace. Clones count in the same places.
#[derive(Debug, Clone)]
pub struct NamespaceMetrics(Arc<NamespacePlaces>);

#[derive(Debug)]
struct NamespacePlaces {
    table: ArcSwap<PlaceTable>,
    /// Held by the task that changes the table.
    changing: Mutex<()>,
    places_max: AtomicUsize,
    /// False if no namespace can get a place.
    has_room: AtomicBool,
    totals: Totals,
}

/// Which namespace has which place. A change makes a new table.
#[derive(Debug, Clone)]
struct PlaceTable {
    /// The first one is that of all without a place.
    places: Vec<Arc<NamespaceCounts>>,
    /// The places of namespaces, by their ids. A place that no id has is free.
    by_id: HashMap<u32, usize>,
}

impl NamespaceMetrics {
    /// No namespace has a place yet. Each count is also added to these totals.
    pub(super) fn new(numbers: &Counter, answers: &Counter, skipped: &Counters<SkipCause>) -> Self {
        let totals =
            Totals { numbers: numbers.clone(), answers: answers.clone(), skipped: skipped.clone() };
        let others = Arc::new(NamespaceCounts::new(OTHERS, &totals));
        NamespaceMetrics(Arc::new(NamespacePlaces {
            table: ArcSwap::from_pointee(PlaceTable {
                places: vec![others],
                by_id: HashMap::new(),
            }),
            changing: Mutex::default(),
            places_max: AtomicUsize::new(PLACES_MAX),
            has_room: AtomicBool::new(true),
            totals,
        }))
    }

    /// Lets so many namespaces have a place. Call it before anything is counted.
    pub fn set_places_max(&self, most: usize) {
        self.0.places_max.store(most, Relaxed);
    }

    /// The counts of the namespace with this id and name. It gets a place if there is one.
    #[inline]
    pub fn of(&self, id: u32, name: &str) -> CountsGuard {
        let table = self.0.table.load();
        match table.by_id.get(&id).copied() {
            Some(place) => CountsGuard { table, place },
            None if self.0.has_room.load(Acquire) => self.in_new_place(id, name),
            None => CountsGuard { table, place: 0 },
        }
    }

    /// The counts of the namespaces without a place, and of what belongs to no namespace that this node knows.
    pub fn others(&self) -> CountsGuard {
        CountsGuard { table: self.0.table.load(), place: 0 }
    }

    /// As [`NamespaceMetrics::of`], of a namespace that has no place yet.
    #[cold]
    fn in_new_place(&self, id: u32, name: &str) -> CountsGuard {
        let changing = self.0.changing.lock();
        let mut table = PlaceTable::clone(&self.0.table.load());
        // Another call may have been quicker.
        if !table.by_id.contains_key(&id) {
            match table.place_for(name, self.0.places_max.load(Relaxed)) {
                Some(place) => {
                    match &*table.places[place].name == name {
                        false => {
                            let counts = NamespaceCounts::new(name, &self.0.totals);
                            table.places[place] = Arc::new(counts);
                        }
                        // It goes on with the counters of a deleted namespace, and not with its ceilings. A late call of
                        // the deleted one changes nothing.
                        true if !table.by_id.values().any(|taken| *taken == place) => {
                            *table.places[place].consumption.lock() = None;
                        }
                        true => {}
                    }
                    table.by_id.insert(id, place);
                    self.0.table.store(Arc::new(table));
                }
                None => self.0.has_room.store(false, Release),
            }
        }
        drop(changing);
        let table = self.0.table.load();
        let place = table.by_id.get(&id).copied().unwrap_or(0);
        CountsGuard { table, place }
    }

    /// Works out what is told at a scrape at `now_ms`. `max_of` says which `max` a namespace has, and `None` of one that is
    /// deleted: its place is free.
    pub fn measure(&self, now_ms: u64, max_of: impl Fn(u32) -> Option<u64>) {
        let _changing = self.0.changing.lock();
        let table = self.0.table.load();
        let (mut gone, mut maxes) = (Vec::new(), vec![None; table.places.len()]);
        for (&id, &place) in &table.by_id {
            match max_of(id) {
                Some(max) => maxes[place] = Some(max),
                None => gone.push(id),
            }
        }
        for (place, max) in table.places.iter().zip(maxes) {
            place.measure(max, now_ms);
        }
        if !gone.is_empty() {
            let mut without = PlaceTable::clone(&table);
            without.by_id.retain(|id, _| !gone.contains(id));
            self.0.table.store(Arc::new(without));
            self.0.has_room.store(true, Release);
        }
    }
}

impl PlaceTable {
    /// The place for a namespace: that of its name, a new one, or the first that is free. A new one is empty, and has no
    /// name yet.
    fn place_for(&mut self, name: &str, most: usize) -> Option<usize> {
        let of_name = (1..self.places.len()).find(|place| &*self.places[*place].name == name);
        if of_name.is_some() {
            return of_name;
        }
        if self.places.len() <= most {
            // The caller puts another one there.
            self.places.push(self.places[0].clone());
            return Some(self.places.len() - 1);
        }
        let is_free = |place: &usize| !self.by_id.values().any(|taken| taken == place);
        (1..self.places.len()).find(is_free)
    }
}

/// The counts of a namespace, or of those without a place.
#[derive(Debug)]
pub struct CountsGuard {
    table: Guard<Arc<PlaceTable>>,
    place: usize,
}

impl CountsGuard {
    /// The same, for a caller that keeps it.
    pub fn shared(&self) -> Arc<NamespaceCounts> {
        self.table.places[self.place].clone()
    }
}

impl Deref for CountsGuard {
    type Target = NamespaceCounts;

    fn deref(&self) -> &NamespaceCounts {
        &self.table.places[self.place]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        metrics::Metrics,
        proto::{name_of_reason, v1::Reason},
    };

    /// How many calls the text shows, by namespace.
    fn calls(metrics: &Metrics) -> BTreeMap<String, u64> {
        let text = metrics.text();
        let lines = text.lines();
        let samples = lines
            .filter_map(|line| line.strip_prefix("ratchet_namespace_calls_total{namespace=\""));
        let samples = samples.map(|sample| {
            let (name, count) = sample.split_once("\"} ").expect("a sample");
            (name.to_owned(), count.parse().expect("a count"))
        });
        samples.collect()
    }

    fn shown(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn with_places(most: usize) -> Arc<Metrics> {
        let metrics = Metrics::new();
        metrics.namespaces().set_places_max(most);
        metrics
    }

    #[test]
    fn the_first_namespaces_that_are_used_have_places_and_the_rest_is_counted_together() {
        let metrics = with_places(2);
        let call = |id: u32| metrics.namespaces().of(id, &format!("n{id}")).call();
        for id in [7, 3, 5, 3, 9, 7, 7] {
            call(id);
        }
        assert_eq!(calls(&metrics), shown(&[("(other)", 2), ("n3", 2), ("n7", 3)]));
        // Nothing was deleted.
        metrics.namespaces().measure(0, |_| Some(100));
        call(5);
        assert_eq!(calls(&metrics), shown(&[("(other)", 3), ("n3", 2), ("n7", 3)]));
        let none = with_places(0);
        none.namespaces().of(1, "book").call();
        assert_eq!(calls(&none), shown(&[("(other)", 1)]));
    }

    #[test]
    fn a_deleted_namespaces_place_goes_to_one_that_needs_it_and_no_counter_falls_before() {
        let metrics = with_places(2);
        let call = |id: u32, name: &str| metrics.namespaces().of(id, name).call();
        (0..3).for_each(|_| call(1, "book"));
        call(2, "uid");
        call(3, "order");
        metrics.namespaces().measure(0, |id| (id != 1).then_some(100));
        // It is deleted, and still shown.
        assert_eq!(calls(&metrics), shown(&[("(other)", 1), ("book", 3), ("uid", 1)]));
        // One of its name goes on with its counters.
        call(4, "book");
        call(3, "order");
        assert_eq!(calls(&metrics), shown(&[("(other)", 2), ("book", 4), ("uid", 1)]));
        metrics.namespaces().measure(0, |id| (id != 4).then_some(100));
        call(3, "order");
        call(5, "late");
        assert_eq!(calls(&metrics), shown(&[("(other)", 3), ("order", 1), ("uid", 1)]));
    }

    #[test]
    fn what_a_call_of_a_deleted_namespace_counts_late_is_not_counted_for_its_successor() {
        let metrics = with_places(1);
        let late = metrics.namespaces().of(1, "book");
        let kept = late.shared();
        metrics.namespaces().measure(0, |_| None);
        metrics.namespaces().of(2, "uid").call();
        late.call();
        kept.skip(SkipCause::cancelled, 7);
        assert_eq!(calls(&metrics), shown(&[("(other)", 0), ("uid", 1)]));
        assert_eq!(metrics.skipped(SkipCause::cancelled), 7, "the totals have it");
    }

    #[test]
    fn the_namespaces_together_have_what_the_totals_have() {
        let metrics = with_places(1);
        metrics.namespaces().of(1, "book").hand_out(5, 2);
        metrics.namespaces().of(2, "uid").hand_out(7, 1);
        metrics.namespaces().of(1, "book").skip(SkipCause::floor, 3);
        metrics.namespaces().others().skip(SkipCause::floor, 1);
        assert_eq!((metrics.numbers.get(), metrics.answers.get()), (12, 3));
        assert_eq!(metrics.skipped(SkipCause::floor), 4);
        let text = metrics.text();
        for line in [
            "ratchet_namespace_numbers_total{namespace=\"book\"} 5",
            "ratchet_namespace_numbers_total{namespace=\"(other)\"} 7",
            "ratchet_namespace_skipped_numbers_total{namespace=\"book\",cause=\"floor\"} 3",
            "ratchet_namespace_skipped_numbers_total{namespace=\"(other)\",cause=\"floor\"} 1",
            "ratchet_namespace_skipped_numbers_total{namespace=\"book\",cause=\"fence\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_reason_is_shown_once_a_call_was_refused_for_it_and_each_has_a_place() {
        let metrics = Metrics::new();
        let counts = metrics.namespaces().of(1, "book");
        assert!(!metrics.text().contains("reason="));
        let all: Vec<Reason> = (0..1_000).filter_map(|number| number.try_into().ok()).collect();
        assert!(all.len() > 30, "{all:?}");
        for (reason, times) in all.iter().zip(1..) {
            counts.refuse(*reason, times);
        }
        let text = metrics.text();
        for (reason, times) in all.iter().zip(1..) {
            let reason = name_of_reason(*reason);
            let line = format!(
                "ratchet_namespace_refusals_total{{namespace=\"book\",reason=\"{reason}\"}} {times}"
            );
            assert!(text.lines().any(|l| l == line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_place_has_as_many_time_series_and_takes_as_much_memory_as_the_page_about_settings_says() {
        const SAYS: &str = "docs/settings.md tells that, at metrics_namespaces_max";
        let metrics = with_places(1);
        let counts = metrics.namespaces().of(1, "book");
        let series = || metrics.text().matches("namespace=\"book\"").count();
        assert_eq!(series(), 8, "{SAYS}");
        counts.refuse(Reason::KeysMaxReached, 1);
        assert_eq!(series(), 8 + 1, "{SAYS}");
        counts.note_ceiling(0, 0, false);
        counts.note_ceiling(86_400_000, 1 << 30, false);
        metrics.namespaces().measure(86_400_000, |_| Some(1 << 60));
        assert_eq!(series(), 8 + 1 + 3, "{SAYS}");
        // The moments when its ceiling rose take another kilobyte in the end.
        let bytes = size_of::<NamespaceCounts>();
        assert!((600..=900).contains(&bytes), "{bytes} bytes; {SAYS}");
    }

    #[test]
    fn days_are_told_of_the_limits_that_a_namespace_can_reach_once_a_rate_is_known() {
        let metrics = with_places(2);
        let counts = metrics.namespaces().of(1, "book");
        metrics.namespaces().of(2, "quiet").note_ceiling(0, 50, false);
        counts.note_ceiling(0, 0, false);
        let days = |now_ms, max| {
            metrics.namespaces().measure(now_ms, |_| Some(max));
            let text = metrics.text();
            let lines = text.lines().filter_map(|line| {
                let (limit, days) =
                    line.strip_prefix("ratchet_namespace_days_left{")?.split_once("} ")?;
                Some((limit.to_owned(), days.parse::<f64>().expect("days")))
            });
            lines.collect::<Vec<_>>()
        };
        let none: [(String, f64); 0] = [];
        assert_eq!(days(86_400_000, 1 << 60), none, "how it came there is not known");
        counts.note_ceiling(86_400_000, 1 << 30, false);
        let of = |limit: &str| format!("namespace=\"book\",limit=\"{limit}\"");
        let (of_max, of_javascript) = ((1u64 << 30) as f64 - 1.0, (1u64 << 23) as f64 - 1.0);
        let all = [(of("max"), of_max), (of("2^53"), of_javascript), (of("2^31"), 1.0)];
        assert_eq!(days(86_400_000, 1 << 60), all);
        assert_eq!(days(86_400_000, 1 << 30), [(of("max"), 0.0)], "it cannot pass its max");
        // A namespace that goes on under its name begins anew.
        assert_eq!(days(86_400_000, 1 << 30).len(), 1);
        metrics.namespaces().measure(86_400_000, |id| (id != 1).then_some(1 << 30));
        assert!(!metrics.text().contains("limit="), "it is deleted");
        metrics.namespaces().of(4, "book").note_ceiling(86_400_000, 1 << 29, false);
        assert_eq!(days(2 * 86_400_000, 1 << 30), none);
        // Those without a place are not told apart.
        metrics.namespaces().of(3, "other").note_ceiling(0, 5, false);
        metrics.namespaces().of(3, "other").note_ceiling(86_400_000, 50, false);
        assert_eq!(days(2 * 86_400_000, 1 << 30), none);
    }
}
