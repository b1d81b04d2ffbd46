//! What one `Next` costs above the transport: a caller at the leader of an idle cluster of three, in
//! turns with the same caller at a handler of the same tonic that does nothing. Prints the medians
//! of alternating rounds and their ratio.
//!
//! `cargo bench --bench unary`

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use common::{Client, id, links::Cluster, own_ip};
use hdrhistogram::Histogram;
use ratchet::proto::v1::{
    CurrentRequest, CurrentResponse, NextRequest, NextResponse,
    sequencer_server::{Sequencer, SequencerServer},
};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

const ROUNDS: usize = 10;
const ROUND_CALLS: usize = 2_000;

struct Echo;

#[tonic::async_trait]
impl Sequencer for Echo {
    async fn next(&self, _request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        Ok(Response::new(NextResponse {
            first: 1,
            last: 1,
            increment: 1,
            route: None,
        }))
    }

    async fn current(
        &self,
        _request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        Err(Status::unimplemented("an echo"))
    }
}

async fn start_echo() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((own_ip(), 0))
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("its address");
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let echo = tonic::transport::Server::builder()
        .add_service(SequencerServer::new(Echo))
        .serve_with_incoming(incoming);
    tokio::spawn(async move { echo.await.expect("the echo serves") });
    address
}

async fn round(client: &mut Client, latencies: &mut Histogram<u64>) -> Duration {
    let mut this_round = Histogram::<u64>::new(3).expect("a histogram");
    for _ in 0..ROUND_CALLS {
        let started = Instant::now();
        client.try_next("book", id(1), 1).await.expect("an answer");
        let nanos = started.elapsed().as_nanos() as u64;
        this_round.record(nanos).expect("a latency");
    }
    latencies.add(&this_round).expect("the same range");
    Duration::from_nanos(this_round.value_at_quantile(0.5))
}

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut next = cluster.client(leader);
    let mut echo = Client::new(start_echo().await);
    let mut all = [(); 2].map(|()| Histogram::<u64>::new(3).expect("a histogram"));
    round(&mut next, &mut Histogram::new(3).expect("a histogram")).await;
    round(&mut echo, &mut Histogram::new(3).expect("a histogram")).await;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let echoed = round(&mut echo, &mut all[0]).await;
        let answered = round(&mut next, &mut all[1]).await;
        ratios.push(answered.as_secs_f64() / echoed.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    for (what, latencies) in ["empty handler", "Next"].iter().zip(&all) {
        println!(
            "{what:>13}: p50 {:?}  p99 {:?}",
            Duration::from_nanos(latencies.value_at_quantile(0.5)),
            Duration::from_nanos(latencies.value_at_quantile(0.99))
        );
    }
    println!(
        "        ratio: {:.2} (median of {ROUNDS} alternating rounds)",
        ratios[ROUNDS / 2]
    );
}
