//! A module uses those below it, never those above.

use std::{fs, path::Path};

/// From the top down; what stands in one line may not use each other either, but for what every
/// module may use.
const HOUSE: [&str; 8] = [
    "cli",
    "server",
    "node",
    "allocator",
    "consensus",
    "storage",
    "sequence",
    "clock",
];
const ALL_MAY_USE: [&str; 8] = [
    "clock", "metrics", "planted", "proto", "random", "tasks", "version", "watch",
];

fn rust_files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The rooms of this crate that a file names: `crate::room`, and `use crate::{room, ...}`.
fn rooms_used(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_')
            .collect()
    };
    let mut rooms = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => rooms.push(word(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (at, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && c.is_ascii_lowercase() => {
                            rooms.push(word(&group[at..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    rooms
}

#[test]
fn no_module_uses_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut checked = 0;
    for file in files {
        let inside = file.strip_prefix(&source).unwrap();
        let room = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap();
        let place = HOUSE.iter().position(|r| *r == room);
        let text = fs::read_to_string(&file).unwrap();
        for used in rooms_used(&text) {
            let allowed = match (place, HOUSE.iter().position(|r| *r == used)) {
                _ if used == room || ALL_MAY_USE.contains(&used.as_str()) => true,
                (Some(mine), Some(other)) => other > mine,
                (Some(_), None) | (None, _) => false,
            };
            assert!(allowed, "{} uses crate::{used}", inside.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "the check found nothing to check: {checked}");
}

#[test]
fn the_check_sees_groups_and_nested_groups() {
    let text = "use crate::{\n    allocator::{A, b::C},\n    node::D,\n};\nlet x = crate::server::start();";
    assert_eq!(rooms_used(text), ["allocator", "node", "server"]);
}
