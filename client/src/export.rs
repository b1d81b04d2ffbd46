//! An export: the keys of a namespace, or its sections, and numbers at or above all that were handed out of them.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::timeout;
use tonic::{Code as Grpc, Streaming};

use crate::{
    address::is_address,
    api::{self as v1, sequencer_client::SequencerClient},
    client::Client,
    cluster::Connection,
    error::{Error, OtherCluster},
    key::Key,
};

/// The key, or the keys, that a number of an export belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// A key.
    Key(Key),
    /// All ids from the first to the last one: they share a section.
    Section {
        /// The first id.
        first: u64,
        /// The last one.
        last: u64,
    },
}

/// The keys of a namespace, or its sections, as of one moment, part by part.
pub struct Export {
    server: String,
    messages: Streaming<v1::ExportResponse>,
    rows: u64,
    ended: bool,
}

impl Client {
    /// Exports a namespace, as of the moment of the call: every key of which numbers were handed out, and a number at or above
    /// all of them; where ids share sections, every such section. The leader answers: servers that do not lead name the
    /// leader. A client that does not follow the leader asks the servers alone that it was given: one of them must lead.
    ///
    /// # Errors
    /// [`Error::Server`] if the cluster refuses it, or no server that is known leads.
    pub async fn export(&self, namespace: &str) -> Result<Export, Error> {
        let mut refused = Error::Invalid("no server is known".to_owned());
        let mut servers: VecDeque<Arc<str>> = self.pool().members().all().to_vec().into();
        let mut asked = Vec::new();
        while let Some(server) = servers.pop_front() {
            if asked.contains(&server) {
                continue;
            }
            let mut sequencer = SequencerClient::new(self.pool().connection(&server)?);
            let request = v1::ExportRequest { namespace: namespace.to_owned() };
            let answer = sequencer.export(request).await;
            let answer =
                answer.map_err(|status| self.pool().unbroken(self.pool().judge(&server, status)));
            asked.push(server.clone());
            let heard = answer
                .and_then(|answer| self.pool().hear(&server, answer.metadata()).map(|()| answer));
            match heard {
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
                    if OtherCluster::of(&status).is_some() {
                        continue;
                    }
                    if status.code() != Grpc::Unavailable {
                        break;
                    }
                }
            }
            let leader = timeout(self.pool().timeout(), leader(&mut sequencer));
            if self.pool().follows_leader()
                && let Ok(Some(leader)) = leader.await
            {
                servers.push_front(leader);
            }
        }
        Err(refused)
    }
}

/// The address of the leader, as a server knows it; `None` if it cannot be reached.
async fn leader(sequencer: &mut SequencerClient<Connection>) -> Option<Arc<str>> {
    let watching = sequencer.watch_route(v1::WatchRouteRequest {}).await.ok()?;
    let route = watching.into_inner().message().await.ok()??;
    is_address(&route.address).then(|| route.address.into())
}

impl Export {
    /// The next keys or sections; `None` after the last ones.
    ///
    /// # Errors
    /// [`Error::Server`] if the export breaks off. The rows that came before are then a part of it.
    pub async fn next(&mut self) -> Result<Option<Vec<(Exported, u64)>>, Error> {
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
        let sections = message.first_ids.into_iter().zip(message.last_ids);
        let sections = sections.map(|(first, last)| Exported::Section { first, last });
        let exported = keys.map(Exported::Key).chain(sections);
        let part: Vec<(Exported, u64)> = exported.zip(message.numbers).collect();
        self.rows += part.len() as u64;
        Ok(Some(part))
    }
}
