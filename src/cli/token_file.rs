//! Tokens: how they are drawn, and the files that hold them, one each.
//!
//! Invariant: no error has a token in it, and a file that is there is never overwritten.

use std::path::Path;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use ratchet_client::{Client, Error};
use ring::rand::{SecureRandom, SystemRandom};

use super::{
    command_error::CommandError,
    files::{self, Existing, Readers, Staged},
};
use crate::node::hash_of;

/// How many random bytes a token has.
const RANDOM_BYTES: usize = 32;
/// The beginning of the tokens that are drawn here. By it a token is known for one wherever it turns up.
const PREFIX: &str = "ratchet_";
/// The fewest characters of a token: 128 random bits in base64 have 22. The cluster stores its SHA-256, from which a shorter
/// one could be guessed.
const CHARS_MIN: usize = 22;

/// A token. It is not `Debug`, so that it is not printed by mistake.
pub struct SecretToken(String);

impl SecretToken {
    /// A new token.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn draw() -> Result<SecretToken, CommandError> {
        let mut bytes = [0; RANDOM_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| {
            CommandError::other("the system gives no random bytes to draw a token from; try again")
        })?;
        Ok(SecretToken(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The token in the file that a flag names. It stands in one line, whose end does not count.
    ///
    /// # Errors
    /// If the file cannot be read, or what is in it is no token.
    pub fn read(flag: &str, path: &Path) -> Result<SecretToken, Error> {
        let refused = |why: &str| Error::Invalid(format!("{flag} {}: {why}", path.display()));
        let text = String::from_utf8(files::read_named(flag, path)?);
        let text = text.map_err(|_| refused("it is no text; give a file with a token in it"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        // The client knows what a token is made of.
        let built = Client::builder().token(text).build();
        built.map_err(|why| refused(&why.to_string()))?;
        Ok(SecretToken(text.to_owned()))
    }

    /// The token in the file that `flag` names. If there is no such file, it is a new one, and the file has it then: only its
    /// owner can read it. False with one that was there.
    ///
    /// # Errors
    /// As [`SecretToken::read`], also if the token is short enough to be guessed; or if the file cannot be written.
    pub fn of_file(flag: &str, path: &Path) -> Result<(SecretToken, bool), CommandError> {
        if !files::is_there(path)? {
            let token = SecretToken::draw()?;
            let line = format!("{}\n", token.0);
            Staged::new(path.to_owned(), &line, Readers::Owner)?.publish(Existing::Kept)?;
            return Ok((token, true));
        }
        let another = "; to have a token drawn, name a file that is not there yet";
        let token =
            SecretToken::read(flag, path).map_err(|why| CommandError::from(why).and(another))?;
        match token.0.len() < CHARS_MIN {
            false => Ok((token, false)),
            true => Err(CommandError::refused(format!(
                "{flag} {}: the token has fewer than {CHARS_MIN} characters, and may be guessed{another}",
                path.display()
            ))),
        }
    }

    /// The error for the user after a cluster refused a request with the token in this file. If the request can be repeated,
    /// the error says so.
    pub fn refused(path: &Path, error: Error) -> CommandError {
        let may_be_repeated = error.is_retryable() || matches!(error, Error::OutcomeUnknown { .. });
        let error = CommandError::from(error);
        // A pipe has no token any more.
        match may_be_repeated && path.is_file() {
            false => error,
            true => error.and(&format!(
                "; the token is in {}: run the command again, and it is taken from there",
                path.display()
            )),
        }
    }

    /// The token as it is shown to servers.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The SHA-256 of its text.
    pub fn sha256(&self) -> Bytes {
        Bytes::copy_from_slice(&hash_of(self.0.as_bytes()).0)
    }

    /// Its id in the list of principals.
    pub fn id(&self) -> String {
        hash_of(self.0.as_bytes()).id()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// The text about a token that is not taken.
    fn refusal<E: std::fmt::Debug>(read: Result<impl Sized, E>) -> String {
        format!("{:?}", read.err().expect("it is refused"))
    }

    #[test]
    fn a_drawn_token_is_one_that_calls_can_carry_and_no_two_are_alike() {
        let [one, other] = [(); 2].map(|()| SecretToken::draw().unwrap());
        assert_ne!(one.text(), other.text());
        let random = one.text().strip_prefix("ratchet_").expect("what it begins with");
        assert_eq!(random.len(), 43);
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(random).unwrap().len(), 32);
        Client::builder().token(one.text()).build().expect("a token");
    }

    #[test]
    fn the_hash_of_a_token_is_that_of_its_text() {
        // As of `printf abc | sha256sum`.
        let token = SecretToken("abc".to_owned());
        assert!(token.sha256().starts_with(&[0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf]));
        assert_eq!((token.sha256().len(), &*token.id()), (32, "ba7816bf8f01"));
    }

    #[test]
    fn a_new_token_is_in_a_file_of_its_owners_and_is_taken_from_there_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.token");
        let (drawn, is_new) = SecretToken::of_file("--file", &path).unwrap();
        assert!(is_new);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", drawn.text()));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let (read, is_new) = SecretToken::of_file("--file", &path).unwrap();
        assert_eq!((read.text(), is_new), (drawn.text(), false));
        assert_eq!(SecretToken::read("--token-file", &path).unwrap().text(), drawn.text());
    }

    #[test]
    fn a_file_without_a_usable_token_is_left_as_it_is_and_is_told_without_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let long = "secret".repeat(50);
        for (text, why) in [
            (&b""[..], "the token has 0 bytes"),
            (b"\r\n", "the token has 0 bytes"),
            (b"secret secret secret secret\n", "byte 7 of the token"),
            (b"secretsecret\nsecretsecret\n", "byte 13 of the token"),
            (long.as_bytes(), "the token has 300 bytes"),
            (b"secret\xff", "it is no text"),
        ] {
            fs::write(&path, text).unwrap();
            let read = refusal(SecretToken::read("--file", &path));
            let kept = refusal(SecretToken::of_file("--file", &path));
            for refused in [&read, &kept] {
                assert!(refused.contains(&format!("--file {}: ", path.display())), "{refused}");
                assert!(refused.contains(why) && !refused.contains("secret"), "{refused}");
            }
            assert!(kept.contains("a file that is not there yet"), "{kept}");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        fs::write(&path, "secretsecretsecretsec").unwrap();
        let short = refusal(SecretToken::of_file("--file", &path));
        assert!(short.contains("fewer than 22 ch") && !short.contains("secret"), "{short}");
        let nowhere = refusal(SecretToken::of_file("--file", &dir.path().join("none/token")));
        assert!(nowhere.contains("cannot write") && nowhere.contains("none/token"), "{nowhere}");
    }
}
