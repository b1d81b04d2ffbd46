//! Counts what callers use against their quotas, and refuses callers who have used them up. The node that the caller asks
//! counts its calls. Numbers are counted by the node that takes them.

use super::{
    Access, Asker, BurntNumbers, Who,
    quotas::{QuotaUse, UsedUp},
};
use crate::{
    clock::whole_ms,
    proto::{Refusal, refusal},
    sequence::{NO_NETWORK, PrincipalKey, Wanted},
};

impl Access {
    /// Counts a call for which this is needed, if this node was asked by its caller, and it is about a namespace. Calls that
    /// administer are not counted.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if a quota of the caller has no room: CALLER_QUOTA, with a time after which to ask again.
    pub(in crate::node) fn count_call(
        &self, by: &Asker, wanted: Wanted<'_>,
    ) -> Result<(), Refusal> {
        self.count_call_of(&mut self.quota_uses(by, wanted), by, wanted)
    }

    fn count_call_of(
        &self, uses: &mut [QuotaUse], by: &Asker, wanted: Wanted<'_>,
    ) -> Result<(), Refusal> {
        match by.asks_here() && wanted.verb().is_some_and(|verb| !verb.is_administrative()) {
            true => self.quotas.count_call(uses).map_err(|full| self.used_up(by, &full)),
            false => Ok(()),
        }
    }

    /// Counts a call, as [`Access::count_call`], which may burn numbers. Returns what counts these; `None` if nothing
    /// limits them.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if a quota of the caller has no room.
    pub(in crate::node) fn begin_taking(
        &self, by: &Asker, wanted: Wanted<'_>,
    ) -> Result<Option<BurntNumbers>, Refusal> {
        let mut uses = self.quota_uses(by, wanted);
        // Mostly nothing is limited.
        if uses.is_empty() {
            return Ok(None);
        }
        self.count_call_of(&mut uses, by, wanted)?;
        self.quotas.check_burnt(&mut uses).map_err(|full| self.used_up(by, &full))?;
        Ok(BurntNumbers::of_call(&self.quotas, uses))
    }

    /// Counts numbers, or ids, of a namespace that this node is asked for.
    ///
    /// # Errors
    /// As [`Access::count_call`]; INVALID_ARGUMENT if a quota never has room for so many at once.
    pub(in crate::node) fn take_numbers(
        &self, by: &Asker, namespace: &str, numbers: u64,
    ) -> Result<(), Refusal> {
        if numbers == 0 {
            return Ok(());
        }
        let uses = self.quota_uses_on(by, namespace);
        self.quotas.take_numbers(uses, numbers).map_err(|full| self.used_up(by, &full))
    }

    /// The counter of the numbers that a call about a namespace burns; `None` if nothing limits them.
    pub(in crate::node) fn burnt_numbers(
        &self, by: &Asker, namespace: &str,
    ) -> Option<BurntNumbers> {
        BurntNumbers::of_call(&self.quotas, self.quota_uses_on(by, namespace))
    }

    /// The uses of quotas that a caller has on the namespace on which it wants something, if it has any.
    fn quota_uses(&self, by: &Asker, wanted: Wanted<'_>) -> Vec<QuotaUse> {
        wanted.namespace().map_or_else(Vec::new, |namespace| self.quota_uses_on(by, namespace))
    }

    fn quota_uses_on(&self, by: &Asker, namespace: &str) -> Vec<QuotaUse> {
        let principals = self.group.view.principals();
        let Who::Caller(shown) = &by.who else {
            return Vec::new();
        };
        if !principals.has_quotas() {
            return Vec::new();
        }
        let quotas = principals.quotas(shown, by.network, namespace);
        let uses = quotas.map(|(principal, quota)| QuotaUse {
            principal: principal.clone(),
            network: match principal {
                PrincipalKey::Anonymous(_) => by.network,
                PrincipalKey::Certificate(_) | PrincipalKey::Token(_) => NO_NETWORK,
            },
            quota: quota.clone(),
        });
        uses.collect()
    }

    fn used_up(&self, by: &Asker, UsedUp { quota, what, wait }: &UsedUp) -> Refusal {
        let (who, namespaces) = (self.name_of(by), quota.namespaces.as_str());
        let Some(wait) = wait else {
            return refusal!(
                CountTooLarge,
                "the quota of {who} on namespaces {namespaces} never has room for so many at once: {what}; ask for fewer at a time"
            );
        };
        // So that there is room by then.
        let ms = whole_ms(*wait) + 1;
        refusal!(
            CallerQuota,
            "the quota of {who} on namespaces {namespaces} is used up: {what}; try again in {ms} ms, or have an administrator \
             change it: ratchet quota"
        )
        .retry_after(ms)
    }
}
