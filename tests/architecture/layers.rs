//! A module of the node uses those below it, never those above; libraries stay in their modules.

use crate::{
    files::{File, assert_none, files},
    rust::{paths, tokens, without_tests},
};

/// The modules, from the top down. A module may use those below it.
const HOUSE: [&str; 7] = ["cli", "server", "node", "allocator", "consensus", "storage", "sequence"];

/// Every module may use these.
const ALL_MAY_USE: [&str; 9] = [
    "clock",
    "laps",
    "metrics",
    "planted_bugs",
    "proto",
    "random",
    "tasks",
    "version",
    "ordered_watch",
];

/// Where messages and statuses of gRPC may be used.
const WIRE: [&str; 7] =
    ["metrics", "cli/flags", "server", "node", "consensus/network", "consensus/group/rpc", "proto"];

/// Crates and modules that may be used in some modules alone, and those modules: directories, or files without `.rs`.
const KEPT_IN_MODULES: [(&str, &[&str]); 8] = [
    ("openraft", &["consensus", "storage"]),
    ("rocksdb", &["storage"]),
    ("opentelemetry_proto", &["server/otlp"]),
    // The node makes ids as a client does. The client's package has the messages of the public API.
    ("ratchet_client", &["cli", "node/ids", "proto"]),
    ("crate::proto", &WIRE),
    ("prost", &WIRE),
    ("tonic_prost", &WIRE),
    // A status of gRPC is made in the interfaces alone.
    ("tonic", &["metrics", "cli/flags", "server", "proto"]),
];

/// Crates and modules that the files of some directories do not use, although the order allows it.
const UNKNOWN_TO: [(&str, &[&str]); 1] =
    // The way does not know the services that answer requests.
    [("node/way", &["crate::allocator", "ratchet_client", "ratchet_ids"])];

/// Uses of modules of this crate that do not stand below the file.
fn violations_of_layers(file: &File) -> Vec<String> {
    let place = |module: &str| HOUSE.iter().position(|r| *r == module);
    let tokens = tokens(&file.text);
    let paths = paths(&tokens);
    let used = paths.iter().filter(|path| path.segments[0] == "crate");
    let used = used.filter_map(|path| path.segments.get(1));
    let forbidden = used.filter(|used| {
        let is_below = match (place(file.module()), place(used)) {
            (Some(mine), Some(other)) => other > mine,
            (_, None) | (None, _) => false,
        };
        !is_below && **used != file.module() && !ALL_MAY_USE.contains(used)
    });
    forbidden.map(|used| format!("{} uses crate::{used}", file.path)).collect()
}

fn is_in(file: &File, module: &str) -> bool {
    let inside = file.path.strip_prefix("src/").unwrap_or(&file.path);
    let rest = inside.strip_prefix(module);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn violations_of_kept(file: &File) -> Vec<String> {
    let tokens = tokens(&file.text);
    let paths = paths(&tokens);
    let mut violations = Vec::new();
    for (kept, modules) in KEPT_IN_MODULES {
        let kept_path: Vec<&str> = kept.split("::").collect();
        let uses = paths.iter().any(|path| path.segments.starts_with(&kept_path));
        if uses && !modules.iter().any(|module| is_in(file, module)) {
            violations.push(format!("{} uses {kept}", file.path));
        }
    }
    violations
}

fn violations_of_unknown(file: &File) -> Vec<String> {
    let tokens = without_tests(&tokens(&file.text));
    let paths = paths(&tokens);
    let mut violations = Vec::new();
    for (_, unknown) in UNKNOWN_TO.iter().filter(|(directory, _)| is_in(file, directory)) {
        for name in *unknown {
            let path: Vec<&str> = name.split("::").collect();
            if paths.iter().any(|named| named.segments.starts_with(&path)) {
                violations.push(format!("{} uses {name}", file.path));
            }
        }
    }
    violations
}

#[test]
fn no_file_uses_what_its_directory_does_not_know() {
    let files = files("src", "rs");
    let violations: Vec<String> = files.iter().flat_map(violations_of_unknown).collect();
    assert_none("files use what is not for them (see UNKNOWN_TO)", &violations);
}

#[test]
fn no_module_uses_one_above_it() {
    let violations: Vec<String> =
        files("src", "rs").iter().flat_map(violations_of_layers).collect();
    assert_none("modules use those above them", &violations);
}

#[test]
fn libraries_and_wire_types_stay_in_their_modules() {
    let violations: Vec<String> = files("src", "rs").iter().flat_map(violations_of_kept).collect();
    assert_none("files use what is not for their module (see KEPT_IN_MODULES)", &violations);
}

#[test]
fn every_module_that_is_named_here_exists() {
    let files = files("src", "rs");
    let kept = KEPT_IN_MODULES.iter().flat_map(|(_, modules)| *modules);
    let knowing = UNKNOWN_TO.iter().map(|(directory, _)| directory);
    let gone: Vec<String> = (HOUSE.iter().chain(&ALL_MAY_USE).chain(kept).chain(knowing))
        .filter(|module| !files.iter().any(|file| is_in(file, module)))
        .map(|module| format!("src/{module}"))
        .collect();
    assert_none("these are not there", &gone);
}

#[test]
fn a_use_of_a_module_above_is_a_violation_in_a_group_and_in_an_expression() {
    let text = "
        use crate::{clock::Clock, node::Node, sequence::Key, storage::{Store, other}};
        fn f() { crate::allocator::g(); }
    ";
    let found = violations_of_layers(&File::new("src/storage/log.rs", text));
    assert_eq!(
        found,
        ["src/storage/log.rs uses crate::node", "src/storage/log.rs uses crate::allocator"]
    );
    let found = violations_of_layers(&File::new("src/clock.rs", "use crate::sequence::Key;"));
    assert_eq!(found, ["src/clock.rs uses crate::sequence"]);
    let found = violations_of_layers(&File::new("src/cli/start.rs", text));
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_use_of_a_library_outside_its_modules_is_a_violation() {
    let text = "
        //! About tonic::Status.
        use openraft::Vote;
        fn f() -> crate::proto::v1::Route { tonic::Status::internal(\"rocksdb::DB\") }
    ";
    let found = violations_of_kept(&File::new("src/allocator/term.rs", text));
    let uses = |what: &str| format!("src/allocator/term.rs uses {what}");
    assert_eq!(found, [uses("openraft"), uses("crate::proto"), uses("tonic")]);
    let found = violations_of_kept(&File::new("src/consensus/network.rs", text));
    assert_eq!(found, ["src/consensus/network.rs uses tonic"]);
    let found = violations_of_kept(&File::new("src/consensus/networks.rs", text));
    assert_eq!(
        found,
        ["crate::proto", "tonic"].map(|used| format!("src/consensus/networks.rs uses {used}"))
    );
}

#[test]
fn a_use_of_what_a_directory_does_not_know_is_a_violation_but_in_its_unit_tests() {
    let text = "
        use crate::{allocator::Term, clock};
        #[cfg(test)]
        mod tests { use ratchet_ids::Format; }
    ";
    let found = violations_of_unknown(&File::new("src/node/way/search.rs", text));
    assert_eq!(found, ["src/node/way/search.rs uses crate::allocator"]);
    let found = violations_of_unknown(&File::new("src/node/ways.rs", text));
    assert_eq!(found, [""; 0]);
}
