//! One subject a file: none has a second heading in its middle.
//!
//! A heading is a comment that stands alone: plain `//` lines at the beginning of the line, with nothing right above or
//! below. The code under a heading belongs in a file of its own. A heading that says what the whole file is for belongs in
//! the `//!` lines at the top.

use crate::files::{File, assert_none, files};

/// Where each heading of a file begins, with its first line.
fn headings(file: &File) -> Vec<String> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let is_comment = |line: &str| line.starts_with("//") && !is_doc(line);
    let lines: Vec<&str> = file.text.lines().collect();
    let is_blank = |at: Option<usize>| {
        let line = at.and_then(|at| lines.get(at));
        line.is_none_or(|line| line.trim().is_empty())
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let length = lines[at..].iter().take_while(|line| is_comment(line)).count();
        if length > 0 && is_blank(at.checked_sub(1)) && is_blank(Some(at + length)) {
            found.push(format!("{}:{}: {}", file.path, at + 1, lines[at]));
        }
        at += length.max(1);
    }
    found
}

#[test]
fn no_file_has_a_second_heading() {
    let all = ["src", "client/src", "ids/src"].into_iter().flat_map(|dir| files(dir, "rs"));
    let found: Vec<String> = all.flat_map(|file| headings(&file)).collect();
    assert_none("files have a second subject; give it a file of its own", &found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        headings(&File::new("src/a.rs", text))
    }

    #[test]
    fn a_comment_that_stands_alone_is_a_heading() {
        let text = "\
//! The roof.

struct Roof;

// The cellar.
//
// Invariant: it is dry.

struct Cellar;

// The end.
";
        let at = |line: usize, text: &str| format!("src/a.rs:{line}: {text}");
        assert_eq!(found(text), [at(5, "// The cellar."), at(11, "// The end.")]);
    }

    #[test]
    fn a_comment_on_what_follows_or_within_something_is_none() {
        let text = "\
//! The roof.

// Tiles come first.
mod tiles;

/// A tile.

struct Tile;
// A beam.

fn build() {

    // The walls stand.

}
";
        assert_eq!(found(text), [""; 0]);
    }
}
