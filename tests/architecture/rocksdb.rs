//! `cluster/rocksdb` makes the archive whole or not at all, and only of the release that it knows.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::files::root;

/// A program in the place of the compiler. It writes an empty object. If there is a file `fails` beside it, it says so
/// and fails, as a compiler does that finds the disk full.
const COMPILER: &str = r#"#!/bin/sh
[ "$1" != --version ] || { echo stand-in; exit; }
while [ "$1" != -o ]; do shift; done
if [ -e "$(dirname "$0")/fails" ] && [ "$(basename "$2")" = part1.o ]; then
  echo "No space left on device" >&2
  exit 1
fi
: >"$2"
"#;

/// A cache, and a stand-in for the compiler.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        let compiler = place.path("c++");
        fs::write(&compiler, COMPILER).expect("written");
        fs::set_permissions(&compiler, PermissionsExt::from_mode(0o755)).expect("permitted");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the script of a checkout.
    fn run_in(&self, checkout: &Path) -> Output {
        // Not by its name: a file that was written just now may still be open in a child of another test, and is "busy".
        Command::new("bash")
            .arg(checkout.join("cluster/rocksdb"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("CXX", self.path("c++"))
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .expect("bash runs")
    }

    /// Runs the script of our checkout. Returns its output, if it ended as expected.
    fn run(&self, well: bool) -> String {
        let ran = self.run_in(root());
        let told = String::from_utf8(ran.stderr).expect("text");
        assert_eq!(ran.status.success(), well, "{told}");
        told
    }

    /// The files in the cache beside the lock.
    fn cached(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("cache/ratchet")).expect("the cache");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.is_dir()).collect()
    }
}

/// The version of RocksDB's crate in Cargo.lock.
fn locked(lock: &str) -> &str {
    let (_, rest) =
        lock.split_once("name = \"librocksdb-sys\"\nversion = \"").expect("librocksdb-sys");
    rest.split_once('"').expect("its version").0
}

#[test]
fn the_script_knows_the_release_in_cargo_lock() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let script = fs::read_to_string(root().join("cluster/rocksdb")).expect("the script");
    let version = locked(&lock);
    assert!(
        script.contains(&format!("\nknown={version}\n")),
        "Cargo.lock has librocksdb-sys {version}: compare its build.rs and its list of sources with those of the release \
         that cluster/rocksdb knows, mend the script, and set its 'known'"
    );
}

#[test]
fn rocksdb_has_no_feature_that_the_archive_lacks() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let line = manifest.lines().find(|line| line.starts_with("rocksdb = ")).expect("rocksdb");
    let (_, features) = line.rsplit_once("features = ").expect("its features");
    assert!(line.contains("default-features = false"), "{line}");
    // It is about the bindings. Others need a definition in cluster/rocksdb, too.
    assert_eq!(features, "[\"bindgen-runtime\"] }");
}

#[test]
fn another_release_is_refused_and_named() {
    let place = Place::new();
    let checkout = place.path("checkout");
    fs::create_dir_all(checkout.join("cluster")).expect("created");
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let moved = lock.replace(locked(&lock), "9.9.9+12.0.0");
    fs::write(checkout.join("Cargo.lock"), moved).expect("written");
    let script = "cluster/rocksdb";
    fs::copy(root().join(script), checkout.join(script)).expect("copied");
    let ran = place.run_in(&checkout);
    let told = String::from_utf8(ran.stderr).expect("text");
    assert!(!ran.status.success());
    assert!(told.contains("Cargo.lock has librocksdb-sys 9.9.9+12.0.0"), "{told}");
    assert!(!place.path("cache").exists());
}

#[test]
fn a_compiler_that_fails_leaves_nothing_and_the_next_run_makes_the_archive() {
    let place = Place::new();
    fs::write(place.path("fails"), "").expect("written");
    let told = place.run(false);
    assert!(told.contains("No space left on device"), "{told}");
    assert!(told.contains("RocksDB could not be compiled; see above"), "{told}");
    assert_eq!(place.cached(), Vec::<PathBuf>::new());
    fs::remove_file(place.path("fails")).expect("removed");
    place.run(true);
    let cached = place.cached();
    assert_eq!(cached.len(), 1);
    assert!(cached[0].join("librocksdb.a").is_file());
    assert_eq!(place.run(true), "", "it is there");
}

#[test]
fn what_a_killed_run_left_is_removed() {
    let place = Place::new();
    let left = place.path("cache/ratchet/rocksdb.partial.abcdef");
    fs::create_dir_all(&left).expect("created");
    fs::write(left.join("librocksdb.a"), "half").expect("written");
    place.run(true);
    assert!(!left.exists());
    assert_eq!(place.cached().len(), 1);
}
