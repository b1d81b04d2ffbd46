//! Scripts find their checkout wherever they are called, with any variables that the caller's shell exports.

use std::{fs, process::Command};

use crate::files::{File, assert_none, files, root};

/// Where scripts are.
const FOLDERS: [&str; 6] = [".ci", "bench", "cluster", "dist", "fuzz", "jepsen"];

/// All scripts, and the one that they source.
fn scripts() -> Vec<File> {
    let paths = FOLDERS.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let paths = paths.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let files = paths.filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        (text.starts_with("#!") || name == "cluster/env").then(|| File::new(name, &text))
    });
    files.collect()
}

/// The lines that change the directory where CDPATH may lead elsewhere.
fn misled(script: &File) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_unset = false;
    for (line, text) in script.text.lines().enumerate() {
        is_unset |= text.starts_with("unset CDPATH");
        let goes = text.find("cd \"$(dirname").is_some_and(|at| {
            // CDPATH is unset in a shell of its own, or in all lines that follow.
            !is_unset && !text[..at].contains("unset CDPATH;")
        });
        if goes {
            found.push(format!("{}:{}: unset CDPATH before it", script.path, line + 1));
        }
    }
    found
}

#[test]
fn no_script_follows_cdpath() {
    let scripts = scripts();
    assert!(scripts.len() > 8, "{} scripts", scripts.len());
    let found: Vec<String> = scripts.iter().flat_map(misled).collect();
    assert_none("cd looks in CDPATH first", &found);
}

#[test]
fn workflows_name_scripts_that_there_are() {
    let workflows = files(".github/workflows", "yml");
    let words = workflows.iter().flat_map(|workflow| workflow.text.split_whitespace());
    let words = words.map(|word| {
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '.');
        word.trim_end_matches(|c: char| !c.is_alphanumeric())
    });
    let is_ours =
        |path: &&str| path.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder));
    // The files that are built are not there yet.
    let scripts: Vec<&str> =
        words.filter(is_ours).filter(|path| !path.starts_with("dist/out")).collect();
    assert!(scripts.len() > 5, "{scripts:?}");
    let missing = scripts.into_iter().filter(|path| !root().join(path).is_file());
    assert_none("workflows", &missing.map(str::to_owned).collect::<Vec<_>>());
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The strings of a list in TOML that begins with `name = [`.
fn listed<'a>(toml: &'a str, name: &str) -> Vec<&'a str> {
    let (_, list) = toml.split_once(&format!("\n{name} = [")).expect("the list");
    let (list, _) = list.split_once(']').expect("its end");
    list.split('"').skip(1).step_by(2).collect()
}

#[test]
fn dependencies_may_have_the_licences_that_the_program_may_have() {
    let (deny, about) = (read("deny.toml"), read("dist/about.toml"));
    assert!(!listed(&deny, "allow").is_empty());
    assert_eq!(listed(&deny, "allow"), listed(&about, "accepted"));
}

#[test]
fn the_notes_of_a_release_are_its_part_of_the_changelog() {
    let notes = |version: &str| {
        let run = Command::new(root().join("dist/notes")).arg(version).output().unwrap();
        (run.status.success(), String::from_utf8([run.stdout, run.stderr].concat()).unwrap())
    };
    let (is_printed, text) = notes(env!("CARGO_PKG_VERSION"));
    assert!(is_printed && text.contains("### ") && !text.contains("](docs/"), "{text}");
    let (is_printed, text) = notes("0.0.7");
    assert!(!is_printed && text.contains("no notes of 0.0.7"), "{text}");
}

#[test]
fn the_page_promises_the_libraries_that_the_packages_are_checked_for() {
    let (script, page) = (read("dist/build"), read("docs/deploy.md"));
    let max = |library: &str| {
        let set = script.lines().find_map(|line| line.strip_prefix(&format!("{library}_max=")));
        set.expect("what it may need at most").to_owned()
    };
    for promise in [format!("glibc {}", max("glibc")), format!("GLIBCXX_{}", max("glibcxx"))] {
        assert!(page.contains(&promise), "docs/deploy.md does not say {promise:?}");
    }
}

#[test]
fn a_script_that_follows_cdpath_is_found() {
    let goes = "cd \"$(dirname \"$0\")/..\"\n";
    assert_eq!(misled(&File::new("a", goes)), ["a:1: unset CDPATH before it"]);
    assert!(misled(&File::new("a", &format!("unset CDPATH # why\n{goes}"))).is_empty());
    assert!(misled(&File::new("a", &format!("root=$(unset CDPATH; {goes}"))).is_empty());
}

#[test]
fn with_cdpath_a_script_finds_its_own_checkout() {
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("cluster")).unwrap();
    // Otherwise cluster/env makes cargo compile all again.
    fs::write(elsewhere.path().join("checkout"), format!("{}\n", root().display())).unwrap();
    let told = |cdpath: bool| {
        let mut command = Command::new("bash");
        command.args(["-c", ". cluster/env && echo \"$root\" && bash cluster/rocksdb path"]);
        command.current_dir(root()).env("CARGO_TARGET_DIR", elsewhere.path());
        if cdpath {
            command.env("CDPATH", elsewhere.path());
        }
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(told(true), told(false));
}
