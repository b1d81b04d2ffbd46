//! How large the code is, and how wide some of its knowledge is spread. The limits only fall.
//!
//! A change that makes the code smaller lowers them here. One that needs more says why, and makes it up elsewhere.

use super::{
    files::{File, assert_none, files},
    rust::{tokens, without_tests},
};

/// What is measured, how much there is, and how much there may be.
struct Limit {
    what: &'static str,
    is: usize,
    max: usize,
}

/// How far below its limit a measure of tokens may be before the limit has to follow.
const SLACK_PERCENT: usize = 1;

/// The tokens that are written with several characters.
const PAIRS: [&str; 15] =
    ["=>", "->", "..", "&&", "||", "-=", "+=", "*=", "/=", "%=", "^=", "<=", ">=", "!=", "=="];

/// How many tokens the code has, whatever its formatting: without comments, lifetimes and tests.
fn count(file: &File) -> usize {
    let tokens = tokens(&file.text);
    let kept = without_tests(&tokens);
    let is_pair = |two: &[&str]| {
        let adjacent = two[0].as_bytes().as_ptr_range().end == two[1].as_ptr();
        adjacent && PAIRS.iter().any(|pair| *pair == two.concat())
    };
    let (mut count, mut at) = (0, 0);
    while at < kept.len() {
        at += if kept.len() > at + 1 && is_pair(&kept[at..at + 2]) { 2 } else { 1 };
        count += 1;
    }
    count
}

fn production(dirs: &[&str]) -> Vec<File> {
    let files = dirs.iter().flat_map(|dir| files(dir, "rs"));
    files.filter(|file| !file.is_test()).collect()
}

fn folder(file: &File) -> &str {
    file.path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// How many files name `word`, outside of comments and tests.
fn naming(word: &str, files: &[File], inside: &[&str]) -> usize {
    let is_inside = |file: &&File| inside.iter().any(|dir| file.path.starts_with(dir));
    let names = |file: &&File| without_tests(&tokens(&file.text)).contains(&word);
    files.iter().filter(is_inside).filter(names).count()
}

fn limits() -> [Limit; 7] {
    let src = production(&["src"]);
    let all = production(&["src", "client", "ids"]);
    let largest = src.iter().map(|file| {
        let beside = src.iter().filter(|other| folder(other) == folder(file));
        beside.count()
    });
    let limit = |what, is, max| Limit { what, is, max };
    [
        limit("tokens in src", src.iter().map(count).sum(), 386_600),
        limit("tokens in src, client and ids", all.iter().map(count).sum(), 438_900),
        limit("files in src", src.len(), 275),
        limit("files in one folder of src", largest.max().unwrap_or(0), 22),
        limit("files that name NodeContext", naming("NodeContext", &src, &["src"]), 30),
        limit(
            "files of node and consensus that name tonic",
            naming("tonic", &src, &["src/node/", "src/consensus/"]),
            0,
        ),
        limit(
            "files that name step_min, a field of a namespace",
            naming("step_min", &src, &["src"]),
            6,
        ),
    ]
}

/// What is wrong with a limit: it is passed, or there is less by now.
fn complaint(limit: &Limit) -> Option<String> {
    let Limit { what, is, max } = limit;
    let slack = if what.starts_with("tokens") { max * SLACK_PERCENT / 100 } else { 0 };
    match *is {
        is if is > *max => {
            Some(format!("{what}: {is}, at most {max} are allowed; take something away"))
        }
        is if is + slack < *max => Some(format!("{what}: {is}; lower the limit, {max}, to that")),
        _ => None,
    }
}

#[test]
fn the_code_is_no_larger_than_it_was() {
    let complaints: Vec<String> = limits().iter().filter_map(complaint).collect();
    assert_none("the size of the code", &complaints);
}

#[test]
fn a_limit_that_is_passed_and_one_that_is_too_high_are_found() {
    let found = |what, is| complaint(&Limit { what, is, max: 1_000 }).is_some();
    assert!([999, 1_001].iter().all(|is| found("files in src", *is)));
    assert!([989, 1_001].iter().all(|is| found("tokens in src", *is)));
    assert!(!found("files in src", 1_000) && !found("tokens in src", 990));
}

#[test]
fn tokens_are_counted_without_comments_tests_and_formatting() {
    let text =
        "/// Adds.\nfn add(a: u8) -> u8 { a /* b */ += 1 }\n#[cfg(test)]\nmod tests { fn x() {} }";
    assert_eq!(count(&File::new("src/a.rs", text)), 14);
    let spread = "fn add(\n    a: u8,\n) -> u8 {\n    a += 1\n}\n";
    assert_eq!(count(&File::new("src/a.rs", spread)), 15, "the comma");
}
