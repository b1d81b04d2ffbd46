//! From the text of an id to the id. Pure.

use crate::{
    decode_error::DecodeError,
    field::Field,
    format::Format,
    print::group_digits,
    text_form::{Alphabet, TextForm},
};

/// No text of an id is longer, in bytes: 38 fields of one digit have 75.
const TEXT_BYTES_MAX: usize = 80;

/// Reads the text of an id. Whether the id is one of the format is not looked at.
///
/// # Errors
/// [`DecodeError`] if it is not written as ids of the format are.
pub(crate) fn read(format: &Format, text: &str) -> Result<u128, DecodeError> {
    if text.is_empty() {
        return Err(DecodeError::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(DecodeError::TooLong { length: text.len(), max: TEXT_BYTES_MAX });
    }
    match format.text_form() {
        TextForm::Number => read_number(text, format.id_max),
        TextForm::Groups => read_groups(text, format.fields()),
        TextForm::Base32(alphabet) => read_base32(text, alphabet, format.spec.width() / 5),
        TextForm::Uuid => read_uuid(text),
    }
}

/// Refuses the first letter that `belongs` does not accept, given the letter and its place from 0 on.
fn check_letters(text: &str, belongs: impl Fn(usize, char) -> bool) -> Result<(), DecodeError> {
    let mut letters = text.chars().enumerate();
    match letters.find(|(at, letter)| !belongs(*at, *letter)) {
        Some((at, letter)) => Err(DecodeError::Letter { letter, at: at + 1 }),
        None => Ok(()),
    }
}

fn read_number(text: &str, max: u128) -> Result<u128, DecodeError> {
    check_letters(text, |_, letter| letter.is_ascii_digit())?;
    if text.len() > 1 && text.starts_with('0') {
        return Err(DecodeError::LeadingZero);
    }
    // The text has digits alone: it can only be too large.
    text.parse().map_err(|_| DecodeError::TooLarge { max })
}

fn read_groups(text: &str, fields: &[Field]) -> Result<u128, DecodeError> {
    check_letters(text, |_, letter| letter.is_ascii_digit() || letter == '-')?;
    let groups: Vec<&str> = text.split('-').collect();
    if groups.len() != fields.len() {
        return Err(DecodeError::Groups { found: groups.len(), expected: fields.len() });
    }
    let mut id = 0;
    for (group, field) in groups.into_iter().zip(fields) {
        let (least, most) = group_digits(field);
        let has_width = (least as usize..=most as usize).contains(&group.len());
        let value = group.parse().ok().filter(|_| has_width);
        let value: u64 = value.ok_or_else(|| DecodeError::GroupWidth {
            field: field.name().to_owned(),
            group: group.to_owned(),
            width: most,
        })?;
        if least < most && group.len() > 1 && group.starts_with('0') {
            return Err(DecodeError::LeadingZero);
        }
        id += field.put(value);
    }
    Ok(id)
}

/// The value of the letters that are not `-`, each of which has `bits`.
fn read_letters(text: &str, bits: u32, value: impl Fn(char) -> Option<u128>) -> u128 {
    let values = text.chars().filter_map(value);
    values.fold(0, |id, value| id << bits | value)
}

fn read_base32(text: &str, alphabet: Alphabet, letters: u32) -> Result<u128, DecodeError> {
    let value = |letter| alphabet.value(letter);
    check_letters(text, |at, letter| match at % 5 {
        4 => letter == '-',
        _ => value(letter).is_some(),
    })?;
    check_length(text, (letters + letters / 4 - 1) as usize)?;
    Ok(read_letters(text, 5, value))
}

fn read_uuid(text: &str) -> Result<u128, DecodeError> {
    check_letters(text, |at, letter| match at {
        8 | 13 | 18 | 23 => letter == '-',
        _ => letter.is_ascii_hexdigit(),
    })?;
    check_length(text, 36)?;
    Ok(read_letters(text, 4, |letter| letter.to_digit(16).map(u128::from)))
}

fn check_length(text: &str, expected: usize) -> Result<(), DecodeError> {
    match text.len() {
        length if length == expected => Ok(()),
        length => Err(DecodeError::Length { length, expected }),
    }
}
