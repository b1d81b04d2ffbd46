//! Reads the rows of a file, in each of its formats. `csv_rows.rs` and `table_rows.rs` make rows of the text; the mark that
//! some programs write at the beginning is passed over.

use std::io::{self, BufReader, Cursor, Read};

use super::{
    csv_rows::read_csv,
    rows::{Expected, MaybeRow, RowFormat},
    table_rows::{self, LEAF, TINYID},
};

/// Hands the rows of `input`, in their order, to `take`, which says whether to go on.
///
/// # Errors
/// If the input cannot be read, or is UTF-16.
pub fn read(
    input: impl Read, format: RowFormat, expected: &Expected, take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let input = without_mark(input)?;
    match format {
        RowFormat::Csv => read_csv(input, expected, take),
        RowFormat::Leaf => table_rows::read(BufReader::new(input), &LEAF, expected, take),
        RowFormat::Tinyid => table_rows::read(BufReader::new(input), &TINYID, expected, take),
    }
}

/// The mark that some programs write before a text that is UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// The input after the mark of UTF-8, if there is one.
///
/// # Errors
/// If the input cannot be read, or is UTF-16, which PowerShell writes, for example.
fn without_mark(mut input: impl Read) -> io::Result<impl Read> {
    let mut first = Vec::new();
    input.by_ref().take(4).read_to_end(&mut first)?;
    if is_utf16(&first) {
        return Err(io::Error::other(format!(
            "it is UTF-16, as its first bytes say ({}), and rows are read as UTF-8: convert it with iconv -f UTF-16 -t UTF-8. \
             If these bytes are those of a name, begin with a row key,number",
            first.escape_ascii()
        )));
    }
    let rest = first.strip_prefix(MARK).unwrap_or(&first).to_vec();
    Ok(Cursor::new(rest).chain(input))
}

/// Whether a text that begins so is UTF-16: it says so, or its first two characters are of ASCII.
fn is_utf16(first: &[u8]) -> bool {
    let of_ascii = |byte: u8| byte != 0 && byte.is_ascii();
    match first {
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => true,
        [0, one, 0, other] | [one, 0, other, 0] => of_ascii(*one) && of_ascii(*other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ratchet_client::{Key, api as v1};

    use super::*;
    use crate::cli::import::rows::RowOf;

    fn rows(text: &[u8], format: RowFormat) -> Result<Vec<String>, String> {
        let namespace = v1::Namespace {
            name: "tags".into(),
            key_kind: v1::KeyKind::Name.into(),
            max: 1_000_000,
            start: 1,
            increment: 1,
            ..v1::Namespace::default()
        };
        let expected = Expected::new(&namespace).unwrap();
        let mut rows = Vec::new();
        let taken = read(text, format, &expected, |row| {
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

    /// A text as UTF-16.
    fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes_of).collect()
    }

    #[test]
    fn the_mark_of_utf_8_is_no_part_of_a_row() {
        let texts = [
            ("key,number\na,5\n", RowFormat::Csv, "2: a 5"),
            ("a,5", RowFormat::Csv, "1: a 5"),
            ("biz_tag\tmax_id\na\t5\n", RowFormat::Leaf, "2: a 5"),
        ];
        for (text, format, row) in texts {
            for mark in ["", "\u{FEFF}"] {
                let found = rows(format!("{mark}{text}").as_bytes(), format);
                assert_eq!(found, Ok(vec![row.to_owned()]), "{mark}{text}");
            }
        }
        let named = rows("key,number\n\u{FEFF}a,5\n".as_bytes(), RowFormat::Csv).unwrap();
        assert_eq!(named, ["2: \\xef\\xbb\\xbfa 5"]);
    }

    #[test]
    fn utf_16_is_refused_by_that_name_with_or_without_its_mark() {
        for mark in ["", "\u{FEFF}"] {
            for bytes_of in [u16::to_le_bytes, u16::to_be_bytes] {
                for (text, format) in
                    [("a,5\n", RowFormat::Csv), ("biz_tag\tmax_id\na\t5\n", RowFormat::Tinyid)]
                {
                    let text = utf16(&format!("{mark}{text}"), bytes_of);
                    let refused = rows(&text, format).unwrap_err();
                    assert!(refused.contains("is UTF-16"), "{refused}");
                    assert!(refused.contains("iconv -f UTF-16 -t UTF-8"), "{refused}");
                }
            }
        }
    }

    #[test]
    fn a_key_of_which_nothing_was_handed_out_is_left_out_in_every_form() {
        for (text, format) in [
            ("a,0\nb,00\nc,5\n", RowFormat::Csv),
            ("biz_tag\tmax_id\na\t0\nb\t00\nc\t5\n", RowFormat::Leaf),
            (
                "biz_type\tmax_id\tdelta\tremainder\na\t0\t1\t0\nb\t00\t1\t0\nc\t5\t1\t0\n",
                RowFormat::Tinyid,
            ),
        ] {
            let found = rows(text.as_bytes(), format).unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].ends_with(": c 5"), "{found:?}");
        }
        // The key must be one all the same.
        assert_eq!(rows(b",0\n", RowFormat::Csv).unwrap().len(), 1);
    }
}
