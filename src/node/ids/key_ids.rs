//! Ids whose format has no worker: they come from the key's own sequence, at the leader. Those of a key increase, whichever
//! node is asked.
//!
//! Of a format with a time, a number of the sequence is a time and a counter: *unit of time x capacity + counter*. The leader
//! takes them ([`crate::node::leader_ids::key_numbers`]), and this node makes the ids. A unit of time whose numbers are used
//! up is waited out here: in the order of the callers' arrival, and with one request under way to the leader for each such key
//! ([`super::key_queues`]).

use std::{sync::Arc, time::Duration};

use ratchet_ids::{EncodeError, Fixed, Format, Parts};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Ids, MadeIds,
    id_list::IdList,
    key_queues::{Batch, QueuedKey},
    request::{count_of, parameters_of},
};
use crate::{
    clock::whole_ms,
    node::{
        formats::{IDS_MAX, ended, invalid},
        leader_ids::key_numbers::BEYOND_UNIT_MAX_MS,
        requests::keys::{key_of, to_key},
    },
    proto::{
        Refusal,
        peer::{IdNumbers, TakeIdNumbersRequest},
        refusal, refuse,
        v1::NextIdsRequest,
    },
    sequence::{Key, OwnedKey},
};

/// A leader that answers takes less than this.
const SILENCE: Duration = Duration::from_millis(100);

impl Ids {
    /// Has the leader take numbers of the request's key, and makes ids of them.
    ///
    /// # Errors
    /// The refusals of ids that come from the sequence of a key: [`Ids::next`] lists them.
    pub(in crate::node) async fn key_ids(
        self: &Arc<Self>, request: &NextIdsRequest, format: Format, deadline: Instant,
    ) -> Result<MadeIds, Refusal> {
        if request.key.is_none() {
            refuse!(
                InvalidRequest,
                "ids of namespace {name:?} come from the sequence of a key, and none is given; name one, as in: ratchet id \
                 next {name} 42",
                name = request.namespace
            );
        }
        let key = key_of(&request.key)?;
        let id = match key {
            Key::Id(id) => Some(id),
            Key::Name(_) => None,
        };
        let fixed = format.fixed(&parameters_of(request), id).map_err(|error| invalid(&error))?;
        let line = QueuedKey {
            namespace: request.namespace.clone(),
            format: format.to_string(),
            key: OwnedKey::from(key),
        };
        let count = count_of(request);
        let numbers = self.numbers_of(&line, &format, count, deadline);
        let ids = encoded(&format, fixed, &numbers.await?);
        let ids = ids.map_err(|error| ended(&request.namespace, &error))?;
        self.metrics.ids.inc_by(count.into());
        Ok(MadeIds { format: Arc::new(format), ids })
    }

    /// Numbers of a key. If others wait for it here already, this caller joins their line. Otherwise it asks the leader, and
    /// joins the line for what it did not get.
    async fn numbers_of(
        self: &Arc<Self>, line: &QueuedKey, format: &Format, count: u32, deadline: Instant,
    ) -> Result<IdNumbers, Refusal> {
        if self.queues.has(line) {
            let none = IdNumbers::default();
            let at_once = Duration::ZERO;
            return (self.wait_in_line(line, format, (count, none), at_once, deadline)).await;
        }
        let numbers = self.ask_for_numbers(line, count, deadline).await?;
        let left = count.saturating_sub(total_of(&numbers));
        if left == 0 {
            return Ok(numbers);
        }
        let wait = wait_of(&numbers, format);
        if Instant::now() + wait >= deadline {
            return Err(used_up(line, wait));
        }
        (self.wait_in_line(line, format, (left, numbers), wait, deadline)).await
    }

    /// Waits for more numbers of a key than a caller has, behind those who wait for the same key. If nobody does, the leader is
    /// asked in `wait`.
    async fn wait_in_line(
        self: &Arc<Self>, line: &QueuedKey, format: &Format, (left, numbers): (u32, IdNumbers),
        wait: Duration, deadline: Instant,
    ) -> Result<IdNumbers, Refusal> {
        let in_time = |ids| Instant::now() + least_wait(format, ids) < deadline;
        let joined = self.queues.join(line, left, numbers, deadline, in_time);
        let mut place = joined.map_err(|ids| used_up(line, least_wait(format, ids)))?;
        self.metrics.id_waits.inc();
        if place.is_first {
            let (ids, line, format) = (self.clone(), line.clone(), format.clone());
            let asking = async move { ids.ask_for_all(&line, &format, wait).await };
            self.this_node.tasks.spawn("ids of a key", asking);
        }
        match timeout_at(deadline, &mut place.answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(stops())),
            Err(_) if is_silent(place.asked_at()) => Err(refusal!(
                NoLeader,
                "namespace {:?}: the leader gave no ids of key {} before the deadline; ask again",
                line.namespace,
                line.key.as_key()
            )),
            Err(_) => Err(used_up(line, Duration::from_millis(format.tick_ms()))),
        }
    }

    /// Asks the leader for all who wait in a line, again and again, until nobody does. Begins in `wait`. There is one such task
    /// for each line.
    async fn ask_for_all(self: Arc<Self>, line: &QueuedKey, format: &Format, mut wait: Duration) {
        let mut batch = Batch::default();
        loop {
            if !wait.is_zero() {
                // Ends early if the node stops.
                let _ = self.stopping.leaving().run_until_cancelled(sleep(wait)).await;
            }
            if !self.queues.collect(line, &mut batch) {
                return;
            }
            let count = batch.ids().min(u64::from(IDS_MAX)) as u32;
            if count == 0 {
                // The last of them has just gone.
                wait = Duration::ZERO;
                continue;
            }
            batch.set_asked_at(Some(Instant::now()));
            let asked = tokio::select! {
                biased;
                () = self.stopping.leaving().cancelled() => Err(stops()),
                asked = self.ask_for_numbers(line, count, batch.deadline()) => asked,
            };
            batch.set_asked_at(None);
            wait = match asked {
                Ok(numbers) => {
                    batch.share(&numbers);
                    match total_of(&numbers) < count {
                        true => wait_of(&numbers, format),
                        false => Duration::ZERO,
                    }
                }
                Err(refusal) => {
                    batch.refuse(&refusal);
                    Duration::ZERO
                }
            };
        }
    }

    /// Asks the leader for up to `count` numbers of a key.
    async fn ask_for_numbers(
        &self, line: &QueuedKey, count: u32, deadline: Instant,
    ) -> Result<IdNumbers, Refusal> {
        let take = TakeIdNumbersRequest {
            namespace: line.namespace.clone(),
            format: line.format.clone(),
            key: to_key(&line.key),
            count,
        };
        let asked_at = Instant::now();
        let (numbers, _) = Box::pin(self.operations.ask(&take, &self.as_node(), deadline)).await?;
        self.hear_leader(numbers.now_ms, asked_at);
        Ok(numbers)
    }
}

fn total_of(numbers: &IdNumbers) -> u32 {
    numbers.counts.iter().sum()
}

/// Whether the leader leaves what it was asked without an answer for longer than it waits by itself.
fn is_silent(asked_at: Option<Instant>) -> bool {
    asked_at.is_some_and(|asked_at| asked_at.elapsed() > SILENCE)
}

/// For how long the leader has no numbers. It may say so of a unit of time and a little more.
fn wait_of(numbers: &IdNumbers, format: &Format) -> Duration {
    let wait_ms = numbers.wait_ms.clamp(1, format.tick_ms() + BEYOND_UNIT_MAX_MS);
    Duration::from_millis(wait_ms)
}

/// How long it takes at least until a key has `ids` ids: the first of them may come at once.
fn least_wait(format: &Format, ids: u64) -> Duration {
    let units = ids.div_ceil(format.capacity()).saturating_sub(1);
    Duration::from_millis(units.saturating_mul(format.tick_ms()))
}

fn used_up(line: &QueuedKey, wait: Duration) -> Refusal {
    let ms = whole_ms(wait).max(1);
    let key = line.key.as_key();
    refusal!(
        IdsUsedUp,
        "namespace {:?}: the ids of key {key} until the deadline are used up; ask again in {ms} ms",
        line.namespace
    )
    .retry_after(ms)
}

fn stops() -> Refusal {
    refusal!(NodeStopping, "the node stops; ask another one")
}

/// The ids with these numbers.
fn encoded(format: &Format, fixed: Fixed, numbers: &IdNumbers) -> Result<IdList, EncodeError> {
    let ranges = numbers.firsts.iter().zip(&numbers.counts);
    let all = ranges.flat_map(|(first, count)| (0..u64::from(*count)).map(move |at| first + at));
    let mut ids = IdList::new(format, total_of(numbers) as usize);
    for number in all {
        let parts = Parts {
            random: format.fitting_random(rand::random()),
            ..format.parts_of_number(number, numbers.date_ms)
        };
        ids.push(format.encode(&parts, fixed)?);
    }
    Ok(ids)
}
