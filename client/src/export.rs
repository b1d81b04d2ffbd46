//! An export: the keys of a namespace, and numbers at or above all that were handed out of them.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::timeout;
use tonic::{Code as Grpc, Streaming, transport::Channel};

use crate::{
    api::{self as v1, sequencer_client::SequencerClient},
    client::Client,
    error::Error,
    key::Key,
};

/// The keys of a namespace as of one moment, part by part.
pub struct Export {
    server: String,
    messages: Streaming<v1::ExportResponse>,
    rows: u64,
    ended: bool,
}

impl Client {
    /// Exports a namespace, as of the moment of the call: every key of which numbers were handed out, and a number at or
    /// above all of them. The leader answers: servers that do not lead are asked who does.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses it, or no server that is known leads.
    pub async fn export(&self, namespace: &str) -> Result<Export, Error> {
        let mut refused = Error::Invalid("no server is known".to_owned());
        let mut servers: VecDeque<Arc<str>> = self.pool().all().into();
        let mut asked = Vec::new();
        while let Some(server) = servers.pop_front() {
            if asked.contains(&server) {
                continue;
            }
            let channel = self.pool().channel(&server)?;
            let mut sequencer = SequencerClient::new(channel);
            let request = v1::ExportRequest {
                namespace: namespace.to_owned(),
            };
            match sequencer.export(request).await {
                Ok(messages) => {
                    return Ok(Export {
                        server: server.to_string(),
                        messages: messages.into_inner(),
                        rows: 0,
                        ended: false,
                    });
                }
                Err(status) => {
                    refused = Error::status(&server, &status);
                    if status.code() != Grpc::Unavailable {
                        break;
                    }
                }
            }
            asked.push(server);
            let leader = timeout(self.pool().timeout(), leader(&mut sequencer));
            if let Ok(Some(leader)) = leader.await {
                servers.push_front(leader);
            }
        }
        Err(refused)
    }
}

/// The address of the leader, as a server knows it; `None` if it cannot be reached.
async fn leader(sequencer: &mut SequencerClient<Channel>) -> Option<Arc<str>> {
    let watching = sequencer.watch_route(v1::WatchRouteRequest {}).await.ok()?;
    let route = watching.into_inner().message().await.ok()??;
    Some(route.address.into())
}

impl Export {
    /// The next keys; `None` after the last ones.
    ///
    /// # Errors
    /// [`Error::Server`] if the export breaks off. What came before is then a part of it.
    pub async fn next(&mut self) -> Result<Option<Vec<(Key, u64)>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let message = self.messages.message().await;
        let message = message.map_err(|status| Error::status(&self.server, &status))?;
        let broken = |why| Error::status(&self.server, &tonic::Status::unavailable(why));
        let message = message.ok_or_else(|| broken("the export ended before its end was told"))?;
        if let Some(rows) = message.rows {
            self.ended = true;
            return match rows == self.rows {
                true => Ok(None),
                false => Err(broken("the export lacks rows")),
            };
        }
        let keys =
            (message.ids.into_iter().map(Key::Id)).chain(message.names.into_iter().map(Key::Name));
        let part: Vec<(Key, u64)> = keys.zip(message.numbers).collect();
        self.rows += part.len() as u64;
        Ok(Some(part))
    }
}
