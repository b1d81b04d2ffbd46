//! The nodes' accounts and counters of skipped numbers, beside those of callers.
//!
//! The accounts of a key say how many of its numbers were handed out at least, were skipped at most by leaders that ended
//! without returning their chunks, and are left. The leader knows the numbers that it has used. Nobody knows the numbers
//! that a crashed leader had used of its last chunk, so that all of it counts as skipped. So, for a key with a section of
//! its own:
//!
//! - no more was handed out, as the accounts have it, than callers got and calls may have burnt: numbers that callers saw
//!   skipped are counted in the accounts as skipped;
//! - the numbers that callers got are used up;
//! - without an unclean change, nothing was skipped. If, moreover, nothing else went wrong, the numbers that were handed out
//!   are those that callers got, and those that raised floors passed over;
//! - with unclean changes, each skipped a step at most, and the numbers that waiting calls had asked for beyond it.
//!
//! Gapless keys never skip: their accounts are exact, under all faults.
//!
//! The metric counts the skipped numbers of the accounts once, at the node that wrote them. Leaders go on writing down the
//! numbers that an earlier leader left while nobody asks, so that accounts are read before and after the metric. Numbers
//! that the metric lacks were counted by processes that ended, or written down by a later leader. The metric has all numbers
//! if there was one unclean change at most.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    final_reads, gapless,
    gaps::TakenOfKey,
    nemesis::Injector,
    proto::{Accounts, ExplainRequest, GapsRequest},
    slow_reader::UNREAD,
    target::{NAMED, OWN, SHARED, Target},
};

#[cfg(test)]
mod tests;

/// How many keys with a section of their own are looked up at most, the busiest first.
const KEYS_MAX: usize = 60;
/// How long a healed cluster may take to tell its accounts.
const TOLD_MAX: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// The cause of numbers that a leader left when it ended without returning them.
const LEFT: &str = "leader_change";

/// The skipped numbers of namespaces, by cause.
type Skipped = BTreeMap<String, BTreeMap<String, u64>>;

/// The nodes' accounts and counters.
#[derive(Debug, Clone, Default)]
pub struct Accounting {
    /// The accounts of keys with a section of their own.
    pub keys: BTreeMap<String, Accounts>,
    /// The skipped numbers of each namespace, by cause.
    pub namespaces: Skipped,
    /// The numbers that the nodes' metrics counted as skipped, by cause, before `namespaces` was read.
    pub counted: BTreeMap<String, u64>,
    /// The numbers left by leaders that the accounts of the namespaces had before that. Leaders go on writing down the
    /// numbers that an earlier leader left while nobody asks.
    pub left_before: u64,
    /// The accounts and metrics that could not be read, in words.
    pub unread: Vec<String>,
}

/// The circumstances of a run on which the accounts depend.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// How many leader changes may have been unclean.
    pub unclean_changes: u64,
    /// The most numbers that each of them may skip of a key.
    pub skipped_max: u64,
}

impl Accounting {
    /// Reads the accounts, once nobody asks any more.
    pub async fn read(injector: &Injector) -> Accounting {
        let mut accounting = Accounting::default();
        let busiest = final_reads::busiest(&injector.recorder, KEYS_MAX).into_iter();
        let own = busiest.filter(|target| target.namespace == OWN);
        for target in own.chain(gapless::targets()) {
            match tokio::time::timeout(TOLD_MAX, explained(injector, &target)).await {
                Ok(accounts) => accounting.keys.extend(accounts.map(|told| (target.name(), told))),
                Err(_) => accounting.unread.push(format!("nobody explains {}", target.name())),
            }
        }
        accounting.left_before = accounted(&accounting.read_namespaces(injector).await, LEFT);
        let members: Vec<u64> = injector.members.iter().copied().map(u64::from).collect();
        let scraped = injector.monitor.scraped_since(injector.recorder.now(), &members).await;
        accounting.unread.extend(scraped.err());
        accounting.counted = injector.monitor.skipped();
        accounting.namespaces = accounting.read_namespaces(injector).await;
        accounting
    }

    /// Reads the skipped numbers of the namespaces of numbers.
    async fn read_namespaces(&mut self, injector: &Injector) -> Skipped {
        let mut skipped = Skipped::new();
        let gapless = gapless::namespaces().map(|namespace| namespace.name);
        for namespace in [OWN, SHARED, NAMED, UNREAD].map(str::to_owned).into_iter().chain(gapless)
        {
            match tokio::time::timeout(TOLD_MAX, told(injector, &namespace)).await {
                Ok(by_cause) => drop(skipped.insert(namespace, by_cause)),
                Err(_) => self.unread.push(format!("nobody tells the gaps of {namespace}")),
            }
        }
        skipped
    }

    /// The errors in the accounts. `taken` has the numbers that callers took of each key that they asked for.
    pub fn judge(&self, taken: &BTreeMap<String, TakenOfKey>, than: Circumstances) -> Vec<String> {
        let mut wrong = self.unread.clone();
        for (key, accounts) in &self.keys {
            let nothing = TakenOfKey::default();
            let taken = taken.get(key).unwrap_or(&nothing);
            let judged = match key.starts_with(OWN) {
                true => of_own_key(accounts, taken, than),
                false => of_gapless_key(accounts),
            };
            let say =
                |why| format!("the accounts of {key}: {why}: {accounts:?}, and callers: {taken:?}");
            wrong.extend(judged.err().map(say));
        }
        wrong.extend(self.judge_total(taken, than).err());
        wrong.extend(self.judge_namespaces(than));
        wrong
    }

    fn counted(&self, cause: &str) -> u64 {
        self.counted.get(cause).copied().unwrap_or_default()
    }

    /// Where nothing went wrong, the accounts of all keys have the numbers that callers got, and those that floors passed
    /// over.
    fn judge_total(
        &self, taken: &BTreeMap<String, TakenOfKey>, than: Circumstances,
    ) -> Result<(), String> {
        let own = || taken.iter().filter(|(key, _)| key.starts_with(OWN));
        let all_explained = own().all(|(key, _)| self.keys.contains_key(key));
        let went_wrong = than.unclean_changes > 0
            || own().any(|(_, taken)| taken.burnt_max > 0)
            || ["fence", "deadline", "cancelled"].iter().any(|cause| self.counted(cause) > 0);
        if !all_explained || went_wrong {
            return Ok(());
        }
        let keys = self.keys.iter().filter(|(key, _)| key.starts_with(OWN));
        let handed_out: u64 = keys.map(|(_, accounts)| accounts.handed_out).sum();
        let (got, passed): (u64, _) =
            (own().map(|(_, taken)| taken.got).sum(), self.counted("floor"));
        if handed_out == got + passed {
            return Ok(());
        }
        Err(format!(
            "nothing went wrong, and yet the accounts have {handed_out} numbers handed out; callers got {got}, and raised floors \
             passed over {passed}"
        ))
    }

    fn judge_namespaces(&self, than: Circumstances) -> Vec<String> {
        let mut wrong = Vec::new();
        for (namespace, skipped) in &self.namespaces {
            let is_gapless = gapless::namespaces().any(|gapless| gapless.name == *namespace);
            let of_leaders = skipped.get(LEFT).copied().unwrap_or_default();
            let total: u64 = skipped.values().sum();
            if is_gapless && total > 0 {
                wrong.push(format!(
                    "the accounts of the gapless namespace {namespace} have gaps: {skipped:?}"
                ));
            }
            if than.unclean_changes == 0 && of_leaders > 0 {
                wrong.push(format!(
                    "no leader ended uncleanly, and the accounts of {namespace} have {of_leaders} numbers that one left"
                ));
            }
        }
        let (before, counted, after) =
            (self.left_before, self.counted(LEFT), accounted(&self.namespaces, LEFT));
        let is_exact = than.unclean_changes <= 1;
        if counted > after || (is_exact && counted < before) {
            wrong.push(format!(
                "the nodes counted {counted} numbers that leaders left, and the accounts had {before} before and {after} after \
                 that; there were at most {} unclean changes",
                than.unclean_changes
            ));
        }
        wrong
    }
}

/// The accounts of a key with a section of its own.
fn of_own_key(accounts: &Accounts, taken: &TakenOfKey, than: Circumstances) -> Result<(), String> {
    let Accounts { handed_out, skipped, .. } = *accounts;
    if handed_out + skipped < taken.last {
        return Err(format!("{} was answered, which is not used up", taken.last));
    }
    if !taken.is_raised && handed_out > taken.got + taken.burnt_max {
        return Err("more was handed out than callers got and may have burnt".to_owned());
    }
    let skipped_max = than.unclean_changes * than.skipped_max;
    if skipped > skipped_max {
        return Err(format!("leaders may have left {skipped_max} numbers at most"));
    }
    Ok(())
}

fn of_gapless_key(accounts: &Accounts) -> Result<(), String> {
    match accounts.skipped + accounts.left {
        0 => Ok(()),
        _ => Err("a gapless key skips nothing, and nothing is left of it".to_owned()),
    }
}

/// The accounts of a key's numbers. `None` if it never got one.
async fn explained(injector: &Injector, target: &Target) -> Option<Accounts> {
    loop {
        for id in &injector.members {
            let asked =
                ExplainRequest { namespace: target.namespace.to_owned(), key: target.key() };
            if let Ok(told) = injector.cluster.client(*id).admin().explain(asked).await {
                return told.into_inner().accounts;
            }
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// The numbers that the accounts of all namespaces have for a cause.
fn accounted(skipped: &Skipped, cause: &str) -> u64 {
    skipped.values().map(|by_cause| by_cause.get(cause).copied().unwrap_or_default()).sum()
}

/// The skipped numbers in the accounts of a namespace, by cause.
async fn told(injector: &Injector, namespace: &str) -> BTreeMap<String, u64> {
    loop {
        for id in &injector.members {
            let asked = GapsRequest { namespace: namespace.to_owned(), days: 0 };
            if let Ok(told) = injector.cluster.client(*id).admin().gaps(asked).await {
                let mut skipped = BTreeMap::new();
                for of_day in told.into_inner().days.into_iter().flat_map(|day| day.skipped) {
                    *skipped.entry(of_day.cause).or_default() += of_day.numbers;
                }
                return skipped;
            }
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}
