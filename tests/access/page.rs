//! docs/access.md says what each method needs, as `proto` has it.

use std::{collections::BTreeSet, path::Path};

use prost_reflect::MethodDescriptor;

use super::methods::{Needs, methods};

/// The row of a method in the page's table.
fn row(method: &MethodDescriptor) -> String {
    let Needs { verb, of, on_some, if_true, then } = Needs::of_method(method);
    let name = format!("{}.{}", method.parent_service().name(), method.name());
    let Some(verb) = verb else {
        return format!("| `{name}` | nothing | |");
    };
    let on = match (of.is_empty(), on_some) {
        (true, true) => "some namespace",
        (true, false) => "all namespaces",
        (false, _) => "the namespace",
    };
    let then = then.map(|then| format!("; with `{if_true}`: `{then}`")).unwrap_or_default();
    format!("| `{name}` | `{verb}`{then} | {on} |")
}

/// The rows of a page that are about a method.
fn rows(page: &str) -> BTreeSet<String> {
    let is_of_method = |line: &&str| {
        let name = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
        name.is_some_and(|name| name.split('.').count() == 2 && !name.contains(['/', ' ']))
    };
    page.lines().filter(is_of_method).map(str::to_owned).collect()
}

#[test]
fn docs_access_md_lists_what_each_method_needs_and_nothing_else() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access.md");
    let page = std::fs::read_to_string(page).expect("docs/access.md");
    let real: BTreeSet<String> = methods().iter().map(row).collect();
    assert!(real.len() > 30, "{} methods", real.len());
    let documented = rows(&page);
    let lacking: Vec<&String> = real.difference(&documented).collect();
    assert!(lacking.is_empty(), "docs/access.md lacks these rows:\n{lacking:#?}");
    let gone: Vec<&String> = documented.difference(&real).collect();
    assert!(gone.is_empty(), "docs/access.md has rows of what is not there: {gone:#?}");
}

#[test]
fn a_row_is_about_a_method_if_it_begins_with_a_service_and_its_method() {
    let page = "| `Ids.Next` | `next` | x |\n| `GET /a.b` | c |\n| `next` | d |\n`Ids.Next` | e\n";
    assert_eq!(rows(page), BTreeSet::from(["| `Ids.Next` | `next` | x |".to_owned()]));
}
