//! The things that the Markdown pages name exist: linked files and headings, paths, code, and all test files. Each file in
//! `tests/` is compiled. The book has all pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::files::{File, assert_none, files, root};

/// The lines of a page outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The parts of a line between backticks, and the text outside of them.
fn spans(line: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut code, mut text) = (Vec::new(), Vec::new());
    for (at, part) in line.split('`').enumerate() {
        match at % 2 {
            0 => text.push(part),
            _ => code.push(part),
        }
    }
    (code, text)
}

/// Where the links of a page lead: `[text](place)`.
pub fn links(text: &str) -> Vec<String> {
    let lines = prose(text).map(|line| spans(line).1.join(""));
    let page: Vec<String> = lines.collect();
    let page = page.join("\n");
    let places = page.split("](").skip(1);
    let places = places.filter_map(|rest| rest.split_once(')'));
    places.map(|(place, _)| place.to_owned()).filter(|place| !place.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(match *count {
            0 => anchor,
            n => format!("{anchor}-{n}"),
        });
        *count += 1;
    }
    anchors
}

/// The links of a page that lead nowhere. `read` answers the text of a file or directory that is there.
fn dead_links(page: &File, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let dir = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let is_dead = |link: &String| {
        let (place, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match place {
            "" => Some(page.text.clone()),
            _ => read(dir.join(place).to_str().unwrap_or_default()),
        };
        target.is_none_or(|text| !anchor.is_empty() && !anchors(&text).contains(anchor))
    };
    let dead = links(&page.text).into_iter().filter(is_dead);
    dead.map(|link| format!("{} links to {link}", page.path)).collect()
}

/// The paths below one of `tops` that a page names in backticks.
fn named_paths<'a>(text: &'a str, tops: &BTreeSet<String>) -> Vec<&'a str> {
    let code = prose(text).flat_map(|line| spans(line).0);
    code.filter(|code| {
        let is_path = code.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        let top = code.split_once('/').map(|(top, _)| top);
        is_path && top.is_some_and(|top| tops.contains(top))
    })
    .collect()
}

/// The names at the root of the repository.
fn tops() -> BTreeSet<String> {
    let entries = fs::read_dir(root()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| name != "target" && name != "jepsen-report").collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_in_it() {
    let read = |path: &str| match root().join(path) {
        path if path.is_dir() => Some(String::new()),
        path => fs::read_to_string(path).ok(),
    };
    let pages = files("", "md");
    let count: usize = pages.iter().map(|page| links(&page.text).len()).sum();
    assert!(count > 50, "only {count} links were found");
    let dead: Vec<String> = pages.iter().flat_map(|page| dead_links(page, read)).collect();
    assert_none("links lead nowhere", &dead);
}

#[test]
fn every_path_that_a_page_names_exists() {
    let tops = tops();
    let mut count = 0;
    let mut gone = Vec::new();
    for page in files("", "md") {
        let dir = root().join(&page.path);
        for path in named_paths(&page.text, &tops) {
            count += 1;
            if !root().join(path).exists() && !dir.with_file_name(path).exists() {
                gone.push(format!("{} names {path}", page.path));
            }
        }
    }
    assert!(count > 5, "only {count} paths were found");
    assert_none("pages name paths that do not exist", &gone);
}

/// The words, modules and items of code that a page names in backticks, as `word`, `folder/module` or `Type::item`.
fn named_code(text: &str) -> Vec<&str> {
    let code = prose(text).flat_map(|line| spans(line).0);
    let is_code = |c: char| c.is_ascii_alphanumeric() || "_/:".contains(c);
    code.filter(|code| !code.is_empty() && code.chars().all(is_code)).collect()
}

/// Which of the `named` are nowhere in `code`: no word of it, and no part of a path.
fn unknown<'a>(named: Vec<&'a str>, code: &[File]) -> Vec<&'a str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = code.iter().flat_map(|file| file.text.split(|c| !is_word(c)));
    let words: BTreeSet<&str> = words.collect();
    let paths: Vec<String> = code.iter().map(|file| format!("/{}", file.path)).collect();
    let is_path = |named: &str| {
        let (folder, module) =
            (format!("/{}/", named.trim_end_matches('/')), format!("/{named}.rs"));
        paths.iter().any(|path| path.contains(&folder) || path.ends_with(&module))
    };
    // A name that ends in `_` stands for all that begin so.
    let begins =
        |start: &str| words.range(start..).next().is_some_and(|word| word.starts_with(start));
    let is_known = |named: &&str| match named.contains('/') {
        true => is_path(named) || root().join(named).exists(),
        false => named.split("::").all(|word| match word.ends_with('_') {
            true => begins(word),
            false => words.contains(word),
        }),
    };
    named.into_iter().filter(|named| !is_known(named)).collect()
}

#[test]
fn all_code_that_architecture_and_contributing_name_is_there() {
    let mut code = [files("", "rs"), files("", "proto")].concat();
    // The variables of the build.
    let env = fs::read_to_string(root().join("cluster/env")).unwrap();
    code.push(File::new("cluster/env", &env));
    let mut gone = Vec::new();
    for path in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let page = fs::read_to_string(root().join(path)).unwrap();
        let named = named_code(&page);
        assert!(named.len() > 50, "{path}: only {} names were found", named.len());
        let unknown = unknown(named, &code);
        gone.extend(unknown.into_iter().map(|name| format!("{path} names {name}")));
    }
    assert_none("pages name code that does not exist", &gone);
}

/// The names in `tests/`, without their extension.
fn test_files() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root().join("tests")).unwrap();
    entries.map(|entry| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    })
}

#[test]
fn contributing_names_every_test_file() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let missing: Vec<String> = test_files().filter(|name| !names_test(&text, name)).collect();
    assert_none("CONTRIBUTING.md does not name these files in tests/", &missing);
}

#[test]
fn every_test_file_is_compiled() {
    let scenarios = fs::read_to_string(root().join("tests/main.rs")).unwrap();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let unknown = test_files().filter(|name| {
        let is_scenario = scenarios.lines().any(|line| line == format!("mod {name};"));
        let is_target = [".rs", "/main.rs"]
            .iter()
            .any(|end| manifest.contains(&format!("\"tests/{name}{end}\"")));
        !is_scenario && !is_target
    });
    let unknown: Vec<String> = unknown.collect();
    assert_none("neither tests/main.rs nor Cargo.toml names these files in tests/", &unknown);
}

fn names_test(text: &str, name: &str) -> bool {
    let forms = [name.to_owned(), format!("tests/{name}"), format!("tests/{name}.rs")];
    forms.iter().any(|form| text.contains(&format!("`{form}`")))
}

/// The `pages`, seen from the book, that its summary does not list once.
fn not_listed_once(summary: &str, pages: &[&str]) -> Vec<String> {
    let listed = links(summary);
    let times = |page: &str| listed.iter().filter(|link| *link == page).count();
    let wrong = pages.iter().filter(|page| times(page) != 1);
    wrong.map(|page| format!("{page} is listed {} times", times(page))).collect()
}

#[test]
fn the_summary_lists_every_page_of_the_book_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let files = files("docs", "md");
    let pages = files.iter().filter_map(|page| page.path.strip_prefix("docs/"));
    let pages: Vec<&str> = pages.filter(|page| *page != "SUMMARY.md").collect();
    let wrong = not_listed_once(&summary, &pages);
    assert_none("docs/SUMMARY.md lists each page once, but", &wrong);
}

#[test]
fn links_to_missing_files_and_headings_are_dead() {
    let text = "
# A heading
[a](there.md) [b](gone.md) [c](../up.md#of-it-2--all) [d](../up.md#none) [e](#a-heading)
[f](#no-heading) [g](https://example.org/gone) `[h](not.md)` [wrapped
text](lost.md)
```
[i](code.md)
```
";
    let page = File::new("docs/page.md", text);
    let read = |path: &str| match path {
        "docs/there.md" => Some(String::new()),
        "docs/../up.md" => Some("## Of `it`: 2 & all\n".to_owned()),
        _ => None,
    };
    let dead = ["gone.md", "../up.md#none", "#no-heading", "lost.md"];
    let dead = dead.map(|link| format!("docs/page.md links to {link}"));
    assert_eq!(dead_links(&page, read), dead);
}

#[test]
fn headings_of_the_same_text_have_numbered_anchors() {
    let anchors: Vec<String> = anchors("# Twice\n## Twice\n### Once_-more!").into_iter().collect();
    assert_eq!(anchors, ["once_-more", "twice", "twice-1"]);
}

#[test]
fn paths_in_backticks_are_found_and_other_code_is_not() {
    let tops = BTreeSet::from(["src".to_owned(), "jepsen".to_owned()]);
    let text = "
`src/a.rs` and `jepsen/ci`, not `ratchet/v1`, `src`, `src/a.rs --flag`, src/b.rs
```
`src/c.rs`
```
";
    assert_eq!(named_paths(text, &tops), ["src/a.rs", "jepsen/ci"]);
}

#[test]
fn code_that_a_page_names_and_that_is_not_there_is_found() {
    let text = "`take`, `node/gaps`, `shard/own_keys` and `shard/`, `Term::next`, `Term::gone`, `take_`, `a b`, take";
    let code = [File::new("src/shard/own_keys.rs", "impl Term { fn take_next() { serve(next) } }")];
    assert_eq!(unknown(named_code(text), &code), ["take", "node/gaps", "Term::gone"]);
}

#[test]
fn a_test_file_is_named_in_backticks() {
    let text = "about `order`, `tests/sim` and `tests/main.rs`, and disk";
    let named = ["order", "sim", "main", "disk"].map(|name| names_test(text, name));
    assert_eq!(named, [true, true, true, false]);
}

#[test]
fn a_page_that_the_summary_lists_twice_or_not_at_all_is_found() {
    let summary = "# Summary\n- [A](a.md)\n- [B](b.md)\n  - [B again](b.md)\n";
    let wrong = not_listed_once(summary, &["a.md", "b.md", "c.md"]);
    assert_eq!(wrong, ["b.md is listed 2 times", "c.md is listed 0 times"]);
}
