//! The last numbers of many keys.

use tokio::time::Instant;

use super::{NextError, Term, raise::TOGETHER};
use crate::{
    allocator::held::Held,
    sequence::{Key, Namespace},
};

impl Term {
    /// Answers the last numbers handed out for many keys, in their order, 0 where none was, with one check of the
    /// fence. `key` says which key is at a place.
    ///
    /// # Errors
    /// As [`Term::current`].
    pub async fn current_many<'k>(
        &self,
        namespace: &Namespace,
        keys: usize,
        key: impl Fn(usize) -> Key<'k>,
        deadline: Instant,
    ) -> Result<Vec<u64>, NextError> {
        let _inside = self.enter()?;
        let mut last = Vec::with_capacity(keys);
        let mut unknown = Vec::new();
        for place in 0..keys {
            let remembered = self.memory.current(namespace, key(place));
            if remembered.is_none() {
                unknown.push(place);
            }
            last.push(remembered.unwrap_or(0));
            if place % TOGETHER == TOGETHER - 1 {
                tokio::task::yield_now().await;
            }
        }
        for places in unknown.chunks(TOGETHER) {
            let sections = places.iter().map(|place| namespace.section_of(key(*place)));
            let floors = self.floors_in_table(namespace, sections.collect(), deadline);
            for (place, floor) in places.iter().zip(floors.await?) {
                last[*place] = floor;
            }
        }
        // As in `current`.
        if !unknown.is_empty() && self.memory.gate().is_closed() {
            return Err(NextError::NotLeading);
        }
        let nothing = Held::new(self.memory.metrics(), 0);
        self.pass_fence(nothing, 0, deadline).await?;
        let greatest = namespace.greatest_number();
        last.iter_mut()
            .for_each(|last| *last = (*last).min(greatest));
        Ok(last)
    }
}
