//! Reads the path of a request. Bytes in it that are no text are refused, and not replaced.

use std::{array, borrow::Cow, iter::Take};

use axum::extract::{Path, rejection::PathRejection};
use percent_encoding::percent_decode_str;

use crate::proto::{Refusal, refusal};

/// The values in the path of a page, or the reason why they cannot be read.
pub type PagePath<T> = Result<Path<T>, PathRejection>;

/// The values in the path of a page.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text.
pub fn in_path<T>(path: PagePath<T>) -> Result<T, Refusal> {
    let invalid = |error: PathRejection| refusal!(InvalidRequest, "{}", error.body_text());
    path.map(|Path(path)| path).map_err(invalid)
}

/// The most parts that a path has between its slashes.
pub const PARTS_MAX: usize = 8;
/// The most parts of a path that are values of fields.
pub const FIELDS_MAX: usize = 2;

/// The values of the fields in a path, in its order.
pub type PathValues<'a> = Take<array::IntoIter<Cow<'a, str>, FIELDS_MAX>>;

/// The parts of a path, between its slashes.
#[derive(Debug, Clone, Copy)]
pub struct PathParts<'a> {
    parts: [&'a str; PARTS_MAX],
    many: usize,
}

impl<'a> PathParts<'a> {
    /// The parts of `path`. `None` if there are more than [`PARTS_MAX`].
    pub fn of(path: &'a str) -> Option<PathParts<'a>> {
        let (mut parts, mut many, mut begin) = ([""; PARTS_MAX], 0_usize, 0_usize);
        // The parts are short: `str::split` costs more for each of them than for its bytes.
        for (place, byte) in path.bytes().enumerate() {
            if byte == b'/' {
                *parts.get_mut(many)? = &path[begin..place];
                many += 1;
                begin = place + 1;
            }
        }
        *parts.get_mut(many)? = &path[begin..];
        Some(PathParts { parts, many: many + 1 })
    }

    /// The parts, in their order. There is at least one.
    pub fn all(&self) -> &[&'a str] {
        &self.parts[..self.many]
    }

    /// The same parts, the last one without the text `end`, if it ends with that.
    #[must_use]
    pub fn without_end(mut self, end: &str) -> PathParts<'a> {
        let last = self.parts[self.many - 1];
        self.parts[self.many - 1] = last.strip_suffix(end).unwrap_or(last);
        self
    }
}

/// The text of a part of a path, decoded. It is the value of `field`.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text. The message is worded like that of [`in_path`].
pub fn decoded<'a>(field: &str, part: &'a str) -> Result<Cow<'a, str>, Refusal> {
    // Most parts have nothing that is escaped.
    if !part.bytes().any(|byte| byte == b'%') {
        return Ok(Cow::Borrowed(part));
    }
    let text = percent_decode_str(part).decode_utf8();
    text.map_err(|_| refusal!(InvalidRequest, "Invalid URL: Invalid UTF-8 in `{field}`"))
}
