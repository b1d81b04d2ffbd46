//! Formats of ids, as namespaces keep them. The formats themselves are those of `ratchet_ids`. This file says what a format
//! decides of a new namespace, such as its step, and which format an existing one has.

use ratchet_ids::{EncodeError, Format, Source};

use crate::{
    proto::{Refusal, refusal, refuse},
    sequence::{
        InvalidNamespace, KeyKind, Namespace, NamespaceId, STEP_MAX, WORKERS_MAX, check_format,
    },
    version,
};

/// The most ids in one request.
pub const IDS_MAX: u32 = 10_000;

/// The worker ids of a namespace.
#[derive(Debug)]
pub struct WorkerIds {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Its name.
    pub name: String,
    /// Its format, written in full.
    pub format: String,
    /// How many worker ids there are, from 0 on.
    pub workers: u32,
    /// The format, if its ids have a date: that is logged as a lease of worker 0, which nobody holds.
    pub date: Option<Format>,
}

/// Up to how many steps above the leader's time a log entry brings numbers of a key, so that later ids of it need no entry.
/// Where the key is ahead of that time, after a crash of the leader, an entry brings one step: so the next crash leaves the
/// key but one step further ahead.
pub const REACH_STEPS: u64 = 30;
/// How far ids of a key may lie ahead of the time after a crash of the leader, in milliseconds, if a namespace says nothing
/// else.
const KEY_AHEAD_MS: u64 = 3_000;
/// The same for the greatest step.
const KEY_AHEAD_MAX_MS: u64 = 10_000;
/// How many order numbers of a key a log entry brings, if a namespace says nothing else. A crash of the leader skips them, and
/// a key may have some thousands in all.
const ORDER_STEP: u64 = 1;
/// The most order numbers in one request: a log entry brings that many for it, and a crash then skips them.
pub const ORDERS_MAX: u32 = 100;

/// The parts of a new namespace that its format decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFormat {
    /// The format, written in full.
    pub text: String,
    /// The step, unless another one is wished for. `None`: ids do not come from the keys' sequences.
    pub step: Option<u64>,
    /// The last number of a key. `None` as above.
    pub max: Option<u64>,
}

/// The format of a namespace that is to be created.
///
/// # Errors
/// INVALID_ARGUMENT if it is none, does not fit the keys or the wish, or begins in the future.
pub fn for_new_namespace(
    text: &str, key_kind: KeyKind, now_ms: u64, wish: SequenceWish,
) -> Result<NewFormat, Refusal> {
    let refused = |why: String| refusal!(InvalidRequest, "{why}");
    let format = check_format(text, key_kind);
    let format = format.map_err(|invalid: InvalidNamespace| refused(invalid.to_string()))?;
    (format.check_epoch(now_ms)).map_err(|invalid| refused(invalid.to_string()))?;
    check_sequence(&format, wish)?;
    let full = format.to_string();
    // Written in full it may be too long.
    Format::parse(&full).map_err(|invalid| refused(invalid.to_string()))?;
    let step = match format.source() {
        Source::Worker => None,
        Source::Key => Some(step_of(&format, KEY_AHEAD_MS)),
        Source::Date => Some(ORDER_STEP),
    };
    Ok(NewFormat { text: full, step, max: step.map(|_| format.number_max()) })
}

/// Settings that the operator gave for the sequences of a namespace with a format; `None` where none was given.
#[derive(Debug, Clone, Copy, Default)]
pub struct SequenceWish {
    /// The first number.
    pub start: Option<u64>,
    /// The last number.
    pub max: Option<u64>,
    /// The greatest of the steps.
    pub step: Option<u64>,
}

/// Refuses what would lead a namespace's numbers away from its ids.
///
/// # Errors
/// INVALID_ARGUMENT, with the field and its value.
pub fn check_sequence(format: &Format, wish: SequenceWish) -> Result<(), Refusal> {
    let refused = |field: &str, value: u64, why: String| {
        Err(refusal!(InvalidRequest, "{field} is {value}; {why}"))
    };
    let SequenceWish { start, max, step } = wish;
    for (field, value) in [("start", start), ("max", max)] {
        let Some(value) = value else {
            continue;
        };
        let last = format.number_max();
        match format.source() {
            Source::Key => {
                let why = "ids of a key begin and end with the times of the format: leave it out";
                return refused(field, value, why.to_owned());
            }
            Source::Date if value > last => {
                let why = format!("a key has {last} order numbers: give 1 to {last}");
                return refused(field, value, why);
            }
            Source::Date | Source::Worker => {}
        }
    }
    let step_max = step_of(format, KEY_AHEAD_MAX_MS);
    match step.filter(|step| format.source() == Source::Key && *step > step_max) {
        Some(step) => {
            let why = format!(
                "after a crash of the leader ids may lie {REACH_STEPS} steps ahead of the time, so that it must lie between 1 \
                 and {step_max}: those are {} s",
                KEY_AHEAD_MAX_MS / 1_000
            );
            refused("step", step, why)
        }
        None => Ok(()),
    }
}

/// The step with which a crash leaves ids of a key `ahead_ms` milliseconds ahead of the time.
fn step_of(format: &Format, ahead_ms: u64) -> u64 {
    let ids = u128::from(format.capacity()) * u128::from(ahead_ms) / u128::from(format.tick_ms());
    let step = u64::try_from(ids / u128::from(REACH_STEPS)).unwrap_or(STEP_MAX);
    step.clamp(1, STEP_MAX)
}

/// FAILED_PRECONDITION for a caller that asks for numbers of a namespace that hands out ids.
pub fn hands_out_ids(namespace: &Namespace, format: &str) -> Refusal {
    let name = &namespace.config.name;
    let known = Format::parse(format).ok();
    let of_key = known.as_ref().is_some_and(|format| format.source() != Source::Worker);
    let key = if of_key { " KEY" } else { "" };
    let format = known.as_ref().and_then(Format::name).unwrap_or(format);
    refusal!(
        WrongState,
        "namespace {name:?} hands out ids of format {format}; ask for ids: ratchet id next {name}{key}"
    )
}

/// Whether the numbers of a format's keys are order numbers, beside a date. The times of others are not raised: they follow the
/// leader's.
pub fn counts_orders(format: &str) -> bool {
    Format::parse(format).is_ok_and(|format| format.source() == Source::Date)
}

/// The worker ids of a namespace whose ids are made by the holders of one.
///
/// # Errors
/// FAILED_PRECONDITION if it has no format, or one without a worker.
pub fn worker_ids(namespace: Namespace) -> Result<WorkerIds, Refusal> {
    let format = id_format(&namespace)?;
    match format.source() {
        Source::Worker => Ok(ids_of(namespace, format)),
        Source::Key | Source::Date => Err(refusal!(
            WrongState,
            "the format of namespace {name:?} has no worker: the leader makes its ids, for a key; ask a node for them, as in: \
             ratchet id next {name} 42",
            name = namespace.config.name
        )),
    }
}

/// The worker ids of a namespace, or the one whose lease is the date of its ids.
///
/// # Errors
/// FAILED_PRECONDITION if it has no format, or one whose ids have neither a worker nor a date.
pub fn leases_of(namespace: Namespace) -> Result<WorkerIds, Refusal> {
    let format = id_format(&namespace)?;
    match format.source() {
        Source::Worker | Source::Date => Ok(ids_of(namespace, format)),
        Source::Key => Err(refusal!(
            WrongState,
            "ids of namespace {name:?} have no worker: their times are numbers of its keys, which never go back. If those lie \
             too far ahead, and you can do without them, create the namespace again: ratchet namespace delete {name} --forget",
            name = namespace.config.name
        )),
    }
}

fn ids_of(namespace: Namespace, format: Format) -> WorkerIds {
    let workers = u32::try_from(format.workers_max());
    WorkerIds {
        namespace: namespace.id,
        name: namespace.config.name,
        // A format with a date has none, and needs one.
        workers: workers.map_or(WORKERS_MAX, |workers| workers.clamp(1, WORKERS_MAX)),
        format: format.to_string(),
        date: (format.source() == Source::Date).then_some(format),
    }
}

/// The format of a namespace's ids.
///
/// # Errors
/// FAILED_PRECONDITION if it has none, or one that this release does not know.
pub fn id_format(namespace: &Namespace) -> Result<Format, Refusal> {
    let name = &namespace.config.name;
    let Some(text) = &namespace.config.format else {
        refuse!(
            WrongState,
            "namespace {name:?} hands out plain numbers; create one whose ids have a format: ratchet namespace create NAME \
             --format snowflake"
        );
    };
    Format::parse(text).map_err(|invalid| {
        refusal!(
            WrongState,
            "release {} does not know the format of namespace {name:?}: {invalid}; install the release that created the \
             namespace on all nodes",
            version::VERSION
        )
    })
}

/// UNAVAILABLE where two nodes know different formats of a namespace.
pub fn created_again(name: &str) -> Refusal {
    refusal!(
        NotHeardYet,
        "namespace {name:?} was created again with another format, which not every node has heard of yet; ask again"
    )
}

/// Why a caller's values make no id.
pub fn invalid(error: &EncodeError) -> Refusal {
    refusal!(InvalidRequest, "{error}")
}

/// Why a time or a number has no id.
pub fn ended(name: &str, error: &EncodeError) -> Refusal {
    refusal!(FormatEnded, "namespace {name:?}: {error}")
}
