//! Namespaces whose ids come from keys and hold a time.

use ratchet_ids::Format;

use super::*;
use crate::{sequence::AHEAD_MAX_MS, storage::RaisedNamespace};

const CHAT: NamespaceId = NamespaceId(3);
const HOUR_MS: u64 = 3_600_000;
/// A tenth of a second.
const STEP: u64 = 409_600;

fn rongcloud() -> Format {
    Format::parse("rongcloud").unwrap()
}

fn chat_config(format: &Format) -> NamespaceConfig {
    NamespaceConfig {
        format: Some(format.to_string()),
        step: STEP,
        max: format.number_max(),
        ..NamespaceConfig::new("chat")
    }
}

fn chat_key() -> SectionId {
    SectionId { namespace: CHAT, key: SectionKey::Id(1) }
}

/// A directory whose table holds namespace "chat" with one key, which has a ceiling at `ceiling_ms`. It was written when a
/// clock showed `written_ms`.
fn with_key_at(format: &Format, ceiling_ms: u64, written_ms: u64) -> TempDir {
    let dir = directory(1, Vec::new());
    let store = open(dir.path()).unwrap();
    let prefix = generation_prefix(SET, 0);
    let max_seq = format.number_at(ceiling_ms).unwrap();
    let record = SectionRecord {
        max_seq,
        floor: max_seq - 100,
        epoch: 3,
        step: STEP,
        unused_max: 100,
        written_ms,
        ..SectionRecord::default()
    };
    let mut totals = NamespaceTotals::default();
    totals.note(&SectionRecord::default(), &record);
    let chat = Namespace::new(CHAT, chat_config(format));
    let records = [
        (namespace_key(&prefix, CHAT), codec::encode_record(&chat)),
        (totals_key(&prefix, CHAT), codec::encode_record(&totals)),
        (section_key(&prefix, &chat_key()), codec::encode_record(&record)),
        (next_namespace_key(&prefix), codec::encode_record(&NamespaceId(4))),
    ];
    let mut batch = WriteBatch::default();
    let applied = store.db.family(Family::Applied).unwrap();
    for (key, record) in records {
        batch.put_cf(applied, key, record.unwrap());
    }
    store.db.write(batch, true).unwrap();
    drop(store);
    dir
}

/// Recovers the directory. Answers how "chat" was raised, and the record of its key.
fn recovered(dir: &TempDir, margin: &Margin) -> (RaisedNamespace, SectionRecord) {
    let mut margin = margin.clone();
    // Its `max` leaves no room for a great one.
    (margin.steps_by_namespace).insert("book".to_owned(), 1);
    let mut done = recover(dir.path(), SET, &margin, false).unwrap();
    let chat = done.namespaces.pop().unwrap();
    assert_eq!(chat.name, "chat");
    let store = open(dir.path()).unwrap();
    let key = section_key(&generation_prefix(SET, 1), &chat_key());
    let record: SectionRecord = store.db.get(Family::Applied, &key).unwrap().unwrap();
    let generation = Generation::new(&store.db, SET, 1);
    let namespaces = generation.read_namespaces().unwrap();
    let config = &namespaces.by_id(CHAT).unwrap().config;
    assert_eq!(config.start, chat.start);
    // No number below `start` is handed out, whatever the record of a section says.
    assert_eq!(config.progression().first_above(10).unwrap_or(chat.start), chat.start);
    (chat, record)
}

fn margin_of_chat(default_steps: u64, of_chat: u64) -> Margin {
    Margin { default_steps, steps_by_namespace: BTreeMap::from([("chat".to_owned(), of_chat)]) }
}

/// Checks that keys begin at `expected_ms`, or later by what passed since that was computed.
fn assert_begins_at(raised: &RaisedNamespace, expected_ms: u64) {
    let first_ms = rongcloud().parts_of_number(raised.start, 0).time_ms;
    let late = (first_ms + 1).checked_sub(expected_ms);
    assert!(late.is_some_and(|late| late < 60_000), "{first_ms} instead of {expected_ms}");
    assert_eq!(raised.ids_after_ms, Some(first_ms));
}

/// A margin of steps would carry a key in use hours ahead, and the whole namespace after it.
#[test]
fn keys_whose_ids_hold_a_time_are_raised_to_a_minute_ahead_and_by_a_margin_only_if_one_is_given() {
    let now_ms = BootClock.wall_ms();
    let dir = with_key_at(&rongcloud(), now_ms - 5_000, now_ms - 8_000);
    let (chat, key) = recovered(&dir, &steps(100_000));
    assert_begins_at(&chat, now_ms + AHEAD_MAX_MS);
    assert_eq!((chat.margin_steps, chat.raised_by), (0, 0));
    assert_eq!((key.max_seq, key.floor), (chat.start - 1, chat.start - 1));
    assert!(key.written_ms >= now_ms, "the recovery wrote it");

    let dir = with_key_at(&rongcloud(), now_ms - 5_000, now_ms - 8_000);
    let (chat, key) = recovered(&dir, &margin_of_chat(100_000, 36_000));
    assert_begins_at(&chat, now_ms + AHEAD_MAX_MS + HOUR_MS);
    assert_eq!(key.max_seq, chat.start - 1);
}

/// It goes on at half speed, also for keys that the copy does not know.
#[test]
fn a_namespace_that_was_ahead_of_the_time_goes_on_above_what_it_may_have_reached_since_the_copy_ended()
 {
    let now_ms = BootClock.wall_ms();
    let reached_ms = now_ms + 6 * HOUR_MS + AHEAD_MAX_MS;
    let dir = with_key_at(&rongcloud(), now_ms + HOUR_MS, now_ms - 10 * HOUR_MS);
    let (chat, key) = recovered(&dir, &steps(100_000));
    assert_begins_at(&chat, reached_ms);
    assert_eq!(key.max_seq, chat.start - 1);
    // The same if the log alone knows of it.
    let bump = Bump {
        section: chat_key(),
        raise: CeilingRaise {
            numbers: 1,
            unused_max: 1,
            step: STEP,
            up_to: rongcloud().number_at(now_ms + HOUR_MS).unwrap(),
        },
    };
    let bumps = Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: now_ms - 10 * HOUR_MS };
    let create = Command::create_namespace(chat_config(&rongcloud()));
    let dir = directory(1, vec![create, Command::BeginEpoch, bumps]);
    let (chat, _) = recovered(&dir, &steps(100_000));
    assert_begins_at(&chat, reached_ms);
}

/// Nobody knows how long ago that was.
#[test]
fn the_margin_counts_for_a_namespace_that_a_leader_with_a_wrong_clock_carried_ahead() {
    let now_ms = BootClock.wall_ms();
    let ahead_ms = now_ms + HOUR_MS;
    let dir = with_key_at(&rongcloud(), ahead_ms + 3_000, ahead_ms);
    let (chat, key) = recovered(&dir, &steps(36_000));
    assert_begins_at(&chat, ahead_ms + HOUR_MS + AHEAD_MAX_MS);
    assert_eq!((chat.margin_steps, key.max_seq), (36_000, chat.start - 1));
    let dir = with_key_at(&rongcloud(), ahead_ms + 3_000, ahead_ms);
    let (chat, _) = recovered(&dir, &margin_of_chat(36_000, 72_000));
    assert_begins_at(&chat, ahead_ms + 2 * HOUR_MS + AHEAD_MAX_MS);
}

/// The last ids may have been handed out.
#[test]
fn keys_have_no_ids_left_if_their_format_ends_before_what_may_be_lost_has_passed() {
    let now_ms = BootClock.wall_ms();
    // It ends in half a minute.
    let epoch_ms = now_ms + 30_000 - (1_000 << 20);
    let text = format!("bits epoch={epoch_ms} time-s:20 sequence:4 key:8");
    let format = Format::parse(&text).unwrap();
    let dir = with_key_at(&format, now_ms, now_ms);
    let (chat, key) = recovered(&dir, &steps(100_000));
    assert_eq!(chat.start, format.number_max() + 1);
    assert_eq!((chat.sections, chat.exhausted), (1, 1));
    assert!(key.max_seq >= format.number_max());
}
