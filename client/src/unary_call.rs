//! Calls that any server can answer.
//!
//! Invariant: what changes something is asked for again elsewhere only if the first server cannot have
//! heard of it.

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, transport::Channel};

use crate::{error::Error, servers::Servers};

impl Servers {
    /// Asks one server after the other until one answers, or refuses, or the time is up. A server
    /// that says nothing costs its share of the time; what changes something is then not asked for
    /// again elsewhere, since it may have been done.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn call<Q, A, F>(
        &self,
        changes: bool,
        request: Q,
        ask: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let deadline = Instant::now() + self.timeout();
        let mut untried = self.count() as u32;
        loop {
            let server = self.current();
            let left = deadline.saturating_duration_since(Instant::now());
            let share = if changes { left } else { left / untried };
            let mut message = Request::new(request.clone());
            message.set_timeout(share);
            let (asked, channel) = (Instant::now(), self.channel(&server)?);
            let answer = tokio::time::timeout(share, ask(channel, message)).await;
            let status = match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                // tonic's own timeout is `Cancelled`, and so is what was under way when a connection broke.
                Ok(Err(status)) if status.code() != Code::Cancelled || asked.elapsed() < share => {
                    status
                }
                Ok(Err(_)) | Err(_) => {
                    Status::deadline_exceeded(format!("no answer within {} ms", share.as_millis()))
                }
            };
            let was_heard = !never_connected(&status);
            let status = unbroken(status);
            let elsewhere = match status.code() {
                // A change may have been done, unless nobody was there to hear of it.
                Code::Unavailable => !changes || !was_heard,
                Code::DeadlineExceeded => !changes,
                _ => false,
            };
            untried -= 1;
            if !elsewhere || untried == 0 {
                return Err(Error::status(&server, &self.explain(status)));
            }
            self.pass_over(&server);
        }
    }
}

/// A status that the transport made of a connection that broke, as what it is to the caller: nobody
/// answered. (It is UNKNOWN, INTERNAL or CANCELLED by itself, as a server's own may be.)
fn unbroken(status: Status) -> Status {
    let is_own = std::error::Error::source(&status).is_some();
    match status.code() {
        Code::Unknown | Code::Internal | Code::Cancelled if is_own => {
            Status::unavailable(format!("the connection broke: {}", status.message()))
        }
        _ => status,
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
    use std::time::Duration;

    use super::*;
    use crate::api::{StatusRequest, admin_client::AdminClient};

    #[tokio::test]
    async fn a_refused_connection_is_told_from_an_answer_that_was_lost() {
        // Bound and dropped: nobody listens there.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let servers = Servers::new(&[address.to_string()], Duration::from_secs(5), false).unwrap();
        let channel = servers.channel(&address.to_string()).unwrap();
        let call = AdminClient::new(channel).status(StatusRequest {}).await;
        let status = call.expect_err("nobody can have answered");
        assert_eq!(status.code(), Code::Unavailable);
        assert!(never_connected(&status));
        assert!(!never_connected(&Status::unavailable("no leader is known")));
    }

    #[test]
    fn what_the_transport_says_of_a_broken_connection_is_an_absence() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let broken = Status::from_error(Box::new(reset));
        assert_eq!(broken.code(), Code::Unknown);
        assert_eq!(unbroken(broken).code(), Code::Unavailable);
        let own = unbroken(Status::internal("a fault of the server"));
        assert_eq!(own.code(), Code::Internal);
    }
}
