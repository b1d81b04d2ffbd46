//! Counts the numbers in an answer of the leader that nobody hears any more: they are burnt.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    allocator::HeldNumbers,
    metrics::NamespaceCounts,
    node::{access::BurntNumbers, way::forward::BurntWithReply},
};

/// The numbers in the answer to a forwarded request, if nobody hears it, and the counts that they are added to.
pub struct UnheardAnswer {
    /// How many numbers of each key, or one of each if there are no counts. `None`: nothing.
    pub counts: Option<Vec<u64>>,
    /// How many numbers an answer brings of keys with such counts.
    pub numbers_of: fn(&Bytes, &[u64]) -> u64,
    /// Counts them against the caller's quotas.
    pub counted: Option<BurntNumbers>,
    /// The counts of the namespace.
    pub namespace: Arc<NamespaceCounts>,
}

impl BurntWithReply for UnheardAnswer {
    fn burn(&self, answer: Option<&Bytes>, is_served: bool) {
        let (Some(answer), Some(counts)) = (answer, &self.counts) else {
            return;
        };
        let numbers = (self.numbers_of)(answer, counts);
        // The call that serves the caller counts the numbers that are dropped meanwhile. Without one they are counted here.
        if let Some(counted) = self.counted.as_ref().filter(|_| !is_served) {
            counted.add(numbers);
        }
        drop(HeldNumbers::new(&*self.namespace, numbers));
    }
}
