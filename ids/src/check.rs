//! Whether the fields and options of a format make sense together. Pure.

use std::collections::BTreeSet;

use crate::{
    bounds::last_tick,
    civil::{DAY_MS, DateTime},
    field::{Kind, Unit},
    invalid_format::{COUNTERS_MAX, InvalidFormat},
    spec::Spec,
    text_form::TextForm,
};

/// How many bits four letters of base 32 hold.
const BASE32_GROUP_BITS: u32 = 20;

/// How many bits a UUID has.
const UUID_BITS: u32 = 128;

/// Refuses a format whose ids could not be made, or not be unique, or not be in order.
///
/// # Errors
/// The first rule that the format breaks.
pub(crate) fn check(spec: &Spec) -> Result<(), InvalidFormat> {
    check_kinds(spec)?;
    check_order(spec)?;
    check_step(spec)?;
    check_counters(spec)?;
    check_text(spec)?;
    check_end(spec)
}

fn check_kinds(spec: &Spec) -> Result<(), InvalidFormat> {
    let mut names = BTreeSet::new();
    if let Some(twice) = spec.fields.iter().find(|field| !names.insert(&field.name)) {
        return Err(InvalidFormat::RepeatedField { name: twice.name.clone() });
    }
    let mut times = spec.fields.iter().filter(|field| field.kind.is_time());
    let time = times.next().ok_or(InvalidFormat::NoTime)?;
    if let Some(second) = times.next() {
        return Err(InvalidFormat::TwoTimes {
            first: time.name.clone(),
            second: second.name.clone(),
        });
    }
    if spec.field(Kind::Sequence).is_none() {
        return Err(InvalidFormat::NoSequence);
    }
    let has_worker = spec.field(Kind::Worker).is_some();
    if has_worker && spec.field(Kind::Key).is_some() {
        return Err(InvalidFormat::WorkerAndKey);
    }
    if has_worker && time.kind == Kind::Date {
        return Err(InvalidFormat::WorkerAndDate);
    }
    Ok(())
}

/// Later ids must be greater, as long as their callers choose the same.
fn check_order(spec: &Spec) -> Result<(), InvalidFormat> {
    let at = |is: fn(Kind) -> bool| spec.fields.iter().position(|field| is(field.kind));
    let time = at(Kind::is_time);
    let sequence = at(|kind| kind == Kind::Sequence);
    let random = at(|kind| kind == Kind::Random);
    if sequence < time {
        let time = time.map_or("", |time| spec.fields[time].name());
        return Err(InvalidFormat::SequenceBeforeTime { time: time.to_owned() });
    }
    match random {
        Some(random) if Some(random) < sequence => Err(InvalidFormat::RandomBeforeSequence),
        _ => Ok(()),
    }
}

fn check_step(spec: &Spec) -> Result<(), InvalidFormat> {
    let step = spec.step;
    if step != 1 && spec.field(Kind::Date).is_none() {
        return Err(InvalidFormat::StepWithoutDate { step });
    }
    match spec.field(Kind::Sequence) {
        Some(sequence) if step > sequence.max() => {
            Err(InvalidFormat::StepTooLarge { step, width: sequence.width, max: sequence.max() })
        }
        _ => Ok(()),
    }
}

fn check_counters(spec: &Spec) -> Result<(), InvalidFormat> {
    let has_worker = spec.field(Kind::Worker).is_some();
    let without_worker = |option, value: &str| {
        Err(InvalidFormat::CounterWithoutWorker { option, value: value.to_owned() })
    };
    if spec.runs_on && !has_worker {
        return without_worker("counter", "runs-on");
    }
    match (&spec.counter_per, spec.counted_by()) {
        (None, _) => Ok(()),
        (Some(name), _) if !has_worker => without_worker("counter-per", name),
        (Some(name), Some(field)) if field.size > COUNTERS_MAX => {
            Err(InvalidFormat::TooManyCounters { name: name.clone(), values: field.size })
        }
        (Some(_), Some(_)) => Ok(()),
        (Some(name), None) => {
            let parameters = spec.fields.iter().filter(|field| field.kind == Kind::Parameter);
            Err(InvalidFormat::CounterPerOther {
                name: name.clone(),
                known: parameters.map(|field| field.name.clone()).collect(),
            })
        }
    }
}

fn check_text(spec: &Spec) -> Result<(), InvalidFormat> {
    let (unit, width) = (spec.unit, spec.width());
    let text = || spec.text.to_string();
    let other = match spec.text {
        TextForm::Number => unit,
        TextForm::Groups => Unit::Digits,
        TextForm::Base32(_) | TextForm::Uuid => Unit::Bits,
    };
    if other != unit {
        return Err(InvalidFormat::TextOfUnit { text: text(), unit, other });
    }
    match spec.text {
        TextForm::Base32(_) if !width.is_multiple_of(BASE32_GROUP_BITS) => {
            Err(InvalidFormat::Base32Width { text: text(), width })
        }
        TextForm::Uuid if width != UUID_BITS => Err(InvalidFormat::UuidWidth { width }),
        _ => Ok(()),
    }
}

/// A format that lasts less than a day is a mistake.
fn check_end(spec: &Spec) -> Result<(), InvalidFormat> {
    let last = last_tick(spec).ok_or(InvalidFormat::EndsAtOnce)?;
    let lasts_a_day = match spec.tick_ms() {
        DAY_MS => {
            let epoch = DateTime::new(spec.epoch_ms, spec.offset).date().days();
            i64::try_from(last).is_ok_and(|last| last > epoch)
        }
        tick_ms => last >= DAY_MS / tick_ms,
    };
    lasts_a_day.then_some(()).ok_or(InvalidFormat::EndsAtOnce)
}
