//! Reads Rust source as far as the checks need it: tokens, the paths that a file names, its types and their methods.

use std::collections::BTreeSet;

/// A path that a file names, such as `crate::node::Config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<'a> {
    pub segments: Vec<&'a str>,
    /// The name under which a `use` makes it known in its module.
    pub known_as: Option<&'a str>,
    /// True for `pub use`, of any visibility.
    pub re_exports: bool,
    /// The inline modules that the path stands in, from the outside in.
    pub inside: Vec<&'a str>,
}

/// The text without comments, lifetimes, and the content of literals.
pub fn tokens(text: &str) -> Vec<&str> {
    read(text, |_| "\"\"")
}

/// The text without comments and lifetimes. A literal is one token, as it is written.
pub fn tokens_and_literals(text: &str) -> Vec<&str> {
    read(text, |literal| literal)
}

fn read<'a>(text: &'a str, of_literal: fn(&'a str) -> &'a str) -> Vec<&'a str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = literal(rest) {
            tokens.push(of_literal(&rest[..length]));
            length
        } else if first == '\'' {
            1 + word(&rest[1..])
        } else {
            let length = match rest {
                _ if rest.starts_with("::") => 2,
                _ => word(rest).max(first.len_utf8()),
            };
            tokens.push(&rest[..length]);
            length
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// How long the word is that `text` starts with.
fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// How long the string or character literal is that `text` starts with.
fn literal(text: &str) -> Option<usize> {
    let quoted = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let prefix = text.len() - quoted.len();
    if let Some(raw) = quoted.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = prefix + 1 + hashes + 1;
            let length = text[inside..].find(&end)?;
            return Some(inside + length + end.len());
        }
    }
    let quote = quoted.chars().next()?;
    let inside = &quoted[quote.len_utf8()..];
    let is_character = |inside: &str| {
        let mut chars = inside.chars();
        chars.next() == Some('\\') || chars.next() == Some('\'')
    };
    if quote == '"' || (quote == '\'' && is_character(inside)) {
        let mut escaped = false;
        let end = inside.char_indices().find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        return end.map(|(at, _)| prefix + 1 + at + 1);
    }
    None
}

/// The tokens without the items that are marked `#[cfg(test)]`.
pub fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&MARK) {
            at += MARK.len();
            at += item(&tokens[at..]);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// How many tokens the item takes that `tokens` start with.
fn item(tokens: &[&str]) -> usize {
    let mut depth = 0;
    let mut is_use = false;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "use" if depth == 0 => is_use = true,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 && !is_use {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The paths that are named, in `use` declarations and elsewhere.
pub fn paths<'a>(tokens: &[&'a str]) -> Vec<Named<'a>> {
    let mut paths = Vec::new();
    let mut modules: Vec<(&str, usize)> = Vec::new();
    let (mut depth, mut at) = (0, 0);
    while at < tokens.len() {
        match tokens[at] {
            "{" => {
                if at >= 2 && tokens[at - 2] == "mod" {
                    modules.push((tokens[at - 1], depth));
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                modules.pop_if(|(_, outside)| *outside == depth);
            }
            "use" if tokens.get(at + 1) != Some(&"<") => {
                let found = paths.len();
                let re_exports = is_public(&tokens[..at]);
                at = use_tree(tokens, at + 1, &[], &mut paths);
                for path in &mut paths[found..] {
                    path.re_exports = re_exports;
                    path.inside = modules.iter().map(|(name, _)| *name).collect();
                }
            }
            first if is_name(first) && (at == 0 || !["::", "."].contains(&tokens[at - 1])) => {
                let mut segments = vec![first];
                while let [_, "::", next, ..] = &tokens[at..]
                    && is_name(next)
                {
                    segments.push(next);
                    at += 2;
                }
                if segments.len() > 1 {
                    paths.push(Named {
                        segments,
                        known_as: None,
                        re_exports: false,
                        inside: modules.iter().map(|(name, _)| *name).collect(),
                    });
                }
            }
            _ => {}
        }
        at += 1;
    }
    paths
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether the tokens before an item make it public, to any module.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [.., ")"] => before
            .iter()
            .rposition(|t| *t == "(")
            .is_some_and(|open| before[..open].ends_with(&["pub"])),
        _ => false,
    }
}

/// Reads one branch of a `use`; answers where it ends.
fn use_tree<'a>(
    tokens: &[&'a str], mut at: usize, prefix: &[&'a str], paths: &mut Vec<Named<'a>>,
) -> usize {
    let mut segments = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        at += 1;
        match *token {
            "::" => {}
            "{" => {
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = use_tree(tokens, at, &segments, paths);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            name => {
                // `a::{self}` names `a`.
                if name != "self" || segments.is_empty() {
                    segments.push(name);
                }
                if tokens.get(at) == Some(&"::") {
                    continue;
                }
                let mut known_as = segments.last().copied();
                if let Some(["as", alias]) = tokens.get(at..at + 2) {
                    known_as = Some(alias);
                    at += 2;
                }
                paths.push(Named { segments, known_as, re_exports: false, inside: Vec::new() });
                return at;
            }
        }
    }
    at
}

/// The names of the types and traits that are defined.
pub fn defined_types<'a>(tokens: &[&'a str]) -> BTreeSet<&'a str> {
    const KINDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
    let pairs = tokens.windows(2).filter(|pair| KINDS.contains(&pair[0]) && is_name(pair[1]));
    pairs.map(|pair| pair[1]).collect()
}

/// The types for which there is an `impl` that is no trait's, each as it is named there, without its parameters.
pub fn inherent_impls<'a>(tokens: &[&'a str]) -> Vec<Vec<&'a str>> {
    behind_impls(tokens).into_iter().filter_map(inherent_impl).collect()
}

/// The methods of the type `of`, and its functions, that are no trait's.
pub fn inherent_methods<'a>(tokens: &[&'a str], of: &str) -> Vec<&'a str> {
    let is_of = |behind: &&[&str]| inherent_impl(behind).is_some_and(|name| name.ends_with(&[of]));
    behind_impls(tokens).into_iter().filter(is_of).flat_map(functions_in_block).collect()
}

/// The functions of the first block in `tokens`, without those within them.
fn functions_in_block<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut functions = Vec::new();
    let mut depth = 0;
    for pair in tokens.windows(2) {
        match pair[0] {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            "fn" if depth == 1 => functions.push(pair[1]),
            _ => {}
        }
    }
    functions
}

/// The methods that are called on a variable, or on a field, with one of the names in `on`.
pub fn methods_called<'a>(tokens: &[&'a str], on: &[&str]) -> BTreeSet<&'a str> {
    let called = |words: &[&'a str]| match words {
        [name, ".", method, "(" | "::"] if on.contains(name) => Some(*method),
        _ => None,
    };
    tokens.windows(4).filter_map(called).collect()
}

/// The last segments of paths whose last segment but one is a name in `of`: for a type its functions.
pub fn functions_named<'a>(tokens: &[&'a str], of: &[&str]) -> BTreeSet<&'a str> {
    let named = |words: &[&'a str]| match words {
        [name, "::", function] if of.contains(name) => Some(*function),
        _ => None,
    };
    tokens.windows(3).filter_map(named).collect()
}

/// The tokens behind each `impl` that begins an item.
fn behind_impls<'t, 'a>(tokens: &'t [&'a str]) -> Vec<&'t [&'a str]> {
    let begins = |at: &usize| {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        tokens[*at] == "impl"
            && before.is_none_or(|token| ["}", ";", "{", "]", "unsafe"].contains(&token))
    };
    (0..tokens.len()).filter(begins).map(|at| &tokens[at + 1..]).collect()
}

/// The type of the `impl` after which `tokens` stand; `None` if it is a trait's.
fn inherent_impl<'a>(tokens: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut at = if tokens.first() == Some(&"<") { after_parameters(tokens, 0) } else { 0 };
    let mut name = Vec::new();
    while let Some(token) = tokens.get(at) {
        match *token {
            "<" => at = after_parameters(tokens, at),
            // A macro's parameter stands for a type of the macro's user.
            "for" | "$" => return None,
            "{" | "where" => break,
            word => {
                if is_name(word) && word != "dyn" {
                    name.push(word);
                }
                at += 1;
            }
        }
    }
    (!name.is_empty()).then_some(name)
}

/// Where the parameters in angle brackets end that begin at `at`.
fn after_parameters(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (here, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "<" => depth += 1,
            // The second half of an arrow closes nothing.
            ">" if tokens[here - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return here + 1;
        }
    }
    tokens.len()
}

#[test]
fn comments_literals_and_lifetimes_are_no_tokens() {
    let text = r##"
        // crate::a
        /* crate::b /* crate::c */ */
        fn f<'a>(x: &'a str) { ("crate::\"d", 'e', '\'', b"f", r#"g"h"#, b'i') }
    "##;
    let literal = "\"\"";
    #[rustfmt::skip]
    assert_eq!(
        tokens(text),
        [
            "fn", "f", "<", ">", "(", "x", ":", "&", "str", ")", "{", "(", literal, ",", literal,
            ",", literal, ",", literal, ",", literal, ",", literal, ")", "}",
        ]
    );
    let kept = tokens_and_literals(text);
    let literals: Vec<&str> =
        kept.into_iter().filter(|token| token.contains(['"', '\''])).collect();
    assert_eq!(literals, [r#""crate::\"d""#, "'e'", r"'\''", r#"b"f""#, r###"r#"g"h"#"###, "b'i'"]);
}

#[test]
fn what_is_for_tests_alone_is_left_out() {
    let text = "
        #[cfg(test)]
        use crate::{a, b};
        #[cfg(test)]
        mod tests { use super::*; fn f() { { c::d(); } } }
        #[cfg(test)]
        mod more;
        struct Kept { #[cfg(test)] left_out: crate::e::F, kept: crate::g::H }
    ";
    let kept = without_tests(&tokens(text));
    let paths = paths(&kept);
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0].segments, ["crate", "g", "H"]);
    assert!(kept.ends_with(&["H", "}"]), "{kept:?}");
}

#[test]
fn paths_are_found_in_groups_nested_groups_and_expressions() {
    let text = "
        pub(crate) use crate::{a::{B, c::D as E}, f::{self}, g::*};
        mod inline { fn f() -> impl Sized + use<> { super::h::i::<u8>(x.collect::<J>()) } }
        fn k() { crate::l(); }
    ";
    let tokens = tokens(text);
    let found: Vec<(String, Option<&str>, bool, String)> = paths(&tokens)
        .into_iter()
        .map(|path| {
            let segments = path.segments.join("::");
            (segments, path.known_as, path.re_exports, path.inside.join("::"))
        })
        .collect();
    let path = |segments: &str, known_as, re_exports, inside: &str| {
        (segments.to_owned(), known_as, re_exports, inside.to_owned())
    };
    assert_eq!(
        found,
        [
            path("crate::a::B", Some("B"), true, ""),
            path("crate::a::c::D", Some("E"), true, ""),
            path("crate::f", Some("f"), true, ""),
            path("crate::g::*", Some("*"), true, ""),
            path("super::h::i", None, false, "inline"),
            path("crate::l", None, false, ""),
        ]
    );
}

#[test]
fn an_impl_is_inherent_unless_it_is_a_traits_and_in_a_type_it_is_none() {
    let text = "
        pub struct A<T>(T); enum B { C } trait D {}
        impl<T: Fn(u8) -> Option<u8>> A<T> where T: Clone { fn f() -> impl Sized {} }
        impl<T> D for A<T> {} impl self::B {} #[cold] impl<'a> crate::e::F<'a> {} impl dyn D {}
        fn g(_: impl D) {} unsafe impl Send for B {}
        macro_rules! m { ($t:ident) => { impl $t {} } }
    ";
    let tokens = tokens(text);
    let found: Vec<String> = inherent_impls(&tokens).iter().map(|name| name.join("::")).collect();
    assert_eq!(found, ["A", "self::B", "crate::e::F", "D"]);
    assert_eq!(defined_types(&tokens).into_iter().collect::<Vec<_>>(), ["A", "B", "D"]);
}
