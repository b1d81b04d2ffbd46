//! The rooms of a module: a folder uses those below it, and a type's methods stand in its folder.
//!
//! A folder is what stands directly in a module: a directory with the file of its name, or a file alone. Where a use of a
//! method leads to, the source text does not say. So methods stand in the folder of their type: whoever uses them has
//! named that type, or something that holds it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    files::{File, assert_none, files},
    uses::Package,
};

/// The folders of modules that have an order, from the top down. A folder may use those that stand below it.
const ORDERED: [(&str, &[&str]); 1] = [(
    "node",
    &[
        "lifecycle",
        "ids",
        "known_namespaces",
        "operations",
        "status",
        "namespaces",
        "numbers",
        "handover",
        "leases",
        "members",
        "grants",
        "admission",
        "requests",
        "way",
        "terms",
        "access",
        "formats",
        "common",
        "slow_calls",
        "traces",
        "request_memory",
        "callers",
        "stopping",
        "seams",
        "start_error",
        "config",
        "settings",
        "text_table",
        "told_call",
        "line_rate",
    ],
)];

/// Types with methods outside of their folders, and the folders where these are. They are to go.
const METHODS_ELSEWHERE: &[(&str, &str)] = &[("Services", "server"), ("Services", "server/peer")];

/// The folder of a file in `src`: the module and the first name in it, or the module alone for its own file.
fn folder(path: &str) -> Option<String> {
    let inside = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut names = inside.split('/');
    match (names.next()?, names.next()) {
        (module, None | Some("mod")) => Some(module.to_owned()),
        (module, Some(first)) => Some(format!("{module}/{first}")),
    }
}

/// The place of a folder among those of its module that have an order.
fn place<'a>(folder: &'a str, ordered: &[(&str, &[&str])]) -> Option<(&'a str, usize)> {
    let (module, name) = folder.split_once('/')?;
    let (_, names) = ordered.iter().find(|(ordered, _)| *ordered == module)?;
    Some((module, names.iter().position(|known| *known == name)?))
}

/// Which folder uses which one above it, and in which files, as `from -> to`.
fn upward_uses(
    package: &Package<'_>, ordered: &[(&str, &[&str])],
) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut upwards: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (file, used) in package.uses() {
        for used in used {
            let (Some(from), Some(to)) = (folder(file), folder(used)) else {
                continue;
            };
            if let Some((module, mine)) = place(&from, ordered)
                && let Some((other_module, other)) = place(&to, ordered)
                && module == other_module
                && other < mine
            {
                upwards.entry((from, to)).or_default().insert(format!("{file} -> {used}"));
            }
        }
    }
    upwards
}

/// A type whose methods stand in another folder: `Type`, the folder of its methods, and the file.
type Strayed = BTreeMap<(String, String), BTreeSet<String>>;

/// The types whose inherent methods stand outside of their folders.
fn strayed_methods(package: &Package<'_>) -> Strayed {
    let mut strayed = Strayed::new();
    for source in &package.sources {
        let Some(mine) = folder(source.path) else {
            continue;
        };
        for name in &source.inherent_impls {
            let defined = package.file_that_defines(source, name);
            let theirs = defined.and_then(folder);
            if theirs.as_ref() != Some(&mine) {
                let theirs = theirs.as_deref().unwrap_or("no file that is known");
                let at = format!("{}: {} is defined in {theirs}", source.path, name.join("::"));
                let name = name.last().copied().unwrap_or_default().to_owned();
                strayed.entry((name, mine.clone())).or_default().insert(at);
            }
        }
    }
    strayed
}

/// What is found and no exception, with where it is, and exceptions that nothing needs.
fn beside(
    found: &BTreeMap<(String, String), BTreeSet<String>>, exceptions: &[(&str, &str)],
) -> Vec<String> {
    let is_known = |one: &(String, String)| exceptions.contains(&(one.0.as_str(), one.1.as_str()));
    let new = found.iter().filter(|(one, _)| !is_known(one));
    let new = new.flat_map(|(_, places)| places.iter().cloned());
    let needed =
        |(from, to): &&(&str, &str)| found.contains_key(&((*from).to_owned(), (*to).to_owned()));
    let needless = exceptions.iter().filter(|exception| !needed(exception));
    let needless = needless.map(|(from, to)| format!("no exception is needed for {from}, {to}"));
    new.chain(needless).collect()
}

fn of_the_node(check: impl FnOnce(&Package<'_>) -> Vec<String>) -> Vec<String> {
    let files = files("src", "rs");
    check(&Package::new(&files, "ratchet"))
}

#[test]
fn no_folder_uses_one_above_it() {
    let violations = of_the_node(|package| beside(&upward_uses(package, &ORDERED), &[]));
    assert_none("folders use those above them (see ORDERED)", &violations);
}

#[test]
fn methods_stand_in_the_folder_of_their_type() {
    let violations = of_the_node(|package| beside(&strayed_methods(package), METHODS_ELSEWHERE));
    assert_none("types have methods outside of their folders", &violations);
}

#[test]
fn every_folder_of_an_ordered_module_has_a_place() {
    let files = files("src", "rs");
    let there: BTreeSet<String> = files.iter().filter_map(|file| folder(&file.path)).collect();
    for (module, names) in ORDERED {
        let there = there.iter().filter_map(|folder| folder.strip_prefix(&format!("{module}/")));
        let there: BTreeSet<&str> = there.collect();
        let placed: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(placed.len(), names.len(), "a folder of {module} has two places");
        assert_eq!(placed, there, "the folders of {module}: those with a place, and those there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [(&str, &[&str]); 1] = [("house", &["roof", "floor", "cellar"])];

    fn with_package<T>(texts: &[(&str, &str)], look: impl FnOnce(&Package<'_>) -> T) -> T {
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        look(&Package::new(&files, "ratchet"))
    }

    #[test]
    fn a_use_of_a_folder_above_is_found_also_through_a_re_export_and_by_a_file_within() {
        let texts = [
            ("src/house/mod.rs", "mod roof; mod floor; mod cellar; pub use roof::tiles::Tile;"),
            ("src/house/roof.rs", "pub mod tiles; use super::floor::Floor;"),
            ("src/house/roof/tiles.rs", "pub struct Tile; fn f() { super::super::cellar::g(); }"),
            ("src/house/floor.rs", "pub struct Floor; mod boards;"),
            ("src/house/floor/boards.rs", "use crate::house::Tile; use super::Floor;"),
            ("src/house/cellar.rs", "#[cfg(test)] mod tests { use crate::house::Tile; }"),
            ("src/other.rs", "use crate::house::Tile;"),
        ];
        let found = with_package(&texts, |package| beside(&upward_uses(package, &ORDER), &[]));
        assert_eq!(found, ["src/house/floor/boards.rs -> src/house/roof/tiles.rs"]);
        let exceptions = [("house/floor", "house/roof"), ("house/cellar", "house/floor")];
        let found =
            with_package(&texts, |package| beside(&upward_uses(package, &ORDER), &exceptions));
        assert_eq!(found, ["no exception is needed for house/cellar, house/floor"]);
    }

    #[test]
    fn methods_in_another_folder_are_found_and_traits_and_those_beside_the_type_are_not() {
        let texts = [
            ("src/house/mod.rs", "mod roof; mod floor; pub use roof::Tile as Slate;"),
            (
                "src/house/roof.rs",
                "pub struct Tile<T>(T); pub struct Beam; mod beams; impl<T: Fn() -> u8> Tile<T> {}
                 fn f() -> impl Sized { } fn g(_: impl Fn(&Beam)) {}",
            ),
            ("src/house/roof/beams.rs", "use super::Beam; impl Beam {} impl super::Beam {}"),
            (
                "src/house/floor.rs",
                "use super::Slate; use std::fmt::Display; use crate::house::roof;
                 impl<T> Display for Slate<T> {} impl<'a, T> Slate<T> where T: Sized {}
                 unsafe impl Send for roof::Beam {} #[inline] impl roof::Beam {}",
            ),
        ];
        let found = with_package(&texts, |package| beside(&strayed_methods(package), &[]));
        let at = |name: &str| format!("src/house/floor.rs: {name} is defined in house/roof");
        assert_eq!(found, [at("roof::Beam"), at("Slate")]);
        let exceptions =
            [("Beam", "house/floor"), ("Slate", "house/floor"), ("Tile", "house/roof")];
        let found = with_package(&texts, |package| beside(&strayed_methods(package), &exceptions));
        assert_eq!(found, ["no exception is needed for Tile, house/roof"]);
    }

    #[test]
    fn methods_of_what_no_file_is_known_to_define_are_found() {
        let texts = [("src/house/roof.rs", "use elsewhere::Tile; impl Tile {}")];
        let found = with_package(&texts, |package| beside(&strayed_methods(package), &[]));
        assert_eq!(found, ["src/house/roof.rs: Tile is defined in no file that is known"]);
    }
}
