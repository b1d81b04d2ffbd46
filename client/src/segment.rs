//! Numbers out of segments that are fetched ahead and used up locally (Leaf's "segment" mode).

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::{client::Client, error::Error, key::Key, numbers::Numbers};

impl Client {
    /// Numbers of a key out of segments of `size` numbers that are fetched ahead and used up locally:
    /// most cost no round trip. **Not strictly increasing across holders**: see [`Segment`].
    pub fn segment(&self, namespace: &str, key: impl Into<Key>, size: u64) -> Segment {
        Segment::new(self.clone(), namespace, key.into(), size)
    }
}

/// A local store of numbers of one key: most calls of [`Segment::next`] cost no round trip.
///
/// Numbers are **trend-increasing**: those of one `Segment` grow, and no number comes twice anywhere;
/// but somebody else who asks later may get a smaller one, since this segment's numbers were set aside
/// earlier. Where the order between holders counts, use [`Client::next`]. Numbers that are left when the
/// segment is dropped are lost.
#[derive(Clone)]
pub struct Segment {
    shared: Arc<Shared>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segment = f.debug_struct("Segment");
        segment.field("namespace", &self.shared.namespace);
        segment.field("key", &self.shared.key);
        segment.field("size", &self.shared.size);
        segment.finish_non_exhaustive()
    }
}

struct Shared {
    client: Client,
    namespace: String,
    key: Key,
    size: u64,
    stock: Mutex<Stock>,
    /// Held by the one who fetches.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

/// What is at hand: the segment in use, and the next one. Pure.
#[derive(Debug, Default)]
struct Stock {
    current: Option<Numbers>,
    spare: Option<Numbers>,
}

impl Stock {
    /// The next number.
    fn take(&mut self) -> Option<u64> {
        let mut current = self.current.take().or_else(|| self.spare.take())?;
        let number = current.first;
        if number < current.last
            && let Some(following) = number.checked_add(current.increment)
        {
            current.first = following;
            self.current = Some(current);
        }
        Some(number)
    }

    /// Whether the next segment should be fetched: less than half a segment is left.
    fn is_low(&self, size: u64) -> bool {
        let left = |numbers: Numbers| (numbers.last - numbers.first) / numbers.increment.max(1) + 1;
        self.spare.is_none() && self.current.map_or(0, left) <= size / 2
    }

    fn add(&mut self, numbers: Numbers) {
        match self.current {
            None if self.spare.is_none() => self.current = Some(numbers),
            _ => self.spare = Some(numbers),
        }
    }
}

impl Segment {
    fn new(client: Client, namespace: &str, key: Key, size: u64) -> Segment {
        Segment {
            shared: Arc::new(Shared {
                client,
                namespace: namespace.to_owned(),
                key,
                size,
                stock: Mutex::default(),
                fetching: Arc::default(),
            }),
        }
    }

    /// The next number of the segment; waits only where numbers are used up faster than fetched.
    ///
    /// # Errors
    /// As [`Client::next`], where the segment is used up and the next one could not be fetched.
    pub async fn next(&self) -> Result<u64, Error> {
        loop {
            if let Some(number) = self.take() {
                return Ok(number);
            }
            let _fetching = self.shared.fetching.clone().lock_owned().await;
            // Whoever fetched before may have left some.
            if let Some(number) = self.take() {
                return Ok(number);
            }
            self.shared.fetch().await?;
        }
    }

    fn take(&self) -> Option<u64> {
        let (number, is_low) = {
            let mut stock = self.shared.stock.lock();
            (stock.take()?, stock.is_low(self.shared.size))
        };
        if is_low && let Ok(fetching) = self.shared.fetching.clone().try_lock_owned() {
            let shared = self.shared.clone();
            tokio::spawn(async move {
                let _fetching = fetching;
                if shared.stock.lock().is_low(shared.size)
                    && let Err(error) = shared.fetch().await
                {
                    // Whoever finds the segment used up asks again, and is told.
                    tracing::debug!(%error, "the next segment was not fetched");
                }
            });
        }
        Some(number)
    }
}

impl Shared {
    async fn fetch(&self) -> Result<(), Error> {
        let asked = self
            .client
            .next_range(&self.namespace, self.key.clone(), self.size);
        let numbers = asked.await?;
        self.stock.lock().add(numbers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_hands_out_one_segment_after_the_other_and_says_when_it_is_low() {
        let numbers = |first, last| Numbers {
            first,
            last,
            increment: 10,
        };
        let mut stock = Stock::default();
        assert!(stock.is_low(4));
        assert_eq!(stock.take(), None);
        stock.add(numbers(10, 40));
        assert!(!stock.is_low(4));
        assert_eq!([stock.take(), stock.take()], [Some(10), Some(20)]);
        assert!(stock.is_low(4), "half is used up");
        stock.add(numbers(110, 120));
        assert!(!stock.is_low(4), "the next one is there");
        assert_eq!([stock.take(), stock.take()], [Some(30), Some(40)]);
        assert_eq!([stock.take(), stock.take()], [Some(110), Some(120)]);
        assert_eq!(stock.take(), None);
    }
}
