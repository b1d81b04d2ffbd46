//! The use of quotas: calls, numbers and lost numbers are counted for each caller that has one.
//!
//! A node counts for itself: calls where they come in, numbers where it leads, ids where they are made, and numbers that were
//! lost with calls, as far as it knows of them. Its counts are forgotten when it stops.
//!
//! Invariant: a call is counted before anything is done for it. One that is refused here has taken no number.

use std::{
    collections::HashMap,
    num::{NonZeroU32, NonZeroU64},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use governor::{
    InsufficientCapacity, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    allocator::lost_on_this_thread,
    sequence::{NO_NETWORK, NodeId, PrincipalKey, Quota},
};

/// For how many holders of quotas a node counts at a time. Beyond, the addresses of `anonymous` are counted together.
const USES_MAX: usize = 65_536;
/// In this time a rate is as if nothing had been used: a second's worth may be used at once.
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// The counts of a node, for each quota of each principal.
pub(super) struct Quotas {
    node: NodeId,
    uses: Mutex<QuotaUses>,
    since: Instant,
}

#[derive(Default)]
struct QuotaUses {
    used: HashMap<QuotaUse, Used>,
    /// When those of idle holders were forgotten last.
    swept: Duration,
}

impl QuotaUses {
    /// Whether there is room for one more, once those of idle holders are forgotten. They are looked for once a second.
    fn have_room(&mut self, now: Duration) -> bool {
        if self.used.len() >= USES_MAX && now.saturating_sub(self.swept) > SECOND {
            self.used.retain(|_, used| !used.is_over(now));
            self.swept = now;
        }
        self.used.len() < USES_MAX
    }
}

/// The principal whose use is counted, and its quota. A quota that is changed begins anew.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QuotaUse {
    /// The principal that has the quota.
    pub principal: PrincipalKey,
    /// Of anonymous: what names the network of the address.
    pub network: u64,
    /// The quota.
    pub quota: Quota,
}

/// The used part of a quota.
struct Used {
    calls: Rate,
    numbers: Rate,
    lost: LostSince,
    last: Duration,
}

/// How many numbers were lost since a moment.
#[derive(Debug, Default, Clone, Copy)]
struct LostSince {
    since: Duration,
    numbers: u64,
}

/// The time since the node started. Rates are counted by it.
#[derive(Debug, Clone, Copy)]
struct Uptime {
    since: Instant,
}

impl Clock for Uptime {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The used part of a limit for each second, if there is one.
struct Rate(Option<RateLimiter<NotKeyed, InMemoryState, Uptime, NoOpMiddleware<Duration>>>);

/// Why there is no room in a quota.
#[derive(Debug, PartialEq, Eq)]
enum QuotaFull {
    /// There is in so long.
    For(Duration),
    /// There never is for so much at once.
    Always,
}

impl Rate {
    fn none_used(per_second: Option<NonZeroU32>, clock: Uptime) -> Rate {
        let limit = |most| RateLimiter::direct_with_clock(governor::Quota::per_second(most), clock);
        Rate(per_second.map(limit))
    }

    fn take(&self, much: NonZeroU32, now: Duration) -> Result<(), QuotaFull> {
        match self.0.as_ref().map_or(Ok(Ok(())), |rate| rate.check_n(much)) {
            Ok(taken) => taken.map_err(|until| QuotaFull::For(until.wait_time_from(now))),
            Err(InsufficientCapacity(_)) => Err(QuotaFull::Always),
        }
    }
}

impl Used {
    fn none(quota: &Quota, clock: Uptime) -> Used {
        Used {
            calls: Rate::none_used(quota.calls_per_second, clock),
            numbers: Rate::none_used(quota.numbers_per_second, clock),
            lost: LostSince::default(),
            last: clock.now(),
        }
    }

    /// Whether it is as if nothing had been used.
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) > SECOND && self.lost.now(now).numbers == 0
    }
}

impl LostSince {
    /// The numbers that still count: none after a day.
    fn now(self, now: Duration) -> LostSince {
        match self.numbers > 0 && now.saturating_sub(self.since) < DAY {
            true => self,
            false => LostSince { since: now, numbers: 0 },
        }
    }

    fn check(self, most: NonZeroU64, now: Duration) -> Result<(), QuotaFull> {
        let lost = self.now(now);
        match lost.numbers < most.get() {
            true => Ok(()),
            false => Err(QuotaFull::For((lost.since + DAY).saturating_sub(now))),
        }
    }
}

/// A quota that has no room for what is asked for.
pub(super) struct UsedUp {
    /// The quota.
    pub quota: Quota,
    /// The limit that is used up.
    pub what: String,
    /// How long until there is room. `None`: it never has room for so much at once.
    pub wait: Option<Duration>,
}

impl UsedUp {
    fn new(quota_use: &QuotaUse, full: QuotaFull, what: impl FnOnce() -> String) -> UsedUp {
        let wait = match full {
            QuotaFull::For(wait) => Some(wait),
            QuotaFull::Always => None,
        };
        UsedUp { quota: quota_use.quota.clone(), what: what(), wait }
    }
}

impl Quotas {
    /// Counts a call.
    ///
    /// # Errors
    /// [`UsedUp`] if one of the quotas has no room.
    pub(super) fn count_call(&self, uses: &mut [QuotaUse]) -> Result<(), UsedUp> {
        for quota_use in uses {
            if let Some(most) = quota_use.quota.calls_per_second {
                let room = self.spend(quota_use, |used, now| used.calls.take(NonZeroU32::MIN, now));
                let what = || format!("{most} calls a second may be made at node {}", self.node);
                room.map_err(|full| UsedUp::new(quota_use, full, what))?;
            }
        }
        Ok(())
    }

    /// The counter of the numbers that are lost with a call; `None` if nothing limits them.
    ///
    /// # Errors
    /// [`UsedUp`] if as many were lost as may be.
    pub(super) fn begin_taking(
        self: &Arc<Self>, mut uses: Vec<QuotaUse>,
    ) -> Result<Option<LostNumbers>, UsedUp> {
        let node = self.node;
        for quota_use in &mut uses {
            if let Some(most) = quota_use.quota.burnt_per_day {
                let room = self.spend(quota_use, |used, now| used.lost.check(most, now));
                let what =
                    || format!("{most} numbers a day may be lost with failed calls at node {node}");
                room.map_err(|full| UsedUp::new(quota_use, full, what))?;
            }
        }
        Ok(self.counting(uses))
    }

    /// Counts numbers that are asked for.
    ///
    /// # Errors
    /// [`UsedUp`] if one of the quotas has no room.
    pub(super) fn take_numbers(&self, mut uses: Vec<QuotaUse>, numbers: u64) -> Result<(), UsedUp> {
        // No quota has more.
        let much = u32::try_from(numbers).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        for quota_use in &mut uses {
            if let Some(most) = quota_use.quota.numbers_per_second {
                let room = self.spend(quota_use, |used, now| used.numbers.take(much, now));
                let what = || format!("{most} numbers a second may be asked for");
                room.map_err(|full| UsedUp::new(quota_use, full, what))?;
            }
        }
        Ok(())
    }

    /// The counter of the numbers that are lost with a call; `None` if nothing limits them.
    pub(super) fn counting(self: &Arc<Self>, mut uses: Vec<QuotaUse>) -> Option<LostNumbers> {
        uses.retain(|quota_use| quota_use.quota.burnt_per_day.is_some());
        (!uses.is_empty()).then_some(LostNumbers { quotas: self.clone(), uses })
    }

    pub(super) fn new(node: NodeId) -> Arc<Quotas> {
        Arc::new(Quotas { node, uses: Mutex::default(), since: Instant::now() })
    }

    fn clock(&self) -> Uptime {
        Uptime { since: self.since }
    }

    /// Uses something of what `quota_use` has, if there is room.
    fn spend<T>(
        &self, quota_use: &mut QuotaUse, spend: impl FnOnce(&mut Used, Duration) -> T,
    ) -> T {
        let (clock, mut uses) = (self.clock(), self.uses.lock());
        let now = clock.now();
        if !uses.used.contains_key(quota_use) && !uses.have_room(now) {
            quota_use.network = NO_NETWORK;
        }
        let used = uses
            .used
            .entry(quota_use.clone())
            .or_insert_with(|| Used::none(&quota_use.quota, clock));
        used.last = now;
        spend(used, now)
    }

    fn lose(&self, quota_use: &mut QuotaUse, numbers: u64) {
        self.spend(quota_use, |used, now| {
            let lost = used.lost.now(now);
            used.lost = LostSince { numbers: lost.numbers.saturating_add(numbers), ..lost };
        });
    }
}

/// Counts the numbers that are lost with a call: they were taken for it, and nobody gets them.
#[derive(Clone)]
pub struct LostNumbers {
    quotas: Arc<Quotas>,
    uses: Vec<QuotaUse>,
}

impl LostNumbers {
    /// Counts so many more.
    pub fn add(&self, numbers: u64) {
        if numbers > 0 {
            for quota_use in &self.uses {
                self.quotas.lose(&mut quota_use.clone(), numbers);
            }
        }
    }

    /// Runs `serving`. The numbers that are lost meanwhile are counted, also if this is dropped before its end.
    pub async fn counted<F: Future>(self, serving: F) -> F::Output {
        CountedCall { lost: self, serving: Some(Box::pin(serving)) }.await
    }

    /// Runs `does`. The numbers that are lost meanwhile are counted.
    pub fn count<T>(&self, does: impl FnOnce() -> T) -> T {
        let before = lost_on_this_thread();
        let done = does();
        self.add(lost_on_this_thread().wrapping_sub(before));
        done
    }
}

#[cfg(test)]
impl LostNumbers {
    /// Counts against the quota of a token.
    pub fn of_somebody() -> LostNumbers {
        LostNumbers { quotas: Quotas::new(1), uses: vec![tests::quota_use(NO_NETWORK)] }
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.quotas.spend(&mut self.uses[0].clone(), |used, _| used.lost.numbers)
    }
}

/// A call that is being served.
struct CountedCall<F> {
    lost: LostNumbers,
    /// `None` once it is dropped.
    serving: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for CountedCall<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let CountedCall { lost, serving } = self.get_mut();
        match serving {
            Some(serving) => lost.count(|| serving.as_mut().poll(context)),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for CountedCall<F> {
    fn drop(&mut self) {
        let CountedCall { lost, serving } = self;
        lost.count(|| drop(serving.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allocator::HeldNumbers,
        metrics::Metrics,
        sequence::{NamespacePattern, TokenHash},
    };

    pub fn quota_use(network: u64) -> QuotaUse {
        let limit = NonZeroU32::new(4);
        QuotaUse {
            principal: match network {
                NO_NETWORK => PrincipalKey::Token(TokenHash([1; 32])),
                _ => PrincipalKey::Anonymous(None),
            },
            network,
            quota: Quota {
                namespaces: NamespacePattern::parse("*").expect("a pattern"),
                calls_per_second: limit,
                numbers_per_second: limit,
                burnt_per_day: NonZeroU64::new(10),
            },
        }
    }

    fn ask(quotas: &Quotas, quota_use: &QuotaUse, numbers: u32) -> Result<(), QuotaFull> {
        quotas.spend(&mut quota_use.clone(), |used, now| {
            used.numbers.take(NonZeroU32::new(numbers).expect("some"), now)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_brings_what_the_quota_says_and_never_more_than_that_at_once() {
        let (quotas, own) = (Quotas::new(1), quota_use(NO_NETWORK));
        assert_eq!(ask(&quotas, &own, 5), Err(QuotaFull::Always));
        assert_eq!(ask(&quotas, &own, 4), Ok(()));
        let Err(QuotaFull::For(wait)) = ask(&quotas, &own, 2) else { panic!("there is no room") };
        assert_eq!(wait, SECOND / 2);
        tokio::time::advance(wait).await;
        assert_eq!(ask(&quotas, &own, 2), Ok(()));
        assert_eq!(ask(&quotas, &quota_use(7), 4), Ok(()), "another principal's");
    }

    #[tokio::test(start_paused = true)]
    async fn lost_numbers_count_for_a_day_from_the_first_one_on() {
        let (quotas, own) = (Quotas::new(1), quota_use(NO_NETWORK));
        let check = || {
            let most = own.quota.burnt_per_day.expect("it is limited");
            quotas.spend(&mut own.clone(), |used, now| used.lost.check(most, now))
        };
        quotas.lose(&mut own.clone(), 9);
        tokio::time::advance(DAY / 2).await;
        assert_eq!(check(), Ok(()));
        quotas.lose(&mut own.clone(), 1);
        assert_eq!(check(), Err(QuotaFull::For(DAY / 2)));
        tokio::time::advance(DAY / 2).await;
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test]
    async fn what_a_call_loses_is_counted_whether_it_returns_or_is_dropped() {
        let counted = LostNumbers::of_somebody();
        let lost = || counted.clone();
        let counts = Metrics::new().namespaces().others().shared();
        let told = lost().counted(async {
            tokio::task::yield_now().await;
            drop(HeldNumbers::new(&*counts, 3));
            HeldNumbers::new(&*counts, 100).release()
        });
        assert_eq!(told.await, 100);
        let dropped = lost().counted(async {
            let _held = HeldNumbers::new(&*counts, 4);
            std::future::pending::<()>().await;
        });
        assert!(futures::FutureExt::now_or_never(dropped).is_none());
        drop(HeldNumbers::new(&*counts, 1_000));
        assert_eq!(counted.total(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_beyond_what_a_node_counts_are_counted_together_until_others_are_idle() {
        let quotas = Quotas::new(1);
        for network in 0..=USES_MAX as u64 {
            assert_eq!(ask(&quotas, &quota_use((1 << 40) + network), 2), Ok(()));
        }
        let more = quota_use(1 << 41);
        assert_eq!(ask(&quotas, &more, 2), Ok(()));
        assert!(ask(&quotas, &quota_use(1 << 42), 2).is_err(), "they share one");
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(ask(&quotas, &more, 4), Ok(()));
        assert!(quotas.uses.lock().used.len() < 9, "those that are idle are forgotten");
    }
}
