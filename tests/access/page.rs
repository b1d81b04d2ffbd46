//! docs/access.md says the needs of each method, as `proto` has them, and each command of Redis, as it is tried; docs/http.md
//! and docs/redis.md have all routes and commands.

use std::{collections::BTreeSet, path::Path};

use prost_reflect::MethodDescriptor;

use super::methods::{COMMANDS, FOR_ANYBODY, Needs, methods, over_http};

/// The text of a file of this package.
fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// The parts of a text in backquotes.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

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
    let page = text("docs/access.md");
    let real: BTreeSet<String> = methods().iter().map(row).collect();
    assert!(real.len() > 30, "{} methods", real.len());
    let documented = rows(&page);
    let lacking: Vec<&String> = real.difference(&documented).collect();
    assert!(lacking.is_empty(), "docs/access.md lacks these rows:\n{lacking:#?}");
    let gone: Vec<&String> = documented.difference(&real).collect();
    assert!(gone.is_empty(), "docs/access.md has rows of what is not there: {gone:#?}");
}

/// The routes in the first cells of a page's rows, without the part from a question mark on.
fn routes(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let routes = cells.flat_map(spans).filter(|span| {
        let word = span.split(' ').next().unwrap_or_default();
        ["GET", "POST", "PATCH", "DELETE"].contains(&word) && span.contains(" /")
    });
    routes.map(|route| route.split('?').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn docs_http_md_lists_the_routes_of_all_methods_and_each_page_stands_there_or_in_docs_access_md() {
    let documented = routes(&text("docs/http.md"));
    let of_methods: BTreeSet<String> = methods()
        .iter()
        .filter_map(over_http)
        .map(|(verb, path)| format!("{verb} {path}"))
        .collect();
    assert!(of_methods.len() > 30, "{} routes", of_methods.len());
    let lacking: Vec<_> = of_methods.difference(&documented).collect();
    assert!(lacking.is_empty(), "docs/http.md lacks these rows: {lacking:#?}");
    // A path of no method has its route in the code, and a probe its name.
    let code = text("src/server/http.rs");
    let routed = code.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let pages: BTreeSet<&str> = routed.chain(["/livez", "/readyz"]).collect();
    assert!(pages.len() > 5, "{pages:?}");
    let is_page = |route: &&String| pages.contains(route.split(' ').nth(1).unwrap_or_default());
    let gone: Vec<_> = documented.difference(&of_methods).filter(|route| !is_page(route)).collect();
    assert!(gone.is_empty(), "docs/http.md has rows of what is not there: {gone:#?}");
    let told = text("docs/http.md") + &text("docs/access.md");
    let told = told.lines().flat_map(spans).flat_map(|span| span.split([' ', '?']));
    let told: BTreeSet<&str> = told.collect();
    let untold: Vec<_> = pages.difference(&told).collect();
    assert!(untold.is_empty(), "no page tells of {untold:?}");
}

/// The commands of Redis for which a verb is needed on the namespace of the key, as a row names them.
fn commands(verb: &str) -> BTreeSet<&'static str> {
    let commands = COMMANDS.iter().filter(|(_, needs)| *needs == Some(verb));
    let named = commands.map(|(command, _)| match command.ends_with(" 0") {
        true => "INCRBY key 0",
        false => command.split(' ').next().unwrap_or_default(),
    });
    named.collect()
}

#[test]
fn docs_access_md_lists_what_each_command_of_redis_needs() {
    let page = text("docs/access.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| Redis: `"));
    let mut seen = BTreeSet::new();
    for row in rows {
        let row = format!("`{row}");
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells[2], "the namespace |", "{row}");
        let verb = spans(cells[1]).next().expect("a verb");
        assert_eq!(spans(cells[0]).collect::<BTreeSet<_>>(), commands(verb), "{row}");
        assert!(seen.insert(verb.to_owned()), "{verb} has two rows");
    }
    let needed = COMMANDS.iter().filter_map(|(_, verb)| verb.map(str::to_owned));
    assert_eq!(seen, needed.collect(), "a verb without a row");
    let (_, anybody) = page.split_once("Anybody may send ").expect("what anybody may send");
    let anybody = anybody.split(". ").next().unwrap_or_default();
    let anybody = anybody.split(".\n").next().unwrap_or_default();
    let known = FOR_ANYBODY.iter().filter_map(|command| command.split(' ').next());
    assert_eq!(spans(anybody).collect::<BTreeSet<_>>(), known.collect(), "{anybody}");
}

#[test]
fn docs_redis_md_lists_all_commands_and_nothing_else() {
    let page = text("docs/redis.md");
    let (_, table) =
        page.split_once("| command | what it does |\n| --- | --- |\n").expect("a table");
    let table = table.split("\n\n").next().unwrap_or_default();
    let word = |span: &'static str| span.split(' ').next().unwrap_or_default();
    let commands = COMMANDS.iter().map(|(command, _)| *command).chain(FOR_ANYBODY.iter().copied());
    let known: BTreeSet<&str> = commands.map(word).collect();
    let told: BTreeSet<&str> = spans(table).filter_map(|span| span.split(' ').next()).collect();
    let untold: Vec<_> = known.difference(&told).collect();
    assert!(untold.is_empty(), "docs/redis.md tells nothing of {untold:?}");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let listed = cells.flat_map(spans).filter_map(|span| span.split(' ').next());
    let gone: Vec<_> = listed.filter(|word| !known.contains(word)).collect();
    assert!(gone.is_empty(), "docs/redis.md has rows of what is not there: {gone:?}");
}

#[test]
fn a_route_is_what_begins_with_a_method_of_http_in_the_first_cell_of_a_row() {
    let page =
        "| `GET /a`, `POST /b?c=d` | `GET /e` |\n| `GET` | x |\n`GET /f`\n| 404 | `GET /g` |\n";
    assert_eq!(routes(page), BTreeSet::from(["GET /a".to_owned(), "POST /b".to_owned()]));
}

#[test]
fn a_row_is_about_a_method_if_it_begins_with_a_service_and_its_method() {
    let page = "| `Ids.Next` | `next` | x |\n| `GET /a.b` | c |\n| `next` | d |\n`Ids.Next` | e\n";
    assert_eq!(rows(page), BTreeSet::from(["| `Ids.Next` | `next` | x |".to_owned()]));
}
