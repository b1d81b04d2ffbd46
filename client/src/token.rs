//! The token that names the caller, and how it travels.
//!
//! Invariant: a token is in no error and in no debug output.

use std::fmt;

use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 256;

/// A token, as it was given: see [`Builder::token`](crate::Builder::token).
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    /// Writes that there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl Token {
    /// Takes the text as it is.
    pub fn new(text: String) -> Token {
        Token(text)
    }

    /// The value of `authorization` in the metadata of calls.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the token does not have 1 to 256 characters of visible ASCII.
    pub fn authorization(&self) -> Result<MetadataValue<Ascii>, Error> {
        let bytes = self.0.len();
        if !(1..=TOKEN_BYTES_MAX).contains(&bytes) {
            return Err(Error::Invalid(format!(
                "the token has {bytes} bytes; give one of 1 to {TOKEN_BYTES_MAX}"
            )));
        }
        let invisible = self.0.bytes().position(|byte| !byte.is_ascii_graphic());
        let value = MetadataValue::try_from(format!("Bearer {}", self.0));
        match (invisible, value) {
            (None, Ok(mut value)) => {
                value.set_sensitive(true);
                Ok(value)
            }
            (place, _) => Err(Error::Invalid(format!(
                "byte {} of the token is no visible ASCII character; give the token alone, as it was printed",
                place.unwrap_or_default() + 1
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use parking_lot::Mutex;
    use tonic::{
        Code, Request, Status,
        service::{InterceptorLayer, Routes},
        transport::{Server, server::TcpIncoming},
    };

    use super::*;
    use crate::{Client, api, dispatcher::SILENCE_MAX};

    #[test]
    fn a_token_that_no_call_could_carry_is_refused_when_the_client_is_built_and_is_not_told() {
        let build = |token: &str| Client::builder().token(token).build();
        let longest = "x".repeat(TOKEN_BYTES_MAX);
        for token in ["a", "ratchet_Az09-_", "!~", &longest] {
            build(token).expect("a token");
        }
        for (token, why) in [
            ("", "has 0 bytes"),
            (&*(longest.clone() + "x"), "has 257 bytes"),
            ("sec ret", "byte 4 of the token"),
            ("secret\n", "byte 7 of the token"),
            ("\tsecret", "byte 1 of the token"),
            ("sec\u{7f}ret", "byte 4 of the token"),
            ("secrét", "byte 5 of the token"),
        ] {
            let Err(Error::Invalid(refused)) = build(token) else {
                panic!("{token:?} is not refused");
            };
            assert!(refused.contains(why) && refused.contains("; give "), "{refused}");
            assert!(!refused.contains("sec") && !refused.contains("xx"), "{refused}");
        }
    }

    #[test]
    fn no_token_is_printed() {
        let builder = Client::builder().token("secret");
        let shown = format!("{builder:?}");
        assert!(shown.contains("token: Some(Token { .. })"), "{shown}");
        let client = builder.build().expect("a client");
        let known = format!("{client:?}");
        assert!(known.contains("has_token: true"), "{known}");
        let header = Token::new("secret".to_owned()).authorization().expect("a token");
        assert_eq!(header, "Bearer secret");
        for shown in [shown, known, format!("{header:?}")] {
            assert!(!shown.contains("secret"), "{shown}");
        }
        let without = Client::builder().build().expect("a client");
        assert!(format!("{without:?}").contains("has_token: false"));
    }

    /// Starts a server that lets nobody in, and notes the tokens that it is shown in `calls`. Returns its address.
    fn serve(refusal: Code, calls: Arc<Mutex<Vec<Option<String>>>>) -> String {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).expect("a port");
        let address = incoming.local_addr().expect("an address").to_string();
        let refuse = move |call: Request<()>| {
            let shown = call.metadata().get("authorization");
            calls.lock().push(shown.map(|shown| shown.to_str().unwrap().to_owned()));
            Err::<Request<()>, _>(Status::new(refusal, "who asks?"))
        };
        let mut server = Server::builder().layer(InterceptorLayer::new(refuse));
        tokio::spawn(server.add_routes(Routes::default()).serve_with_incoming(incoming));
        address
    }

    #[tokio::test]
    async fn every_call_shows_the_token_and_one_that_is_refused_for_it_is_not_repeated() {
        let unauthenticated = (Code::Unauthenticated, crate::Code::Unauthenticated);
        let denied = (Code::PermissionDenied, crate::Code::PermissionDenied);
        for ((refusal, told), follows) in
            [(unauthenticated, true), (unauthenticated, false), (denied, true), (denied, false)]
        {
            let calls = Arc::new(Mutex::new(Vec::new()));
            let servers = [(); 2].map(|()| serve(refusal, calls.clone()));
            let builder = Client::builder().timeout(Duration::from_secs(60));
            let builder = builder.servers(servers).follow_leader(follows);
            let client = builder.token("secret").build().expect("a client");
            let began = Instant::now();
            let refusals = [
                client.status().await.map(drop),
                client.create_token(api::CreateTokenRequest::default()).await.map(drop),
                client.next("book", 1).await.map(drop),
                client.next_once("book", 1, 1, "order-7").await.map(drop),
                client.export("book").await.map(drop),
            ];
            for refused in &refusals {
                let refused = refused.as_ref().expect_err("nobody is let in");
                assert_eq!(refused.code(), Some(told), "{refused}");
                assert!(refused.to_string().ends_with(": who asks?"), "{refused}");
            }
            // A client that follows the leader asks another server who leads if the first one is silent for so long.
            let asks_who_leads = follows && began.elapsed() >= SILENCE_MAX;
            let calls = calls.lock();
            let show_it = calls.iter().all(|shown| shown.as_deref() == Some("Bearer secret"));
            assert!(show_it, "{calls:?}");
            assert!(calls.len() == refusals.len() || asks_who_leads, "one each: {calls:?}");
        }
    }
}
