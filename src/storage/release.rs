//! Which release wrote what this one cannot read.

use std::path::Path;

use super::error::{REPLACE, StoreError};
use crate::version::VERSION as THIS;

/// Whether release `a` came after release `b`. What is not of the form 1.2.3 comes first.
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
/// `newest` is the newest release that has opened the data directory, where that is known. It tells a
/// newer release's work from damage: what no newer release can have written is damaged.
pub fn unknown_format(
    what: String,
    place: &Path,
    found: u32,
    reads: u32,
    newest: Option<&str>,
) -> StoreError {
    let (writer, advice) = match newest {
        Some(newest) if found > reads && !is_later(newest, THIS) => {
            return StoreError::Damaged {
                what,
                place: place.to_owned(),
                why: format!("it claims format version {found}, which nobody has written here"),
            };
        }
        Some(newest) if found > reads => (
            "a newer release",
            format!("install release {newest} or later; the data is not damaged"),
        ),
        None if found > reads => (
            "a newer release",
            "install the release that wrote it, or a later one".to_owned(),
        ),
        _ => (
            "a build from before release 0.1.0",
            format!("run that build on it, or {REPLACE}"),
        ),
    };
    StoreError::OtherRelease(format!(
        "{what} in {} was written by {writer}: it has format version {found}, and this release \
         ({THIS}) reads version {reads}; {advice}",
        place.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_an_order() {
        assert!(is_later("0.10.0", "0.9.9"));
        assert!(is_later("1.0.0", "0.1.0"));
        assert!(!is_later("0.1.0", "0.1.0"));
        assert!(!is_later("unheard of", "0.1.0"));
        assert!(is_later("0.2.0-rc.1", "0.1.0"));
    }

    #[test]
    fn a_greater_version_is_a_newer_releases_work_only_where_one_was_there() {
        let said = |found, newest| {
            let place = Path::new("/data/db");
            unknown_format("a record".to_owned(), place, found, 2, newest).to_string()
        };
        let newer = said(3, Some("99.1.0"));
        for part in [
            "newer release",
            "99.1.0 or later",
            "not damaged",
            "/data/db",
            THIS,
        ] {
            assert!(newer.contains(part), "{part:?} is not in {newer}");
        }
        assert!(said(3, Some(THIS)).contains("is damaged"));
        assert!(said(3, None).contains("install the release that wrote it"));
        assert!(said(1, Some(THIS)).contains("before release 0.1.0"));
    }
}
