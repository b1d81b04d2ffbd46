//! One caller's way to the ids of one node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use super::{taken::Said, wish::Wish};
use crate::{
    address::Address,
    client::{Channel, DEADLINE, bounded, channel},
    cluster::{HTTP_PORT, RESP_PORT},
    connections::{Failure, HttpConnection, RespConnection},
    proto::{Key, NextIdsRequest, NextIdsResponse, ids_client::IdsClient, key::Kind},
};

/// An interface through which ids are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdInterface {
    /// gRPC: a call.
    Unary,
    /// gRPC: messages on a stream.
    Stream,
    /// HTTP.
    Http,
    /// INCR, as Redis clients send it.
    Resp,
    /// The product's client makes them.
    Application,
}

impl IdInterface {
    /// The interfaces of a node.
    pub const OF_NODE: [IdInterface; 4] =
        [IdInterface::Unary, IdInterface::Stream, IdInterface::Http, IdInterface::Resp];
}

/// A way to the ids of one node. It connects at the first call, and again after the connection broke.
pub enum IdConnection {
    /// gRPC, a call for each wish.
    Unary(IdsClient<Channel>),
    /// gRPC, a message for each wish.
    Stream(IdsClient<Channel>, Option<Box<Messages>>),
    /// HTTP.
    Http(HttpConnection),
    /// The protocol of Redis clients.
    Resp(RespConnection),
}

/// A stream.
pub struct Messages {
    requests: mpsc::Sender<NextIdsRequest>,
    answers: Streaming<NextIdsResponse>,
}

/// A node's answer about ids that it made.
#[derive(Deserialize)]
struct MadeIds {
    /// The ids that fit 64 bits, unless texts are asked for.
    numbers: Vec<String>,
    /// The ids that do not fit, or all of them as texts.
    texts: Vec<String>,
}

impl IdConnection {
    /// A connection to an interface of a node. `address` is where the node answers gRPC. The product's client has ways of
    /// its own.
    pub fn new(interface: IdInterface, address: &Address) -> IdConnection {
        let grpc = || IdsClient::new(channel(address));
        match interface {
            IdInterface::Unary | IdInterface::Application => IdConnection::Unary(grpc()),
            IdInterface::Stream => IdConnection::Stream(grpc(), None),
            IdInterface::Http => {
                IdConnection::Http(HttpConnection::new(address.with_port(HTTP_PORT)))
            }
            IdInterface::Resp => {
                IdConnection::Resp(RespConnection::new(address.with_port(RESP_PORT)))
            }
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// The node's, or the connection's. Ids may have been made, and are burnt.
    pub async fn ask(&mut self, wish: &Wish) -> Result<Vec<Said>, Failure> {
        match self {
            IdConnection::Unary(client) => {
                let answer = timeout(DEADLINE, client.next(bounded(request(wish)))).await;
                let answer = answer.map_err(|_| Failure::unknown("no answer in time"))??;
                Ok(said(answer.into_inner()))
            }
            IdConnection::Stream(client, messages) => {
                let answer = timeout(DEADLINE, on_stream(client, messages, request(wish))).await;
                let answer = answer.unwrap_or_else(|_| Err(Failure::unknown("no answer in time")));
                if answer.is_err() {
                    // A late answer on it would be taken for the answer to another request.
                    *messages = None;
                }
                answer.map(said)
            }
            IdConnection::Http(http) => {
                let path = format!("/v1/namespaces/{}/ids:next", wish.namespace.name);
                let made: MadeIds = http.post(&path, body(wish)).await?;
                let numbers = made.numbers.into_iter().map(|number| {
                    let read = number.parse().map(Said::Number);
                    read.map_err(|_| Failure::unknown(format!("{number:?} is no number")))
                });
                numbers.chain(made.texts.into_iter().map(|text| Ok(Said::Text(text)))).collect()
            }
            IdConnection::Resp(resp) => {
                let id = resp.incr(&format!("id:{}", wish.namespace.name)).await?;
                Ok(vec![Said::Number(id.into())])
            }
        }
    }
}

async fn on_stream(
    client: &mut IdsClient<Channel>, messages: &mut Option<Box<Messages>>, request: NextIdsRequest,
) -> Result<NextIdsResponse, Failure> {
    let broke = || Failure::unknown("the stream broke");
    let open = match messages {
        Some(messages) => messages,
        none => {
            let (requests, outgoing) = mpsc::channel(1);
            let opened = client.next_many(ReceiverStream::new(outgoing)).await?;
            let answers = opened.into_inner();
            none.insert(Box::new(Messages { requests, answers }))
        }
    };
    let Messages { requests, answers } = &mut **open;
    requests.send(request).await.map_err(|_| broke())?;
    let answer = answers.next().await.ok_or_else(broke)??;
    match answer.error {
        None => Ok(answer),
        Some(failure) => Err(Status::new(failure.code.into(), failure.message).into()),
    }
}

fn request(wish: &Wish) -> NextIdsRequest {
    let parameters = wish.named_parameters();
    NextIdsRequest {
        namespace: wish.namespace.name.to_owned(),
        count: Some(wish.count),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).collect(),
        as_text: wish.as_text,
        key: wish.key.map(|id| Key { kind: Some(Kind::Id(id)) }),
    }
}

/// The request as JSON.
fn body(wish: &Wish) -> String {
    let parameters: BTreeMap<&str, u64> = wish.named_parameters().collect();
    let mut body =
        json!({ "count": wish.count, "parameters": parameters, "as_text": wish.as_text });
    if let Some(key) = wish.key {
        body["key"] = key.into();
    }
    body.to_string()
}

fn said(answer: NextIdsResponse) -> Vec<Said> {
    let numbers = answer.numbers.into_iter();
    let numbers = numbers.map(|number| Said::Number(number.into()));
    numbers.chain(answer.texts.into_iter().map(Said::Text)).collect()
}
