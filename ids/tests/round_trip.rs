//! The values that were put into an id come out of it again, in any format.

use proptest::{prelude::*, sample::Index};
use ratchet_ids::{Decoded, EncodeError, Fixed, Format, InvalidFormat, Kind, Parts, Source, Unit};

/// A format that somebody may write.
#[derive(Debug, Clone)]
struct Written {
    text: String,
}

/// Formats that somebody may write. Few of them are refused: see `most_own_formats_are_accepted`.
fn own_format() -> impl Strategy<Value = Written> {
    let source = prop_oneof![Just("worker"), Just("key"), Just(""), Just("date")];
    let others = prop::collection::vec((any::<bool>(), 1_u32..12, any::<u64>()), 0..4);
    let places = [any::<Index>(), any::<Index>(), any::<Index>(), any::<Index>()];
    let shape = (any::<bool>(), any::<bool>(), any::<bool>(), 1_u32..10);
    (source, others, places, shape, 0_u64..2_000_000_000_000, any::<u8>()).prop_map(
        |(source, others, places, (digits, seconds, random, width), epoch, text)| {
            let digits = digits || source == "date";
            let unit = if digits { Unit::Digits } else { Unit::Bits };
            let width = if digits { width.min(6) } else { width };
            let mut fields: Vec<String> = others
                .iter()
                .enumerate()
                .map(|(at, (is_constant, width, value))| {
                    let width = if digits { 1 + width % 3 } else { *width };
                    let size = if digits { 10_u64.pow(width) } else { 1 << width };
                    match is_constant {
                        true => format!("constant-{at}:{width}={}", value % size),
                        false => format!("parameter-{at}:{width}"),
                    }
                })
                .collect();
            if ["worker", "key"].contains(&source) {
                let at = places[0].index(fields.len() + 1);
                fields.insert(at, format!("{source}:{width}"));
            }
            let time = places[1].index(fields.len() + 1);
            fields.insert(
                time,
                match (source, seconds, unit) {
                    ("date", ..) => "date:8".to_owned(),
                    (_, true, Unit::Bits) => "time-s:32".to_owned(),
                    (_, true, Unit::Digits) => "time-s:10".to_owned(),
                    (_, false, Unit::Bits) => "time-ms:41".to_owned(),
                    (_, false, Unit::Digits) => "time-ms:13".to_owned(),
                },
            );
            let sequence = time + 1 + places[2].index(fields.len() - time);
            fields.insert(sequence, format!("sequence:{width}"));
            if random {
                let at = sequence + 1 + places[3].index(fields.len() - sequence);
                fields.insert(at, format!("random:{width}"));
            }
            let width: u32 = fields
                .iter()
                .map(|field| {
                    let width = field.split(':').nth(1).unwrap();
                    width.split('=').next().unwrap().parse::<u32>().unwrap()
                })
                .sum();
            let form = match unit {
                Unit::Digits if width > 19 || text % 2 == 0 => "groups",
                Unit::Bits if width > 63 || text % 2 == 0 => {
                    let (multiple, form) = match text % 3 {
                        0 => (20, "base32"),
                        1 => (20, "base32-unambiguous"),
                        _ => (128, "uuid"),
                    };
                    let mut missing = width.next_multiple_of(multiple) - width;
                    for at in 0.. {
                        if missing == 0 {
                            break;
                        }
                        let part = missing.min(63);
                        fields.insert(0, format!("pad-{at}:{part}"));
                        missing -= part;
                    }
                    form
                }
                _ => "number",
            };
            let offset = ["+00:00", "+08:00", "-03:30"][usize::from(text) % 3];
            let step = if source == "date" { "step=3" } else { "step=1" };
            let text = format!(
                "{unit} epoch={epoch} offset={offset} text={form} {step} {}",
                fields.join(" ")
            );
            Written { text }
        },
    )
}

/// A built-in format, or one's own.
fn any_format() -> impl Strategy<Value = Format> {
    let built_in: Vec<&str> = Format::built_in().map(|(name, _)| name).collect();
    let built_in = prop::sample::select(built_in).prop_map(|name| Format::parse(name).unwrap());
    let own = own_format().prop_filter_map("refused", |own| Format::parse(&own.text).ok());
    prop_oneof![built_in, own]
}

/// A format whose ids are made from a key's own sequence.
fn key_format() -> impl Strategy<Value = Format> {
    any_format().prop_filter("not of a key", |format| format.source() == Source::Key)
}

/// A value of each field, of the whole range and often at its ends, and the parts and parameters with these values.
fn chosen(format: &Format, raw: &[u64]) -> (Parts, Fixed, Vec<(String, u64)>) {
    let (first, last) = (format.first_ms(), format.last_ms());
    let within = |raw: u64, least: u64, most: u64| match raw % 8 {
        0 => least,
        1 => most,
        _ => least + (raw / 8) % (most - least + 1).max(1),
    };
    let mut parts = Parts { time_ms: within(raw[0], first, last), ..Parts::default() };
    let mut key = None;
    let mut own = Vec::new();
    for (field, raw) in format.fields().iter().zip(&raw[1..]) {
        let value = within(*raw, 0, field.max());
        match field.kind() {
            Kind::Sequence => parts.sequence = value,
            Kind::Worker => parts.worker = value,
            Kind::Random => parts.random = value,
            Kind::Key => key = Some(value),
            Kind::Parameter => own.push((field.name().to_owned(), value)),
            Kind::TimeS | Kind::TimeMs | Kind::Date | Kind::Constant(_) => {}
        }
    }
    let named: Vec<(&str, u64)> = own.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let fixed = format.fixed(&named, key).unwrap();
    if let Some(key) = key {
        own.push(("key".to_owned(), key));
    }
    (parts, fixed, own)
}

/// The unit of the time that a time lies in.
fn tick(format: &Format, ms: u64) -> u64 {
    // Units of one format begin at times that differ by this.
    let shift = format.tick_ms() - format.first_ms() % format.tick_ms();
    (ms + shift) / format.tick_ms()
}

fn raw() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 16)
}

fn check_decoded(
    format: &Format, decoded: &Decoded<'_>, parts: &Parts, own: &[(String, u64)],
) -> Result<(), TestCaseError> {
    let found = decoded.parts();
    prop_assert_eq!(Parts { time_ms: 0, ..found }, Parts { time_ms: 0, ..*parts });
    if format.source() == Source::Date {
        let [found, asked] = [found.time_ms, parts.time_ms].map(|ms| format.date_time(ms).date());
        prop_assert_eq!(found, asked);
    } else {
        prop_assert_eq!(tick(format, found.time_ms), tick(format, parts.time_ms));
        prop_assert!(found.time_ms <= parts.time_ms);
    }
    for (name, value) in own {
        prop_assert_eq!(decoded.value(name), Some(*value));
    }
    for (field, value) in decoded.fields() {
        if let Kind::Constant(expected) = field.kind() {
            prop_assert_eq!(value, expected);
        }
    }
    Ok(())
}

#[test]
fn most_own_formats_are_accepted() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let accepted = (0..500).filter(|_| {
        let own = own_format().new_tree(&mut runner).unwrap().current();
        match Format::parse(&own.text) {
            Ok(_) => true,
            Err(InvalidFormat::TooWide { .. } | InvalidFormat::EndsAtOnce) => false,
            Err(error) => panic!("{}: {error}", own.text),
        }
    });
    let accepted = accepted.count();
    assert!(accepted > 250, "{accepted} of 500");
}

proptest! {
    #[test]
    fn the_full_text_of_a_format_parses_to_it(format in any_format()) {
        prop_assert_eq!(Format::parse(&format.to_string()), Ok(format));
    }

    #[test]
    fn an_id_and_its_text_hold_what_was_put_in(format in any_format(), raw in raw()) {
        let (parts, fixed, own) = chosen(&format, &raw);
        let id = format.encode(&parts, fixed).unwrap();
        prop_assert!(id > 0 && u128::BITS - id.leading_zeros() <= format.bits());
        let decoded = format.decode_number(id).unwrap();
        check_decoded(&format, &decoded, &parts, &own)?;
        let text = format.print(id).to_string();
        prop_assert_eq!(format.decode(&text), Ok(decoded));
        prop_assert_eq!(format.decode(&text.to_lowercase()), Ok(decoded));
    }

    #[test]
    fn later_ids_are_greater(format in any_format(), raw in raw(), later in raw()) {
        let (parts, fixed, _) = chosen(&format, &raw);
        let (other, ..) = chosen(&format, &later);
        let other = Parts { worker: parts.worker, ..other };
        let at = |parts: &Parts| {
            let date = format.date_time(parts.time_ms).date();
            let tick = tick(&format, parts.time_ms);
            (date, if format.source() == Source::Date { 0 } else { tick }, parts.sequence)
        };
        prop_assume!(at(&parts) != at(&other));
        let [id, next] = [&parts, &other].map(|parts| format.encode(parts, fixed).unwrap());
        prop_assert_eq!(at(&parts) < at(&other), id < next);
    }

    #[test]
    fn whatever_is_read_is_printed_the_same(format in any_format(), id in any::<u128>(), short in any::<bool>()) {
        let id = if short { id >> 65 } else { id };
        if let Ok(decoded) = format.decode_number(id) {
            let text = format.print(id).to_string();
            prop_assert_eq!(decoded.id(), id);
            prop_assert_eq!(format.decode(&text), Ok(decoded));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(format in any_format(), text in "[0-9A-Za-z-]{0,40}|\\PC{0,40}") {
        if let Ok(decoded) = format.decode(&text) {
            let printed = format.print(decoded.id()).to_string();
            prop_assert_eq!(printed.to_lowercase(), text.to_lowercase());
        }
    }

    #[test]
    fn any_text_is_a_format_or_refused(text in "(bits|digits|snowflake)( [a-z-]{1,8}[:=][0-9+:=-]{0,6}){0,6}|\\PC{0,60}") {
        if let Ok(format) = Format::parse(&text) {
            prop_assert_eq!(Format::parse(&format.to_string()), Ok(format));
        }
    }

    #[test]
    fn what_exceeds_a_field_is_refused_by_its_name(format in any_format(), raw in raw()) {
        let (parts, fixed, _) = chosen(&format, &raw);
        for field in format.fields() {
            let value = field.max() + 1;
            let parts = match field.kind() {
                Kind::Sequence => Parts { sequence: value, ..parts },
                Kind::Worker => Parts { worker: value, ..parts },
                Kind::Random => Parts { random: value, ..parts },
                _ => continue,
            };
            let (field, max) = (field.name().to_owned(), field.max());
            let refused = Err(EncodeError::TooLarge { field, value, max });
            prop_assert_eq!(format.encode(&parts, fixed), refused);
        }
        let at = |time_ms| format.encode(&Parts { time_ms, ..parts }, fixed);
        let after = at(format.last_ms() + 1);
        prop_assert!(matches!(after, Err(EncodeError::Ended { .. })), "{:?}", after);
        if let Some(before_ms) = format.first_ms().checked_sub(1) {
            let before = at(before_ms);
            prop_assert!(matches!(before, Err(EncodeError::BeforeEpoch { .. })), "{:?}", before);
        }
    }

    #[test]
    fn the_numbers_of_a_key_are_its_times_and_counters(format in key_format(), raw in raw()) {
        let (parts, ..) = chosen(&format, &raw);
        let first = format.number_at(parts.time_ms).unwrap();
        let number = first + parts.sequence;
        prop_assert!(first >= 1 && number <= i64::MAX as u64);
        let found = format.parts_of_number(number, 0);
        prop_assert_eq!(found.sequence, parts.sequence);
        prop_assert_eq!(tick(&format, found.time_ms), tick(&format, parts.time_ms));
        prop_assert_eq!(format.number_at(found.time_ms), Ok(first));
    }
}
