//! Looks for the secrets of a run in the files that it leaves behind: its report, its histories and the logs of its nodes.
//!
//! Invariant: a finding names the file of the secret, and not the secret.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// How many bytes of a file are looked at together.
const CHUNK_BYTES: u64 = 1 << 20;
/// A shorter text gives nothing away, and may stand anywhere.
const SECRET_BYTES_MIN: usize = 16;

/// A text that stands nowhere but in its file.
#[derive(Debug)]
struct Secret {
    /// The name of its file.
    file: String,
    text: Vec<u8>,
}

/// Sees that no token and no line of a private key that is in `secrets` stands in a file below `dir`. `secrets` itself may be
/// below it.
///
/// # Errors
/// One does; `secrets` has none; a file cannot be read.
pub(super) fn check(dir: &Path, secrets: &Path) -> io::Result<()> {
    let forbidden = read(secrets)?;
    let secrets = secrets.canonicalize()?;
    let (mut left, mut told) = (vec![dir.canonicalize()?], Vec::new());
    while let Some(dir) = left.pop() {
        if dir == secrets {
            continue;
        }
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                for file in found(File::open(&path)?, &forbidden)? {
                    told.push(format!("{} tells what is secret in {file}", path.display()));
                }
            }
        }
    }
    match told.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(told.join("; "))),
    }
}

/// The secrets in the files of a directory: tokens, and private keys in PEM.
fn read(dir: &Path) -> io::Result<Vec<Secret>> {
    let mut secrets = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if !path.extension().is_some_and(|end| end == "token" || end == "key") {
            continue;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= SECRET_BYTES_MIN && !line.starts_with("---"));
        secrets.extend(lines.map(|line| Secret { file: file.clone(), text: line.into() }));
    }
    match secrets.is_empty() {
        true => Err(io::Error::other(format!("{} has no secrets to look for", dir.display()))),
        false => Ok(secrets),
    }
}

/// The files whose secrets stand in `bytes`.
fn found(mut bytes: impl Read, forbidden: &[Secret]) -> io::Result<BTreeSet<&str>> {
    let longest = forbidden.iter().map(|secret| secret.text.len()).max().unwrap_or_default();
    // Histories are long. So most places are passed over by their last two bytes.
    let mut may_end = vec![false; 1 << 16];
    for secret in forbidden {
        if let [.., before, last] = secret.text[..] {
            may_end[place(before, last)] = true;
        }
    }
    let (mut looked_at, mut found) = (Vec::new(), BTreeSet::new());
    loop {
        // A secret may have begun in the bytes that were read before.
        looked_at.drain(..looked_at.len().saturating_sub(longest));
        let seen = looked_at.len();
        if bytes.by_ref().take(CHUNK_BYTES).read_to_end(&mut looked_at)? == 0 {
            return Ok(found);
        }
        for end in seen.max(1)..looked_at.len() {
            if may_end[place(looked_at[end - 1], looked_at[end])] {
                let until = &looked_at[..=end];
                let here = forbidden.iter().filter(|secret| until.ends_with(&secret.text));
                found.extend(here.map(|secret| &*secret.file));
            }
        }
    }
}

/// A number for two bytes.
fn place(before: u8, last: u8) -> usize {
    u16::from_be_bytes([before, last]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "ratchet_0123456789abcdef";
    const KEY: [&str; 2] = ["MIGHAgEAMBMGByqGSM49AgEGCCqGSM49", "AwEHBG0wawIBAQQgsecret=="];

    /// A directory with a report, and the secrets of its run below it.
    fn reported() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("secrets")).unwrap();
        fs::create_dir_all(dir.path().join("pods")).unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("secrets/admin.token", &format!("{TOKEN}\n"));
        let [first, second] = KEY;
        let key =
            format!("-----BEGIN PRIVATE KEY-----\n{first}\n{second}\n-----END PRIVATE KEY-----\n");
        put("secrets/ca.key", &key);
        put("secrets/ca.crt", "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n");
        put("history.json", "[1, 2]");
        put("node-1.log", "MIIBszCCAVmgAwIBAgIU -----BEGIN PRIVATE KEY----- ratchet_0123456789");
        dir
    }

    fn checked(dir: &Path) -> Result<(), String> {
        check(dir, &dir.join("secrets")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_is_found_in_each_file_of_a_report_and_is_not_told_again() {
        let dir = reported();
        assert_eq!(checked(dir.path()), Ok(()));
        for (file, secret, of) in [
            ("node-1.log", TOKEN, "admin.token"),
            ("pods/summary.json", TOKEN, "admin.token"),
            ("report.html", KEY[0], "ca.key"),
            ("history.edn", KEY[1], "ca.key"),
        ] {
            let path = dir.path().join(file);
            let before = fs::read(&path).unwrap_or_default();
            fs::write(&path, format!("{{:value \"{secret}\"}}")).unwrap();
            let told = checked(dir.path()).expect_err(file);
            assert!(told.contains(file) && told.ends_with(&format!("secret in {of}")), "{told}");
            assert!(!told.contains(secret), "{told}");
            fs::write(&path, before).unwrap();
            assert_eq!(checked(dir.path()), Ok(()));
        }
    }

    #[test]
    fn a_secret_is_found_at_every_place_of_a_long_file_and_at_its_ends() {
        let secrets = [TOKEN, KEY[1]]
            .map(|text| Secret { file: text.to_owned(), text: text.as_bytes().to_vec() });
        let chunk = usize::try_from(CHUNK_BYTES).unwrap();
        let length = TOKEN.len();
        for at in [0, 1, chunk - length, chunk - length + 1, chunk - 1, chunk, chunk + 1] {
            let mut bytes = vec![b'f'; at];
            bytes.extend(TOKEN.bytes());
            assert_eq!(found(&*bytes, &secrets).unwrap(), BTreeSet::from([TOKEN]), "at {at}");
            bytes.pop();
            assert_eq!(found(&*bytes, &secrets).unwrap(), BTreeSet::new(), "at {at}");
        }
        let both = [KEY[1], TOKEN].concat();
        assert_eq!(found(both.as_bytes(), &secrets).unwrap(), BTreeSet::from([KEY[1], TOKEN]));
    }

    #[test]
    fn a_directory_without_secrets_is_an_error() {
        let dir = reported();
        let none = check(dir.path(), &dir.path().join("pods")).unwrap_err().to_string();
        assert!(none.ends_with("has no secrets to look for"), "{none}");
    }
}
