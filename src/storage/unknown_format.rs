//! The error for a format that this release does not read: it tells another release's work from damage.

use std::path::Path;

use super::error::{REPLACE, StoreError};
use crate::version::VERSION;

/// True if release `a` is later than release `b`. A text that is not of the form 1.2.3 is earlier than
/// any release.
pub fn is_later(a: &str, b: &str) -> bool {
    parts(a) > parts(b)
}

fn parts(release: &str) -> Option<[u64; 3]> {
    let numbers = release.split(['-', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let parsed = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(parsed)
}

/// The error for a format that this release does not read.
///
/// `newest` is the newest release that has opened the data directory, if it is known. A format newer than
/// ours is a newer release's work if a newer release was there. It is damage if none was.
pub fn unknown_format(
    what: String, place: &Path, found: u32, reads: u32, newest: Option<&str>,
) -> StoreError {
    let (writer, advice) = match newest {
        Some(newest) if found > reads && !is_later(newest, VERSION) => {
            return StoreError::Damaged {
                what,
                place: place.to_owned(),
                why: format!(
                    "it has format version {found}, which no release that was here writes"
                ),
            };
        }
        Some(newest) if found > reads => (
            "a newer release",
            format!("install release {newest} or later; the data is not damaged"),
        ),
        None if found > reads => {
            ("a newer release", "install the release that wrote it, or a later one".to_owned())
        }
        Some(_) | None => {
            ("a build from before release 0.1.0", format!("run that build on it, or {REPLACE}"))
        }
    };
    StoreError::OtherRelease(format!(
        "{what} in {} was written by {writer}: it has format version {found}, and this release \
         ({VERSION}) reads version {reads}; {advice}",
        place.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_with_greater_numbers_is_later() {
        assert!(is_later("0.10.0", "0.9.9"));
        assert!(is_later("1.0.0", "0.1.0"));
        assert!(!is_later("0.1.0", "0.1.0"));
        assert!(!is_later("unheard of", "0.1.0"));
        assert!(is_later("0.2.0-rc.1", "0.1.0"));
    }

    #[test]
    fn a_newer_format_is_called_damaged_unless_a_newer_release_was_there() {
        let said = |found, newest| {
            let place = Path::new("/data/db");
            unknown_format("a record".to_owned(), place, found, 2, newest).to_string()
        };
        let newer = said(3, Some("99.1.0"));
        for part in ["newer release", "99.1.0 or later", "not damaged", "/data/db", VERSION] {
            assert!(newer.contains(part), "{part:?} is not in {newer}");
        }
        assert!(said(3, Some(VERSION)).contains("is damaged"));
        assert!(said(3, None).contains("install the release that wrote it"));
        assert!(said(1, Some(VERSION)).contains("before release 0.1.0"));
    }
}
