//! How far the ids of a format reach. Pure.

use crate::{
    civil::Date,
    field::{Kind, Unit},
    spec::Spec,
    text_form::TextForm,
};

/// The greatest number of a sequence: 2^63 - 1, so that it fits a signed 64-bit integer.
pub(crate) const NUMBER_MAX: u64 = i64::MAX as u64;

/// How many decimal digits a signed 64-bit integer has.
const NUMBER_DIGITS: u32 = 19;

/// The greatest id. An id that is printed as a number, or is read as one because it has no more digits, stays within 2^63 - 1.
pub(crate) fn id_max(spec: &Spec) -> u128 {
    let greatest = spec.unit.greatest(spec.width());
    let is_number = match spec.text {
        TextForm::Number => true,
        TextForm::Groups => spec.unit == Unit::Digits && spec.width() <= NUMBER_DIGITS,
        TextForm::Base32(_) | TextForm::Uuid => false,
    };
    if is_number { greatest.min(NUMBER_MAX.into()) } else { greatest }
}

/// How many ids one time has. With a date: how many order numbers a key has.
pub(crate) fn capacity(spec: &Spec) -> u64 {
    let size = spec.field(Kind::Sequence).map_or(0, |field| field.size);
    match spec.field(Kind::Date) {
        // The order numbers begin at one step.
        Some(_) => size.saturating_sub(1) / spec.step,
        None => size,
    }
}

/// The last time at which every id fits: units of the time since the epoch, or days since 1970 for a date. `None` if
/// there is no such time.
pub(crate) fn last_tick(spec: &Spec) -> Option<u64> {
    let time = spec.fields.iter().find(|field| field.kind.is_time())?;
    let others = spec.fields.iter().filter(|field| !field.kind.is_time());
    let others: u128 = others
        .map(|field| match field.kind {
            Kind::Constant(value) => field.put(value),
            _ => field.put(field.max()),
        })
        .sum();
    let room = id_max(spec).checked_sub(others)? / time.place;
    let fits = u64::try_from(room).map_or(time.max(), |room| room.min(time.max()));
    if time.kind == Kind::Date {
        return u64::try_from(Date::last_up_to(fits)?.days()).ok();
    }
    if spec.field(Kind::Worker).is_some() {
        return Some(fits);
    }
    // The leader numbers the ids of a key: time x capacity + counter.
    let times = (u128::from(NUMBER_MAX) + 1) / u128::from(capacity(spec).max(1));
    let last = u64::try_from(times).unwrap_or(u64::MAX).checked_sub(1)?;
    Some(fits.min(last))
}
