//! How fast one thread makes ids with the Rust client, which asks no server for them.

use std::time::{Duration, Instant};

use ratchet_client::{Id, Ids};

use crate::error::Error;

/// How many ids are made between two looks at the clock.
const BURST: usize = 1_000;

/// Makes ids with the client, and checks that they grow.
pub struct ClientAlone {
    ids: Ids,
    last: Option<Id>,
}

impl ClientAlone {
    /// Makes ids with `ids`.
    pub fn new(ids: Ids) -> ClientAlone {
        ClientAlone { ids, last: None }
    }

    /// Makes one id a call, for `time`. Returns how many a second.
    ///
    /// # Errors
    /// If there is no id, or it did not grow.
    pub async fn one_a_call(&mut self, time: Duration) -> Result<f64, Error> {
        let (began, mut made) = (Instant::now(), 0);
        while began.elapsed() < time {
            for _ in 0..BURST {
                let id = self.ids.next().await?;
                self.check(id)?;
            }
            made += BURST;
        }
        Ok(made as f64 / began.elapsed().as_secs_f64())
    }

    /// As [`ClientAlone::one_a_call`], with [`BURST`] a call.
    ///
    /// # Errors
    /// If there is no id, or it did not grow.
    pub async fn many_a_call(&mut self, time: Duration) -> Result<f64, Error> {
        let (began, mut made) = (Instant::now(), 0);
        let mut burst = Vec::with_capacity(BURST);
        while began.elapsed() < time {
            burst.clear();
            self.ids.next_many(BURST, &mut burst).await?;
            for id in &burst {
                self.check(*id)?;
            }
            made += BURST;
        }
        Ok(made as f64 / began.elapsed().as_secs_f64())
    }

    /// Releases the worker id.
    pub async fn release(self) {
        self.ids.release().await;
    }

    fn check(&mut self, id: Id) -> Result<(), Error> {
        match self.last.replace(id) {
            Some(before) if before >= id => Err(Error::other(format!(
                "the id {} came after {}: the client broke its promise; report this",
                id.as_u128(),
                before.as_u128()
            ))),
            _ => Ok(()),
        }
    }
}
