//! How far the times of ids of keys may have got after the copy's end.
//!
//! Keys that the copy does not know may have got ids then, and no record of the copy bounds them but this: a namespace
//! whose time lies ahead of the clock goes on at half speed. When a record was written, its ceiling lay above the
//! namespace's time. So that time is at most the ceiling's, and half of what has passed since.

use ratchet_ids::{Format, Source};

use crate::{
    sequence::{AHEAD_MAX_MS, NamespaceConfig, SectionRecord},
    storage::error::StoreError,
    version,
};

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
/// [`StoreError::Refused`] if this release does not know the format.
pub fn timed_format_of(config: &NamespaceConfig) -> Result<Option<Format>, StoreError> {
    Ok(format_of(config)?.filter(|format| format.source() == Source::Key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    /// The times that a copy tells. Its only record has a ceiling at `ceiling_ms`, and was written at `written_ms`.
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
