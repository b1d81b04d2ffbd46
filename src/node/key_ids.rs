//! Ids whose format has no worker: they come from the key's own sequence, at the leader. Those of a key increase, whichever
//! node is asked.
//!
//! Of a format with a time, a number of the sequence is a time and a counter: *unit of time x capacity + counter*. The leader
//! takes them ([`super::id_numbers`]), and this node makes the ids. A unit of time whose numbers are used up is waited out
//! here: in the order of the callers' arrival, and with one request under way to the leader for each such key
//! ([`super::key_queues`]).

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use ratchet_ids::{EncodeError, Fixed, Format, Parts};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use super::{
    NodeContext,
    id_list::IdList,
    id_request::{IDS_MAX, NextIds},
    ids::{MadeIds, ended, invalid},
    key_queues::{Batch, Place, Whose},
    leader_search::{Failure, Origin},
    refusals::another_reply,
    wire::to_key,
};
use crate::{
    proto::{
        busy,
        peer::{
            IdNumbers, TakeIdNumbersRequest, administer_reply::Reply, administer_request::Request,
        },
    },
    sequence::OwnedKey,
};

impl NodeContext {
    /// Has the leader take numbers of the request's key, and makes ids of them.
    ///
    /// # Errors
    /// As [`NodeContext::next_ids`].
    pub(super) async fn key_ids(
        self: &Arc<Self>,
        request: &NextIds,
        format: Format,
        deadline: Instant,
    ) -> Result<MadeIds, Failure> {
        let key = request.key.as_ref().ok_or_else(|| {
            Status::invalid_argument(format!(
                "ids of namespace {name:?} come from the sequence of a key, and none is given; name one, as in: ratchet id \
                 next {name} 42",
                name = request.namespace
            ))
        })?;
        let id = match key {
            OwnedKey::Id(id) => Some(*id),
            OwnedKey::Name(_) => None,
        };
        let fixed = format
            .fixed(&request.parameters(), id)
            .map_err(|error| invalid(&error))?;
        let whose = (request.namespace.clone(), key.clone());
        let numbers = self.numbers_of(&whose, &format, request.count, deadline);
        let ids = encoded(&format, fixed, &numbers.await?);
        let ids = ids.map_err(|error| ended(&request.namespace, &error))?;
        self.metrics.ids.inc_by(request.count.into());
        Ok(MadeIds {
            format: Arc::new(format),
            ids,
        })
    }

    /// Numbers of a key. Who finds that its ids are used up waits for later ones, and so does who comes then.
    async fn numbers_of(
        self: &Arc<Self>,
        whose: &Whose,
        format: &Format,
        count: u32,
        deadline: Instant,
    ) -> Result<IdNumbers, Failure> {
        if self.key_queues.has(whose) {
            let none = IdNumbers::default();
            return self
                .wait_in_line(whose, format, count, none, deadline)
                .await;
        }
        let numbers = self.ask_for_numbers(whose, format, count, deadline).await?;
        let left = count.saturating_sub(numbers.counts.iter().sum());
        if left == 0 {
            return Ok(numbers);
        }
        if Instant::now() + wait_of(&numbers) >= deadline {
            return Err(used_up(whose, wait_of(&numbers)).into());
        }
        self.wait_in_line(whose, format, left, numbers, deadline)
            .await
    }

    /// Waits for `left` more numbers of a key than `numbers`, behind those who wait for the same key.
    async fn wait_in_line(
        self: &Arc<Self>,
        whose: &Whose,
        format: &Format,
        left: u32,
        numbers: IdNumbers,
        deadline: Instant,
    ) -> Result<IdNumbers, Failure> {
        self.metrics.id_waits.inc();
        let wait = wait_of(&numbers);
        let mut place = self.key_queues.join(whose, left, numbers, deadline);
        if place.is_first {
            let (node, whose, format) = (self.clone(), whose.clone(), format.clone());
            let asking = async move { node.ask_for_all(&whose, &format, wait).await };
            self.group.tasks().spawn("ids of a key", asking);
        }
        let least = least_wait(format, place.ids_before + u64::from(left));
        if Instant::now() + least >= deadline {
            return Err(used_up(whose, least).into());
        }
        let stopped = || Status::unavailable("the node stops; ask another one");
        match timeout_at(deadline, &mut place.answer).await {
            Ok(answer) => Ok(answer.unwrap_or_else(|_| Err(stopped()))?),
            Err(_) => Err(too_late(whose, &place, least.max(tick_of(format))).into()),
        }
    }

    /// Asks the leader for all callers that wait for a key, until nobody does. Begins in `wait`.
    async fn ask_for_all(self: Arc<Self>, whose: &Whose, format: &Format, mut wait: Duration) {
        let mut batch = Batch::default();
        loop {
            if !wait.is_zero() {
                // Ends early if the node stops.
                let _ = self.leaving.run_until_cancelled(sleep(wait)).await;
            }
            if !self.key_queues.collect(whose, &mut batch) {
                return;
            }
            let count = batch.ids().min(u64::from(IDS_MAX)) as u32;
            batch.set_asking(true);
            let asked = tokio::select! {
                asked = self.ask_for_numbers(whose, format, count, batch.deadline()) => asked,
                () = self.leaving.cancelled() => {
                    Err(Status::unavailable("the node stops; ask another one"))
                }
            };
            batch.set_asking(false);
            match asked {
                Ok(numbers) => {
                    batch.share(&numbers);
                    wait = wait_of(&numbers);
                }
                Err(status) => {
                    batch.refuse(&status);
                    wait = Duration::ZERO;
                }
            }
        }
    }

    /// Asks the leader for up to `count` numbers of a key.
    async fn ask_for_numbers(
        self: &Arc<Self>,
        whose: &Whose,
        format: &Format,
        count: u32,
        deadline: Instant,
    ) -> Result<IdNumbers, Status> {
        let (namespace, key) = whose;
        let take = Request::TakeIdNumbers(TakeIdNumbersRequest {
            namespace: namespace.clone(),
            format: format.to_string(),
            key: to_key(key),
            count,
        });
        let asked_at = Instant::now();
        match Box::pin(self.administer(take, Origin::Client, deadline)).await {
            Ok(Reply::IdNumbers(numbers)) => {
                self.hear_leader(numbers.now_ms, asked_at);
                Ok(numbers)
            }
            Ok(_) => Err(another_reply()),
            Err(Failure::Status(status)) => Err(status),
            Err(Failure::NotLeader(_)) => Err(Status::unavailable("no leader is known")),
        }
    }
}

/// For how long the leader has no numbers.
fn wait_of(numbers: &IdNumbers) -> Duration {
    Duration::from_millis(numbers.wait_ms)
}

fn tick_of(format: &Format) -> Duration {
    Duration::from_millis(format.tick_ms())
}

/// How long it takes at least until a key has `ids` ids: the first of them may come at once.
fn least_wait(format: &Format, ids: u64) -> Duration {
    let units = ids.div_ceil(format.capacity()).saturating_sub(1);
    Duration::from_millis(units.saturating_mul(format.tick_ms()))
}

fn used_up(whose: &Whose, wait: Duration) -> Status {
    let (namespace, key) = (&whose.0, whose.1.as_key());
    let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let why = format!(
        "namespace {namespace:?}: the ids of key {key} until the deadline are used up; ask again in {ms} ms"
    );
    busy(ms, why)
}

/// Why a caller has waited in vain.
fn too_late(whose: &Whose, place: &Place, wait: Duration) -> Status {
    if !place.is_asking.load(Relaxed) {
        return used_up(whose, wait);
    }
    Status::unavailable(format!(
        "namespace {:?}: the leader gave no ids of key {} before the deadline; ask again",
        whose.0,
        whose.1.as_key()
    ))
}

/// The ids with these numbers.
fn encoded(format: &Format, fixed: Fixed, numbers: &IdNumbers) -> Result<IdList, EncodeError> {
    let ranges = numbers.firsts.iter().zip(&numbers.counts);
    let all = ranges.flat_map(|(first, count)| (0..u64::from(*count)).map(move |at| first + at));
    let mut ids = IdList::new(format, numbers.counts.iter().sum::<u32>() as usize);
    for number in all {
        let parts = Parts {
            random: format.fitting_random(rand::random()),
            ..format.parts_of_number(number, numbers.date_ms)
        };
        ids.push(format.encode(&parts, fixed)?);
    }
    Ok(ids)
}
