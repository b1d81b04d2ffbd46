//! A transport that somebody listens in on, and may change what nodes say when they greet.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use ratchet::{
    consensus::{RaftRpc, Transport},
    proto::peer::*,
};
use tonic::Status;

type OnAnswer = Box<dyn Fn(&str, &mut HelloResponse) + Send + Sync>;

/// What is called with what passes; each does nothing unless it is set.
pub struct Tapped {
    pub inner: Arc<dyn Transport>,
    /// A message of Raft's is about to be sent.
    pub on_raft: Box<dyn Fn() + Send + Sync>,
    /// A greeting is about to be sent.
    pub on_greeting: Box<dyn Fn(&mut HelloRequest) + Send + Sync>,
    /// A greeting was answered from this address.
    pub on_answer: OnAnswer,
}

impl Tapped {
    pub fn new(inner: Arc<dyn Transport>) -> Tapped {
        Tapped {
            inner,
            on_raft: Box::new(|| ()),
            on_greeting: Box::new(|_| ()),
            on_answer: Box::new(|_, _| ()),
        }
    }
}

#[async_trait]
impl Transport for Tapped {
    async fn raft(
        &self,
        address: &str,
        rpc: RaftRpc,
        message: RaftMessage,
        timeout: Duration,
    ) -> Result<RaftReply, Status> {
        (self.on_raft)();
        self.inner.raft(address, rpc, message, timeout).await
    }

    async fn install_snapshot(
        &self,
        address: &str,
        parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Status> {
        self.inner.install_snapshot(address, parts).await
    }

    async fn hello(
        &self,
        address: &str,
        mut request: HelloRequest,
        timeout: Duration,
    ) -> Result<HelloResponse, Status> {
        (self.on_greeting)(&mut request);
        let mut response = self.inner.hello(address, request, timeout).await?;
        (self.on_answer)(address, &mut response);
        Ok(response)
    }

    async fn forward(
        &self,
        address: &str,
        requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Status>>, Status> {
        self.inner.forward(address, requests).await
    }

    async fn administer(
        &self,
        address: &str,
        request: AdministerRequest,
        timeout: Duration,
    ) -> Result<AdministerReply, Status> {
        self.inner.administer(address, request, timeout).await
    }

    fn keep(&self, addresses: BTreeSet<String>) {
        self.inner.keep(addresses);
    }
}
