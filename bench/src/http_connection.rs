//! A connection over HTTP/1.1 that takes numbers.

use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{self, Connection, SendRequest},
    header::{AUTHORIZATION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;

use crate::{
    error::Error,
    socket::{Manner, Socket},
    target::NAMESPACE,
    token::Token,
};

/// A connection with one request in flight at a time. It is kept alive between them.
pub struct HttpConnection {
    address: String,
    /// Shows the token, if there is one.
    authorization: Option<HeaderValue>,
    sender: SendRequest<Empty<Bytes>>,
    /// The caller drives it: a task of its own would cost the caller two switches for each request.
    connection: Connection<TokioIo<Socket>, Empty<Bytes>>,
}

/// The answer to a request for numbers, as far as it is used here.
#[derive(Deserialize)]
struct Range<'a> {
    first: &'a str,
}

impl HttpConnection {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be connected to.
    pub async fn connect(address: &str, manner: &Manner) -> Result<HttpConnection, Error> {
        let failed = |error: String| Error::other(format!("http at {address}: {error}"));
        let stream = manner.connect(address).await.map_err(|error| failed(error.to_string()))?;
        let greeted = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = greeted.map_err(|error| failed(error.to_string()))?;
        let authorization = manner.token.as_ref().map(Token::of_http).transpose()?;
        Ok(HttpConnection { address: address.to_owned(), authorization, sender, connection })
    }

    /// Takes the next number of a key.
    ///
    /// # Errors
    /// The text of the failure, or the server's answer if it is no number.
    pub async fn next(&mut self, key: u64) -> Result<u64, String> {
        let mut request = Request::post(format!("/v1/namespaces/{NAMESPACE}/keys/{key}:next"))
            .header(HOST, &self.address)
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let sent = self.sender.send_request(request);
        let exchange = pin!(async {
            let (head, body) = sent.await?.into_parts();
            Ok::<_, hyper::Error>((head.status, body.collect().await?.to_bytes()))
        });
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            ended = &mut self.connection => match ended {
                Ok(()) => return Err("the server closed the connection".to_owned()),
                Err(error) => Err(error),
            },
        };
        let (status, body) = answer.map_err(|error| error.to_string())?;
        let number = match status {
            StatusCode::OK => serde_json::from_slice(&body).ok(),
            _ => None,
        };
        let number = number.and_then(|range: Range<'_>| range.first.parse().ok());
        number.ok_or_else(|| format!("{status}: {}", String::from_utf8_lossy(&body)))
    }
}
