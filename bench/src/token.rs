//! The option for a running cluster that wants to know its callers, and the token that the option names.

use std::{fs, path::PathBuf};

use clap::Args;
use hyper::header::HeaderValue;
use ratchet_client::Client;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
};

use crate::error::Error;

/// The option for a cluster that wants a token.
#[derive(Debug, Clone, Args)]
pub struct TokenOptions {
    /// Show --server the token in this file, which has it in one line. It takes next on the namespaces bench and book,
    /// namespaces on bench, and read on all
    #[arg(long, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
}

impl TokenOptions {
    /// The token that the option names; `None` without it.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no token.
    pub fn read(&self) -> Result<Option<Token>, Error> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let failed = |why: &dyn std::fmt::Display| {
            Error::config(format!("cannot use --token-file {}: {why}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let text = text.trim_end_matches(['\r', '\n']).to_owned();
        // The client knows the form of a token.
        Client::builder().token(&text).build().map_err(|error| failed(&error))?;
        let authorization = MetadataValue::try_from(format!("Bearer {text}"));
        let mut authorization = authorization.map_err(|error| failed(&error))?;
        authorization.set_sensitive(true);
        Ok(Some(Token { text, authorization }))
    }
}

/// A token. It is not `Debug`, so that it is not printed by mistake.
#[derive(Clone)]
pub struct Token {
    text: String,
    authorization: MetadataValue<Ascii>,
}

impl Token {
    /// The same for the Rust client, and for the command AUTH of Redis clients.
    pub fn of_client(&self) -> &str {
        &self.text
    }

    /// The same for the header `authorization` of HTTP.
    ///
    /// # Errors
    /// If no header can hold it.
    pub fn of_http(&self) -> Result<HeaderValue, Error> {
        let mut header = HeaderValue::from_bytes(self.authorization.as_bytes())
            .map_err(|_| Error::config("the token has characters that no header can hold"))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// A request without the Rust client, which shows the token if there is one.
pub fn request<M>(message: M, token: Option<&Token>) -> Request<M> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.authorization.clone());
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_the_token_in_the_file_and_what_is_none_is_not_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let options = TokenOptions { token_file: Some(path.clone()) };
        fs::write(&path, "secret\n").unwrap();
        let token = options.read().unwrap_or_default().expect("a token");
        let shown = request((), Some(&token));
        assert_eq!(shown.metadata().get("authorization").unwrap(), "Bearer secret");
        assert!(request((), None).metadata().is_empty());
        fs::write(&path, "sec ret").unwrap();
        let refused = format!("{:?}", options.read().err().expect("two words"));
        assert!(refused.contains("--token-file") && !refused.contains("sec"), "{refused}");
    }
}
