//! Pure files do no I/O, wait for nothing, log nothing and read no clock.
//!
//! Pure are all files of `src/sequence/` and `ids/src/`, and each file whose first paragraph says "Pure." or "Pure: ...".
//! They may ask for planted bugs, of which a release has none.

use crate::{
    files::{File, assert_none, files},
    rust::{paths, tokens, without_tests},
};

const IMPURE: [&str; 12] = [
    "tokio",
    "futures",
    "openraft",
    "rocksdb",
    "tonic",
    "tracing",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::thread",
    "rustix",
];

/// How a clock is read: `Instant::now()`, `clock.now()`, `began.elapsed()`.
const CLOCKS: [[&str; 2]; 4] =
    [["Instant", "::"], ["SystemTime", "::"], [".", "now"], [".", "elapsed"]];

/// Types of those libraries that are plain values. A time or a status may be an argument.
const PLAIN_VALUES: [&str; 4] =
    ["tokio::time::Instant", "tonic::Code", "tonic::Status", "tonic::transport::Uri"];

fn is_pure(file: &File) -> bool {
    let doc = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let first: Vec<&str> = doc.take_while(|line| !line.is_empty()).collect();
    let mut words = first.iter().flat_map(|line| line.split_whitespace());
    let is_pure_place =
        ["src/sequence/", "ids/src/"].iter().any(|place| file.path.starts_with(place));
    is_pure_place || words.any(|word| ["Pure.", "Pure:"].contains(&word))
}

fn is_plain_value(path: &[&str]) -> bool {
    let is_below = |plain: &&str| path.starts_with(&plain.split("::").collect::<Vec<_>>());
    PLAIN_VALUES.iter().any(is_below)
}

fn violations(file: &File) -> Vec<String> {
    let tokens = tokens(&file.text);
    let tokens = without_tests(&tokens);
    let paths = paths(&tokens);
    let uses = |library: &&&str| {
        let library: Vec<&str> = library.split("::").collect();
        let mut used = paths.iter().map(|path| &path.segments);
        used.any(|path| path.starts_with(&library) && !is_plain_value(path))
    };
    let libraries =
        IMPURE.iter().filter(uses).map(|library| format!("{} uses {library}", file.path));
    let reads = tokens.windows(3).filter(|seen| match seen {
        [a, b, "now"] if *b == "::" => CLOCKS.contains(&[a, b]),
        [a, b, "("] => CLOCKS.contains(&[a, b]),
        _ => false,
    });
    let reads = reads.map(|seen| format!("{} reads a clock: {}", file.path, seen.join("")));
    libraries.chain(reads).collect()
}

fn pure_files() -> Vec<File> {
    let all = ["src", "client/src", "bench/src", "ids/src", "jepsen/src"];
    let all = all.into_iter().flat_map(|dir| files(dir, "rs"));
    all.filter(|file| is_pure(file) && !file.is_test()).collect()
}

#[test]
fn pure_files_are_pure() {
    let files = pure_files();
    assert!(files.len() > 8, "only {} files are pure", files.len());
    let found: Vec<String> = files.iter().flat_map(violations).collect();
    assert_none("pure files do what is not pure", &found);
}

#[test]
fn libraries_and_clocks_in_a_pure_file_are_violations() {
    let text = "
        //! Not for tokio::sync.
        use tokio::sync::oneshot;
        use std::{collections::BTreeMap, fs::File};
        fn f() { let began = Instant::now(); clock.now(); began.elapsed(); now.elapsed; }
        #[cfg(test)]
        mod tests { use tracing::info; }
    ";
    let found = violations(&File::new("src/sequence/key.rs", text));
    let file = "src/sequence/key.rs";
    assert_eq!(
        found,
        [
            format!("{file} uses tokio"),
            format!("{file} uses std::fs"),
            format!("{file} reads a clock: Instant::now"),
            format!("{file} reads a clock: .now("),
            format!("{file} reads a clock: .elapsed("),
        ]
    );
    let text = "use tokio::time::Instant; fn f(now: Instant) -> bool { now > deadline() }";
    assert_eq!(violations(&File::new(file, text)), [""; 0]);
}

#[test]
fn a_file_is_pure_by_its_first_paragraph_or_its_place() {
    let pure = |path: &str, text: &str| is_pure(&File::new(path, text));
    assert!(pure("src/sequence/key.rs", "//! Keys."));
    assert!(pure("ids/src/format.rs", "//! Formats."));
    assert!(pure("src/a.rs", "//! Arithmetic, of\n//! two lines. Pure.\n//!\n//! More."));
    assert!(pure("src/a.rs", "//! Arithmetic. Pure: no I/O."));
    assert!(!pure("src/a.rs", "//! Arithmetic.\n//!\n//! Pure."));
    assert!(!pure("src/a.rs", "//! Impure."));
}
