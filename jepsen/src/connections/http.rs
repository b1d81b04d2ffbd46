//! HTTP/1.1 with JSON, over one connection.

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{task::JoinSet, time::timeout};

use super::{failure::Failure, tcp::connect};
use crate::{
    access::Protocol,
    address::Address,
    client::{self, DEADLINE, FirstAndLast},
    history::Action,
    target::Target,
};

#[cfg(test)]
mod tests;

/// The outcome of a request of which nothing was done.
const NOT_DONE: &str = "NOT_DONE";
/// How long the node may take, in milliseconds.
const TIMEOUT_HEADER: &str = "ratchet-timeout-ms";

/// A caller's connection to the HTTP port of a node.
pub struct HttpConnection {
    address: Address,
    connection: Option<Connection>,
}

/// A connection without a request under way.
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Moves the bytes. It ends with the connection.
    _driver: JoinSet<()>,
}

/// A node's answer about numbers that it handed out.
#[derive(Deserialize)]
struct Range {
    first: String,
    last: String,
}

/// A node's answer about the last number that was handed out.
#[derive(Deserialize)]
struct Last {
    last: Option<String>,
}

/// A node's answer about a key's floor.
#[derive(Deserialize)]
struct Floor {
    floor: String,
}

/// A node's answer to a request that failed.
#[derive(Deserialize)]
struct Problem {
    code: String,
    /// The outcome of the request. Ratchet's own answers have it.
    #[serde(default)]
    outcome: String,
    detail: String,
}

impl HttpConnection {
    /// Connects at the first request.
    pub fn new(address: impl Into<Address>) -> HttpConnection {
        HttpConnection { address: address.into(), connection: None }
    }

    /// Asks once.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn ask(&mut self, target: &Target, action: Action) -> Result<FirstAndLast, Failure> {
        let (namespace, key) = (target.namespace, target.key_text());
        let key = format!("/v1/namespaces/{namespace}/keys/{key}");
        let (method, path) = match action {
            Action::Next { count } => (Method::POST, format!("{key}:next?count={count}")),
            Action::Current => (Method::GET, key),
            Action::Raise { floor } => (Method::POST, format!("{key}:raise?at_least={floor}")),
        };
        let (status, body) = self.request(method, &path, Bytes::new()).await?;
        judge(action, status, &body)
    }

    /// Posts JSON, and reads JSON.
    ///
    /// # Errors
    /// The node's, or the connection's.
    pub async fn post<T: DeserializeOwned>(
        &mut self, path: &str, body: String,
    ) -> Result<T, Failure> {
        let (status, body) = self.request(Method::POST, path, body.into()).await?;
        match status {
            StatusCode::OK => read(status, &body),
            _ => Err(problem(status, &body)),
        }
    }

    async fn request(
        &mut self, method: Method, path: &str, body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        // A connection that fails meanwhile is not kept: a late answer on it would be taken for the answer to
        // another request.
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.requests.is_closed() => connection,
            Some(_) | None => Connection::open(&self.address).await?,
        };
        let exchange = timeout(DEADLINE, connection.exchange(&self.address, method, path, body));
        let in_time = exchange.await;
        let answer = in_time.unwrap_or_else(|_| Err(Failure::unknown("no answer in time")))?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl Connection {
    async fn open(address: &Address) -> Result<Connection, Failure> {
        let stream = TokioIo::new(connect(address, Protocol::Http).await?);
        let opened = http1::handshake(stream).await;
        let (requests, connection) =
            opened.map_err(|error| Failure::refused(format!("nothing was sent: {error}")))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The request that is under way says how the connection ended.
            let _ = connection.await;
        });
        Ok(Connection { requests, _driver: driver })
    }

    /// Sends a request, and reads the whole answer.
    async fn exchange(
        &mut self, address: &Address, method: Method, path: &str, body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let authorization = address.access().and_then(|access| access.authorization());
        let mut request = Request::builder();
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization.as_bytes());
        }
        let request = request
            .method(method)
            .uri(path)
            .header(header::HOST, address.at.to_string())
            .header(TIMEOUT_HEADER, DEADLINE.as_millis().to_string())
            .body(Full::new(body))
            .map_err(|error| Failure::refused(format!("nothing was sent: {error}")))?;
        let ready = self.requests.ready().await;
        ready.map_err(|error| Failure::refused(format!("nothing was sent: {error}")))?;
        let broke = |error: hyper::Error| Failure::unknown(format!("the connection: {error}"));
        let answer = self.requests.send_request(request).await.map_err(broke)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(broke)?;
        Ok((status, body.to_bytes()))
    }
}

/// The failure in a node's answer.
fn problem(status: StatusCode, body: &[u8]) -> Failure {
    let problem: Problem = match read(status, body) {
        Ok(problem) => problem,
        Err(failure) => return failure,
    };
    let note = format!("{}: {}", problem.code, problem.detail);
    let refusals = client::REFUSALS.map(|(_, name)| name);
    match refusals.contains(&problem.code.as_str()) {
        true => Failure::refused(note),
        false if problem.outcome == NOT_DONE => Failure::not_done(note),
        false => Failure::unknown(note),
    }
}

/// Reads an answer to an action.
fn judge(action: Action, status: StatusCode, body: &[u8]) -> Result<FirstAndLast, Failure> {
    if status != StatusCode::OK {
        return Err(problem(status, body));
    }
    let number = |text: &str| {
        let number = text.parse::<u64>();
        number.map_err(|_| Failure::unknown(format!("{text:?} is no number")))
    };
    if let Action::Next { .. } = action {
        let range: Range = read(status, body)?;
        return Ok((number(&range.first)?, number(&range.last)?));
    }
    if let Action::Raise { .. } = action {
        let Floor { floor } = read(status, body)?;
        let floor = number(&floor)?;
        return Ok((floor, floor));
    }
    let last: Last = read(status, body)?;
    let last = last.last.map_or(Ok(0), |last| number(&last))?;
    Ok((last, last))
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let body = String::from_utf8_lossy(body);
        Failure::unknown(format!("{status} with the body {body:?}: {error}"))
    })
}
