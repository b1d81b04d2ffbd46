//! The lists that stand in two places, and that the compiler does not compare: metrics and where they are counted,
//! planted bugs and what catches them, reasons and what to do about them, nemeses and their rows, settings and their
//! ranges, the ways whose instructions are counted and the counts.

use std::{collections::BTreeSet, fs, slice};

use crate::{
    files::{File, assert_none, files, root},
    rust::{tokens, without_tests},
};

/// The text in the sources below `dir` between `from` and the next `to`.
fn list(dir: &str, from: &str, to: &str) -> String {
    let sources = files(dir, "rs");
    let found = sources.iter().find_map(|file| file.text.split_once(from));
    let (_, rest) = found.unwrap_or_else(|| panic!("no file in {dir} has {from:?}"));
    rest.split_once(to).map_or(rest, |(list, _)| list).to_owned()
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The fields or variants in a list: the first word of each line that is no comment.
fn names(list: &str) -> Vec<&str> {
    let lines = list.lines().map(str::trim_start);
    let words = lines.map(|line| line.split([':', ',', '(']).next().unwrap_or_default());
    words.filter(|word| word.starts_with(char::is_alphabetic)).collect()
}

/// The name of a variant on a command line.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The metrics that no source uses.
fn uncounted(metrics: &[&str], sources: &[File]) -> Vec<String> {
    let mut used = BTreeSet::new();
    for file in sources {
        let all = tokens(&file.text);
        let kept = without_tests(&all);
        for at in 2..kept.len() {
            let before = match kept[at - 2] {
                ")" if at >= 4 => kept[at - 4],
                one => one,
            };
            let is_of_metrics = ["metrics", "set_metrics"].contains(&before)
                || (before == "self" && file.module() == "metrics");
            if kept[at - 1] == "." && is_of_metrics {
                used.insert(kept[at].to_owned());
            }
        }
    }
    let uncounted = metrics.iter().filter(|metric| !used.contains(**metric));
    uncounted.map(|metric| format!("{metric} is not counted")).collect()
}

#[test]
fn every_metric_is_counted() {
    let of_node = list("src", " in \"ratchet\", with BySet of SetMetrics {", "\n    }\n");
    let of_set = list("src", "    SetMetrics {", "\n    }\n");
    let mut metrics = [names(&of_node), names(&of_set)].concat();
    // Its value is set from the start.
    metrics.retain(|metric| *metric != "build");
    assert!(
        names(&of_set).len() > 30 && metrics.len() > 50,
        "only {} metrics were found",
        metrics.len()
    );
    let mut sources = files("src", "rs");
    sources.retain(|file| !file.is_test());
    assert_none("metrics that nobody counts", &uncounted(&metrics, &sources));
}

/// The names in the first column of the tables of a page, in backticks.
fn rows(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| `"));
    lines.filter_map(|line| line.split('`').next()).collect()
}

#[test]
fn the_page_about_reasons_has_a_row_for_each() {
    let (page, proto) = (page("docs/reasons.md"), page("proto/ratchet/v1/error.proto"));
    let reasons = proto.lines().filter_map(|line| line.trim().strip_prefix("REASON_"));
    let reasons: BTreeSet<&str> = reasons.filter_map(|line| line.split(' ').next()).collect();
    assert!(reasons.len() > 30, "only {} reasons were found", reasons.len());
    assert_eq!(rows(&page), reasons);
}

/// The bugs that have no name, are planted nowhere, or that one of the `lists` does not name.
fn uncaught(bugs: &[&str], named: &str, sources: &[File], lists: &[(&str, &str)]) -> Vec<String> {
    let mut planted = BTreeSet::new();
    for file in sources {
        for five in tokens(&file.text).windows(5) {
            if five[..4] == ["is_planted", "(", "Bug", "::"] {
                planted.insert(five[4].to_owned());
            }
        }
    }
    let mut wrong = Vec::new();
    for bug in bugs {
        let name = kebab(bug);
        if !named.contains(&format!("(\"{name}\", Bug::{bug})")) {
            wrong.push(format!("{bug} has no name in NAMES"));
        }
        if !planted.contains(*bug) {
            wrong.push(format!("{bug} is planted nowhere"));
        }
        let is_letter = |c: char| c.is_alphanumeric() || c == '-';
        for (list, text) in lists {
            if !text.split(|c: char| !is_letter(c)).any(|word| word == name) {
                wrong.push(format!("{name} is not in {list}"));
            }
        }
    }
    wrong
}

#[test]
fn every_planted_bug_has_a_name_and_is_planted_and_caught() {
    let declared = list("src", "pub enum Bug {", "\n}");
    let bugs = names(&declared);
    assert!(bugs.len() > 30, "only {} bugs were found", bugs.len());
    let named = list("src", "const NAMES: [(&str, Bug)", "];\n");
    let controls = list("jepsen/src", "const CONTROLS: &[Control] = &[", "\n];");
    let caught = format!("{controls} {}", page("jepsen/ci"));
    let told = page("jepsen/README.md");
    let lists = [("CONTROLS or jepsen/ci", &*caught), ("jepsen/README.md", &*told)];
    let wrong = uncaught(&bugs, &named, &files("src", "rs"), &lists);
    assert_none("planted bugs that cannot be noticed", &wrong);
}

/// The nemeses without a row in a table.
fn without_row(nemeses: &[&str], page: &str) -> Vec<String> {
    let has_row = |name: &str| {
        let begins = [format!("| {name} |"), format!("| {name}, ")];
        page.lines().any(|line| begins.iter().any(|begin| line.starts_with(begin)))
    };
    let names = nemeses.iter().map(|nemesis| kebab(nemesis));
    names.filter(|name| !has_row(name)).collect()
}

#[test]
fn every_nemesis_has_a_row() {
    let declared = list("jepsen/src", "pub enum Nemesis {", "\n}");
    let nemeses = names(&declared);
    assert!(nemeses.len() > 30, "only {} nemeses were found", nemeses.len());
    let missing = without_row(&nemeses, &page("jepsen/README.md"));
    assert_none("jepsen/README.md has no row of", &missing);
}

/// The settings that are numbers and have no range.
fn unbounded(settings: &str) -> Vec<String> {
    let all = tokens(settings);
    let mut unbounded = Vec::new();
    for entry in all.split(|token| *token == ";") {
        let Some(at) = entry.iter().position(|token| *token == "as") else {
            continue;
        };
        let (declared, given) = entry.split_at(at);
        let is_number = given.len() > 1 && ["u64", "NodeId"].contains(&given[1]);
        let has_range = given.windows(3).any(|three| three == [".", ".", "="]);
        if is_number && !has_range {
            let colon = declared.iter().position(|token| *token == ":").unwrap_or(0);
            unbounded.push(declared[colon.saturating_sub(1)].to_owned());
        }
    }
    unbounded
}

#[test]
fn every_setting_that_is_a_number_has_a_range() {
    let settings = list("src", "$with! {", "\n        }\n");
    assert!(tokens(&settings).contains(&"lease_ms"), "the settings were not found");
    assert_none("settings without a range", &unbounded(&settings));
}

/// The ways to a number in the list of ways that `bench/instructions` counts.
fn ways(list: &str) -> BTreeSet<&str> {
    let counted = list.lines().filter_map(|line| line.trim().strip_prefix("counted_"));
    counted.filter_map(|line| line.split_once(" is ")).map(|(name, _)| name).collect()
}

/// The ways whose counts are written down.
fn written_down(counts: &str) -> BTreeSet<&str> {
    let lines = counts.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect()
}

#[test]
fn each_way_whose_instructions_are_counted_has_a_count() {
    let declared = list("benches/instructions", "counted! {", "\n}");
    let counted = ways(&declared);
    assert!(counted.len() > 5, "only {} ways were found", counted.len());
    let (counts, told) = (page("bench/instructions.txt"), page("docs/performance.md"));
    let what =
        "bench/instructions.txt has other ways than are counted: run bench/instructions --write";
    assert_eq!(written_down(&counts), counted, "{what}");
    let unnamed = counted.iter().filter(|way| !told.contains(&format!("`{way}`")));
    let unnamed: Vec<String> = unnamed.map(|way| (*way).to_owned()).collect();
    assert_none("docs/performance.md does not say what these count", &unnamed);
}

#[test]
fn ways_and_counts_are_read_as_they_are_written() {
    let declared = "\n    counted_unary is unary;\n    counted_first_touch is unary_of_each;";
    assert_eq!(ways(declared), BTreeSet::from(["first_touch", "unary"]));
    let counts = "# Instructions of a call.\n# rustc 1.95.0\nunary 26515\nfirst_touch 30328\n";
    assert_eq!(written_down(counts), ways(declared));
}

#[test]
fn a_metric_that_is_not_counted_is_found() {
    let declared =
        "\n    /// Some: help.\n    a: Counter,\n    b: By<X, Y>,\n\n    c: Gauge,\n    d: Gauge,";
    let metrics = names(declared);
    assert_eq!(metrics, ["a", "b", "c", "d"]);
    let used = "fn f() { x.metrics.a.inc(); set_metrics().b.set(1); x.c.inc(); }
        #[cfg(test)]
        mod tests { fn f() { metrics.d.inc(); } }";
    let own = File::new("src/metrics/mod.rs", "fn f(&self) { self.d.get(); }");
    let other = File::new("src/node/a.rs", used);
    assert_eq!(
        uncounted(&metrics, slice::from_ref(&other)),
        ["c is not counted", "d is not counted"]
    );
    assert_eq!(uncounted(&metrics, &[other, own]), ["c is not counted"]);
}

#[test]
fn a_bug_without_a_name_or_a_place_or_a_control_is_found() {
    let named = "(\"no-fence\", Bug::NoFence), (\"not-synced\", Bug::NotSynced),";
    let source =
        File::new("src/a.rs", "if is_planted(Bug::NoFence) || is_planted(Bug::Unnamed) {}");
    let caught = "bug: \"no-fence-at-all\", for bug in not-synced unnamed; do";
    let lists = [("the runs", caught)];
    let wrong = uncaught(&["NoFence", "NotSynced", "Unnamed"], named, &[source], &lists);
    let expected = [
        "no-fence is not in the runs",
        "NotSynced is planted nowhere",
        "Unnamed has no name in NAMES",
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn a_nemesis_without_a_row_is_found() {
    let page = "| kill-one | lease |\n| wall-clock, ids | lease |\nkill-all is not a row\n";
    let missing = without_row(&["KillOne", "WallClock", "Kill", "KillAll"], page);
    assert_eq!(missing, ["kill", "kill-all"]);
}

#[test]
fn a_number_without_a_range_is_found() {
    let settings = r#"
        /// Help; more [default: 1]
        "A" [num_args = 0..=1] => a: u64 as u64 = 1 << 3;
        /// Help
        "B" [] => b: NodeId as NodeId = 1, 1..=u64::MAX;
        "C" [] => c: std::path::PathBuf as PathBuf = here();
    "#;
    assert_eq!(unbounded(settings), ["a"]);
}
