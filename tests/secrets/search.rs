//! Looks for secrets in outputs and files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use ratchet::node::hash_of;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, pem::PemObject};

/// How many digits of a token's hash are its id. More of them stand nowhere.
const ID_DIGITS: usize = 12;
/// The beginning of a key of the curve P-256, in PKCS #8, as `ratchet cert` makes it. The number that is secret follows.
const P256_HEAD: &[u8] = b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\
                           \x03\x01\x07\x04\x6d\x30\x6b\x02\x01\x01\x04\x20";
/// How many bytes that has.
const P256_SECRET_BYTES: usize = 32;

/// The outputs and answers that were seen: the place of each, and its bytes.
#[derive(Default)]
pub struct Seen(pub Vec<(String, Vec<u8>)>);

impl Seen {
    pub fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((place.into(), bytes.into()));
    }

    pub fn add_page(&mut self, what: &str, page: &crate::common::Page) {
        self.add(format!("the answer to {what}"), format!("{}\n{}", page.head, page.body));
    }
}

/// All files below `dir`.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        // A socket cannot be read.
        false => vec![path].into_iter().filter(|path| path.is_file()).collect(),
    };
    paths.flat_map(below).collect()
}

/// Bytes as a list of numbers.
fn as_numbers(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

fn as_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that give a text away: the text itself, also as the numbers of its bytes.
fn of_text(secret: &str) -> Vec<Vec<u8>> {
    [secret.to_owned(), as_numbers(secret.as_bytes())].map(String::into_bytes).into()
}

/// The bytes that give a token away: the token itself, and more digits of its hash than its id has.
pub fn of_token(token: &str) -> Vec<Vec<u8>> {
    let digits = as_digits(&hash_of(token.as_bytes()).0)[..=ID_DIGITS].to_owned();
    [of_text(token), vec![digits.into_bytes()]].concat()
}

/// The bytes that give a private key in PEM away: the number that is secret in it, in every way in which bytes are written,
/// and its lines.
pub fn of_key(pem: &str) -> Vec<Vec<u8>> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
    let der = key.secret_der();
    let secret = der.strip_prefix(P256_HEAD).and_then(|rest| rest.get(..P256_SECRET_BYTES));
    let secret = secret.expect("a key as ratchet cert makes it");
    let digits = as_digits(secret);
    let written = [as_numbers(secret), digits.to_uppercase(), digits];
    // In base 64, after any bytes: without the character at each end, in which there are bits of other bytes.
    let in_base_64 = (0..3).map(|skipped| {
        let text = BASE64_STANDARD_NO_PAD.encode(&secret[skipped..]);
        text[..text.len() - 1].to_owned()
    });
    // In the lines of the file: the secret begins in the first one, and ends in the second one.
    let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let in_first = P256_HEAD.len() / 3 * 4;
    let in_second = (P256_SECRET_BYTES - (lines[0].len() - in_first) / 4 * 3) / 3 * 4;
    let in_lines = [&lines[0][in_first..], &lines[1][..in_second]].map(str::to_owned);
    let texts = written.into_iter().chain(in_base_64).chain(in_lines).map(String::into_bytes);
    [secret.to_vec()].into_iter().chain(texts).collect()
}

/// Which of the forbidden texts, of eight bytes at least, stand in `bytes`.
fn found<'a>(bytes: &[u8], forbidden: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    // Texts that end with the same eight bytes are compared in full.
    let end = |text: &[u8]| text.iter().fold(0u64, |last, byte| last << 8 | u64::from(*byte));
    let mut ends: Vec<(u64, &[u8])> = forbidden.iter().map(|text| (end(text), &**text)).collect();
    ends.sort_unstable();
    let (mut last, mut found) = (0u64, Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        last = last << 8 | u64::from(*byte);
        let from = ends.partition_point(|(end, _)| *end < last);
        let same = ends[from..].iter().take_while(|(end, _)| *end == last);
        found.extend(same.map(|(_, text)| *text).filter(|text| bytes[..=at].ends_with(text)));
    }
    found
}

/// Sees that no secret stands in these bytes.
fn check(place: &str, bytes: &[u8], forbidden: &[Vec<u8>]) {
    let found: BTreeSet<_> = found(bytes, forbidden).into_iter().collect();
    let found: Vec<_> = found.iter().map(|text| text.escape_ascii().to_string()).collect();
    assert!(found.is_empty(), "{place} has {found:?}");
}

/// Sees that nothing forbidden is in the outputs and answers that were seen.
pub fn check_seen(seen: &Seen, forbidden: &[Vec<u8>]) {
    assert!(seen.0.len() > 200, "only {} things were seen", seen.0.len());
    seen.0.iter().for_each(|(place, bytes)| check(place, bytes, forbidden));
}

/// Sees that nothing forbidden is in a file below `dir`, but for files that hold it `by_design`. Returns how many were looked
/// at.
pub fn check_files(dir: &Path, forbidden: &[Vec<u8>], by_design: impl Fn(&Path) -> bool) -> usize {
    let files: Vec<PathBuf> = files(dir).into_iter().filter(|file| !by_design(file)).collect();
    for file in &files {
        check(&file.display().to_string(), &fs::read(file).expect("a file"), forbidden);
    }
    files.len()
}

#[test]
fn a_secret_is_found_wherever_it_stands_and_as_numbers() {
    let secrets = ["ratchet_one", "another_one"];
    let forbidden: Vec<Vec<u8>> =
        secrets.into_iter().flat_map(of_text).chain([b"RATCHET_O".to_vec()]).collect();
    let count = |text: &[u8]| found(text, &forbidden).len();
    for clean in [&b""[..], b"ratchet_on", b"atchet_one", b"RATCHET_", b"one", b"\x00\xff"] {
        assert_eq!(count(clean), 0, "{clean:?}");
    }
    for text in [&b"ratchet_one"[..], b"\xffratchet_one\x00", b"xRATCHET_Ox", b"aanother_oneone"] {
        assert_eq!(count(text), 1, "{text:?}");
    }
    let numbers = b"[114, 97, 116, 99, 104, 101, 116, 95, 111, 110, 101]";
    assert_eq!(count(numbers), 1);
}

#[test]
fn a_token_is_found_by_more_of_its_hash_than_its_id_has() {
    let digits = as_digits(&hash_of(b"a-token").0);
    let forbidden = of_token("a-token");
    assert!(found(&digits.as_bytes()[..ID_DIGITS], &forbidden).is_empty());
    assert_eq!(found(&digits.as_bytes()[..=ID_DIGITS], &forbidden).len(), 1);
}

#[test]
fn a_private_key_is_found_in_every_way_in_which_it_may_be_written() {
    let certificates = crate::common::certificates::Certificates::new();
    let read = |name: &str| String::from_utf8(certificates.read(name)).expect("PEM");
    let (key, certificate) = (read("ca.key"), read("ca.crt"));
    let forbidden = of_key(&key);
    let is_found = |bytes: &[u8]| !found(bytes, &forbidden).is_empty();
    // The certificate is the public part of the pair.
    assert!(!is_found(certificate.as_bytes()));
    let parsed = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let der = parsed.secret_der();
    assert!(!is_found(&der[P256_HEAD.len() + P256_SECRET_BYTES..]), "it is the public key");
    let lines: Vec<&str> = key.lines().collect();
    for shown in [&*key, &key.replace('\n', "\\n"), &key.replace('\n', ""), lines[1], lines[2]] {
        assert!(is_found(shown.as_bytes()), "{shown}");
    }
    assert!(is_found(der));
    assert!(is_found(format!("{der:?}").as_bytes()));
    for digits in [as_digits(der), as_digits(der).to_uppercase()] {
        assert!(is_found(digits.as_bytes()), "{digits}");
    }
    for before in 0..3 {
        let shifted = [&vec![7; before], der].concat();
        assert!(is_found(BASE64_STANDARD_NO_PAD.encode(shifted).as_bytes()), "{before} before");
    }
}
