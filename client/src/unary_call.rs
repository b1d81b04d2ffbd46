//! Unary calls: everything but taking numbers. Any server can answer them.
//!
//! Invariant: a call that changes something is repeated at another server only if the first one cannot have received it, or
//! says that it did nothing.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};

use crate::{
    causes::{never_connected, text},
    cluster::Connection,
    error::{Error, OtherCluster},
    server_pool::ServerPool,
};

/// Has a server answer a request of a unary call: `ask!(client, changes, SequencerClient::raise, request)`.
macro_rules! ask {
    ($client:expr, $changes:expr, $service:ident::$method:ident, $request:expr) => {
        $client.pool().call($changes, std::time::Duration::MAX, $request, async |channel, asked| {
            $service::new(channel).$method(asked).await
        })
    };
}

pub(crate) use ask;

impl ServerPool {
    /// Asks one server after the other until one answers or refuses, or the time is up. A silent server
    /// costs its share of the time, and `patience` at most. A call that `changes` something has all of that at one
    /// server, and is not repeated after silence: the change may have been made.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a server's address is none; [`Error::Server`] if a server refuses, or none
    /// answers in time; [`Error::OutcomeUnknown`] if a change may have been made; [`Error::OtherCluster`] if the last
    /// server belongs to another cluster.
    pub async fn call<Q, A, F>(
        &self, changes: bool, patience: Duration, request: Q,
        ask: impl Fn(Connection, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_of((false, changes), patience, request, ask).await
    }

    /// As [`ServerPool::call`], for requests that any server carries out by itself and that may be repeated without harm:
    /// the servers take turns.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a server's address is none; [`Error::Server`] if a server refuses, or none answers in time;
    /// [`Error::OtherCluster`] if the last server belongs to another cluster.
    pub async fn call_in_turn<Q, A, F>(
        &self, request: Q, ask: impl Fn(Connection, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_of((true, false), Duration::MAX, request, ask).await
    }

    async fn call_of<Q, A, F>(
        &self, (in_turn, changes): (bool, bool), patience: Duration, request: Q,
        ask: impl Fn(Connection, Request<Q>) -> F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let deadline = Instant::now() + self.timeout();
        let mut headers = MetadataMap::new();
        if let Some(span) = self.caller_span() {
            span.tell(&mut headers);
        }
        let mut untried = self.members().all().len() as u32;
        loop {
            let server = self.for_call(in_turn);
            let left = deadline.saturating_duration_since(Instant::now());
            let share = if changes { left } else { left / untried };
            let share = share.min(patience);
            let mut message = Request::new(request.clone());
            *message.metadata_mut() = headers.clone();
            message.set_timeout(share);
            let (asked, connection) = (Instant::now(), self.connection(&server)?);
            let answer = tokio::time::timeout(share, ask(connection, message)).await;
            let status = match answer {
                Ok(Ok(answer)) => match self.hear(&server, answer.metadata()) {
                    Ok(()) => return Ok(answer.into_inner()),
                    // Another cluster has changed something: that ends here.
                    Err(other) if changes => return Err(Error::status(&server, &other)),
                    Err(other) => other,
                },
                // tonic reports its own timeout as `Cancelled`, and so a call whose connection broke.
                // The elapsed time tells them apart.
                Ok(Err(status)) if status.code() != Code::Cancelled || asked.elapsed() < share => {
                    self.judge(&server, status)
                }
                Ok(Err(_)) | Err(_) => no_answer_within(share),
            };
            let (lost, status) = (lost_after_sending(&status), self.unbroken(status));
            // A node that says UNAVAILABLE has changed nothing.
            let may_be_done = changes
                && match status.code() {
                    Code::Unavailable => lost,
                    Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => true,
                    _ => false,
                };
            if may_be_done {
                self.call_failed(&server, in_turn);
                let status = self.explain(status);
                return Err(Error::outcome_unknown(&server, &text(&status), None));
            }
            let elsewhere = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
                || OtherCluster::of(&status).is_some();
            untried -= 1;
            if elsewhere {
                self.call_failed(&server, in_turn);
            }
            if elsewhere && untried == 0 {
                // The cluster may have been restored, with lower versions.
                self.members().forget_version();
            }
            if !elsewhere || untried == 0 {
                return Err(Error::status(&server, &self.explain(status)));
            }
        }
    }
}

/// True if a server may have received the request, and does not say why it failed, as nodes do in the details. The transport
/// failed once there was a connection, or the answer is a proxy's.
fn lost_after_sending(status: &Status) -> bool {
    status.details().is_empty() && !never_connected(status)
}

/// The failure of a server that was waited for in vain.
pub fn no_answer_within(waited: Duration) -> Status {
    let millis = waited.as_millis();
    Status::deadline_exceeded(format!("no answer within {millis} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{StatusRequest, admin_client::AdminClient};

    const TIMEOUT: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_refused_connection_is_distinguished_from_a_lost_answer() {
        // The port was bound and released: no one listens on it.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let servers =
            ServerPool::new(&[address.to_string()], Duration::from_secs(5), true, None, None)
                .unwrap();
        let connection = servers.connection(&address.to_string()).unwrap();
        let call = AdminClient::new(connection).status(StatusRequest {}).await;
        let status = call.expect_err("nobody can have answered");
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!lost_after_sending(&status));
        assert!(lost_after_sending(&Status::unavailable("a proxy says so")));
        let told = Status::with_details(Code::Unavailable, "no leader is known", "why".into());
        assert!(!lost_after_sending(&told));
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(lost_after_sending(&Status::from_error(Box::new(reset))));
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_left_after_a_calls_patience_by_changes_too() {
        let given = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned);
        let servers = ServerPool::new(&given, TIMEOUT, true, None, None).unwrap();
        let first = servers.members().current().clone();
        let silent =
            |_: Connection, _: Request<()>| std::future::pending::<Result<Response<()>, Status>>();
        let patience = Duration::from_millis(10);
        let changed = servers.call(true, patience, (), silent).await.expect_err("silence");
        assert!(matches!(changed, Error::OutcomeUnknown { .. }), "{changed}");
        assert_ne!(*servers.members().current(), first, "the other one is asked next");
        let read = servers.call(false, patience, (), silent).await.expect_err("silence");
        assert_eq!(read.code(), Some(crate::Code::DeadlineExceeded), "{read}");
    }

    #[tokio::test]
    async fn a_change_whose_call_was_cancelled_on_the_way_may_have_been_made() {
        let servers =
            ServerPool::new(&["127.0.0.1:1".to_owned()], TIMEOUT, true, None, None).unwrap();
        let cancelled = async |_: Connection, _: Request<()>| {
            Err::<Response<()>, Status>(Status::cancelled("by a proxy"))
        };
        let changed = servers.call(true, TIMEOUT, (), cancelled).await.expect_err("cancelled");
        assert!(matches!(changed, Error::OutcomeUnknown { .. }), "{changed}");
    }
}
