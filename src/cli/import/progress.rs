//! How far an import is: a record beside the file, written anew at once or not at all.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::rows::RowFormat;
use crate::cli::command_error::CommandError;

/// How far an import is, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The cluster's name.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The format of the file.
    pub format: RowFormat,
    /// How many bytes the file has.
    pub bytes: u64,
    /// The CRC-32 of the file.
    pub checksum: u32,
    /// How many rows, from the first one, are raised.
    pub rows_done: u64,
}

/// Where the record of a file is.
pub fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".ratchet-import");
    PathBuf::from(name)
}

/// How many rows an earlier import of `of` has raised; 0 without a record.
///
/// # Errors
/// If the record is that of another import, or cannot be read.
pub fn read(path: &Path, of: &Progress) -> Result<u64, CommandError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(cannot("read", path, &error)),
    };
    let remove = "remove it to import from the first row";
    let found: Progress = serde_json::from_slice(&text).map_err(|error| {
        let path = path.display();
        CommandError::refused(format!("{path} is no record of an import ({error}); {remove}"))
    })?;
    let same = Progress { rows_done: found.rows_done, ..of.clone() };
    match found == same {
        true => Ok(found.rows_done),
        false => Err(CommandError::refused(format!(
            "{} is the record of another import: of {} bytes with the checksum {:08x} into namespace {:?} of cluster {:?}, \
             and this one is of {} bytes with the checksum {:08x} into namespace {:?} of cluster {:?}; {remove}",
            path.display(),
            found.bytes,
            found.checksum,
            found.namespace,
            found.cluster,
            of.bytes,
            of.checksum,
            of.namespace,
            of.cluster
        ))),
    }
}

/// Writes the record.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, progress: &Progress) -> Result<(), CommandError> {
    let replace = || -> io::Result<()> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut file = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        serde_json::to_writer(&mut file, progress)?;
        file.flush()?;
        file.persist(path)?;
        Ok(())
    };
    replace().map_err(|error| cannot("write", path, &error))
}

/// Removes the record of an import that is complete, or begins anew.
///
/// # Errors
/// If it is there and cannot be removed.
pub fn remove(path: &Path) -> Result<(), CommandError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cannot("remove", path, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> CommandError {
    CommandError::other(format!("cannot {what} {}: {error}", path.display()))
}
