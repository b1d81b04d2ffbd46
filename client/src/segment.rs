//! Numbers from segments that are fetched in advance and used up locally: Leaf's "segment" mode.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::{client::Client, error::Error, key::Key, numbers::Numbers};

impl Client {
    /// Numbers of a key from segments of `size` numbers, which are fetched in advance and used up locally:
    /// most numbers cost no round trip. **Not strictly increasing across holders**: see [`Segment`].
    pub fn segment(&self, namespace: &str, key: impl Into<Key>, size: u64) -> Segment {
        Segment {
            prefetcher: Arc::new(Prefetcher {
                client: self.clone(),
                namespace: namespace.to_owned(),
                key: key.into(),
                size,
                buffer: Mutex::default(),
                unreported: Mutex::default(),
                fetching: Arc::default(),
            }),
        }
    }
}

/// A local store of numbers of one key: most calls of [`Segment::next`] cost no round trip.
///
/// Numbers are **trend-increasing**: the numbers of one `Segment` grow, and no number is handed out twice anywhere. But
/// another caller that asks later may get a smaller number, since this segment's numbers were set aside earlier. If the
/// order between callers matters, use [`Client::next`]. Numbers that are left when the segment is dropped are never used.
#[derive(Clone)]
pub struct Segment {
    prefetcher: Arc<Prefetcher>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segment = f.debug_struct("Segment");
        segment.field("namespace", &self.prefetcher.namespace);
        segment.field("key", &self.prefetcher.key);
        segment.field("size", &self.prefetcher.size);
        segment.finish_non_exhaustive()
    }
}

struct Prefetcher {
    client: Client,
    namespace: String,
    key: Key,
    size: u64,
    buffer: Mutex<DoubleBuffer>,
    /// The failure of a segment that may have been taken in vain, until somebody was told.
    unreported: Mutex<Option<Error>>,
    /// Held while a segment is being fetched, so that one task fetches at a time.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

/// The segment in use, and the next one. Pure.
#[derive(Debug, Default)]
struct DoubleBuffer {
    current: Option<Numbers>,
    spare: Option<Numbers>,
}

impl DoubleBuffer {
    /// Takes the next number; `None` if both segments are used up.
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

    /// True if the next segment should be fetched: there is none, and at most half of the one in use is left.
    fn is_low(&self, size: u64) -> bool {
        let left = |numbers: Numbers| (numbers.last - numbers.first) / numbers.increment.max(1) + 1;
        self.spare.is_none() && self.current.map_or(0, left) <= size / 2
    }

    /// Adds a segment that was fetched.
    fn add(&mut self, numbers: Numbers) {
        match self.current {
            None if self.spare.is_none() => self.current = Some(numbers),
            _ => self.spare = Some(numbers),
        }
    }
}

impl Segment {
    /// The next number. Waits only if numbers are used up faster than they are fetched.
    ///
    /// # Errors
    /// As [`Client::next`], if the segment is used up and the next one cannot be fetched.
    pub async fn next(&self) -> Result<u64, Error> {
        loop {
            if let Some(number) = self.take() {
                return Ok(number);
            }
            let _fetching = self.prefetcher.fetching.clone().lock_owned().await;
            // Another task may have fetched a segment meanwhile.
            if let Some(number) = self.take() {
                return Ok(number);
            }
            let unreported = self.prefetcher.unreported.lock().take();
            if let Some(error) = unreported {
                return Err(error);
            }
            self.prefetcher.fetch().await?;
        }
    }

    fn take(&self) -> Option<u64> {
        let (number, is_low) = {
            let mut buffer = self.prefetcher.buffer.lock();
            (buffer.take()?, buffer.is_low(self.prefetcher.size))
        };
        if is_low && let Ok(fetching) = self.prefetcher.fetching.clone().try_lock_owned() {
            let prefetcher = self.prefetcher.clone();
            tokio::spawn(async move {
                let _fetching = fetching;
                if prefetcher.buffer.lock().is_low(prefetcher.size)
                    && let Err(error) = prefetcher.fetch().await
                {
                    tracing::debug!(%error, "fetching the next segment failed");
                    // A caller that finds the segment used up fetches again, and gets the error of that; but of numbers that
                    // may be taken nobody would hear.
                    if matches!(error, Error::OutcomeUnknown { .. }) {
                        *prefetcher.unreported.lock() = Some(error);
                    }
                }
            });
        }
        Some(number)
    }
}

impl Prefetcher {
    async fn fetch(&self) -> Result<(), Error> {
        let asked = self.client.next_range(&self.namespace, self.key.clone(), self.size);
        let numbers = asked.await?;
        self.buffer.lock().add(numbers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_hands_out_one_segment_after_the_other_and_reports_when_it_is_low() {
        let numbers = |first, last| Numbers { first, last, increment: 10 };
        let mut buffer = DoubleBuffer::default();
        assert!(buffer.is_low(4));
        assert_eq!(buffer.take(), None);
        buffer.add(numbers(10, 40));
        assert!(!buffer.is_low(4));
        assert_eq!([buffer.take(), buffer.take()], [Some(10), Some(20)]);
        assert!(buffer.is_low(4), "half is used up");
        buffer.add(numbers(110, 120));
        assert!(!buffer.is_low(4), "the next one is there");
        assert_eq!([buffer.take(), buffer.take()], [Some(30), Some(40)]);
        assert_eq!([buffer.take(), buffer.take()], [Some(110), Some(120)]);
        assert_eq!(buffer.take(), None);
    }
}
