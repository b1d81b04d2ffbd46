//! The files of certificates, keys and tokens.
//!
//! Invariant: under its name a file is whole or not there. It is written and synced under another name, and then renamed.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use ratchet_client::Error;
use tempfile::{Builder, NamedTempFile};

use super::command_error::CommandError;

/// The users that may read a file.
#[derive(Debug, Clone, Copy)]
pub enum Readers {
    All,
    Owner,
}

/// Whether a file that is there may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Kept,
    Replaced,
}

/// A file that is on the disk, under another name than its own.
#[derive(Debug)]
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Writes what is to become the file `path`.
    ///
    /// # Errors
    /// If the disk or the directory does not take it.
    pub fn new(path: PathBuf, text: &str, readers: Readers) -> Result<Staged, CommandError> {
        let written = write(folder(&path), text, readers);
        let file = written.map_err(|error| cannot_write(&path, &error))?;
        Ok(Staged { file, path })
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// If a file of this name is there and is to be kept, or the directory cannot be changed.
    pub fn publish(self, existing: Existing) -> Result<PathBuf, CommandError> {
        let Staged { file, path } = self;
        let renamed = match existing {
            Existing::Kept => file.persist_noclobber(&path),
            Existing::Replaced => file.persist(&path),
        };
        // The name is on the disk when the directory is.
        let published = renamed
            .map_err(|failed| failed.error)
            .and_then(|_| File::open(folder(&path))?.sync_all());
        match published {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let path = path.display();
                Err(CommandError::refused(format!("{path} exists already; nothing was replaced")))
            }
            Err(error) => Err(cannot_write(&path, &error)),
        }
    }
}

fn write(dir: &Path, text: &str, readers: Readers) -> io::Result<NamedTempFile> {
    let mode = match readers {
        Readers::All => 0o644,
        Readers::Owner => 0o600,
    };
    let mut builder = Builder::new();
    let builder = builder.prefix(".ratchet-").permissions(Permissions::from_mode(mode));
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// The directory that a file is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> CommandError {
    let path = path.display();
    CommandError::other(format!(
        "cannot write {path}: {error}; name a directory that you may write to"
    ))
}

/// Makes a directory that only its owner can use, unless it is there.
///
/// # Errors
/// If it cannot be made.
pub fn make(dir: &Path) -> Result<(), CommandError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let dir = dir.display();
        CommandError::other(format!(
            "cannot make the directory {dir}: {error}; give another one with --dir"
        ))
    })
}

/// Whether a file of this name is there.
///
/// # Errors
/// If that cannot be seen.
pub fn is_there(path: &Path) -> Result<bool, CommandError> {
    path.try_exists().map_err(|error| cannot_read(path, &error, "make it readable"))
}

/// Reads a file. `remedy` says what to do if that fails.
///
/// # Errors
/// If it is not there, or cannot be read.
pub fn read(path: &Path, remedy: &str) -> Result<String, CommandError> {
    fs::read_to_string(path).map_err(|error| cannot_read(path, &error, remedy))
}

/// The content of the file that a flag names.
///
/// # Errors
/// If it cannot be read.
pub fn read_named(flag: &str, path: &Path) -> Result<Vec<u8>, Error> {
    let shown = path.display();
    fs::read(path).map_err(|error| Error::Invalid(format!("cannot read {flag} {shown}: {error}")))
}

fn cannot_read(path: &Path, error: &io::Error, remedy: &str) -> CommandError {
    CommandError::other(format!("cannot read {}: {error}; {remedy}", path.display()))
}

/// Keeps a copy of a key under the first free name: "ca.key.old-1", "ca.key.old-2".
///
/// # Errors
/// If the copy cannot be written, or the directory cannot be changed.
pub fn keep_copy(path: &Path, text: &str) -> Result<PathBuf, CommandError> {
    for number in 1..=u32::MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".old-{number}"));
        let copy = PathBuf::from(name);
        if !is_there(&copy)? {
            return Staged::new(copy, text, Readers::Owner)?.publish(Existing::Kept);
        }
    }
    let path = path.display();
    Err(CommandError::refused(format!("{path} has too many old copies; move some away")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_renamed_into_its_place_and_one_that_is_there_is_kept_unless_it_may_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        let staged = |text| Staged::new(path.clone(), text, Readers::Owner).unwrap();
        assert_eq!(staged("one").publish(Existing::Kept).unwrap(), path);
        let refused = format!("{:?}", staged("two").publish(Existing::Kept).unwrap_err());
        assert!(refused.contains("a.key exists already"), "{refused}");
        assert_eq!(read(&path, "").unwrap(), "one");
        staged("three").publish(Existing::Replaced).unwrap();
        assert_eq!(read(&path, "").unwrap(), "three");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn each_copy_of_a_key_has_a_name_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("ca.key");
        for number in 1..=3 {
            let copy = keep_copy(&key, "old").unwrap();
            assert_eq!(copy, dir.path().join(format!("ca.key.old-{number}")));
        }
    }

    #[test]
    fn a_file_of_no_directory_is_in_the_working_directory() {
        assert_eq!(folder(Path::new("a.crt")), Path::new("."));
        assert_eq!(folder(Path::new("/b/a.crt")), Path::new("/b"));
    }
}
