//! Whether this process may use a data directory, as it is mounted and owned.
//!
//! Invariant: what no restart mends is told from a disk that fails, so that a supervisor need not start the node for ever.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, StatxFlags, access, statx},
    io::Errno,
    process::geteuid,
};

use super::{data_dir::DATABASE, error::StoreError};

/// The directory, or the first of its parents that is there if it is missing.
fn first_there(dir: &Path) -> &Path {
    let mut places = dir.ancestors().filter(|place| !place.as_os_str().is_empty());
    places.find(|place| place.exists()).unwrap_or(Path::new("."))
}

/// Checks that something is mounted at the directory, or at one of its parents but the root of the file system. Data in the
/// root of a container is lost with it.
///
/// # Errors
/// [`StoreError::Inaccessible`] if not; [`StoreError::Io`] if the system does not tell.
pub fn check_volume(dir: &Path) -> Result<(), StoreError> {
    let mount = |place: &Path| mount_of(place).map_err(StoreError::io("cannot look at", place));
    if is_volume(&mount(first_there(dir))?, &mount(Path::new("/"))?) {
        return Ok(());
    }
    let dir = dir.display();
    Err(StoreError::Inaccessible(format!(
        "no volume is mounted at data directory {dir}, and require_volume is set, as in the image: in a container, what is \
         written there is lost with it. Mount a volume there, as with -v ratchet:{dir}, or set RATCHET_REQUIRE_VOLUME=false in \
         its environment, which wins over a file, if this is where the data shall be"
    )))
}

/// The identity of a mount, which all places of it share.
#[derive(PartialEq, Eq)]
enum Mount {
    Id(u64),
    /// Where the kernel tells no id of a mount, as before Linux 5.8.
    OnDevice(u64),
}

fn mount_of(place: &Path) -> io::Result<Mount> {
    match statx(CWD, place, AtFlags::empty(), StatxFlags::MNT_ID) {
        Ok(found) if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 => {
            Ok(Mount::Id(found.stx_mnt_id))
        }
        // If the place cannot be looked at, the other way fails, too.
        Ok(_) | Err(_) => Ok(Mount::OnDevice(fs::metadata(place)?.dev())),
    }
}

/// Whether something else than what is in the root's file system anyway is mounted.
fn is_volume(mount: &Mount, root: &Mount) -> bool {
    match (mount, root) {
        (Mount::Id(mount), Mount::Id(root)) if mount != root => {
            // Without /proc each mount is taken for a volume.
            let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
            !is_in_its_own_place(&String::from_utf8_lossy(&mounts), *mount, *root)
        }
        _ => mount != root,
    }
}

/// Whether a mount shows a part of the root's file system where that part is without it, too. So systemd opens a directory for
/// writing, as ReadWritePaths= and StateDirectory= of a unit say.
fn is_in_its_own_place(mounts: &str, mount: u64, root: u64) -> bool {
    // A row: its id, its parent's, the device, what of that is mounted, and where.
    let row = |id: u64| {
        let mut rows = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        rows.find(|row| row[0] == id.to_string())
    };
    let (mount, root) = (row(mount), row(root));
    match (mount.as_deref(), root.as_deref()) {
        (Some([_, _, device, part, place, ..]), Some([_, _, of_root, root_part, ..])) => {
            let own = Path::new(root_part).join(place.trim_start_matches('/'));
            device == of_root && Path::new(part) == own
        }
        _ => false,
    }
}

/// Checks that the user of this process can use the directory, if it is there, and can make it, if it is not. A node of another
/// user could not read what root would write into that user's directory.
///
/// # Errors
/// [`StoreError::Inaccessible`] if not.
pub fn check_access(dir: &Path) -> Result<(), StoreError> {
    let user = geteuid().as_raw();
    let found = fs::metadata(dir);
    let shown = dir.display();
    let why = match &found {
        Ok(found) if !found.is_dir() => {
            format!("data_dir {shown} is no directory; choose a directory")
        }
        Ok(found) if user == 0 && found.uid() != 0 => format!(
            "data directory {shown} belongs to user {owner}, and this process runs as root, whose files that user's node could \
             not read; run this command as user {owner}: setpriv --reuid={owner} --regid={group} --clear-groups COMMAND",
            owner = found.uid(),
            group = found.gid()
        ),
        _ => {
            let there = first_there(dir);
            match access(there, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
                Err(Errno::ROFS) => format!(
                    "data directory {shown} is on a file system that is mounted read-only; mount a volume there for \
                     writing, add the directory to ReadWritePaths= of the unit if that starts this node, or choose \
                     another data_dir"
                ),
                Err(Errno::ACCESS) if found.is_ok() => format!(
                    "user {user}, whom this process runs as, may not write in the data directory {shown}; make it that \
                     user's: chown -R {user} {shown}"
                ),
                Err(Errno::ACCESS) => format!(
                    "data directory {shown} is not there, and user {user}, whom this process runs as, may not create it in \
                     {}; mount its volume, or create it for that user: install -d -m 0700 -o {user} {shown}",
                    there.display()
                ),
                // Whatever else there is, the first use of the directory tells.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    };
    Err(StoreError::Inaccessible(why))
}

/// The error of the process that opened the data directory `dir`, as [`StoreError::Inaccessible`] if the disk is well, and a
/// file is not open to the user of this process: then no restart helps.
pub fn denied_or(dir: &Path, error: StoreError) -> StoreError {
    let denied = match &error {
        StoreError::Io { path, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some(path.clone())
        }
        // RocksDB tells of a file that is not open to it as of an invalid argument. Damage is damage, whoever may read the
        // rest.
        StoreError::Database { .. } if !error.to_string().contains("Corruption: ") => {
            denied_in(&dir.join(DATABASE))
        }
        _ => None,
    };
    let Some(path) = denied else { return error };
    let (user, dir) = (geteuid().as_raw(), dir.display());
    StoreError::Inaccessible(format!(
        "user {user}, whom this process runs as, may not use {path} in the data directory {dir}; give that user all of it, to \
         read and to write: chown -R {user} {dir} && chmod -R u+rwX {dir} (opening it failed with: {error})",
        path = path.display()
    ))
}

/// The first of a directory, and the files in it, that the user of this process may not use.
fn denied_in(dir: &Path) -> Option<PathBuf> {
    let is_denied = |path: &Path, wanted| access(path, wanted) == Err(Errno::ACCESS);
    let of_file = Access::READ_OK | Access::WRITE_OK;
    if is_denied(dir, of_file | Access::EXEC_OK) {
        return Some(dir.to_owned());
    }
    // One that cannot be listed has another fault, which the caller has at hand.
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.into_iter().find(|file| is_denied(file, of_file))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_data_directory_that_is_a_file_is_refused_and_one_that_can_be_made_is_not() {
        let dir = TempDir::new().unwrap();
        check_access(&dir.path().join("not/there/yet")).unwrap();
        check_access(dir.path()).unwrap();
        let file = dir.path().join("file");
        File::create(&file).unwrap();
        let refused = check_access(&file).unwrap_err();
        assert!(matches!(refused, StoreError::Inaccessible(_)), "{refused}");
        assert!(refused.to_string().contains("is no directory"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_open_to_this_user_is_told_from_a_disk_that_fails() {
        let dir = Path::new("/data");
        let failed = |kind: io::ErrorKind| {
            denied_or(dir, StoreError::io("cannot create", dir.join("LOCK"))(kind.into()))
        };
        let denied = failed(io::ErrorKind::PermissionDenied);
        assert!(matches!(denied, StoreError::Inaccessible(_)), "{denied}");
        let user = format!("chown -R {} /data", geteuid().as_raw());
        for part in ["/data/LOCK", user.as_str(), "chmod -R u+rwX /data"] {
            assert!(denied.to_string().contains(part), "{part:?} is not in {denied}");
        }
        assert!(matches!(failed(io::ErrorKind::StorageFull), StoreError::Io { .. }));
        // All that is there may be used, so it is the disk.
        let used = TempDir::new().unwrap();
        fs::create_dir(used.path().join(DATABASE)).unwrap();
        File::create(used.path().join(DATABASE).join("CURRENT")).unwrap();
        let (dir, message) = (used.path().to_owned(), "IO error".to_owned());
        let failed = denied_or(used.path(), StoreError::Database { dir, message });
        assert!(matches!(failed, StoreError::Database { .. }), "{failed}");
    }

    #[test]
    fn a_directory_that_a_unit_opens_for_writing_is_no_volume() {
        let mounts = "43 42 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      63 43 254:0 /var/lib/ratchet /var/lib/ratchet rw,relatime - ext4 /dev/vda rw\n\
                      64 43 254:0 /srv/volume /data rw,relatime - ext4 /dev/vda rw\n\
                      65 43 254:1 /lib/ratchet /lib/ratchet rw,relatime - ext4 /dev/vdb rw\n";
        let own: Vec<u64> = (63..=66).filter(|id| is_in_its_own_place(mounts, *id, 43)).collect();
        assert_eq!(own, [63]);
    }

    #[test]
    fn what_is_in_the_root_of_the_file_system_is_on_no_volume_also_before_it_is_made() {
        check_volume(Path::new("/proc")).unwrap();
        check_volume(Path::new("/proc/self/no/such/directory")).unwrap();
        for place in ["/", "/no/such/directory"] {
            let refused = check_volume(Path::new(place)).unwrap_err();
            assert!(matches!(refused, StoreError::Inaccessible(_)), "{place}: {refused}");
            let named = format!("-v ratchet:{place},");
            assert!(refused.to_string().contains(&named), "{refused}");
        }
    }
}
