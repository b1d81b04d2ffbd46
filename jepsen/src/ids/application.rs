//! An application that makes ids itself, with the product's client: it leases a worker id, makes ids for a while, and releases
//! it, or just ends.
//!
//! Each life has a runtime of its own. A life that just ends takes the runtime with it, so that nobody renews the lease or
//! releases it, as if the process had been killed.

use std::time::Duration;

use rand::{RngExt, rngs::StdRng};
use ratchet_client::{Error, Id, Ids};
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    connection::IdInterface,
    namespace::{SCARCE, with_worker},
    seen::{Arrived, SeenIds},
    taken::{Maker, Said},
    wish::Wish,
};
use crate::{client::DEADLINE, nodes::product_client};

/// Under how many names applications appear in the list of workers: fewer than there are applications.
const NAMES: u64 = 2;
/// How long one lives, in milliseconds. Some outlive several leases.
const LIFE_MS: std::ops::Range<u64> = 200..8_000;

/// Lives once, to the end or until it is told to stop.
pub(super) fn live(seen: &SeenIds, rng: &mut StdRng, stopped: &watch::Receiver<bool>) {
    let built = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => {
            let why = format!("no runtime: {error}");
            return seen.failed(IdInterface::Application, "the harness", why);
        }
    };
    runtime.block_on(async {
        // The last clone of the `Ids` goes before the runtime does, and the task that releases its worker id is never run.
        if let Err((namespace, error)) = make_ids(seen, rng, stopped).await {
            seen.failed(IdInterface::Application, namespace, error.to_string());
            sleep(Duration::from_millis(rng.random_range(20..100))).await;
        }
    });
}

async fn make_ids(
    seen: &SeenIds, rng: &mut StdRng, stopped: &watch::Receiver<bool>,
) -> Result<(), (&'static str, Error)> {
    let place = choose_place(rng);
    let namespace = with_worker()[place].name;
    let named = |error| (namespace, error);
    let servers = seen.nodes.read().clone();
    let client = product_client(&servers, DEADLINE).map_err(named)?;
    let holder = format!("application-{}", rng.random_range(0..NAMES));
    let ids = client.ids_as(namespace, &holder).await.map_err(named)?;
    let maker = seen.new_application();
    let end = Instant::now() + Duration::from_millis(rng.random_range(LIFE_MS));
    while Instant::now() < end && !*stopped.borrow() {
        seen.hold_back().await;
        let wish = Wish::of(place, rng);
        if let Err(error) = make(seen, &ids, maker, &wish).await {
            seen.failed(IdInterface::Application, namespace, error.to_string());
        }
        sleep(Duration::from_millis(rng.random_range(1..20))).await;
    }
    if rng.random_bool(0.5) {
        ids.release().await;
    }
    Ok(())
}

/// Half of all applications go where worker ids are scarce.
fn choose_place(rng: &mut StdRng) -> usize {
    let namespaces = with_worker();
    let scarce = namespaces.iter().position(|namespace| namespace.name == SCARCE);
    let any = rng.random_range(0..namespaces.len());
    scarce.filter(|_| rng.random_bool(0.5)).unwrap_or(any)
}

/// Makes some ids. If that fails on the way, the ids that were made count all the same.
async fn make(seen: &SeenIds, ids: &Ids, maker: Maker, wish: &Wish) -> Result<(), Error> {
    let parameters: Vec<_> = wish.named_parameters().collect();
    let ids = ids.with(&parameters)?;
    let invoked_ns = seen.recorder.now();
    let mut made: Vec<Id> = Vec::new();
    let result = match wish.count {
        1 => ids.next().await.map(|id| made.push(id)),
        count => ids.next_many(count as usize, &mut made).await,
    };
    let said = made.iter().map(|id| match wish.as_text {
        true => Said::Text(ids.print(*id).to_string()),
        false => Said::Number(id.as_u128()),
    });
    let said: Vec<Said> = said.collect();
    if !said.is_empty() {
        let asked = match result {
            Ok(()) => wish.count as usize,
            Err(_) => said.len(),
        };
        let (interface, process) = (IdInterface::Application, None);
        let arrived = Arrived { interface, maker, process, invoked_ns, asked, ids: said };
        seen.take(wish, arrived);
    }
    result
}
