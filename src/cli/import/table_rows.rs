//! Rows of another generator's table, as `mysql --batch` prints them: a header with the names of the columns, and tabs between
//! the fields. The columns are found by their names. A row is refused if its numbers go up by other steps than those of the
//! namespace.

use std::io::{self, BufRead, Read};

use super::rows::{BadRow, Expected, MaybeRow};
use crate::server::written::integer;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A table, and the columns that are read of it.
pub struct SourceTable {
    name: &'static str,
    key: &'static str,
    number: &'static str,
    /// The distance of a key's numbers, and what is left of them when they are divided by it. `None`: they go up by 1.
    distance: Option<[&'static str; 2]>,
}

/// Leaf's.
pub const LEAF: SourceTable =
    SourceTable { name: "leaf_alloc", key: "biz_tag", number: "max_id", distance: None };

/// Tinyid's.
pub const TINYID: SourceTable = SourceTable {
    name: "tiny_id_info",
    key: "biz_type",
    number: "max_id",
    distance: Some(["delta", "remainder"]),
};

/// Where the columns stand in a line.
#[derive(Clone, Copy)]
struct Columns {
    key: usize,
    number: usize,
    distance: Option<[usize; 2]>,
    count: usize,
}

impl SourceTable {
    fn columns(&self) -> Vec<&'static str> {
        let distance = self.distance.iter().flatten().copied();
        [self.key, self.number].into_iter().chain(distance).collect()
    }

    fn columns_of(&self, header: &[Vec<u8>]) -> io::Result<Columns> {
        let place = |name: &str| {
            let found = header.iter().position(|column| column == name.as_bytes());
            found.ok_or_else(|| self.other_than(name))
        };
        let distance = match self.distance {
            None => None,
            Some([delta, remainder]) => Some([place(delta)?, place(remainder)?]),
        };
        Ok(Columns {
            key: place(self.key)?,
            number: place(self.number)?,
            distance,
            count: header.len(),
        })
    }

    /// Why a header is none of what is read.
    fn other_than(&self, column: &str) -> io::Error {
        let (table, columns) = (self.name, self.columns().join(", "));
        io::Error::other(format!(
            "there is no column {column} in its first line; import the rows of {table} as mysql prints them: \
             mysql --batch -e 'SELECT {columns} FROM {table}' DATABASE"
        ))
    }

    /// The row of a line. `None` if nothing was handed out of its key.
    fn row(
        &self, line: u64, fields: &[Vec<u8>], columns: Columns, expected: &Expected,
    ) -> Option<MaybeRow> {
        let bad = |why| Some(Err(BadRow { line, why }));
        if fields.len() != columns.count {
            return bad(format!(
                "the row of {} has {} fields; its columns are {}",
                self.name,
                fields.len(),
                columns.count
            ));
        }
        if let Err(why) = self.check_distance(fields, columns, expected) {
            return bad(why);
        }
        expected.row(line, &fields[columns.key], &fields[columns.number])
    }

    /// Refuses a row whose key would get numbers that are not its own: those of other keys, perhaps.
    fn check_distance(
        &self, fields: &[Vec<u8>], columns: Columns, expected: &Expected,
    ) -> Result<(), String> {
        let (what, delta, remainder) = match columns.distance {
            None => (format!("{} goes up by 1", self.name), Some(1), Some(0)),
            Some([delta, remainder]) => {
                let [delta, remainder] = [delta, remainder].map(|place| &fields[place]);
                let (said, left) = (delta.escape_ascii(), remainder.escape_ascii());
                let what = format!("the row has delta {said} and remainder {left}");
                (what, integer(delta), integer(remainder))
            }
        };
        match (delta, remainder) {
            (Some(delta), Some(remainder)) if remainder < delta => expected
                .check_progression(delta, remainder)
                .map_err(|otherwise| format!("{what}, and {otherwise}")),
            _ => Err(format!("{what}; a delta is 1 or more, and a remainder is below it")),
        }
    }
}

/// Hands the rows of a table in `input` to `take`, which says whether to go on.
///
/// # Errors
/// If the input cannot be read, or its first line is not the header of the table.
pub fn read(
    mut input: impl BufRead, table: &SourceTable, expected: &Expected,
    mut take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let mut columns = None;
    let (mut line, mut text) = (0, Vec::new());
    while next_line(&mut input, &mut text)? {
        line += 1;
        if text.is_empty() {
            continue;
        }
        let fields: Vec<Vec<u8>> = text.split(|byte| *byte == b'\t').map(unescaped).collect();
        let Some(columns) = columns else {
            columns = Some(table.columns_of(&fields)?);
            continue;
        };
        if let Some(row) = table.row(line, &fields, columns, expected)
            && !take(row)
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a line without its end. False if there is none.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = input.take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    if read as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
        return Err(io::Error::other(format!("a line of it has more than {LINE_BYTES_MAX} bytes")));
    }
    for end in [b'\n', b'\r'] {
        if line.last() == Some(&end) {
            line.pop();
        }
    }
    Ok(read > 0)
}

/// A field without the backslashes that mysql puts before special characters.
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

/// The character for which one after a backslash stands.
fn special(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'0' => 0,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::import::rows::RowOf;
    use ratchet_client::{Key, api as v1};

    fn names(start: u64, increment: u64) -> Expected {
        let namespace = v1::Namespace {
            name: "tags".into(),
            key_kind: v1::KeyKind::Name.into(),
            max: 1_000_000,
            start,
            increment,
            ..v1::Namespace::default()
        };
        Expected::new(&namespace).unwrap()
    }

    fn rows(text: &str, table: &SourceTable, expected: &Expected) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        let taken = read(text.as_bytes(), table, expected, |row| {
            rows.push(match row {
                Ok(row) => {
                    let RowOf::Key(Key::Name(name)) = row.of else { panic!("a name") };
                    format!("{}: {} {}", row.line, name.escape_ascii(), row.number)
                }
                Err(bad) => format!("{}: {}", bad.line, bad.why),
            });
            true
        });
        taken.map(|()| rows).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_read_by_the_header_with_their_lines() {
        let text = "max_id\tstep\tbiz_tag\tdescription\r\n2001\t9\ta\\tb\t\n\n0\t1\tfresh\tNULL\n\
                    x\t1\ttest\td\n7\t1\tpay\n8\t1\tlast\tit's";
        let found = rows(text, &LEAF, &names(1, 1)).unwrap();
        assert_eq!(found[0], "2: a\\tb 2001");
        assert!(found[1].starts_with("5: number 'x' is none between 0 and 1000000"), "{found:?}");
        assert!(found[2].contains("6: the row of leaf_alloc has 3 fields"), "{found:?}");
        assert_eq!(found[3..], ["7: last 8"]);
        assert_eq!(rows("", &LEAF, &names(1, 1)), Ok(vec![]));
    }

    #[test]
    fn a_row_is_taken_where_the_namespace_has_its_delta_and_remainder() {
        let text = |delta: &str, remainder: &str| {
            format!("biz_type\tmax_id\tdelta\tremainder\na\t2000\t{delta}\t{remainder}\n")
        };
        let taken = |delta, remainder, start, increment| {
            rows(&text(delta, remainder), &TINYID, &names(start, increment)).unwrap().remove(0)
        };
        for (delta, remainder, start, increment) in
            [("1", "0", 1, 1), ("1", "0", 77, 1), ("2", "1", 5, 2), ("3", "0", 3, 3)]
        {
            assert_eq!(taken(delta, remainder, start, increment), "2: a 2000");
        }
        for (delta, remainder, start, increment, why) in [
            ("2", "1", 1, 1, "--increment 2 --start 1"),
            ("2", "0", 1, 2, "--increment 2 --start 2"),
            (
                "1",
                "0",
                1,
                2,
                "goes up by 2 from 1; import it into one with --increment 1 --start 1",
            ),
            ("2", "2", 1, 2, "a remainder is below it"),
            ("0", "0", 1, 1, "a delta is 1 or more"),
            ("x", "0", 1, 1, "the row has delta x and remainder 0"),
        ] {
            let refused = taken(delta, remainder, start, increment);
            assert!(refused.starts_with("2: ") && refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_mysql_does_not_print_of_the_table_is_refused_with_the_command() {
        let refused = |text: &str| rows(text, &TINYID, &names(1, 1)).unwrap_err();
        for (text, column) in [
            ("biz_type\tmax_id\na\t1\n", "delta"),
            ("a\tb\n1\t2\n", "delta"),
            ("INSERT INTO `tiny_id_info` VALUES (1,'a');\n", "delta"),
            ("delta\tremainder\tmax_id\n1\t0\t1\n", "biz_type"),
        ] {
            let refused = refused(text);
            assert!(refused.contains(&format!("no column {column} in")), "{refused}");
            let command =
                "mysql --batch -e 'SELECT biz_type, max_id, delta, remainder FROM tiny_id_info'";
            assert!(refused.contains(command), "{refused}");
        }
        let long = "x".repeat(LINE_BYTES_MAX as usize + 1);
        assert!(refused(&long).contains("more than 1048576 bytes"));
    }

    #[test]
    fn a_tag_that_looks_like_a_range_of_ids_is_a_name_or_no_id() {
        let text = "biz_tag\tmax_id\n0-9\t7\n";
        assert_eq!(rows(text, &LEAF, &names(1, 1)).unwrap(), ["2: 0-9 7"]);
        let sections = v1::Namespace {
            name: "small".into(),
            key_kind: v1::KeyKind::Id.into(),
            section_size: 10,
            start: 1,
            increment: 1,
            ..v1::Namespace::default()
        };
        let expected = Expected::new(&sections).unwrap();
        let refused = rows(text, &LEAF, &expected).unwrap();
        let why = format!(
            "2: key '0-9' is no id; namespace \"small\" takes integers from 0 to {}",
            u64::MAX
        );
        assert_eq!(refused, [why]);
    }
}
