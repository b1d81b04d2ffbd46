//! No two files of a package use each other, directly or through others.
//!
//! A name that a `mod.rs` re-exports belongs to the file that defines it. So a `mod.rs` that only
//! declares and re-exports is never part of a circle. Unit tests may use what they test. A call of a
//! method names no file, so that the check does not see it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    files::{File, assert_none, files},
    rust::{Named, paths, tokens, without_tests},
};

/// Where the sources of each package are, and the name of its library, if it has one.
const PACKAGES: [(&str, &str); 5] = [
    ("src", "ratchet"),
    ("client/src", "ratchet_client"),
    ("bench/src", ""),
    ("ids/src", "ratchet_ids"),
    ("jepsen/src", "ratchet_jepsen"),
];

type Module<'a> = Vec<&'a str>;

struct Source<'a> {
    path: &'a str,
    module: Module<'a>,
    named: Vec<Named<'a>>,
    /// What is named other than in `pub use` and `mod`.
    names: BTreeSet<&'a str>,
}

impl Source<'_> {
    fn new(file: &File) -> Source<'_> {
        let (_, inside) = file.path.split_once("src/").expect("a file in src");
        let inside = inside.strip_suffix(".rs").expect("a Rust file");
        let mut module: Module = inside.split('/').collect();
        if let ["lib" | "main"] | [.., "mod"] = module[..] {
            module.pop();
        }
        let tokens = without_tests(&tokens(&file.text));
        let named = paths(&tokens);
        Source { path: &file.path, module, names: names(&tokens), named }
    }
}

/// The words of a file, but for those in `pub use` and after `mod` and `.`.
fn names<'a>(tokens: &[&'a str]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut in_re_export = false;
    let mut last = [""; 2];
    for token in tokens {
        let before = last[1];
        match *token {
            "use" if before == "pub" || (before == ")" && last[0] != "(") => in_re_export = true,
            ";" => in_re_export = false,
            _ if in_re_export || ["mod", "."].contains(&before) => {}
            token => drop(names.insert(token)),
        }
        last = [before, token];
    }
    names
}

/// The files of one package.
struct Package<'a> {
    library: &'a str,
    sources: Vec<Source<'a>>,
    modules: BTreeMap<Module<'a>, usize>,
}

impl<'a> Package<'a> {
    fn new(files: &'a [File], library: &'a str) -> Package<'a> {
        let files = files.iter().filter(|file| !file.is_test());
        let sources: Vec<Source> = files.map(Source::new).collect();
        let mut modules = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            // lib.rs comes before main.rs, and is the root of both.
            modules.entry(source.module.clone()).or_insert(at);
        }
        Package { library, sources, modules }
    }

    /// The file that defines what is named `segments` in the module `at`; none if it is not of this
    /// package.
    fn defines(&self, at: &[&'a str], segments: &[&'a str], steps: usize) -> Option<usize> {
        let mut at = at.to_vec();
        let mut rest = segments;
        match *rest.first()? {
            "crate" => at.clear(),
            first if first == self.library => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            first => {
                let child: Module = [&at[..], &[first]].concat();
                self.modules.get(&child)?;
                at = child;
            }
        }
        rest = &rest[1..];
        while let Some((next, after)) = rest.split_first() {
            let child: Module = [&at[..], &[*next]].concat();
            if *next == "super" {
                at.pop();
            } else if self.modules.contains_key(&child) {
                at = child;
            } else {
                break;
            }
            rest = after;
        }
        let file = self.file_of(&at)?;
        let Some(name) = rest.first().filter(|name| **name != "*") else {
            return Some(file);
        };
        let source = &self.sources[file];
        let imported = source
            .named
            .iter()
            .find(|named| named.known_as == Some(name) && named.inside.is_empty());
        match imported {
            Some(imported) if steps > 0 => {
                self.defines(&source.module, &imported.segments, steps - 1)
            }
            Some(_) => None,
            None => Some(file),
        }
    }

    /// The file that a module is in: its own, or that of the module around it.
    fn file_of(&self, module: &[&'a str]) -> Option<usize> {
        (0..=module.len()).rev().find_map(|length| self.modules.get(&module[..length])).copied()
    }

    /// Which file uses which others.
    fn uses(&self) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for source in &self.sources {
            for named in &source.named {
                let only_re_exports = named.re_exports
                    && named.known_as.is_none_or(|name| !source.names.contains(name));
                let at: Module = [&source.module[..], &named.inside[..]].concat();
                let used = self.defines(&at, &named.segments, 8);
                if let Some(used) = used.map(|used| self.sources[used].path)
                    && used != source.path
                    && !only_re_exports
                {
                    uses.entry(source.path).or_default().insert(used);
                }
            }
        }
        uses
    }
}

/// The shortest way from one file to another.
fn way<'a>(
    uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str, to: &str,
) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(from, None)]);
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        if at == to {
            let mut way: Vec<&str> = std::iter::successors(Some(at), |at| came_from[at]).collect();
            way.reverse();
            return Some(way);
        }
        for used in uses.get(at).into_iter().flatten() {
            if !came_from.contains_key(used) {
                came_from.insert(used, Some(at));
                next.push_back(used);
            }
        }
    }
    None
}

/// The shortest circle through each use that is part of one, as `a -> b -> a`.
fn circles(package: &Package<'_>) -> BTreeSet<String> {
    let uses = package.uses();
    let mut circles = BTreeSet::new();
    for (file, used) in &uses {
        for used in used {
            if let Some(mut circle) = way(&uses, used, file) {
                let first = (0..circle.len()).min_by_key(|at| circle[*at]).unwrap_or(0);
                circle.rotate_left(first);
                circle.push(circle[0]);
                circles.insert(circle.join(" -> "));
            }
        }
    }
    circles
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut found = BTreeSet::new();
    for (dir, library) in PACKAGES {
        let files = files(dir, "rs");
        let package = Package::new(&files, library);
        let uses: usize = package.uses().values().map(BTreeSet::len).sum();
        assert!(uses >= files.len() / 2, "only {uses} uses were found in {dir}");
        found.extend(circles(&package));
    }
    let found: Vec<String> = found.into_iter().collect();
    assert_none("files use each other; move what both need to a file below them", &found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new(path, text)).collect();
        circles(&Package::new(&files, "ratchet")).into_iter().collect()
    }

    const LIB: (&str, &str) = ("src/lib.rs", "mod module;");

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let found = circles_of(&[
            LIB,
            ("src/module/mod.rs", "mod a; mod b;"),
            ("src/module/a.rs", "use super::b::B; pub struct A;"),
            ("src/module/b.rs", "pub struct B; fn f() { crate::module::a::A::new(); }"),
        ]);
        assert_eq!(found, ["src/module/a.rs -> src/module/b.rs -> src/module/a.rs"]);
    }

    #[test]
    fn a_name_that_the_module_re_exports_leads_to_the_file_that_defines_it() {
        let found = circles_of(&[
            LIB,
            ("src/module/mod.rs", "mod a; mod b; mod c; pub use {a::A, b::B}; pub use c::C as D;"),
            ("src/module/a.rs", "use super::B; pub struct A;"),
            ("src/module/b.rs", "use crate::module::D; pub struct B;"),
            ("src/module/c.rs", "use ratchet::module::{A, Unrelated}; pub struct C;"),
        ]);
        let circle = "src/module/a.rs -> src/module/b.rs -> src/module/c.rs -> src/module/a.rs";
        assert_eq!(found, [circle]);
    }

    #[test]
    fn a_child_that_uses_what_its_parent_defines_and_the_reverse_is_a_circle() {
        let parent = "mod a; pub use a::A; pub struct P; fn f(_: A) {}";
        let found = circles_of(&[
            LIB,
            ("src/module.rs", parent),
            ("src/module/a.rs", "pub struct A(super::P);"),
        ]);
        assert_eq!(found, ["src/module.rs -> src/module/a.rs -> src/module.rs"]);
    }

    #[test]
    fn a_parent_that_only_declares_and_re_exports_is_in_no_circle() {
        let parent = "mod a; pub(crate) mod b; pub use a::A; pub use b::*; pub struct P;";
        let found = circles_of(&[
            LIB,
            ("src/module/mod.rs", parent),
            ("src/module/a.rs", "use super::{P, b}; pub struct A;"),
            ("src/module/b.rs", "use super::P; pub struct B;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn unit_tests_may_use_what_they_test() {
        let found = circles_of(&[
            LIB,
            ("src/module.rs", "pub struct P; #[cfg(test)] mod tests;"),
            ("src/module/tests.rs", "use super::P;"),
            ("src/other.rs", "use crate::module::P; pub struct O;"),
            ("src/third.rs", "#[cfg(test)] mod tests { use crate::fourth::F; }"),
            ("src/fourth.rs", "use crate::third::T; pub struct F;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
