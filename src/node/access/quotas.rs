//! The use of quotas: calls, numbers and burnt numbers are counted for each caller that has one.
//!
//! A node counts for itself: calls where they come in, numbers where it leads, ids where they are made, and numbers that
//! calls burnt, as far as it knows of them. Its counts are forgotten when it stops.
//!
//! Invariant: a call is counted before anything is done for it. One that is refused here has taken no number.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc, time::Duration};

use governor::clock::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::used_quota::{QuotaFull, SECOND, Uptime, Used};
use crate::sequence::{NO_NETWORK, NodeId, PrincipalKey, Quota};

/// For how many holders of quotas a node counts at a time. Beyond, the addresses of `anonymous` are counted together.
const USES_MAX: usize = 65_536;

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

    /// Checks that a call may burn numbers.
    ///
    /// # Errors
    /// [`UsedUp`] if as many were burnt as may be.
    pub(super) fn check_burnt(&self, uses: &mut [QuotaUse]) -> Result<(), UsedUp> {
        let node = self.node;
        for quota_use in uses {
            if let Some(most) = quota_use.quota.burnt_per_day {
                let room = self.spend(quota_use, |used, now| used.burnt.check(most, now));
                let what =
                    || format!("{most} numbers a day may be burnt by failed calls at node {node}");
                room.map_err(|full| UsedUp::new(quota_use, full, what))?;
            }
        }
        Ok(())
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

    /// Counts numbers that were burnt.
    pub(super) fn count_burnt(&self, quota_use: &mut QuotaUse, numbers: u64) {
        self.spend(quota_use, |used, now| used.burnt.add(numbers, now));
    }
}

#[cfg(test)]
impl Quotas {
    /// How many numbers were burnt.
    pub(super) fn burnt(&self, quota_use: &QuotaUse) -> u64 {
        self.spend(&mut quota_use.clone(), |used, _| used.burnt.numbers)
    }
}

#[cfg(test)]
impl QuotaUse {
    /// The use of an address, or of a token if there is no network.
    pub(super) fn on_network(network: u64) -> QuotaUse {
        let limit = NonZeroU32::new(4);
        QuotaUse {
            principal: match network {
                NO_NETWORK => PrincipalKey::Token(crate::sequence::TokenHash([1; 32])),
                _ => PrincipalKey::Anonymous(None),
            },
            network,
            quota: Quota {
                namespaces: crate::sequence::NamespacePattern::parse("*").expect("a pattern"),
                calls_per_second: limit,
                numbers_per_second: limit,
                burnt_per_day: std::num::NonZeroU64::new(10),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::access::used_quota::DAY;

    fn ask(quotas: &Quotas, quota_use: &QuotaUse, numbers: u32) -> Result<(), QuotaFull> {
        quotas.spend(&mut quota_use.clone(), |used, now| {
            used.numbers.take(NonZeroU32::new(numbers).expect("some"), now)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_brings_what_the_quota_says_and_never_more_than_that_at_once() {
        let (quotas, own) = (Quotas::new(1), QuotaUse::on_network(NO_NETWORK));
        assert_eq!(ask(&quotas, &own, 5), Err(QuotaFull::Always));
        assert_eq!(ask(&quotas, &own, 4), Ok(()));
        let Err(QuotaFull::For(wait)) = ask(&quotas, &own, 2) else { panic!("there is no room") };
        assert_eq!(wait, SECOND / 2);
        tokio::time::advance(wait).await;
        assert_eq!(ask(&quotas, &own, 2), Ok(()));
        assert_eq!(ask(&quotas, &QuotaUse::on_network(7), 4), Ok(()), "another principal's");
    }

    #[tokio::test(start_paused = true)]
    async fn burnt_numbers_count_for_a_day_from_the_first_one_on() {
        let (quotas, own) = (Quotas::new(1), QuotaUse::on_network(NO_NETWORK));
        let check = || {
            let most = own.quota.burnt_per_day.expect("it is limited");
            quotas.spend(&mut own.clone(), |used, now| used.burnt.check(most, now))
        };
        quotas.count_burnt(&mut own.clone(), 9);
        tokio::time::advance(DAY / 2).await;
        assert_eq!(check(), Ok(()));
        quotas.count_burnt(&mut own.clone(), 1);
        assert_eq!(check(), Err(QuotaFull::For(DAY / 2)));
        tokio::time::advance(DAY / 2).await;
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_beyond_what_a_node_counts_are_counted_together_until_others_are_idle() {
        let quotas = Quotas::new(1);
        for network in 0..=USES_MAX as u64 {
            assert_eq!(ask(&quotas, &QuotaUse::on_network((1 << 40) + network), 2), Ok(()));
        }
        let more = QuotaUse::on_network(1 << 41);
        assert_eq!(ask(&quotas, &more, 2), Ok(()));
        assert!(ask(&quotas, &QuotaUse::on_network(1 << 42), 2).is_err(), "they share one");
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(ask(&quotas, &more, 4), Ok(()));
        assert!(quotas.uses.lock().used.len() < 9, "those that are idle are forgotten");
    }
}
