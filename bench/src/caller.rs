//! Those who ask for one number at a time, each kind in its own way.

use std::{sync::Arc, time::Duration};

use tonic::transport::Channel;

use crate::{
    failed::Failed,
    load::Load,
    options::Door,
    peers::{Etcd, Redis, TsOracle},
    target::{NAMESPACE, Target, Way},
};
use ratchet_client::{
    Client, Key,
    api::{self, NextRequest, key::Kind, sequencer_client::SequencerClient},
};

/// One who asks for one number at a time.
#[derive(Clone)]
pub enum Caller {
    Unary(SequencerClient<Channel>),
    Client(Client),
    Redis(Arc<tokio::sync::Mutex<Redis>>),
    Etcd(Etcd),
    TsOracle(TsOracle),
}

impl Caller {
    /// Asks for the next number of a key.
    pub async fn call(&mut self, key: u64) -> Result<u64, String> {
        match self {
            Caller::Unary(client) => {
                let request = NextRequest {
                    namespace: NAMESPACE.to_owned(),
                    key: Some(api::Key {
                        kind: Some(Kind::Id(key)),
                    }),
                    count: None,
                    // Never told a route: the benchmark chooses whom to ask.
                    route_version: u64::MAX,
                    members_version: None,
                };
                let answer = client.next(request).await;
                let answer =
                    answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()));
                Ok(answer?.into_inner().first)
            }
            Caller::Client(client) => {
                let answer = client.next(NAMESPACE, Key::Id(key)).await;
                answer.map_err(|error| error.to_string())
            }
            Caller::Redis(connection) => connection.lock().await.increment(key).await,
            Caller::Etcd(client) => client.put(key).await,
            Caller::TsOracle(client) => client.next().await,
        }
    }
}

/// As many as `load` says, connected to `target`.
///
/// # Errors
/// Where it does not let them in.
pub async fn callers(target: &Target, load: &Load) -> Result<Vec<Caller>, Failed> {
    let each = |caller: Caller, times: usize| std::iter::repeat_n(caller, times);
    let calls = load.connections * load.in_flight;
    Ok(match target.way {
        Way::Door(Door::Client) => {
            let client = Client::builder()
                .servers(&target.asked)
                .timeout(Duration::from_secs(10))
                .follow_leader(!target.stays)
                .build()?;
            each(Caller::Client(client), load.tasks).collect()
        }
        Way::Redis => {
            let mut callers = Vec::with_capacity(calls);
            for _ in 0..calls {
                let connection = Redis::connect(&target.asked[0]).await?;
                callers.push(Caller::Redis(Arc::new(tokio::sync::Mutex::new(connection))));
            }
            callers
        }
        way => (target.channels(load.connections).await?.into_iter())
            .flat_map(|channel| {
                let caller = match way {
                    Way::Etcd => Caller::Etcd(Etcd::new(channel)),
                    Way::TsOracle => Caller::TsOracle(TsOracle::new(channel)),
                    _ => Caller::Unary(SequencerClient::new(channel)),
                };
                each(caller, load.in_flight)
            })
            .collect(),
    })
}
