//! The rooms of a module: a folder uses those below it, and a type's methods stand in its folder.
//!
//! A folder stands directly in a module: a directory with the file of its name, or a file alone. Two folders of a module do not
//! use each other. The source text does not say to which file a call of a method leads. So methods stand in the folder of their
//! type: code that uses them has named that type, or something that holds it. The head of a module lists its folders in the
//! same rows.
//!
//! `Group` is the one type whose methods stand in several folders of its module: in files that stand directly in
//! `consensus/group`. There a call of one of its methods counts as a use of the folder that has the method. The directories in
//! `consensus/group` have types of their own.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    files::{File, assert_none, files},
    rust::{functions_named, inherent_methods, methods_called, tokens, without_tests},
    uses::Package,
};

/// A module, and its folders in rows from the top down.
type Rows = (&'static str, &'static [&'static [&'static str]]);

/// The modules whose folders have an order. A folder may use those in the rows below its own. It may not use folders in its own
/// row. `consensus/group` is one of them, because most files of consensus are in it.
const ORDERED: [Rows; 6] = [
    (
        "server",
        &[
            &["http", "peer"],
            &["grpc"],
            &["metadata", "resp"],
            &["metrics", "otlp"],
            &["foreign_page"],
            &["connections"],
            &["tls"],
            &["header_values", "rare_warning", "trace_headers", "written"],
        ],
    ),
    (
        "node",
        &[
            &["lifecycle"],
            &["ids"],
            &["known_namespaces"],
            &["operations"],
            &["status", "namespaces", "handover", "numbers"],
            &["grants"],
            &["leader_ids", "members", "admission"],
            &["requests"],
            &["way"],
            &["terms", "access"],
            &["common", "formats", "wall_clock"],
            &["slow_calls", "request_memory", "seams"],
            &["traces", "callers", "start_error"],
            &["config"],
            &["settings"],
            &["stopping", "text_table", "told_call", "line_rate"],
        ],
    ),
    (
        "allocator",
        &[
            &["listing"],
            &["term"],
            &["record_reader", "releaser"],
            &["bumper", "checkpointer", "memory_reader", "received_memory"],
            &["memory"],
            &["shard"],
            &["part"],
            &["section"],
            &["gate", "held_numbers"],
            &[
                "backlog",
                "fence",
                "floor",
                "hot_keys",
                "key_table",
                "outcome",
                "stage",
                "unreported",
            ],
        ],
    ),
    (
        "consensus",
        &[
            &["log_limit"],
            &["group"],
            &["network", "state_machine"],
            &["lease", "terms", "this_node"],
        ],
    ),
    (
        "consensus/group",
        &[
            &["start"],
            &["election", "raft_watch", "rpc"],
            &["canvass", "transfer"],
            &["slow_disk"],
            &["confirmation", "successor", "voter_clocks", "voter_disks"],
            &["group"],
            &["membership"],
            &[
                "canvassed_term",
                "config",
                "ending",
                "heard_leader",
                "leader_change",
                "leadership",
                "principals_lag",
                "propose_error",
                "quorums",
                "replication",
                "voters",
            ],
        ],
    ),
    (
        "storage",
        &[
            &["applied", "recovery"],
            &["log", "snapshot"],
            &["table"],
            &["store"],
            &["recovery_record"],
            &["identity", "reclaimer", "writer"],
            &["database"],
            &["directory_check", "options"],
            &["data_dir", "free_space", "unwritten"],
            &["codec", "directories", "raft_types", "spare", "unknown_format"],
            &["blocking", "error", "layout", "raft_runtime"],
        ],
    ),
];

/// The first name of a file in a module of `src`; none if it is the module's own file, or of another module.
fn folder_in<'a>(module: &str, path: &'a str) -> Option<&'a str> {
    let inside = path.strip_prefix("src/")?.strip_prefix(module)?.strip_prefix('/')?;
    let first = inside.strip_suffix(".rs")?.split('/').next()?;
    (first != "mod").then_some(first)
}

/// The folder of a file in `src`, as `module/folder`, or the module alone for its own file. The files that stand directly in
/// `consensus/group` are of one folder, and each directory there is one.
fn folder(path: &str) -> Option<String> {
    let inside = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let of_group = inside.strip_prefix("consensus/group/").and_then(|rest| rest.split_once('/'));
    if let Some((directory, _)) = of_group {
        return Some(format!("consensus/group/{directory}"));
    }
    let module = inside.split('/').next()?;
    let folder = folder_in(module, path).map(|folder| format!("{module}/{folder}"));
    Some(folder.unwrap_or_else(|| module.to_owned()))
}

/// Which files use one of a folder of their module that does not stand below their own, as `from -> to`.
fn forbidden_uses(package: &Package<'_>, ordered: &[Rows]) -> Vec<String> {
    let mut forbidden = Vec::new();
    for (file, used) in package.uses() {
        for used in used {
            let is_forbidden = |(module, rows): &Rows| {
                let row = |folder: &str| rows.iter().position(|row| row.contains(&folder));
                let (from, to) = (folder_in(module, file), folder_in(module, used));
                from != to && from.and_then(row) >= to.and_then(row) && to.and_then(row).is_some()
            };
            if ordered.iter().any(is_forbidden) {
                forbidden.push(format!("{file} -> {used}"));
            }
        }
    }
    forbidden
}

/// Which files of a module call a method of `of`, a type, that stands in a folder which is not below their own, as
/// `from -> to: method`.
///
/// A call is seen by its words alone: `self.method(`, and `group.method(` if the type is `Group`, on one variable or as the
/// last field of several; `Self::method` and `Group::method` as well. A call on a variable of another name is not seen. A type
/// has one method of a name, so that the method's file is certain. If another type in the module has a method of the same name
/// and calls it on `self`, the call is taken for one of `of`: then one of the two methods needs another name.
fn forbidden_calls(files: &[File], (module, rows): &Rows, of: &str) -> Vec<String> {
    let variable = of.to_lowercase();
    let inside: Vec<(&str, &str, Vec<&str>)> = files
        .iter()
        .filter(|file| !file.is_test())
        .filter_map(|file| {
            let folder = folder_in(module, &file.path)?;
            Some((file.path.as_str(), folder, without_tests(&tokens(&file.text))))
        })
        .collect();
    let mut stands_in: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for (path, folder, tokens) in &inside {
        for method in inherent_methods(tokens, of) {
            stands_in.insert(method, (*path, *folder));
        }
    }
    let row = |folder: &str| rows.iter().position(|row| row.contains(&folder));
    let mut forbidden = Vec::new();
    for (path, folder, tokens) in &inside {
        let mut called = methods_called(tokens, &["self", variable.as_str()]);
        called.extend(functions_named(tokens, &["Self", of]));
        for method in called {
            if let Some((to_path, to)) = stands_in.get(method)
                && to != folder
                && row(folder) >= row(to)
            {
                forbidden.push(format!("{path} -> {to_path}: {method}"));
            }
        }
    }
    forbidden
}

/// The rows of folders in the head of a module's file: the names in the list behind the line that announces it.
fn rows_in_head(text: &str) -> Vec<Vec<&str>> {
    let mut rows = vec![Vec::new()];
    let head = text.lines().map_while(|line| line.strip_prefix("//!"));
    for line in head.skip_while(|line| !line.ends_with("a blank line between two rows:")).skip(1) {
        if let Some(item) = line.strip_prefix(" * ") {
            let name = item.split('`').nth(1).unwrap_or_default();
            rows.last_mut().expect("a row").push(name);
        } else if line.is_empty() {
            rows.push(Vec::new());
        } else if !line.starts_with("   ") {
            // The list is at its end. A line that goes on with an item begins with blanks.
            break;
        }
    }
    rows.retain(|row| !row.is_empty());
    rows
}

/// The types whose inherent methods stand outside of their folders, and where.
fn strayed_methods(package: &Package<'_>) -> Vec<String> {
    let mut strayed = Vec::new();
    for source in &package.sources {
        let Some(mine) = folder(source.path) else {
            continue;
        };
        for name in &source.inherent_impls {
            let defined = package.file_that_defines(source, name);
            let theirs = defined.and_then(folder);
            if theirs.as_ref() != Some(&mine) {
                let theirs = theirs.as_deref().unwrap_or("no file that is known");
                let name = name.join("::");
                strayed.push(format!("{}: {name} is defined in {theirs}", source.path));
            }
        }
    }
    strayed
}

fn of_the_node(check: impl FnOnce(&Package<'_>) -> Vec<String>) -> Vec<String> {
    let files = files("src", "rs");
    check(&Package::new(&files, "ratchet"))
}

#[test]
fn folders_use_only_those_below_them_in_their_module() {
    let violations = of_the_node(|package| forbidden_uses(package, &ORDERED));
    assert_none("folders use those above or beside them (see ORDERED)", &violations);
}

#[test]
fn files_call_only_methods_of_the_group_that_stand_below_them() {
    let ordered = &ORDERED;
    let rows = ordered.iter().find(|(module, _)| *module == "consensus/group");
    let rows = rows.expect("the rows of consensus/group");
    let violations = forbidden_calls(&files("src", "rs"), rows, "Group");
    assert_none("methods of Group above or beside are called (see ORDERED)", &violations);
}

#[test]
fn methods_stand_in_the_folder_of_their_type() {
    let violations = of_the_node(strayed_methods);
    assert_none("types have methods outside of their folders", &violations);
}

#[test]
fn every_folder_of_an_ordered_module_has_a_place() {
    let files = files("src", "rs");
    let files: Vec<&File> = files.iter().filter(|file| !file.is_test()).collect();
    for (module, rows) in ORDERED {
        let there: BTreeSet<&str> =
            files.iter().filter_map(|file| folder_in(module, &file.path)).collect();
        let all: Vec<&str> = rows.concat();
        let placed: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(placed.len(), all.len(), "a folder of {module} has two places");
        assert_eq!(placed, there, "the folders of {module}: those with a place, and those there");
    }
}

#[test]
fn the_head_of_an_ordered_module_lists_its_folders_in_their_rows() {
    let files = files("src", "rs");
    for (module, rows) in ORDERED {
        let path = format!("src/{module}/mod.rs");
        let head = files.iter().find(|file| file.path == path);
        let head = head.map_or("", |file| file.text.as_str());
        assert_eq!(rows_in_head(head), rows, "the rows in the head of {path}, and in ORDERED");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [Rows; 1] = [("house", &[&["roof"], &["floor", "garden"], &["cellar"]])];

    fn with_package<T>(texts: &[(&str, &str)], look: impl FnOnce(&Package<'_>) -> T) -> T {
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        look(&Package::new(&files, "ratchet"))
    }

    #[test]
    fn a_use_of_a_folder_above_or_beside_is_found_also_through_a_re_export_and_by_a_file_within() {
        let texts = [
            ("src/house/mod.rs", "mod roof; mod floor; mod cellar; pub use roof::tiles::Tile;"),
            ("src/house/roof.rs", "pub mod tiles; use super::floor::Floor;"),
            ("src/house/roof/tiles.rs", "pub struct Tile; fn f() { super::super::cellar::g(); }"),
            ("src/house/floor.rs", "pub struct Floor; mod boards;"),
            ("src/house/floor/boards.rs", "use crate::house::Tile; use super::Floor;"),
            ("src/house/garden.rs", "use super::{cellar, floor::Floor};"),
            ("src/house/cellar.rs", "#[cfg(test)] mod tests { use crate::house::Tile; }"),
            ("src/other.rs", "use crate::house::Tile;"),
        ];
        let found = with_package(&texts, |package| forbidden_uses(package, &ORDER));
        let expected = [
            "src/house/floor/boards.rs -> src/house/roof/tiles.rs",
            "src/house/garden.rs -> src/house/floor.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_call_of_a_method_that_stands_above_or_beside_is_found_on_self_and_on_the_types_variable() {
        let texts = [
            (
                "src/house/roof.rs",
                "impl House { fn leak(&self) { self.walk(); self.dig(); self.leak(); } }
                 impl Tile { fn slip(&self) {} } fn f(house: &House) { House::mow(house); }",
            ),
            ("src/house/floor.rs", "impl House { pub async fn walk<T>(&self) { self.mow(); } }"),
            (
                "src/house/garden.rs",
                "impl super::House { fn mow(&self) { self.tree.leak(); self.slip(); self.leak; } }
                 fn f(owner: &Owner) { owner.house.walk::<u8>(); } fn g(house: H) { house.dig(); }",
            ),
            ("src/house/garden/pond.rs", "impl House { fn fish(&self) { self.mow() } }"),
            (
                "src/house/cellar.rs",
                "impl House { fn dig(&self) { fn slip() {} Self::leak(self); } }
                 #[cfg(test)] mod tests { fn f() { house.leak(); } }",
            ),
            ("src/house/roof/tests.rs", "impl House { fn tree(&self) {} }"),
            ("src/other.rs", "fn f(house: &House) { house.leak(); }"),
        ];
        let texts = texts.map(|(path, text)| File::new(path, text));
        let found = forbidden_calls(&texts, &ORDER[0], "House");
        let expected = [
            "src/house/floor.rs -> src/house/garden.rs: mow",
            "src/house/garden.rs -> src/house/floor.rs: walk",
            "src/house/cellar.rs -> src/house/roof.rs: leak",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_rows_of_a_head_are_those_of_the_list_that_is_announced() {
        let text = "//! A house.\n//! * `door`: no folder.\n//!\n//! From the top down, a blank line \
                    between two rows:\n//!\n//! * [`roof`]: its\n//!   `tiles`.\n//!\n//! * `floor`: \
                    boards.\n//! * `garden`: grass.\n//!\n//! Notes:\n//! * `attic`: none.\nmod roof;\n";
        assert_eq!(rows_in_head(text), [vec!["roof"], vec!["floor", "garden"]]);
        assert_eq!(rows_in_head("//! A house.\nmod roof;\n").len(), 0);
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
        let found = with_package(&texts, strayed_methods);
        let at = |name: &str| format!("src/house/floor.rs: {name} is defined in house/roof");
        assert_eq!(found, [at("Slate"), at("roof::Beam")]);
    }

    #[test]
    fn methods_of_the_group_in_a_directory_of_its_module_are_found_and_those_in_files_are_not() {
        let texts = [
            ("src/consensus/mod.rs", "mod group;"),
            ("src/consensus/group/mod.rs", "mod group; mod start; mod rpc; pub use group::Group;"),
            ("src/consensus/group/group.rs", "pub struct Group; impl Group {}"),
            ("src/consensus/group/start.rs", "use super::group::Group; impl Group {}"),
            ("src/consensus/group/rpc/mod.rs", "mod append; pub struct RpcHandler;"),
            (
                "src/consensus/group/rpc/append.rs",
                "use super::RpcHandler; use crate::consensus::group::Group;
                 impl RpcHandler {} impl Group {}",
            ),
        ];
        let found = with_package(&texts, strayed_methods);
        let expected = "src/consensus/group/rpc/append.rs: Group is defined in consensus/group";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn methods_of_what_no_file_is_known_to_define_are_found() {
        let texts = [("src/house/roof.rs", "use elsewhere::Tile; impl Tile {}")];
        let found = with_package(&texts, strayed_methods);
        assert_eq!(found, ["src/house/roof.rs: Tile is defined in no file that is known"]);
    }
}
