//! A module uses those below it, never those above; libraries stay in their rooms; and what the pages
//! name exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

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
    "clock",
    "metrics",
    "planted_bugs",
    "proto",
    "random",
    "tasks",
    "version",
    "watch",
];

/// A library, and the rooms that may use it.
const LIBRARY_ROOMS: [(&str, &[&str]); 3] = [
    ("openraft", &["consensus", "storage"]),
    ("rocksdb", &["storage"]),
    ("ratchet_client", &["cli"]),
];

fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            // What is built, and what is hidden, is not ours.
            if name != "target" && name != "jepsen-report" && !name.starts_with('.') {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// The files of this crate's source, by room.
fn source_files() -> Vec<(String, PathBuf)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&source, "rs", &mut found);
    let room = |file: &PathBuf| {
        let inside = file.strip_prefix(&source).unwrap();
        let first = inside.components().next().unwrap().as_os_str();
        first.to_str().unwrap().to_owned()
    };
    found.into_iter().map(|file| (room(&file), file)).collect()
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
    let mut checked = 0;
    for (room, file) in source_files() {
        let place = HOUSE.iter().position(|r| *r == room);
        let text = fs::read_to_string(&file).unwrap();
        for used in rooms_used(&text) {
            let allowed = match (place, HOUSE.iter().position(|r| *r == used)) {
                _ if used == room || ALL_MAY_USE.contains(&used.as_str()) => true,
                (Some(mine), Some(other)) => other > mine,
                (Some(_), None) | (None, _) => false,
            };
            assert!(allowed, "{} uses crate::{used}", file.display());
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

#[test]
fn libraries_stay_in_their_rooms() {
    let mut used = 0;
    for (room, file) in source_files() {
        let text = fs::read_to_string(&file).unwrap();
        for (library, rooms) in LIBRARY_ROOMS {
            if text.contains(&format!("{library}::")) {
                assert!(
                    rooms.contains(&room.as_str()),
                    "{} uses {library}, which is for {rooms:?}",
                    file.display()
                );
                used += 1;
            }
        }
    }
    assert!(used > 20, "the check found nothing to check: {used}");
}

/// Where the links of a page lead: `[text](place)`, without what stands after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let places = text.split("](").skip(1);
    let places = places.filter_map(|rest| rest.split_once(')'));
    let places = places.map(|(place, _)| place.split('#').next().unwrap_or(""));
    places.filter(|place| !place.is_empty() && !place.contains("://"))
}

#[test]
fn every_link_of_a_page_leads_to_a_file() {
    let mut pages = Vec::new();
    files(Path::new(env!("CARGO_MANIFEST_DIR")), "md", &mut pages);
    let mut followed = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for place in links(&text) {
            let target = page.parent().unwrap().join(place);
            assert!(target.exists(), "{} links to {place}", page.display());
            followed += 1;
        }
    }
    assert!(followed > 50, "the check found no links: {followed}");
}

#[test]
fn contributing_names_every_test_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    for entry in fs::read_dir(root.join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let named =
            text.contains(&format!("`{name}`")) || text.contains(&format!("`tests/{name}`"));
        assert!(named, "CONTRIBUTING.md does not name tests/{name}");
    }
}
