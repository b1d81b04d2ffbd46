//! Rows of a dump of another generator's table: INSERT statements as mysqldump writes them, or tab-separated text with a
//! header as `mysql --batch` does.

use std::io::{self, BufRead};

use super::rows::{BadRow, Expected, MaybeRow};

/// A table: its name, its columns in their order, and those that hold a key and its number.
pub struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    key: &'static str,
    number: &'static str,
}

/// Leaf's.
pub const LEAF: Table = Table {
    name: "leaf_alloc",
    columns: &["biz_tag", "max_id", "step", "description", "update_time"],
    key: "biz_tag",
    number: "max_id",
};

/// Tinyid's.
pub const TINYID: Table = Table {
    name: "tiny_id_info",
    columns: &[
        "id",
        "biz_type",
        "begin_id",
        "max_id",
        "step",
        "delta",
        "remainder",
        "create_time",
        "update_time",
        "version",
    ],
    key: "biz_type",
    number: "max_id",
};

/// The longest statement or line that is read.
const STATEMENT_BYTES_MAX: usize = 1 << 30;

/// Where the key and the number stand among the columns.
#[derive(Clone, Copy)]
struct Places {
    key: usize,
    number: usize,
    columns: usize,
}

impl Table {
    fn places(&self, columns: &[Vec<u8>]) -> Option<Places> {
        let place = |name: &str| columns.iter().position(|column| column == name.as_bytes());
        Some(Places { key: place(self.key)?, number: place(self.number)?, columns: columns.len() })
    }

    fn row(
        &self, line: u64, fields: &[Vec<u8>], places: Places, expected: &Expected,
    ) -> Option<MaybeRow> {
        if fields.len() != places.columns {
            return Some(Err(BadRow {
                line,
                why: format!(
                    "the row of {} has {} fields; its columns are {}",
                    self.name,
                    fields.len(),
                    places.columns
                ),
            }));
        }
        // Nothing was handed out yet.
        if fields[places.number] == b"0" {
            return None;
        }
        Some(expected.row(line, &fields[places.key], &fields[places.number]))
    }
}

/// Hands the rows of the table in `input` to `take`, which says whether to go on.
///
/// # Errors
/// If the input cannot be read, or is no dump of the table.
pub fn read(
    mut input: impl BufRead, table: &Table, expected: &Expected, take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let has_tabs = |line: &[u8]| line.contains(&b'\t');
    let first = input.fill_buf()?;
    let end = first.iter().position(|byte| *byte == b'\n');
    match has_tabs(&first[..end.unwrap_or(first.len())]) {
        true => read_text(input, table, expected, take),
        false => read_statements(input, table, expected, take),
    }
}

fn read_text(
    mut input: impl BufRead, table: &Table, expected: &Expected,
    mut take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let mut places = None;
    let (mut line, mut text) = (0, Vec::new());
    loop {
        line += 1;
        text.clear();
        if input.read_until(b'\n', &mut text)? == 0 {
            return Ok(());
        }
        let end = text.trim_ascii_end().len();
        if end == 0 {
            continue;
        }
        let fields: Vec<Vec<u8>> =
            text[..end].split(|byte| *byte == b'\t').map(unescaped).collect();
        let Some(places) = places else {
            places = Some(table.places(&fields).ok_or_else(|| not_the_table(table))?);
            continue;
        };
        if let Some(row) = table.row(line, &fields, places, expected)
            && !take(row)
        {
            return Ok(());
        }
    }
}

/// A field without the backslashes that the dump puts before special characters.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next().map(|escaped| special(*escaped))),
            other => plain.push(other),
        }
    }
    plain
}

/// What a character after a backslash stands for.
fn special(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'0' => 0,
        other => other,
    }
}

fn not_the_table(table: &Table) -> io::Error {
    io::Error::other(format!(
        "it is no dump of {}: there are no columns {} and {}",
        table.name, table.key, table.number
    ))
}

fn read_statements(
    mut input: impl BufRead, table: &Table, expected: &Expected,
    mut take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let (mut line, mut found) = (1, false);
    let mut statement = Vec::new();
    loop {
        let first_line = line;
        if !next_statement(&mut input, &mut statement, &mut line)? {
            return match found {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "it has no INSERT INTO {}, and its first line no tabs",
                    table.name
                ))),
            };
        }
        let mut words = Words { text: &statement, at: 0, line: first_line };
        if !words.inserts_into(table.name) {
            continue;
        }
        found = true;
        let columns = match words.peek() {
            Some(b'(') => words.fields()?,
            _ => table.columns.iter().map(|name| name.as_bytes().to_vec()).collect(),
        };
        let places = table.places(&columns).ok_or_else(|| not_the_table(table))?;
        if !words.word_is("VALUES") {
            return Err(words.unexpected("VALUES"));
        }
        while words.peek() == Some(b'(') {
            let at = words.line;
            let fields = words.fields()?;
            if let Some(row) = table.row(at, &fields, places, expected)
                && !take(row)
            {
                return Ok(());
            }
            if words.peek() == Some(b',') {
                words.at += 1;
            }
        }
    }
}

/// Reads up to the next semicolon that is not quoted. False at the end. Lines of comments are left out.
fn next_statement(
    input: &mut impl BufRead, statement: &mut Vec<u8>, line: &mut u64,
) -> io::Result<bool> {
    statement.clear();
    let (mut quote, mut escaped) = (None, false);
    loop {
        let from = statement.len();
        if input.read_until(b'\n', statement)? == 0 {
            return Ok(statement.iter().any(|byte| !byte.is_ascii_whitespace()));
        }
        if statement.len() > STATEMENT_BYTES_MAX {
            return Err(io::Error::other("a statement of the dump has more than 1 GiB"));
        }
        *line += 1;
        let added = &mut statement[from..];
        if quote.is_none() && added.trim_ascii_start().starts_with(b"--") {
            added.fill(b' ');
            // Lines are counted by their ends.
            if let Some(end) = added.last_mut() {
                *end = b'\n';
            }
            continue;
        }
        for byte in added.iter() {
            match (quote, *byte) {
                _ if escaped => escaped = false,
                (Some(b'\''), b'\\') => escaped = true,
                (Some(open), byte) if open == byte => quote = None,
                (None, byte @ (b'\'' | b'`')) => quote = Some(byte),
                _ => {}
            }
        }
        if quote.is_none() && added.trim_ascii_end().ends_with(b";") {
            return Ok(true);
        }
    }
}

/// A statement as it is read.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl Words<'_> {
    /// The next character that is no space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at).filter(|byte| byte.is_ascii_whitespace()) {
            self.line += u64::from(*byte == b'\n');
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn word_is(&mut self, word: &str) -> bool {
        self.peek();
        let end = self.at + word.len();
        let is_it = (self.text.get(self.at..end))
            .is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
        if is_it {
            self.at = end;
        }
        is_it
    }

    fn inserts_into(&mut self, table: &str) -> bool {
        let is_insert = self.word_is("INSERT") || self.word_is("REPLACE");
        // INSERT IGNORE INTO, too.
        let _ = is_insert && self.word_is("IGNORE");
        let quoted = format!("`{table}`");
        is_insert
            && self.word_is("INTO")
            && (self.word_is(&quoted) || self.word_is(table))
            && matches!(self.peek(), Some(b'(' | b'v' | b'V'))
    }

    /// The fields between two parentheses.
    fn fields(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.peek();
        self.at += 1;
        let mut fields = Vec::new();
        loop {
            let field = match self.peek() {
                Some(quote @ (b'\'' | b'`')) => self.quoted(quote)?,
                Some(_) => self.bare(),
                None => return Err(self.unexpected(")")),
            };
            fields.push(field);
            let end = self.peek();
            self.at += 1;
            match end {
                Some(b',') => {}
                Some(b')') => return Ok(fields),
                _ => return Err(self.unexpected("',' or ')'")),
            }
        }
    }

    fn bare(&mut self) -> Vec<u8> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b',' | b')'));
        let bare = rest[..end.unwrap_or(rest.len())].trim_ascii_end();
        self.at += end.unwrap_or(rest.len());
        bare.to_vec()
    }

    fn quoted(&mut self, quote: u8) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        self.at += 1;
        loop {
            let (byte, next) = (self.text.get(self.at), self.text.get(self.at + 1));
            self.at += 1;
            match (byte, next) {
                (None, _) => return Err(self.unexpected("the end of a quoted text")),
                (Some(b'\\'), Some(escaped)) if quote == b'\'' => {
                    plain.push(special(*escaped));
                    self.at += 1;
                }
                // A quote that is written twice stands for itself.
                (Some(byte), Some(next)) if *byte == quote && *next == quote => {
                    plain.push(quote);
                    self.at += 1;
                }
                (Some(byte), _) if *byte == quote => return Ok(plain),
                (Some(byte), _) => {
                    self.line += u64::from(*byte == b'\n');
                    plain.push(*byte);
                }
            }
        }
    }

    fn unexpected(&self, wanted: &str) -> io::Error {
        io::Error::other(format!("line {}: {wanted} is missing in an INSERT", self.line))
    }
}

#[cfg(test)]
mod tests;
