//! The parts of a page that are played: its blocks of code, and its settings. And the texts that stand there for others here.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    fs,
    path::Path,
};

/// The blocks of code in the sections of a page that are played.
pub struct Page {
    name: &'static str,
    text: String,
    left: BTreeMap<&'static str, VecDeque<String>>,
}

/// The lines of a section, below its heading.
fn section<'a>(page: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!("## {heading}");
    let below = page.lines().skip_while(move |line| *line != heading).skip(1);
    below.take_while(|line| !line.starts_with("## "))
}

/// The blocks of code among lines: lines that are indented by four or more, after an empty line. They begin at the left here.
fn blocks<'a>(lines: impl Iterator<Item = &'a str>) -> VecDeque<String> {
    let mut found: VecDeque<String> = VecDeque::new();
    let (mut indent, mut is_after_empty) = (None, true);
    for line in lines {
        let wide = line.len() - line.trim_start().len();
        if line.is_empty() {
            (indent, is_after_empty) = (None, true);
            continue;
        }
        if indent.is_none() && is_after_empty && wide >= 4 {
            indent = Some(wide);
            found.push_back(String::new());
        }
        if let (Some(indent), Some(block)) = (indent, found.back_mut()) {
            block.push_str(&line[indent.min(wide)..]);
            block.push('\n');
        }
        is_after_empty = false;
    }
    found
}

impl Page {
    /// A page in `docs/`, and the headings of the sections of which every block is played.
    pub fn read(name: &'static str, played: &[&'static str]) -> Page {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        let text = fs::read_to_string(path).expect(name);
        let of_section = |heading: &&'static str| (*heading, blocks(section(&text, heading)));
        let left: BTreeMap<_, _> = played.iter().map(of_section).collect();
        for (heading, blocks) in &left {
            assert!(!blocks.is_empty(), "{name} has no code below {heading:?}");
        }
        Page { name, text, left }
    }

    /// The next block of a section.
    pub fn next(&mut self, heading: &str) -> String {
        let left = self.left.get_mut(heading).expect("a section that is played");
        let next = left.pop_front();
        next.unwrap_or_else(|| panic!("{}, {heading}: the page has a block less", self.name))
    }

    /// The texts between backticks in a section that begin with `start`, in its order.
    pub fn spans(&self, heading: &str, start: &str) -> Vec<&str> {
        let spans =
            section(&self.text, heading).flat_map(|line| line.split('`').skip(1).step_by(2));
        let found: Vec<&str> = spans.filter(|span| span.starts_with(start)).collect();
        assert!(!found.is_empty(), "{}, {heading}: nothing begins with {start:?}", self.name);
        found
    }

    /// As [`Page::spans`], of those alone that begin a step of a list.
    pub fn steps(&self, heading: &str, start: &str) -> Vec<&str> {
        let steps = section(&self.text, heading).filter_map(|line| {
            let (number, step) = line.split_once(". `")?;
            let is_step = number.bytes().all(|byte| byte.is_ascii_digit());
            step.split('`').next().filter(|step| is_step && step.starts_with(start))
        });
        let found: Vec<&str> = steps.collect();
        assert!(!found.is_empty(), "{}, {heading}: no step is {start:?}", self.name);
        found
    }

    /// Sees that all was played.
    pub fn end(&self) {
        for (heading, blocks) in &self.left {
            let name = self.name;
            assert!(blocks.is_empty(), "{name}, {heading}: nobody plays this: {blocks:#?}");
        }
    }
}

/// The texts of a page that stand for others here, such as addresses and directories.
#[derive(Default)]
pub struct Here(Vec<(String, String, Cell<bool>)>);

impl Here {
    /// Has `here` stand wherever the page says `there`. The first text that fits counts.
    pub fn put(&mut self, there: &str, here: impl ToString) {
        self.0.push((there.to_owned(), here.to_string(), Cell::new(false)));
    }

    /// A text of the page, as it is here.
    pub fn read(&self, text: &str) -> String {
        let (mut read, mut rest) = (String::new(), text);
        while let Some(next) = rest.chars().next() {
            match self.0.iter().find(|(there, ..)| rest.starts_with(there.as_str())) {
                Some((there, here, is_used)) => {
                    is_used.set(true);
                    read.push_str(here);
                    rest = &rest[there.len()..];
                }
                None => {
                    read.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        read
    }

    /// Sees that each of them stands in a text that was read.
    pub fn end(&self) {
        let unused = self.0.iter().filter(|(.., is_used)| !is_used.get());
        let unused: Vec<&str> = unused.map(|(there, ..)| there.as_str()).collect();
        assert!(unused.is_empty(), "no command that was played has {unused:?}");
    }
}

#[test]
fn blocks_are_what_is_indented_also_in_lists() {
    let page = "## A\n\nText:\n\n    one \\\n        more\n    two\n\n1. A step\n   of two lines:\n\n       three\n\n   \
                After it.\n## B\n\n    four\n";
    assert_eq!(blocks(section(page, "A")), ["one \\\n    more\ntwo\n", "three\n"]);
    assert_eq!(blocks(section(page, "B")), ["four\n"]);
}

#[test]
fn what_stands_for_what_is_here_is_replaced_once_and_one_that_is_nowhere_is_found() {
    let mut here = Here::default();
    here.put("a:1", "b:2");
    here.put("b", "c");
    here.put("a", "d");
    assert_eq!(here.read("a:1 b a"), "b:2 c d");
    here.end();
    here.put("nowhere", "");
    let unused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| here.end()));
    unused.expect_err("it is found");
}
