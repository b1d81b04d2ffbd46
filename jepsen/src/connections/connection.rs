//! One caller's way to one node.

use tonic::Status;

use super::{failure::Failure, http::HttpConnection, resp::RespConnection};
use crate::{
    address::Address,
    client::{Client, FirstAndLast},
    cluster::{HTTP_PORT, RESP_PORT},
    history::{Action, Interface},
    target::Target,
};

/// One caller's way to one node. It connects at the first call, and again after the connection broke.
pub enum Connection {
    /// gRPC: one key is asked for by a call, numbers of several by a message on a stream.
    Grpc(Box<Client>),
    /// HTTP: a request for each key, one after the other.
    Http(HttpConnection),
    /// The protocol of Redis clients: a pipeline with a command for each key.
    Resp(RespConnection),
}

impl Connection {
    /// A connection to an interface. `address` is where the node answers gRPC.
    pub fn new(interface: Interface, address: Address) -> Connection {
        match interface {
            Interface::Unary | Interface::Stream | Interface::ProductClient => {
                Connection::Grpc(Box::new(Client::new(address)))
            }
            Interface::Http => Connection::Http(HttpConnection::new(address.with_port(HTTP_PORT))),
            Interface::Resp => Connection::Resp(RespConnection::new(address.with_port(RESP_PORT))),
        }
    }

    /// Asks once for each key, all of one namespace. Returns the answer to each of them.
    pub async fn ask(
        &mut self, targets: &[Target], action: Action,
    ) -> Vec<Result<FirstAndLast, Failure>> {
        match (self, targets, action) {
            (Connection::Grpc(client), [target], _) => {
                vec![client.ask(target, action).await.map_err(Failure::from)]
            }
            (Connection::Grpc(client), _, Action::Next { count }) => {
                ask_on_stream(client, targets, count).await
            }
            (Connection::Grpc(client), _, Action::Current) => {
                of_each(targets, client.current_many(targets).await)
            }
            (Connection::Grpc(_), _, Action::Raise { .. }) => {
                let refused = Failure::refused("floors are raised one by one");
                vec![Err(refused); targets.len()]
            }
            (Connection::Http(http), _, _) => {
                let mut answers = Vec::with_capacity(targets.len());
                for target in targets {
                    answers.push(http.ask(target, action).await);
                }
                answers
            }
            (Connection::Resp(resp), _, _) => resp.ask(targets, action).await,
        }
    }
}

async fn ask_on_stream(
    client: &mut Client, targets: &[Target], count: u64,
) -> Vec<Result<FirstAndLast, Failure>> {
    let counts = vec![count; targets.len()];
    of_each(targets, client.ask_many(targets, &counts).await)
}

/// The part of each key in the answer to a message.
fn of_each(
    targets: &[Target], answer: Result<Vec<Result<FirstAndLast, Status>>, Status>,
) -> Vec<Result<FirstAndLast, Failure>> {
    match answer {
        Ok(answers) => {
            let missing = || Failure::unknown("no number for the key");
            let places = 0..targets.len();
            let answers = places.map(|place| match answers.get(place) {
                Some(answer) => answer.clone().map_err(Failure::from),
                None => Err(missing()),
            });
            answers.collect()
        }
        Err(status) => vec![Err(Failure::from(status)); targets.len()],
    }
}
