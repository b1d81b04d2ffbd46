//! A strict parser of RESP2 and RESP3. It is written without a look at the code that writes the replies.

/// The most replies inside of one another.
pub const DEPTH_MAX: usize = 8;

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Nulls are bulk strings, there are no maps.
    Resp2,
    /// Nulls and maps are types of their own.
    Resp3,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `+`
    Simple(&'a str),
    /// `-`
    Error(&'a str),
    /// `:`
    Integer(i128),
    /// `$`, or `=` without its format
    Bulk(&'a [u8]),
    /// `*`, or `~`
    Array(Vec<Reply<'a>>),
    /// `%`
    Map(Vec<(Reply<'a>, Reply<'a>)>),
    /// `$-1` or `_`
    Null,
}

/// Parses one reply. Returns it, and the bytes after it.
///
/// # Errors
/// Where the bytes are no reply of this version.
pub fn reply(bytes: &[u8], version: Version) -> Result<(Reply<'_>, &[u8]), String> {
    nested(bytes, version, DEPTH_MAX)
}

fn nested(bytes: &[u8], version: Version, depth: usize) -> Result<(Reply<'_>, &[u8]), String> {
    let bad = |why: &str| {
        let shown = &bytes[..bytes.len().min(80)];
        Err(format!("{why}, in {version:?}, at '{}'", shown.escape_ascii()))
    };
    if depth == 0 {
        return bad("replies lie too deep in one another");
    }
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return bad("the line has no end");
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let Ok(line) = std::str::from_utf8(line) else {
        return bad("the line is no text");
    };
    let Some((kind, text)) = line.split_at_checked(1) else {
        return bad("the line is empty");
    };
    if text.contains(['\r', '\n']) {
        return bad("the line holds half an end");
    }
    match (kind, version) {
        ("+", _) => Ok((Reply::Simple(text), rest)),
        ("-", _) => Ok((Reply::Error(text), rest)),
        ("$", Version::Resp2) if text == "-1" => Ok((Reply::Null, rest)),
        ("_", Version::Resp3) if text.is_empty() => Ok((Reply::Null, rest)),
        (":", _) => match text.parse() {
            Ok(number) if format!("{number}") == text => Ok((Reply::Integer(number), rest)),
            _ => bad("this is no number"),
        },
        ("$", _) => match length(text).and_then(|length| rest.split_at_checked(length)) {
            Some((bulk, after)) => match after.strip_prefix(b"\r\n") {
                Some(after) => Ok((Reply::Bulk(bulk), after)),
                None => bad("the bytes do not end there"),
            },
            None => bad("this is no length"),
        },
        ("=", Version::Resp3) => {
            match length(text).and_then(|length| rest.split_at_checked(length)) {
                Some((verbatim, after)) => {
                    match (verbatim.strip_prefix(b"txt:"), after.strip_prefix(b"\r\n")) {
                        (Some(text), Some(after)) => Ok((Reply::Bulk(text), after)),
                        _ => bad("this is no text of a format"),
                    }
                }
                None => bad("this is no length"),
            }
        }
        ("*", _) | ("~", Version::Resp3) => match length(text) {
            Some(length) => {
                let (items, rest) = several(rest, length, version, depth)?;
                Ok((Reply::Array(items), rest))
            }
            None => bad("this is no length"),
        },
        ("%", Version::Resp3) => match length(text) {
            Some(length) => {
                let (items, rest) = several(rest, 2 * length, version, depth)?;
                let mut items = items.into_iter();
                let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
                Ok((Reply::Map(pairs.collect()), rest))
            }
            None => bad("this is no length"),
        },
        _ => bad("there is no such reply"),
    }
}

fn several(
    mut rest: &[u8], count: usize, version: Version, depth: usize,
) -> Result<(Vec<Reply<'_>>, &[u8]), String> {
    let mut items = Vec::new();
    for _ in 0..count {
        let (item, after) = nested(rest, version, depth - 1)?;
        items.push(item);
        rest = after;
    }
    Ok((items, rest))
}

/// A length, as it must be written: in digits, and no more of them than needed.
fn length(text: &str) -> Option<usize> {
    let length: usize = text.parse().ok()?;
    (length.to_string() == text && length < 1 << 32).then_some(length)
}
