//! The identity of a node: the node that a data directory belongs to.
//!
//! The identity stands in two places: in the marker (the file `NODE`) and in a record of the database.
//!
//! Invariants: a directory with Raft state is refused if the two differ, or if one is missing: a voter that forgot its votes
//! could elect a second leader. A directory without Raft state gets a new incarnation whenever it is opened. So a copy that
//! was made of it is never taken for the node that has voted since.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use rocksdb::{IteratorMode, WriteBatch};
use serde::{Deserialize, Serialize};

use super::{
    codec,
    database::Database,
    error::{REPLACE, StoreError},
    layout::{Family, IDENTITY_KEY, is_before_raft},
    unknown_format,
};
use crate::{random, sequence::NodeId, version};

/// The marker's file.
const MARKER: &str = "NODE";
/// The version of the format of the whole directory. It rises with that of the records, which began five versions earlier.
const FORMAT_VERSION: u32 = codec::VERSION as u32 - 5;

/// The node that a data directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// The node's id.
    pub node: NodeId,
    /// A random number, never 0. It is drawn at each start until the node has voted or holds a log; from then on it stays.
    pub incarnation: u64,
}

/// The content of the marker.
#[derive(Serialize, Deserialize)]
pub struct Marker {
    #[serde(flatten)]
    format: MarkerFormat,
    /// The node that the directory belongs to.
    #[serde(flatten)]
    pub identity: Identity,
    /// The directory belongs to a cluster of one that founds itself.
    #[serde(default)]
    pub dev: bool,
}

/// The fields of the marker that every format has.
#[derive(Serialize, Deserialize)]
struct MarkerFormat {
    format_version: u32,
    /// The newest release that has opened the directory. An older release names it in the error when it
    /// finds a format that it cannot read.
    #[serde(default)]
    release: String,
}

/// The newest release that has opened the directory, this release included.
pub fn newest_release(marker: Option<&Marker>) -> String {
    match marker {
        Some(Marker { format, .. })
            if unknown_format::is_later(&format.release, version::VERSION) =>
        {
            format.release.clone()
        }
        Some(_) | None => version::VERSION.to_owned(),
    }
}

/// Reads the marker; `None` if there is no file.
///
/// # Errors
/// [`StoreError::Io`] if the file cannot be read; [`StoreError::Damaged`] if it is not a marker;
/// [`StoreError::OtherRelease`] if its format is not the one that this release reads.
pub fn read_marker(dir: &Path) -> Result<Option<Marker>, StoreError> {
    let path = dir.join(MARKER);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("cannot read", path)(error)),
    };
    let damaged = |error: serde_json::Error| StoreError::Damaged {
        what: "the marker".to_owned(),
        place: path.clone(),
        why: error.to_string(),
    };
    // Another format may have other fields: at first only those are read that every format has.
    let format: MarkerFormat = serde_json::from_str(&text).map_err(damaged)?;
    if format.format_version != FORMAT_VERSION {
        let newest = (!format.release.is_empty()).then_some(format.release.as_str());
        let (what, found) = ("the marker".to_owned(), format.format_version);
        return Err(unknown_format::unknown_format(what, &path, found, FORMAT_VERSION, newest));
    }
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// Checks that the directory belongs to this node of this cluster.
///
/// # Errors
/// [`StoreError::WrongSetUp`] if it does not.
pub fn check_owner(
    dir: &Path, found: &Identity, cluster: &str, node: NodeId,
) -> Result<(), StoreError> {
    if found.cluster == cluster && found.node == node {
        return Ok(());
    }
    Err(StoreError::WrongSetUp(format!(
        "data directory {} belongs to node {} of cluster {:?}, not to node {node} of cluster \
         {cluster:?}; choose another data_dir, or correct node_id and cluster",
        dir.display(),
        found.node,
        found.cluster
    )))
}

/// Checks that the directory is of a cluster that founds itself if and only if the node is started as one.
///
/// # Errors
/// [`StoreError::WrongSetUp`] if it is not.
pub fn check_dev(dir: &Path, found: bool, wanted: bool) -> Result<(), StoreError> {
    let dir = dir.display();
    match (found, wanted) {
        (false, true) => Err(StoreError::WrongSetUp(format!(
            "data directory {dir} belongs to a node that was started without --dev. With it, another cluster would be founded \
             if the directory were lost, and its numbers would begin at 1. Start without --dev, or choose another data_dir"
        ))),
        (true, false) => Err(StoreError::WrongSetUp(format!(
            "data directory {dir} belongs to a cluster for trying, of ratchet start --dev. Start it with --dev, or choose \
             another data_dir"
        ))),
        (true, true) | (false, false) => Ok(()),
    }
}

/// Compares the marker with the database's record. Returns the marker; `None` if the directory has no Raft state: it gets an
/// identity by [`draw`].
///
/// # Errors
/// [`StoreError::Refused`] if they differ, or one of them is lost; [`StoreError::WrongSetUp`] if they belong to another node;
/// other errors if the disk fails.
pub fn reconcile(
    db: &Database, marker: Option<Marker>, cluster: &str, node: NodeId,
) -> Result<Option<Marker>, StoreError> {
    let record: Option<Identity> = db.get(Family::HardState, IDENTITY_KEY)?;
    let has_state = has_raft_state(db)?;
    let dir = db.dir();
    if let Some(record) = &record {
        let owners = marker.as_ref().map(|marker| (&marker.identity.cluster, marker.identity.node));
        if owners.is_some_and(|owners| owners != (&record.cluster, record.node)) {
            return Err(not_of_the_same(dir, record));
        }
        check_owner(dir, record, cluster, node)?;
    }
    match (marker, record) {
        (Some(marker), Some(record)) if has_state && marker.identity == record => {
            if marker.format.release != db.newest_release() {
                write_marker(db, &record, marker.dev)?;
            }
            Ok(Some(marker))
        }
        (Some(_), Some(record)) if has_state => Err(not_of_the_same(dir, &record)),
        (Some(_), None) => Err(part_missing(dir, "the database")),
        (None, _) if has_state => Err(part_missing(dir, "the marker NODE")),
        // One of the two may be missing, or be that of an earlier start: the last drawing was cut short.
        (Some(_) | None, Some(_)) | (None, None) => Ok(None),
    }
}

/// Draws the identity of a directory without Raft state. It is on the disk when this returns. The marker says `dev`.
///
/// # Errors
/// [`StoreError::Database`] or [`StoreError::Io`] if the disk fails.
pub fn draw(db: &Database, cluster: &str, node: NodeId, dev: bool) -> Result<Marker, StoreError> {
    let incarnation = random::u64().max(1);
    let identity = Identity { cluster: cluster.to_owned(), node, incarnation };
    let mut batch = WriteBatch::default();
    batch.put_cf(db.family(Family::HardState)?, IDENTITY_KEY, codec::encode_record(&identity)?);
    db.write(batch, true)?;
    write_marker(db, &identity, dev)
}

fn not_of_the_same(dir: &Path, record: &Identity) -> StoreError {
    StoreError::Refused(format!(
        "data directory {}: the marker {MARKER} and the database (node {} of cluster {:?}) are not \
         of the same node: one of them was copied here; put back the marker and the database that \
         belong together",
        dir.display(),
        record.node,
        record.cluster
    ))
}

/// The error for a directory that lost a part of its content.
pub fn part_missing(dir: &Path, part: &str) -> StoreError {
    StoreError::Refused(format!(
        "data directory {} lost its files: {part} is missing. A voter that forgot its votes could \
         elect a second leader, so the node does not start. Put back this very directory, not a backup; \
         or {REPLACE}",
        dir.display()
    ))
}

/// True if the node has voted, or holds a log or a table.
///
/// # Errors
/// [`StoreError::Database`] if the database fails.
pub fn has_raft_state(db: &Database) -> Result<bool, StoreError> {
    for record in db.records(Family::HardState, IteratorMode::Start)? {
        let (key, _) = record?;
        if &*key != IDENTITY_KEY && !is_before_raft(&key) {
            return Ok(true);
        }
    }
    for family in [Family::Log, Family::Applied] {
        if db.records(family, IteratorMode::Start)?.next().transpose()?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the marker durably, and returns it. The sync of the directory brings all other names in it to the disk, too.
///
/// # Errors
/// [`StoreError::Io`] if a file cannot be written, renamed or synced.
pub fn write_marker(db: &Database, identity: &Identity, dev: bool) -> Result<Marker, StoreError> {
    let dir = db.dir();
    let marker = Marker {
        format: MarkerFormat {
            format_version: FORMAT_VERSION,
            release: db.newest_release().to_owned(),
        },
        identity: identity.clone(),
        dev,
    };
    let text = serde_json::to_string_pretty(&marker)
        .map_err(|e| StoreError::invalid(format!("the marker cannot be written: {e}")))?;
    let (path, temporary) = (dir.join(MARKER), dir.join("NODE.tmp"));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        db.directories().rename(dir, &temporary, &path)
    };
    write().map_err(StoreError::io("cannot write", path.clone()))?;
    Ok(marker)
}
