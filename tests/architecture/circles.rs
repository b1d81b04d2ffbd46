//! No two files of a package use each other, directly or through others.
//!
//! A `mod.rs` that only declares and re-exports is never part of a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    files::{File, assert_none, files},
    uses::Package,
};

/// Where the sources of each package are, and the name of its library, if it has one.
const PACKAGES: [(&str, &str); 5] = [
    ("src", "ratchet"),
    ("client/src", "ratchet_client"),
    ("bench/src", ""),
    ("ids/src", "ratchet_ids"),
    ("jepsen/src", "ratchet_jepsen"),
];

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
