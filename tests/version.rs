//! Which commit a build says that it was made from.

#[path = "../build/commit.rs"]
mod commit;

use std::{fs, path::Path};

use commit::{Commit, of_checkout};
use tempfile::TempDir;

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// A checkout whose `.git` holds these files.
fn checkout(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (file, text) in files {
        write(&dir.path().join(".git").join(file), text);
    }
    dir
}

/// The commit of `dir`, and the files that are watched for its change.
fn found(dir: &Path) -> Option<(String, Vec<String>)> {
    let Commit { hash, watched } = of_checkout(dir)?;
    let watched = watched.iter().map(|file| {
        assert!(file.exists(), "{} is watched", file.display());
        let file = file.canonicalize().unwrap();
        let inside = file.strip_prefix(dir.canonicalize().unwrap());
        inside.unwrap_or(&file).display().to_string()
    });
    Some((hash, watched.collect()))
}

fn at(hash: &str, watched: &[&str]) -> Option<(String, Vec<String>)> {
    let watched = watched.iter().map(ToString::to_string);
    Some((hash.to_owned(), watched.collect()))
}

#[test]
fn a_branch_is_followed_through_its_file() {
    let dir = checkout(&[
        ("HEAD", "ref: refs/heads/a/b\n"),
        ("refs/heads/a/b", &format!("{HASH}\n")),
        ("packed-refs", &format!("{OTHER} refs/heads/a/b\n")),
    ]);
    let watched = [".git/HEAD", ".git/refs/heads/a/b"];
    assert_eq!(found(dir.path()), at(HASH, &watched));
}

#[test]
fn a_branch_without_a_file_is_found_among_the_packed_ones() {
    let packed = format!("# pack-refs\n{OTHER} refs/heads/b\n{HASH} refs/heads/a/b\n^{OTHER}\n");
    let dir = checkout(&[("HEAD", "ref: refs/heads/a/b\n"), ("packed-refs", &packed)]);
    fs::create_dir_all(dir.path().join(".git/refs/heads")).unwrap();
    let watched = [".git/HEAD", ".git/packed-refs", ".git/refs/heads"];
    assert_eq!(found(dir.path()), at(HASH, &watched));
}

#[test]
fn a_checkout_of_no_branch_is_at_its_head() {
    let dir = checkout(&[("HEAD", &format!("{HASH}\n"))]);
    assert_eq!(found(dir.path()), at(HASH, &[".git/HEAD"]));
}

#[test]
fn a_worktree_shares_the_branches_of_its_repository() {
    let dir = checkout(&[
        ("HEAD", "ref: refs/heads/main\n"),
        ("refs/heads/main", &format!("{OTHER}\n")),
        ("worktrees/w/HEAD", "ref: refs/heads/w\n"),
        ("worktrees/w/commondir", "../..\n"),
        ("refs/heads/w", &format!("{HASH}\n")),
    ]);
    let git = dir.path().join(".git/worktrees/w");
    let tree = TempDir::new().unwrap();
    write(&tree.path().join(".git"), &format!("gitdir: {}\n", git.display()));
    let (hash, watched) = found(tree.path()).unwrap();
    assert_eq!(hash, HASH);
    assert!(watched[0].ends_with("/.git/worktrees/w/HEAD"), "{watched:?}");
    assert!(watched[1].ends_with("/.git/refs/heads/w"), "{watched:?}");
}

#[test]
fn a_directory_that_is_no_checkout_has_no_commit() {
    assert_eq!(found(TempDir::new().unwrap().path()), None);
    let unborn = checkout(&[("HEAD", "ref: refs/heads/main\n")]);
    assert_eq!(found(unborn.path()), None);
    let other = checkout(&[
        ("HEAD", "ref: refs/heads/.invalid\n"),
        ("refs/heads", "this repository keeps its branches in another format\n"),
    ]);
    assert_eq!(found(other.path()), None);
    // The sources are unpacked inside another project's checkout.
    let outer = checkout(&[("HEAD", HASH)]);
    let inner = outer.path().join("vendored/ratchet");
    fs::create_dir_all(&inner).unwrap();
    assert_eq!(found(&inner), None);
}

#[test]
fn the_command_says_its_version_and_commit_and_what_it_was_built_with() {
    let told = |flag| String::from_utf8(crate::common::processes::run(&[flag]).stdout).unwrap();
    let version = format!("ratchet {}\n", ratchet::version::LONG);
    assert_eq!(told("-V"), version);
    let features = told("--version");
    let features = features.strip_prefix(&version).expect("the version");
    // The programs that tests run have planted bugs.
    assert!(
        features.starts_with("features: ") && features.contains("debug-assertions"),
        "{features}"
    );
    // Cargo sets RATCHET_COMMIT to the built commit for every test, so it does not tell where the value came from.
    if let Some(here) = of_checkout(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let built = ratchet::version::COMMIT;
        assert!(
            here.hash.starts_with(built),
            "built from commit {built}, and the checkout is at {}; if RATCHET_COMMIT was set for \
             the build, build without it to run this test",
            here.hash
        );
    }
}
