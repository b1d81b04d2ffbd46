//! Sends one RPC to one peer, and reads the answer. The caller decides what the answer means.

use std::{sync::Arc, time::Duration};

use openraft::errors::{NetworkError, RPCError, Unreachable};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    member_addresses::MemberAddresses,
    payload,
    transport::{Destination, RaftRpc, Transport},
};
use crate::{
    consensus::terms,
    proto::{
        Code, Refusal,
        peer::{Header, RaftMessage, RaftReply},
    },
    sequence::NodeId,
    storage::{Types, codec},
};

/// The way to one peer.
#[derive(Clone)]
pub struct RpcClient {
    /// Delivers the messages.
    pub transport: Arc<dyn Transport>,
    /// Where the members are now.
    pub addresses: Arc<MemberAddresses>,
    /// The peer.
    pub target: NodeId,
    /// Where the peer was when this client was made.
    pub first_address: String,
    /// The header of every message to the peer.
    pub header: Header,
}

impl RpcClient {
    /// Where the peer is now.
    pub fn address(&self) -> String {
        let now = self.addresses.of(self.header.to_incarnation);
        now.unwrap_or_else(|| self.first_address.clone())
    }

    /// The peer at `address`.
    pub fn to<'a>(&self, address: &'a str) -> Destination<'a> {
        Destination { node: self.target, address }
    }

    /// The message that carries `question`.
    pub fn message<Q: Serialize>(&self, question: &Q) -> Result<RaftMessage, RPCError<Types>> {
        let payload = codec::encode(question).map_err(NetworkError::from_string)?;
        Ok(RaftMessage {
            header: Some(self.header.clone()),
            payload: payload.into(),
            ..RaftMessage::default()
        })
    }

    /// Sends `message`, and waits for the answer.
    pub async fn send(
        &self, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, RPCError<Types>> {
        let sent = self.transport.raft(self.to(&self.address()), rpc, message, timeout).await;
        sent.map_err(|refusal| self.failed(rpc, &refusal))
    }

    /// Asks `question`, and reads the answer.
    pub async fn call<Q: Serialize, A: DeserializeOwned>(
        &self, rpc: RaftRpc, question: &Q, timeout: Duration,
    ) -> Result<A, RPCError<Types>> {
        let reply = self.send(rpc, self.message(question)?, timeout).await?;
        self.read(rpc, &reply)
    }

    /// The answer in a reply.
    pub fn read<A: DeserializeOwned>(
        &self, rpc: RaftRpc, reply: &RaftReply,
    ) -> Result<A, RPCError<Types>> {
        let what = format!("the answer to {rpc:?}");
        let answer = payload::decode(&what, self.target, &reply.payload);
        answer.map_err(|text| RPCError::Network(NetworkError::from_string(text)))
    }

    /// Refuses a term in an answer that no honest node has come to: Raft would adopt it.
    pub fn check_term(&self, asked: u64, answered: u64) -> Result<(), RPCError<Types>> {
        terms::check(asked, answered).map_err(|why| {
            let text = format!(
                "the answer of node {} at {} is refused: {why}",
                self.target,
                self.address()
            );
            tracing::error!("{text}");
            RPCError::Unreachable(Unreachable::from_string(text))
        })
    }

    fn failed(&self, rpc: RaftRpc, refusal: &Refusal) -> RPCError<Types> {
        let (target, address) = (self.target, self.address());
        let text = format!("{rpc:?} to node {target} at {address}: {}", refusal.message());
        match refusal.code() {
            Code::DeadlineExceeded | Code::Cancelled => {
                RPCError::Network(NetworkError::from_string(text))
            }
            Code::FailedPrecondition => {
                // Either the peer is not the node that this one takes it for, or the other way round.
                tracing::warn!(peer = target, "{text}");
                RPCError::Unreachable(Unreachable::from_string(text))
            }
            // The list of codes is the protocol's, not ours: all others mean the same here.
            _ => RPCError::Unreachable(Unreachable::from_string(text)),
        }
    }
}
