//! Reads the text of a format. Pure.

use crate::{
    built_in,
    civil::{Date, DateTime, Offset, number},
    field::{Field, Kind, Unit},
    invalid_format::{InvalidFormat, NAME_BYTES_MAX, TEXT_BYTES_MAX},
    spec::Spec,
    text_form::TextForm,
};

const OPTIONS: [&str; 6] = ["epoch", "offset", "text", "step", "counter", "counter-per"];

/// The options as they are written, in the order of [`OPTIONS`].
type Options<'a> = [Option<&'a str>; 6];

/// Parses a format. Whether its fields make sense together is not looked at.
///
/// # Errors
/// If it is too long, or a word of it cannot be read, or is too large for its place.
pub(crate) fn parse(text: &str) -> Result<Spec, InvalidFormat> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(InvalidFormat::TooLong { length: text.len() });
    }
    let (first, options, fields) = words(text)?;
    let Some(own) = built_in::text(first) else {
        return spec(unit(first)?, options, &fields);
    };
    if let Some(word) = fields.first() {
        return Err(InvalidFormat::FieldAfterName {
            name: first.to_owned(),
            word: (*word).to_owned(),
        });
    }
    let (first, own, fields) = words(own)?;
    let mut all = options;
    for (option, own) in all.iter_mut().zip(own) {
        *option = option.or(own);
    }
    spec(unit(first)?, all, &fields)
}

/// The first word of a format, its options, and its fields.
fn words(text: &str) -> Result<(&str, Options<'_>, Vec<&str>), InvalidFormat> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    let mut options = Options::default();
    let mut fields = Vec::new();
    for word in words {
        // A field has its colon first: the offset has one as well.
        let option = word.split_once('=').filter(|(name, _)| !name.contains(':'));
        let Some((name, value)) = option else {
            fields.push(word);
            continue;
        };
        let at = OPTIONS.iter().position(|option| *option == name);
        let at = at.ok_or_else(|| InvalidFormat::UnknownOption { option: name.to_owned() })?;
        if options[at].replace(value).is_some() {
            return Err(InvalidFormat::RepeatedOption { option: OPTIONS[at] });
        }
    }
    Ok((first, options, fields))
}

fn unit(word: &str) -> Result<Unit, InvalidFormat> {
    match word {
        "bits" => Ok(Unit::Bits),
        "digits" => Ok(Unit::Digits),
        _ => Err(InvalidFormat::UnknownFormat { word: word.to_owned() }),
    }
}

fn spec(unit: Unit, options: Options<'_>, words: &[&str]) -> Result<Spec, InvalidFormat> {
    let [epoch, offset, text, step, counter, counter_per] = options;
    let offset = match offset {
        None => Offset::default(),
        Some(value) => Offset::parse(value).ok_or_else(|| unreadable("offset", value))?,
    };
    let text = match text {
        None => TextForm::default(),
        Some(value) => TextForm::parse(value).ok_or_else(|| unreadable("text", value))?,
    };
    let step = match step {
        None => 1,
        Some(value) => {
            number(value).filter(|step| *step > 0).ok_or_else(|| unreadable("step", value))?
        }
    };
    let runs_on = match counter {
        None | Some("restarts") => false,
        Some("runs-on") => true,
        Some(value) => return Err(unreadable("counter", value)),
    };
    Ok(Spec {
        unit,
        epoch_ms: epoch.map_or(Ok(0), |value| epoch_ms(value, offset))?,
        offset,
        text,
        step,
        runs_on,
        counter_per: counter_per.map(str::to_owned),
        fields: fields(unit, words)?,
    })
}

fn unreadable(option: &'static str, value: &str) -> InvalidFormat {
    InvalidFormat::InvalidOption {
        option,
        value: value.to_owned(),
        expected: match option {
            "epoch" => "a date such as 2015-01-01, or milliseconds since 1970, up to the year 9999",
            "offset" => "hours and minutes such as +08:00, up to 18:00",
            "text" => "number, groups, base32, base32-unambiguous or uuid",
            "counter" => "restarts or runs-on",
            _ => "a number from 1 on",
        },
    }
}

/// An epoch, written as a date or in milliseconds since 1970.
fn epoch_ms(value: &str, offset: Offset) -> Result<u64, InvalidFormat> {
    let unreadable = || unreadable("epoch", value);
    if let Some(date) = Date::parse(value) {
        let ms = DateTime::midnight_ms(date, offset);
        return u64::try_from(ms).map_err(|_| InvalidFormat::EarlyEpoch {
            value: value.to_owned(),
            offset: offset.to_string(),
        });
    }
    let ms = number(value).ok_or_else(unreadable)?;
    match DateTime::new(ms, offset).date().year() {
        ..=9999 => Ok(ms),
        _ => Err(unreadable()),
    }
}

fn fields(unit: Unit, words: &[&str]) -> Result<Vec<Field>, InvalidFormat> {
    let fields = words.iter().map(|word| field(unit, word));
    let mut fields = fields.collect::<Result<Vec<Field>, _>>()?;
    let width = fields.iter().map(|field| field.width).sum();
    let max = unit.id_width_max();
    if width > max {
        return Err(InvalidFormat::TooWide { width, max, unit });
    }
    let mut below = 0;
    for field in fields.iter_mut().rev() {
        field.place = unit.power(below);
        below += field.width;
    }
    Ok(fields)
}

/// A field, without its place.
fn field(unit: Unit, word: &str) -> Result<Field, InvalidFormat> {
    let invalid = || InvalidFormat::InvalidField { word: word.to_owned() };
    let (name, rest) = word.split_once(':').ok_or_else(invalid)?;
    let (width, value) = match rest.split_once('=') {
        Some((width, value)) => (width, Some(number(value).ok_or_else(invalid)?)),
        None => (rest, None),
    };
    let width = number(width).and_then(|width| u32::try_from(width).ok());
    let width = width.filter(|_| is_name(name)).ok_or_else(invalid)?;
    let name = name.to_owned();
    let kind = match (Kind::named(&name), value) {
        (Some(_), Some(value)) => return Err(InvalidFormat::ConstantKind { name, value }),
        (Some(kind), None) => kind,
        (None, Some(value)) => Kind::Constant(value),
        (None, None) => Kind::Parameter,
    };
    check_width(&name, kind, width, unit)?;
    let size = unit.power(width) as u64;
    match kind {
        Kind::Constant(value) if value >= size => {
            Err(InvalidFormat::ConstantTooLarge { name, width, value, max: size - 1 })
        }
        _ => Ok(Field { name, kind, width, size, place: 1 }),
    }
}

fn check_width(name: &str, kind: Kind, width: u32, unit: Unit) -> Result<(), InvalidFormat> {
    let max = kind.width_max(unit);
    match kind {
        Kind::Date if (width, unit) != (8, Unit::Digits) => {
            Err(InvalidFormat::DateWidth { width, unit })
        }
        Kind::Sequence if width == 0 => Err(InvalidFormat::NoRoom),
        _ if width == 0 || width > max => {
            Err(InvalidFormat::Width { name: name.to_owned(), width, max, unit })
        }
        _ => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_letter)
}
