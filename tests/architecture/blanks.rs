//! Texts for users have one blank between two words: texts of the programs, and comments that become help or documentation.
//!
//! A text that goes on in the next line of the source gets more, if the backslash is missing that joins the lines, and none, if
//! no blank stands before it.

use crate::{
    files::{File, assert_none, files},
    rust::{tokens_and_literals, without_tests},
};

/// The texts with columns: the file of each, and the beginning of its line.
const ALIGNED: [(&str, &str); 4] = [
    ("bench/src/event/report.rs", "event {}"),
    ("bench/src/round.rs", "round {}/{rounds}"),
    ("src/cli/command_error.rs", "Exit codes:"),
    ("src/metrics/process.rs", "A field of /proc/self/status"),
];

/// Stands in a text where the source joins two words without a blank.
const JOINED: &str = "<no blank>";

/// The text of a string literal. A line of the source that ends within it is a blank. `None` for any other token.
fn text_of(token: &str) -> Option<String> {
    let quoted = token.trim_start_matches(['b', 'c']);
    if let Some(raw) = quoted.strip_prefix('r') {
        let inside = raw.trim_matches('#').strip_prefix('"')?.strip_suffix('"')?;
        return Some(inside.to_owned());
    }
    let mut chars = quoted.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut text = String::new();
    while let Some(first) = chars.next() {
        match first {
            '\n' => text.push(' '),
            '\\' => match chars.next() {
                Some('\n') => {
                    chars = chars.as_str().trim_start().chars();
                    if !text.is_empty() && !text.ends_with([' ', '\n']) {
                        text.push_str(JOINED);
                    }
                }
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    Some(text)
}

/// Whether a line has several blanks between two words, or none. Blanks at its ends set it off from other lines.
fn is_wrong(line: &str) -> bool {
    line.trim().contains("  ") || line.contains(JOINED)
}

/// The wrong lines of the texts in a file of Rust. Texts of tests are not read by users.
fn wrong_texts(file: &File) -> Vec<(String, String)> {
    let tokens = tokens_and_literals(&file.text);
    let texts: Vec<String> = without_tests(&tokens).into_iter().filter_map(text_of).collect();
    let lines = texts.iter().flat_map(|text| text.split('\n'));
    let wrong = lines.filter(|line| is_wrong(line));
    wrong.map(|line| (file.path.clone(), line.trim().to_owned())).collect()
}

/// The wrong lines of the comments in a file of Rust or proto, outside of blocks of code.
fn wrong_comments(file: &File) -> Vec<(String, String)> {
    let mut is_code = false;
    let mut wrong = Vec::new();
    for line in file.text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_code = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if comment.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && is_wrong(comment) {
            wrong.push((file.path.clone(), comment.to_owned()));
        }
    }
    wrong
}

fn is_aligned(place: &(&str, &str), (path, line): &(String, String)) -> bool {
    path == place.0 && line.starts_with(place.1)
}

#[test]
fn words_that_users_read_have_one_blank_between_them() {
    let mut sources: Vec<File> = ["src", "client/src", "ids/src", "bench/src"]
        .iter()
        .flat_map(|dir| files(dir, "rs"))
        .collect();
    sources.retain(|file| !file.is_test());
    let mut wrong: Vec<(String, String)> = sources.iter().flat_map(wrong_texts).collect();
    sources.extend(files("proto", "proto"));
    wrong.extend(sources.iter().flat_map(wrong_comments));

    let is_gone = |place: &&(&str, &str)| !wrong.iter().any(|line| is_aligned(place, line));
    let gone: Vec<String> =
        ALIGNED.iter().filter(is_gone).map(|(path, begins)| format!("{path}: {begins}")).collect();
    assert_none("nothing is aligned any more in", &gone);
    wrong.retain(|line| !ALIGNED.iter().any(|place| is_aligned(place, line)));
    let wrong: Vec<String> = wrong.iter().map(|(path, line)| format!("{path}: {line}")).collect();
    assert_none("words have several blanks between them, or none", &wrong);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<(String, String)>) -> Vec<String> {
        found.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn a_text_with_two_blanks_or_none_is_found() {
        let text = r###"
            fn f() {
                a("it goes on \
                   here\n  and \"there\"", b"two  blanks", r#"raw  text"#, "  ", 'x', b' ');
                a("the backslash
                   is missing");
                a("a blank\
                   is missing", "\
                   begins here,\n\
                   and there");
            }
            #[cfg(test)]
            mod tests { const A: &str = "of  a test"; }
        "###;
        let found = lines(wrong_texts(&File::new("src/a.rs", text)));
        let joined = format!("a blank{JOINED}is missing");
        let expected =
            ["two  blanks", "raw  text", "the backslash                    is missing", &joined];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_comment_with_two_blanks_is_found() {
        let text = "/// one  two\n///   three\n//! ```\n//! four  five\n//! ```\nsix  seven // eight\n// nine  ten\n";
        let found = lines(wrong_comments(&File::new("src/a.rs", text)));
        assert_eq!(found, ["one  two", "nine  ten"]);
    }
}
