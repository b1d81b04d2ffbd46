//! Finds the files of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file: where it is, seen from the root of the repository, and its text.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// The directory or file below `src/` that it belongs to, without `.rs`.
    pub fn module(&self) -> &str {
        let inside = self.path.split_once("src/").map_or("", |(_, inside)| inside);
        let first = inside.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Whether all of it is unit tests.
    pub fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `dir` whose names end in `.extension`, in order.
pub fn files(dir: &str, extension: &str) -> Vec<File> {
    let mut paths = Vec::new();
    find(&root().join(dir), extension, &mut paths);
    paths.sort();
    let read = |path: &PathBuf| File {
        path: path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    let files: Vec<File> = paths.iter().map(read).collect();
    assert!(!files.is_empty(), "there is no .{extension} file in {dir:?}");
    files
}

fn find(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            // Hidden directories and build outputs are not part of the repository.
            if name != "target" && name != "jepsen-report" && !name.starts_with('.') {
                find(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// Fails with the list of `violations`, if there are any.
pub fn assert_none(what: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{what}:\n  {}", violations.join("\n  "));
}
