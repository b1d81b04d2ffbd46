//! The numbers of ids that come from a key's sequence, as the leader takes them.
//!
//! Of a format with a time, the leader moves the key up to its own time, and takes the numbers that follow. So an id cannot
//! repeat, and cannot go back, because a number cannot: the clock decides only how far a key is moved up. Where a unit of time
//! is used up, the answer says for how long. If a key is ahead of the leader's time, as after the change from a leader that
//! crashed, it goes on within the unit of time that it has come to. Its namespace's time goes on from there
//! ([`super::key_times`]).
//!
//! Of a format with a date, a number is the order number, and the date is logged ([`super::dates`]).

use std::time::Duration;

use ratchet_ids::{EncodeError, Format, Source};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    LeaderIds,
    desk::{DeskAnswer, DeskRequest},
};
use crate::{
    allocator::{Above, Floor, Term, Why},
    node::{
        access::Asker,
        formats::{IDS_MAX, REACH_STEPS, created_again, ended, id_format},
        requests::{
            checks::{check_kind, namespace_named},
            keys::key_of,
            operation::ByLeader,
            refused::failed,
        },
        way::attempt::{Attempt, Unanswered},
    },
    planted_bugs::{Bug, is_planted},
    proto::{
        Refusal,
        peer::{IdNumbers, TakeIdNumbersRequest},
        refusal, refuse,
    },
    sequence::{Key, Namespace, NamespaceId, Range, WorkerAct, WorkerAnswer},
};

/// How far a key may be ahead, beyond a unit of time, in milliseconds. If it is further ahead, its namespace goes on from
/// there.
pub const BEYOND_UNIT_MAX_MS: u64 = 100;
/// For how long the leader itself waits in a call for later units of time, in milliseconds. Where they are short, the way to it
/// would take longer than they.
const WAIT_MAX_MS: u64 = 20;
/// The holder that leases worker 0 of a namespace whose ids have a date.
const DATE_HOLDER: &str = "date";

impl ByLeader for TakeIdNumbersRequest {
    type Service = LeaderIds;

    /// Numbers that nobody got do not show.
    const SHOWS: bool = false;

    async fn carry_out(
        self, leader: &LeaderIds, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<IdNumbers> {
        let namespace = namespace_named(&leader.group, &self.namespace)?;
        let format = id_format(&namespace)?;
        if namespace.config.format.as_ref() != Some(&self.format) {
            return Err(created_again(&self.namespace).into());
        }
        let key = key_of(&self.key)?;
        check_kind(&namespace, key)?;
        let count = u64::from(self.count.clamp(1, IDS_MAX));
        let of = OfKey { term, namespace: &namespace, format: &format, key, deadline };
        let numbers = match format.source() {
            Source::Key => leader.take_in_time(&of, count).await?,
            Source::Date => leader.take_of_day(&of, count).await?,
            Source::Worker => {
                refuse!(Internal, "ids with a worker do not come from a key");
            }
        };
        Ok(IdNumbers { now_ms: leader.time.shown_ms(), ..numbers })
    }
}

impl LeaderIds {
    /// Takes numbers of the present time, and of short units of time that follow. Where that is too few, the rest is for later.
    async fn take_in_time(&self, of: &OfKey<'_>, count: u64) -> Attempt<IdNumbers> {
        let mut numbers = IdNumbers::default();
        let mut left = count;
        let mut waits_ms = 0;
        while left > 0 && numbers.wait_ms == 0 {
            match self.take_in_unit(of, left).await {
                Ok(TimeTaken::Numbers(range)) => left -= add(&mut numbers, range),
                Ok(TimeTaken::Later { wait_ms })
                    if waits_ms + wait_ms <= WAIT_MAX_MS
                        && Instant::now() + Duration::from_millis(wait_ms) < of.deadline =>
                {
                    waits_ms += wait_ms;
                    sleep(Duration::from_millis(wait_ms)).await;
                }
                Ok(TimeTaken::Later { wait_ms }) => numbers.wait_ms = wait_ms,
                // The numbers that were taken passed their fence, and would be burnt otherwise. A call for the rest learns
                // the reason.
                Ok(TimeTaken::Never(_)) | Err(_) if !numbers.firsts.is_empty() => {
                    numbers.wait_ms = 1
                }
                Ok(TimeTaken::Never(error)) => {
                    return Err(ended(&of.namespace.config.name, &error).into());
                }
                Err(otherwise) => return Err(otherwise),
            }
        }
        Ok(numbers)
    }

    /// Takes up to `left` numbers of the present unit of time, or of the one that the key has come to if that lies ahead.
    async fn take_in_unit(&self, of: &OfKey<'_>, left: u64) -> Attempt<TimeTaken> {
        loop {
            let leader_ms = self.time.now_ms(of.term.term())?;
            let now_ms = (self.key_times).time_of(of.namespace.id, self.clock.now(), leader_ms);
            let floor = match floor_at(of, now_ms, leader_ms) {
                Ok(floor) => floor,
                Err(error) => return Ok(TimeTaken::Never(error)),
            };
            let now = floor.at_least + 1;
            let count_of = |last: u64| left.min(of.format.last_number_beside(last.max(now)) - last);
            let taking = of.term.next_above(of.namespace, of.key, floor, count_of, of.deadline);
            let last = match taking.await {
                Ok(Above::Numbers(range)) => return Ok(TimeTaken::Numbers(range)),
                Ok(Above::None { last }) => last,
                // A recovery moves keys beyond the end of a format that ends soon.
                Err(Why::Exhausted { .. } | Why::AboveMax { .. }) => {
                    return Ok(TimeTaken::Never(after_the_end(of.format)));
                }
                Err(error) => return Err(failed(error, of.namespace, of.term, left)),
            };
            let time_ms = of.format.parts_of_number(last + 1, 0).time_ms;
            if let Err(error) = of.format.check_time(time_ms) {
                return Ok(TimeTaken::Never(error));
            }
            let (ahead_ms, tick_ms) = (time_ms.saturating_sub(now_ms), of.format.tick_ms());
            if ahead_ms <= tick_ms + BEYOND_UNIT_MAX_MS {
                let wait_ms = ahead_ms.max(1);
                return Ok(TimeTaken::Later { wait_ms });
            }
            self.go_on_ahead(of, time_ms - tick_ms, ahead_ms);
        }
    }

    /// Has the namespace of a key that is far ahead go on from `from_ms`.
    fn go_on_ahead(&self, of: &OfKey<'_>, from_ms: u64, ahead_ms: u64) {
        let (now, leader_ms) = (self.clock.now(), self.time.shown_ms());
        if (self.key_times).go_on_from(of.namespace.id, from_ms, now, leader_ms) {
            self.group.set_metrics.id_times_ahead.inc();
            tracing::info!(
                namespace = of.namespace.config.name,
                ahead_ms,
                "ids of keys go on ahead of the leader's time"
            );
        }
    }

    /// Takes order numbers, with the date.
    async fn take_of_day(&self, of: &OfKey<'_>, count: u64) -> Attempt<IdNumbers> {
        let now_ms = self.time.now_ms(of.term.term())?;
        let today = of.format.day_of(now_ms);
        // Before the numbers: if the fence passes after they were taken, nobody had a later date before.
        let date = self.date_of_ids(of.term, of.namespace, today, of.deadline);
        let date_ms = date.await?;
        if let Err(error) = of.format.check_time(date_ms) {
            return Err(ended(&of.namespace.config.name, &error).into());
        }
        let mut numbers = IdNumbers { date_ms, ..IdNumbers::default() };
        self.check_orders_left(of, count).await?;
        let taking = of.term.next(of.namespace, of.key, count, of.deadline);
        match taking.await {
            Ok(range) => {
                add(&mut numbers, range);
                Ok(numbers)
            }
            Err(Why::Exhausted { left }) => Err(too_few_orders(of, left).into()),
            Err(error) => Err(failed(error, of.namespace, of.term, count)),
        }
    }

    /// Refuses a call for more order numbers than a key has left. Otherwise the log would bring it those that are left, and a
    /// crash would skip them.
    async fn check_orders_left(&self, of: &OfKey<'_>, count: u64) -> Attempt<()> {
        if count == 1 {
            return Ok(());
        }
        let last = of.term.current(of.namespace, of.key, of.deadline).await;
        let last = last.map_err(|error| failed(error, of.namespace, of.term, count))?;
        let last = last.unwrap_or(of.namespace.config.start - 1);
        let left = of.namespace.config.max.saturating_sub(last);
        match left < count {
            true => Err(too_few_orders(of, left).into()),
            false => Ok(()),
        }
    }

    /// The date of a namespace's ids: at least that of `from_ms`, and of every answer before. Milliseconds since 1970.
    ///
    /// # Errors
    /// Those of an [`Attempt`].
    async fn date_of_ids(
        &self, term: &Term, namespace: &Namespace, from_ms: u64, deadline: Instant,
    ) -> Attempt<u64> {
        if is_planted(Bug::DateNotLogged) {
            return Ok(from_ms);
        }
        let known = || self.dates.known(term.term(), namespace.id, from_ms);
        if let Some(date) = known() {
            return Ok(date);
        }
        let asking = async {
            let asking = self.dates.asking(namespace.id);
            let _asking = asking.lock().await;
            if let Some(date) = known() {
                return Ok(date);
            }
            // No later answer lies below its ceiling.
            let act = WorkerAct::Lease { holder: DATE_HOLDER.to_owned(), up_to_ms: from_ms };
            let request = DeskRequest::Act { worker: 0, act };
            let served = self.desk.ask(term.lease(), namespace.id, request);
            let date = match served.await {
                DeskAnswer::Done(_, WorkerAnswer::Leased(lease)) => lease.ceiling_ms,
                // The date in force lies ahead of the leader's time.
                DeskAnswer::Done(_, WorkerAnswer::Held { until_ms, .. }) => until_ms,
                DeskAnswer::Refused(why) => return Err(Unanswered::Refused(why)),
                DeskAnswer::Unreadable(why) => refuse!(Internal, "{why}"),
                _ => return Err(Unanswered::ELSEWHERE),
            };
            let namespaces = self.group.view.namespaces();
            let exists = |id: NamespaceId| namespaces.by_id(id).is_some();
            self.dates.learn(term.term(), namespace.id, date, exists);
            Ok(date)
        };
        timeout_at(deadline, asking).await.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "namespace {:?}: the date was not logged before the deadline; ask again",
                namespace.config.name
            )
        })?
    }
}

/// The key whose numbers are taken, and the deadline.
struct OfKey<'a> {
    term: &'a Term,
    namespace: &'a Namespace,
    format: &'a Format,
    key: Key<'a>,
    deadline: Instant,
}

/// The outcome of a look at a key.
enum TimeTaken {
    /// Numbers of one unit of time.
    Numbers(Range),
    /// The unit of time is used up. The next one begins in so many milliseconds.
    Later { wait_ms: u64 },
    /// The format has no id at that time.
    Never(EncodeError),
}

/// Where the numbers of a key go on at `now_ms`, the namespace's time; the leader's is `leader_ms`, or was a moment ago. A log
/// entry brings numbers up to thirty steps above the leader's time. If the namespace is further ahead, it brings one step above
/// the namespace's time: with thirty, each crash would move the key thirty steps further.
fn floor_at(of: &OfKey<'_>, now_ms: u64, leader_ms: u64) -> Result<Floor, EncodeError> {
    // Units of time begin at 1, and have two numbers or more.
    let at_least = of.format.number_at(now_ms)? - 1;
    let step = of.namespace.config.step;
    let leader = of.format.number_at(leader_ms).unwrap_or(0);
    let reach = leader.saturating_add(step.saturating_mul(REACH_STEPS));
    let reach = reach.max(at_least.saturating_add(step));
    Ok(Floor { at_least, reach })
}

fn too_few_orders(of: &OfKey<'_>, left: u64) -> Refusal {
    refusal!(
        NumbersExhausted,
        "namespace {:?}: key {} has {left} of its {} order numbers left; ask for fewer, or use another key",
        of.namespace.config.name,
        of.key,
        of.namespace.config.max
    )
}

fn after_the_end(format: &Format) -> EncodeError {
    EncodeError::Ended {
        time: format.date_time(format.last_ms().saturating_add(1)),
        last: format.date_time(format.last_ms()),
    }
}

/// Adds numbers to an answer. Returns how many.
fn add(numbers: &mut IdNumbers, range: Range) -> u64 {
    let count = range.last - range.first + 1;
    numbers.firsts.push(range.first);
    // At most IDS_MAX.
    numbers.counts.push(count as u32);
    count
}
