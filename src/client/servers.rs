//! The servers of a cluster: connections to them, and calls that any of them can answer.
//!
//! Invariant: what changes something is asked for again elsewhere only if the first server cannot have
//! heard of it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint},
};

use super::ClientError;

/// The servers that the client was given, and those that it learnt of.
pub struct Servers {
    given: Vec<String>,
    timeout: Duration,
    /// The one that answered last.
    current: AtomicUsize,
    channels: Mutex<HashMap<String, Channel>>,
}

impl Servers {
    /// The servers `given` ("host:port"), for calls that are given up after `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Server`] for an address that cannot be one, or if there is none.
    pub fn new(given: &[String], timeout: Duration) -> Result<Servers, ClientError> {
        if given.is_empty() {
            return Err(ClientError::Server("no server is given".to_owned()));
        }
        let servers = Servers {
            given: given.to_vec(),
            timeout,
            current: AtomicUsize::new(0),
            channels: Mutex::default(),
        };
        for server in given {
            servers.channel(server)?;
        }
        Ok(servers)
    }

    /// After how long a call is given up.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many there were to begin with; at least 1.
    pub fn count(&self) -> usize {
        self.given.len()
    }

    /// The one to ask.
    pub fn current(&self) -> &str {
        &self.given[self.current.load(Relaxed) % self.given.len()]
    }

    /// Has another one be asked than `failed`.
    pub fn pass_over(&self, failed: &str) {
        if self.current() == failed {
            self.current.fetch_add(1, Relaxed);
        }
    }

    /// The connection to a server; made at its first use, and again after it broke.
    ///
    /// # Errors
    /// [`ClientError::Server`] for an address that cannot be one.
    pub fn channel(&self, server: &str) -> Result<Channel, ClientError> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(server) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{server}")).map_err(|error| {
            ClientError::Server(format!(
                "server {server:?} is not of the form host:port: {error}"
            ))
        })?;
        let channel = endpoint
            .connect_timeout(self.timeout.min(Duration::from_secs(1)))
            .tcp_nodelay(true)
            .connect_lazy();
        channels.insert(server.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Asks one server after the other until one answers, or refuses, or the time is up. A server
    /// that says nothing costs its share of the time; what changes something is then not asked for
    /// again elsewhere, since it may have been done.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn call<Q, A, F>(
        &self,
        changes: bool,
        request: Q,
        ask: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, ClientError>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut untried = self.count() as u32;
        loop {
            let server = self.current().to_owned();
            let left = deadline.saturating_duration_since(Instant::now());
            let share = if changes { left } else { left / untried };
            let mut message = Request::new(request.clone());
            message.set_timeout(share);
            let answer = tokio::time::timeout(share, ask(self.channel(&server)?, message)).await;
            let status = match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if status.code() != Code::Cancelled => status,
                // tonic's own timeout is `Cancelled`.
                Ok(Err(_)) | Err(_) => {
                    Status::deadline_exceeded(format!("no answer within {} ms", share.as_millis()))
                }
            };
            let elsewhere = match status.code() {
                // A change may have been done, unless nobody was there to hear of it.
                Code::Unavailable => !changes || never_connected(&status),
                Code::DeadlineExceeded => !changes,
                _ => false,
            };
            untried -= 1;
            if !elsewhere || untried == 0 {
                return Err(ClientError::status(&server, status));
            }
            self.pass_over(&server);
        }
    }
}

/// Whether the request cannot have reached the server.
fn never_connected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::{StatusRequest, admin_client::AdminClient};

    #[tokio::test]
    async fn a_refused_connection_is_told_from_an_answer_that_was_lost() {
        // Bound and dropped: nobody listens there.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let servers = Servers::new(&[address.to_string()], Duration::from_secs(5)).unwrap();
        let call = servers.call(false, StatusRequest {}, async |channel, request| {
            AdminClient::new(channel).status(request).await
        });
        let Err(ClientError::Status { status, .. }) = call.await else {
            panic!("nobody can have answered");
        };
        assert_eq!(status.code(), Code::Unavailable);
        assert!(never_connected(&status));
        assert!(!never_connected(&Status::unavailable("no leader is known")));
    }
}
