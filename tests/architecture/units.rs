//! Each unit of a dependency is compiled once: a script takes the units that another one has built. The harness also
//! takes the units of our own packages that the tests have built.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use crate::files::{assert_none, root};

/// The script whose build is the largest: it compiles all tests.
const LARGEST: &str = "cluster/test";
/// The scripts that build. Lints and documentation, in `.ci/run`, are units of other kinds.
const SCRIPTS: [&str; 5] =
    [LARGEST, "cluster/local", "jepsen/ci", "jepsen/kubernetes", "fuzz/build"];

/// The units that cargo compiles, by package and target, with all properties that tell two units apart.
type Units = BTreeMap<String, BTreeSet<String>>;

/// The arguments of each `cargo build` and `cargo test` in a script, as far as they decide on the units.
fn builds(script: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = script
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split_whitespace().chain(["\n"]))
        .collect();
    let mut builds = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        if pair[0] != "cargo" || !["build", "test"].contains(&pair[1]) {
            continue;
        }
        let mut build = vec![pair[1]];
        let mut last = "";
        for word in &words[at + 2..] {
            let ends = ["--", ";", "|"].contains(word) || word.starts_with(['>', '<']);
            if ends || (*word == "\n" && last != "\\") {
                break;
            }
            // Programs that a variable names have the features of the others. How messages look decides nothing.
            let is_noise = ["\n", "\\"].contains(word)
                || word.starts_with("\"$")
                || [*word, last].contains(&"--message-format");
            if !is_noise {
                build.push(word);
            }
            last = word;
        }
        builds.push(build);
    }
    builds
}

/// The packages whose units are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Dependencies,
    OurPackages,
}

/// The units that cargo would compile.
fn plan(build: &[&str], of: Of) -> Units {
    let planned = Command::new(env!("CARGO"))
        .args(build)
        .args(["-Z", "unstable-options", "--unit-graph"])
        // The plan is not a stable option. Nothing is compiled here.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let told = String::from_utf8_lossy(&planned.stderr);
    assert!(planned.status.success(), "cargo {build:?}: {told}");
    let plan: Value = serde_json::from_slice(&planned.stdout).expect("a plan in JSON");
    units(&plan, of)
}

fn units(plan: &Value, of: Of) -> Units {
    let mut units = Units::new();
    for unit in plan["units"].as_array().expect("units") {
        let package = unit["pkg_id"].as_str().expect("a package");
        if package.starts_with("path+") != (of == Of::OurPackages) {
            continue;
        }
        let mut profile = unit["profile"].clone();
        if let Some(profile) = profile.as_object_mut() {
            profile.remove("name");
        }
        let (target, mode) = (&unit["target"], &unit["mode"]);
        let target = format!("{package} {} {} {mode}", target["kind"], target["name"]);
        let differs = format!("{} {} {profile}", unit["features"], unit["platform"]);
        units.entry(target).or_default().insert(differs);
    }
    units
}

/// The units that are compiled again although `built` is there.
fn compiled_again(built: &Units, plan: &Units) -> Vec<String> {
    let mut again = Vec::new();
    for (target, kinds) in plan {
        let Some(there) = built.get(target) else {
            continue;
        };
        again.extend(kinds.difference(there).map(|kind| format!("{target}: {kind}")));
    }
    again
}

fn read(script: &str) -> String {
    std::fs::read_to_string(root().join(script)).expect("a script")
}

/// The units that the largest build compiles.
fn largest(of: Of) -> Units {
    let script = read(LARGEST);
    let builds = builds(&script);
    let compiling = builds.iter().find(|build| build.contains(&"--no-run"));
    plan(compiling.expect("the build of all tests"), of)
}

#[test]
fn no_script_compiles_a_dependency_again() {
    let built = largest(Of::Dependencies);
    assert!(built.len() > 200, "{LARGEST} compiles {}", built.len());
    for script in SCRIPTS {
        let text = read(script);
        let builds = builds(&text);
        assert!(!builds.is_empty(), "{script} builds nothing");
        for build in builds {
            let again = compiled_again(&built, &plan(&build, Of::Dependencies));
            let what = format!("{script} compiles what {LARGEST} has compiled: cargo {build:?}");
            assert_none(&what, &again);
        }
    }
}

/// Planted bugs are in each test build.
#[test]
fn the_harness_compiles_nothing_of_ours_that_the_tests_have_not() {
    let built = largest(Of::OurPackages);
    let script = read("jepsen/ci");
    let builds = builds(&script);
    assert!(!builds.is_empty(), "jepsen/ci builds nothing");
    for build in builds {
        let mut more = plan(&build, Of::OurPackages);
        more.retain(|target, kinds| built.get(target).is_none_or(|there| !kinds.is_subset(there)));
        let more: Vec<String> = more.into_keys().collect();
        assert_none(&format!("jepsen/ci compiles more than {LARGEST}: cargo {build:?}"), &more);
    }
}

#[test]
fn the_builds_of_a_script_are_found() {
    let script = "
# cargo build --not-this
A=1 cargo build --locked \\
  --bin ratchet \"${more[@]}\" --test sim
if cargo test --no-run --message-format json >\"$log\" 2>&1; then
cargo test --doc -- name
";
    let expected: [&[&str]; 3] = [
        &["build", "--locked", "--bin", "ratchet", "--test", "sim"],
        &["test", "--no-run"],
        &["test", "--doc"],
    ];
    assert_eq!(builds(script), expected);
}

#[test]
fn a_dependency_with_other_features_or_another_profile_is_compiled_again() {
    let unit = |package: &str, features: &[&str], opt_level: &str| {
        serde_json::json!({
            "pkg_id": package, "target": {"kind": ["lib"]}, "mode": "build", "features": features,
            "platform": null, "profile": {"name": "test", "opt_level": opt_level},
        })
    };
    let plan = |list: &[Value]| units(&serde_json::json!({ "units": list }), Of::Dependencies);
    let built = plan(&[unit("tokio", &["rt"], "1"), unit("path+ours", &[], "1")]);
    let again = |list: &[Value]| compiled_again(&built, &plan(list)).len();
    assert_eq!(again(&[unit("tokio", &["rt"], "1")]), 0);
    assert_eq!(again(&[unit("new", &[], "3"), unit("path+ours", &[], "3")]), 0);
    assert_eq!(again(&[unit("tokio", &["rt", "fs"], "1")]), 1);
    assert_eq!(again(&[unit("tokio", &["rt"], "0")]), 1);
}
