//! Reads the path of a request. Bytes in it that are no text are refused, and not replaced.

use std::borrow::Cow;

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

/// The text of a part of a path, decoded. It is the value of `field`.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text. The message is worded like that of [`in_path`].
pub fn decoded<'a>(field: &str, part: &'a str) -> Result<Cow<'a, str>, Refusal> {
    let text = percent_decode_str(part).decode_utf8();
    text.map_err(|_| refusal!(InvalidRequest, "Invalid URL: Invalid UTF-8 in `{field}`"))
}
