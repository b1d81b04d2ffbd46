//! Formats of ids, as namespaces keep them.

use ratchet_ids::{Format, Source};
use tonic::Status;

use crate::{
    sequence::{InvalidNamespace, KeyKind, Namespace, NamespaceId, WORKERS_MAX, check_format},
    version,
};

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
}

/// The format of a namespace that is to be created, written in full.
///
/// # Errors
/// INVALID_ARGUMENT if it is none, does not fit the keys, or begins in the future.
pub fn for_new_namespace(text: &str, key_kind: KeyKind, now_ms: u64) -> Result<String, Status> {
    let refused = |why: String| Status::invalid_argument(why);
    let format = check_format(text, key_kind);
    let format = format.map_err(|invalid: InvalidNamespace| refused(invalid.to_string()))?;
    (format.check_epoch(now_ms)).map_err(|invalid| refused(invalid.to_string()))?;
    if format.source() != Source::Worker {
        return Err(refused(format!(
            "format {text:?} has no worker field, and this release makes ids in namespaces with one alone; choose a format \
             with worker:WIDTH, such as snowflake"
        )));
    }
    let full = format.to_string();
    // Written in full it may be too long.
    Format::parse(&full).map_err(|invalid| refused(invalid.to_string()))?;
    Ok(full)
}

/// FAILED_PRECONDITION for whoever asks for numbers of a namespace that hands out ids.
pub fn hands_out_ids(namespace: &Namespace, format: &str) -> Status {
    let name = &namespace.config.name;
    let known = Format::parse(format).ok();
    let format = known.as_ref().and_then(Format::name).unwrap_or(format);
    Status::failed_precondition(format!(
        "namespace {name:?} hands out ids of format {format}; ask for ids: ratchet id next {name}"
    ))
}

/// The worker ids of a namespace.
///
/// # Errors
/// As [`worker_format`].
pub fn worker_ids(namespace: Namespace) -> Result<WorkerIds, Status> {
    let format = worker_format(&namespace)?;
    Ok(WorkerIds {
        namespace: namespace.id,
        name: namespace.config.name,
        workers: u32::try_from(format.workers_max())
            .map_or(WORKERS_MAX, |workers| workers.min(WORKERS_MAX)),
        format: format.to_string(),
    })
}

/// The format of a namespace whose ids are made by whoever holds a worker id.
///
/// # Errors
/// FAILED_PRECONDITION if it has no format, or one without a worker.
pub fn worker_format(namespace: &Namespace) -> Result<Format, Status> {
    let name = &namespace.config.name;
    let Some(text) = &namespace.config.format else {
        return Err(Status::failed_precondition(format!(
            "namespace {name:?} hands out plain numbers and has no worker ids; create one whose ids have a format: \
             ratchet namespace create NAME --format snowflake"
        )));
    };
    let format = Format::parse(text).map_err(|invalid| {
        Status::failed_precondition(format!(
            "release {} does not know the format of namespace {name:?}: {invalid}; install the release that created the \
             namespace on all nodes",
            version::VERSION
        ))
    })?;
    match format.source() {
        Source::Worker => Ok(format),
        Source::Key | Source::Date => Err(Status::failed_precondition(format!(
            "the format of namespace {name:?} has no worker, and this release makes no ids of such formats; create a \
             namespace with another one, such as snowflake"
        ))),
    }
}
