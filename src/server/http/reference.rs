//! The description of the API as a page, for people. It loads nothing from elsewhere.

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    html::{POLICY_WITHOUT_SCRIPT, document},
    openapi,
};

/// The methods in the order in which they are shown.
const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];

/// The page.
static PAGE: LazyLock<String> = LazyLock::new(|| render(openapi::api()));

/// `GET /docs`.
pub async fn page() -> Response {
    ([POLICY_WITHOUT_SCRIPT], Html(PAGE.as_str())).into_response()
}

fn render(api: &Value) -> String {
    let info = &api["info"];
    let title = format!("{} {}", text(&info["title"]), text(&info["version"]));
    let body = html! {
        header {
            h1 { (title) ": the HTTP interface" }
            p { (text(&info["description"])) }
            p.quiet { "For programs: " a href="/openapi.json" { "/openapi.json" } ". " a href="/" { "The status page" } "." }
        }
        main {
            @for tag in array(&api["tags"]) {
                h2 { (text(&tag["description"])) }
                @for (path, method, operation) in operations(api, text(&tag["name"])) {
                    (operation_of(path, method, operation))
                }
            }
            h2 { "What requests and answers hold" }
            @for (name, schema) in members(&api["components"]["schemas"]) { (schema_of(name, schema)) }
        }
    };
    document(&format!("{title}: the HTTP interface"), &html! {}, &body)
}

/// The operations with a tag: path, method, and what is said of it.
fn operations<'a>(api: &'a Value, tag: &str) -> Vec<(&'a str, &'static str, &'a Value)> {
    let mut found = Vec::new();
    for (path, item) in members(&api["paths"]) {
        for method in METHODS {
            let operation = &item[method];
            if array(&operation["tags"]).iter().any(|own| text(own) == tag) {
                found.push((path, method, operation));
            }
        }
    }
    found
}

fn operation_of(path: &str, method: &str, operation: &Value) -> Markup {
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    html! {
        section {
            h3 { code { (method.to_uppercase()) " " (path) } }
            p { (text(&operation["summary"])) " " (text(&operation["description"])) }
            @let parameters = array(&operation["parameters"]);
            @if !parameters.is_empty() {
                div.scroll { table {
                    thead { tr { th { "parameter" } th { "in" } th { "what it says" } } }
                    tbody { @for parameter in parameters { tr {
                        td { code { (text(&parameter["name"])) } }
                        td { (text(&parameter["in"])) }
                        td { (text(&parameter["description"])) }
                    } } }
                } }
            }
            @if !body.is_null() { p { "Body: " (kind(body)) } }
            @for (status, answer) in members(&operation["responses"]) {
                @for (media, content) in members(&answer["content"]) {
                    p { @if status == "default" { "Otherwise" } @else { (status) } ": " (kind(&content["schema"]))
                        span.quiet { " (" (media) ")" } }
                }
            }
        }
    }
}

fn schema_of(name: &str, schema: &Value) -> Markup {
    let needed = array(&schema["required"]);
    html! {
        section id=(name) {
            h3 { code { (name) } }
            p { (text(&schema["description"])) }
            @let properties = members(&schema["properties"]);
            @if properties.is_empty() {
                p { (kind(schema)) }
            } @else {
                div.scroll { table {
                    thead { tr { th { "field" } th { "type" } th { "what it says" } } }
                    tbody { @for (field, of_field) in properties { tr {
                        td { code { (field) } @if !needed.iter().any(|one| text(one) == field) { span.quiet { " (may be left out)" } } }
                        td { (kind(of_field)) }
                        td { (text(&of_field["description"])) }
                    } } }
                } }
            }
        }
    }
}

/// What a schema stands for, in short.
fn kind(schema: &Value) -> Markup {
    let reference = text(&schema["$ref"]).rsplit('/').next().unwrap_or_default();
    let either = [&schema["oneOf"], &schema["anyOf"]].into_iter().flat_map(array);
    let either: Vec<&Value> = either.collect();
    html! {
        @if !reference.is_empty() {
            a href={ "#" (reference) } { (reference) }
        } @else if !either.is_empty() {
            @for (place, one) in either.iter().enumerate() { @if place > 0 { " or " } (kind(one)) }
        } @else if !array(&schema["enum"]).is_empty() {
            @for (place, one) in array(&schema["enum"]).iter().enumerate() { @if place > 0 { " or " } code { (text(one)) } }
        } @else if schema["type"] == "array" {
            "list of " (kind(&schema["items"]))
        } @else {
            @match &schema["type"] {
                Value::Array(types) => {
                    @for (place, one) in types.iter().enumerate() { @if place > 0 { " or " } (text(one)) }
                }
                one => (text(one)),
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn members(value: &Value) -> Vec<(&str, &Value)> {
    let object = value.as_object().into_iter().flatten();
    object.map(|(name, value)| (name.as_str(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_and_every_schema_is_on_the_page_and_no_link_leads_nowhere() {
        let api = openapi::api();
        let page = render(api);
        let mut operations = 0;
        for (path, item) in members(&api["paths"]) {
            for (method, _) in members(item) {
                let heading = format!("<code>{} {path}</code>", method.to_uppercase());
                assert!(page.contains(&heading), "{heading}");
                operations += 1;
            }
        }
        assert_eq!(operations, 26);
        for (name, _) in members(&api["components"]["schemas"]) {
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
        for link in page.split("href=\"#").skip(1) {
            let name = link.split('"').next().expect("a name");
            assert!(page.contains(&format!("id=\"{name}\"")), "#{name}");
        }
        assert!(!page.contains("https://") && !page.contains("<script"), "it loads nothing");
    }
}
