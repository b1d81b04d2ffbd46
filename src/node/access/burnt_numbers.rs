//! The numbers that a call burns, counted while it is served, also if it is dropped before its end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::quotas::{QuotaUse, Quotas};
use crate::allocator::burnt_on_this_thread;

/// The counter of the numbers that a call burns: it adds them to what its caller has used of its quotas.
#[derive(Clone)]
pub struct BurntNumbers {
    quotas: Arc<Quotas>,
    uses: Vec<QuotaUse>,
}

impl BurntNumbers {
    /// The counter for a call that uses these quotas. `None` if none of them limits the numbers that it burns.
    pub(super) fn of_call(quotas: &Arc<Quotas>, mut uses: Vec<QuotaUse>) -> Option<BurntNumbers> {
        uses.retain(|quota_use| quota_use.quota.burnt_per_day.is_some());
        (!uses.is_empty()).then_some(BurntNumbers { quotas: quotas.clone(), uses })
    }

    /// Counts further numbers.
    pub fn add(&self, numbers: u64) {
        if numbers > 0 {
            for quota_use in &self.uses {
                self.quotas.count_burnt(&mut quota_use.clone(), numbers);
            }
        }
    }

    /// Runs `serving`. The numbers that are burnt meanwhile are counted, also if this is dropped before its end.
    pub async fn counted<F: Future>(self, serving: F) -> F::Output {
        CountedCall { burnt: self, serving: Some(Box::pin(serving)) }.await
    }

    /// Runs `does`. The numbers that are burnt meanwhile are counted.
    pub fn count<T>(&self, does: impl FnOnce() -> T) -> T {
        let before = burnt_on_this_thread();
        let done = does();
        self.add(burnt_on_this_thread().wrapping_sub(before));
        done
    }
}

#[cfg(test)]
impl BurntNumbers {
    /// Counts against the quota of a token.
    pub fn of_somebody() -> BurntNumbers {
        BurntNumbers {
            quotas: Quotas::new(1),
            uses: vec![QuotaUse::on_network(crate::sequence::NO_NETWORK)],
        }
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.quotas.burnt(&self.uses[0])
    }
}

/// A call that is being served.
struct CountedCall<F> {
    burnt: BurntNumbers,
    /// `None` once it is dropped.
    serving: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for CountedCall<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let CountedCall { burnt, serving } = self.get_mut();
        match serving {
            Some(serving) => burnt.count(|| serving.as_mut().poll(context)),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for CountedCall<F> {
    fn drop(&mut self) {
        let CountedCall { burnt, serving } = self;
        burnt.count(|| drop(serving.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{allocator::HeldNumbers, metrics::Metrics};

    #[tokio::test]
    async fn what_a_call_burns_is_counted_whether_it_returns_or_is_dropped() {
        let counted = BurntNumbers::of_somebody();
        let counter = || counted.clone();
        let counts = Metrics::new().namespaces().others().shared();
        let told = counter().counted(async {
            tokio::task::yield_now().await;
            drop(HeldNumbers::new(&*counts, 3));
            HeldNumbers::new(&*counts, 100).release()
        });
        assert_eq!(told.await, 100);
        let dropped = counter().counted(async {
            let _held = HeldNumbers::new(&*counts, 4);
            std::future::pending::<()>().await;
        });
        assert!(futures::FutureExt::now_or_never(dropped).is_none());
        drop(HeldNumbers::new(&*counts, 1_000));
        assert_eq!(counted.total(), 7);
    }
}
