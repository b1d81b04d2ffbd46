//! Comments of Rust and proto files are no wider than 128 columns. Both languages begin them with two slashes.

use crate::files::{File, assert_none, files};

/// How many columns a line of a comment has at most, unless it cannot be broken.
const COLUMNS_MAX: usize = 128;

/// The lines of comments that are too wide and could be broken: lines that have a blank behind their first word. A row of a
/// table cannot.
fn wide_lines(file: &File) -> Vec<String> {
    let is_wide = |line: &str| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            return false;
        };
        let words = comment.trim_start_matches(['/', '!']).trim();
        line.chars().count() > COLUMNS_MAX && words.contains(' ') && !words.starts_with('|')
    };
    let lines = (1..).zip(file.text.lines()).filter(|(_, line)| is_wide(line));
    lines.map(|(number, _)| format!("{}:{number}", file.path)).collect()
}

#[test]
fn no_line_of_a_comment_is_too_wide() {
    let sources = [files("", "rs"), files("proto", "proto")].concat();
    let found: Vec<String> = sources.iter().flat_map(wide_lines).collect();
    assert_none("comments have more than 128 columns; break their lines", &found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_too_wide_if_it_could_be_broken() {
        let fits = format!("    /// a {}", "b".repeat(COLUMNS_MAX - 10));
        let (word, row) = ("b".repeat(COLUMNS_MAX), format!("| a | {} |", "ä".repeat(COLUMNS_MAX)));
        let text = format!(
            "{fits}\n{fits}b\n//! {word}\n    // c {word}\n//! {row}\nlet c = \"{word} {word}\";\n"
        );
        assert_eq!(wide_lines(&File::new("src/a.rs", &text)), ["src/a.rs:2", "src/a.rs:4"]);
    }
}
